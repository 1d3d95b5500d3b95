/** What is over budget is refused early and cheaply; what was taken is given back on every way out. */
import type { ServerResponse } from 'node:http';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { Answers } from '../../src/http/answers.ts';
import { type BudgetLimits, type BudgetUsage, halfOfMemory, limitsFrom } from '../../src/http/budgets.ts';
import type { ServerOptions } from '../../src/http/server.ts';
import {
  connectRaw,
  eventually,
  expectProblem,
  type RawConnection,
  startServer,
  type TestServer,
  tasksPath,
} from './support/server.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const PATH = tasksPath('budgets');

let server: TestServer;
const raws: RawConnection[] = [];

async function start(budgets: Partial<BudgetLimits>, options: ServerOptions = {}): Promise<TestServer> {
  server = await startServer({ budgets, ...options });
  return server;
}
beforeEach(() => {
  raws.length = 0;
});
afterEach(async () => {
  for (const { socket } of raws) socket.destroy();
  await server.close();
});

const connect = async (): Promise<RawConnection> => {
  const raw = await connectRaw(server.port);
  raws.push(raw);
  return raw;
};
const usage = (): BudgetUsage => server.server.budgets.usage();
/** Nothing is under way but leases that were given out. */
const isQuiet = (leases = 0): boolean => {
  const { tasks, memory } = usage();
  return tasks.now === leases && memory.input.now === 0 && memory.rest.now === 0;
};

const head = (path: string, ...headers: readonly string[]): string =>
  [`POST ${path} HTTP/1.1`, 'Host: localhost', 'Content-Type: application/json', ...headers, '', ''].join('\r\n');
const withLength = (path: string, bytes: number): string => head(path, `Content-Length: ${bytes}`);
const CHUNKED = 'Transfer-Encoding: chunked';
const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
/** An enqueue whose body has exactly so many bytes. */
const bodyOf = (bytes: number): string => {
  const [before, after] = ['{"tasks":[{"payload":1}]', '}'];
  return before + ' '.repeat(bytes - before.length - after.length) + after;
};
const BUSY = /^HTTP\/1\.1 503 [\s\S]*retry-after: 1\r\n[\s\S]*"code":"busy"/i;

describe('the memory that may be taken', () => {
  beforeEach(() => start({}));
  it('is half of what the machine, or its container, has', () => {
    expect(halfOfMemory(8 * MIB, 0)).toBe(4 * MIB);
    expect(halfOfMemory(8 * MIB, 2 ** 64)).toBe(4 * MIB);
    expect(halfOfMemory(8 * MIB, 2 * MIB)).toBe(MIB);
  });
  it('is what was asked for, or 4 GiB, and never more than that', () => {
    expect(limitsFrom({}, 64 * 1024 * MIB)).toEqual({ memoryBytes: 4096 * MIB, tasks: 100_000, connections: 1_024 });
    expect(limitsFrom({}, MIB).memoryBytes).toBe(MIB);
    expect(limitsFrom({ memoryBytes: 3 }, MIB).memoryBytes).toBe(3);
    expect(limitsFrom({ memoryBytes: 2 * MIB }, MIB).memoryBytes).toBe(MIB);
  });
});

describe('memory for what is published', () => {
  it('is three quarters, the rest for the rest', async () => {
    await start({ memoryBytes: MIB });
    expect(usage().memory).toEqual({ input: { now: 0, limit: 768 * KIB }, rest: { now: 0, limit: 256 * KIB } });
  });

  it('refuses with 413 what is larger than all of it, before any of it is sent', async () => {
    await start({ memoryBytes: MIB });
    const raw = await connect();
    raw.socket.write(withLength(PATH, 768 * KIB + 1));
    expect(await raw.until(/body-too-large/)).toMatch(/^HTTP\/1\.1 413 /);
    expect(raw.received()).not.toMatch(/retry-after/i);
    expect(usage().refused['too-large']).toBe(1);
    expect(usage().memory.input.now).toBe(0);
  });

  it('refuses with 503 what finds no room, before any of it is sent, and goes on with what was there', async () => {
    await start({ memoryBytes: MIB });
    const first = await connect();
    first.socket.write(withLength(PATH, 500 * KIB));
    await eventually(() => usage().memory.input.now === 500 * KIB);
    const second = await connect();
    second.socket.write(withLength(PATH, 300 * KIB));
    expect(await second.until(/"busy"/)).toMatch(BUSY);
    expect(usage().refused.input).toBe(1);
    // What fits goes in meanwhile, and so does what ends work.
    await server.expectAlive();
    first.socket.write(bodyOf(500 * KIB));
    expect(await first.until(/"id"/)).toMatch(/^HTTP\/1\.1 201 /);
    await eventually(isQuiet);
    // On the same connection, once the body that nobody wanted is through.
    second.socket.write(bodyOf(300 * KIB) + withLength(PATH, 300 * KIB) + bodyOf(300 * KIB));
    await second.until(/HTTP\/1\.1 201 /);
    await eventually(isQuiet);
  });

  it('is all of it for a request that is alone', async () => {
    await start({ memoryBytes: MIB });
    const answer = await server.call('POST', PATH, { raw: bodyOf(768 * KIB) });
    expect(answer.status, answer.text).toBe(201);
    await eventually(isQuiet);
  });

  it('counts bytes as they come where there is no length', async () => {
    await start({ memoryBytes: MIB });
    const holder = await connect();
    holder.socket.write(withLength(PATH, 700 * KIB));
    await eventually(() => usage().memory.input.now === 700 * KIB);
    const raw = await connect();
    raw.socket.write(head(PATH, CHUNKED) + chunk(' '.repeat(40 * KIB)));
    await eventually(() => usage().memory.input.now === 740 * KIB);
    raw.socket.write(chunk(' '.repeat(40 * KIB)));
    expect(await raw.until(/"busy"/)).toMatch(BUSY);
    await eventually(() => usage().memory.input.now === 700 * KIB);
    holder.socket.destroy();
    await eventually(isQuiet);
  });

  it('refuses a body without an end once it is larger than all of it', async () => {
    await start({ memoryBytes: MIB });
    const raw = await connect();
    raw.socket.write(head(PATH, CHUNKED));
    for (let kib = 0; kib <= 768; kib += 64) raw.socket.write(chunk(' '.repeat(64 * KIB)));
    expect(await raw.until(/body-too-large/)).toMatch(/^HTTP\/1\.1 413 /);
    await eventually(isQuiet);
  });

  it('counts what comes out of gzip', async () => {
    await start({ memoryBytes: MIB });
    const zeros = gzipSync(Buffer.alloc(4 * MIB));
    const headers = { 'content-encoding': 'gzip' };
    expectProblem(await server.call('POST', PATH, { raw: zeros, headers }), 413, 'body-too-large');
    const holder = await connect();
    holder.socket.write(withLength(PATH, 700 * KIB));
    await eventually(() => usage().memory.input.now === 700 * KIB);
    const busy = await server.call('POST', PATH, { raw: gzipSync(bodyOf(100 * KIB)), headers });
    expectProblem(busy, 503, 'busy');
    holder.socket.destroy();
    await eventually(isQuiet);
    expect((await server.call('POST', PATH, { raw: gzipSync(bodyOf(700 * KIB)), headers })).status).toBe(201);
    await eventually(isQuiet);
  });

  it('lets those who wait for a word send only what is wanted', async () => {
    await start({ memoryBytes: MIB });
    const expectHead = (bytes: number) => head(PATH, `Content-Length: ${bytes}`, 'Expect: 100-continue');
    const raw = await connect();
    raw.socket.write(expectHead(500 * KIB));
    await raw.until(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
    const late = await connect();
    late.socket.write(expectHead(500 * KIB));
    expect(await late.until(/"busy"/)).toMatch(BUSY);
    raw.socket.write(bodyOf(500 * KIB));
    await raw.until(/HTTP\/1\.1 201 /);
  });

  it.each(['/v1/leases', '/v1/leases/settle', '/nowhere'])('%s takes none of it', async (path) => {
    await start({ memoryBytes: MIB });
    const raw = await connect();
    raw.socket.write(withLength(path, 200 * KIB));
    await eventually(() => usage().memory.rest.now >= 200 * KIB || raw.received() !== '');
    expect(usage().memory.input.now).toBe(0);
    const other = await connect();
    other.socket.write(withLength(path, 257 * KIB));
    await other.until(/^HTTP\/1\.1 4(13|04) /);
  });
});

describe('memory for answers', () => {
  const FULL = 'full';
  /** Tasks of 200 KiB each: more than what the system takes on for a reader who doesn't read. */
  const fill = async (tasks: number): Promise<void> => {
    for (let n = 0; n < tasks; n += 20) {
      const some = Array.from({ length: Math.min(20, tasks - n) }, () => ({ payload: 'x'.repeat(200 * KIB) }));
      await server.queue.enqueue(FULL, some);
    }
  };
  /** Somebody asks for a page of them, of some 4 MB, several times, and reads nothing. */
  const dontRead = async (times: number): Promise<void> => {
    const raw = await connect();
    raw.socket.pause();
    raw.socket.write(`GET ${tasksPath(FULL)}?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n`.repeat(times));
    await eventually(() => usage().memory.rest.now > times * 4 * MIB);
  };

  it('is given back once an answer was taken', async () => {
    await start({ memoryBytes: 64 * MIB });
    await fill(20);
    const answer = await server.get(`${tasksPath(FULL)}?limit=1000`);
    expect(answer.json.tasks).toHaveLength(20);
    await eventually(isQuiet);
  });

  it('that nobody takes is bounded; what says how the server is, and what ends work, goes on', async () => {
    await start({ memoryBytes: 56 * MIB });
    await fill(40);
    const [held] = await server.lease(FULL);
    await dontRead(2);
    expectProblem(await server.get(`${tasksPath(FULL)}?limit=1000`), 503, 'busy');
    expectProblem(await server.call('POST', '/v1/leases', { body: { topics: [FULL], max: 100 } }), 503, 'busy');
    // What was leased for an answer that there was no room for is back.
    await eventually(() => server.queue.status().leased === 1);
    expect(usage().refused.rest).toBe(2);
    for (const path of ['/healthz', '/readyz', '/metrics', '/status'])
      expect((await server.get(path)).status).toBe(200);
    expect((await server.settle({ ack: [{ leaseId: held.leaseId }] })).json.ack[0].ok).toBe(true);
    await server.expectAlive();
    for (const { socket } of raws) socket.destroy();
    await eventually(isQuiet);
    expect((await server.get(`${tasksPath(FULL)}?limit=10`)).status).toBe(200);
  });

  it('lets an answer through that is larger than all of it, where nothing else is under way', async () => {
    await start({ memoryBytes: MIB });
    await fill(2);
    expect((await server.get(`${tasksPath(FULL)}?limit=1000`)).json.tasks).toHaveLength(2);
    expect(await server.lease(FULL, { max: 2 })).toHaveLength(2);
    await eventually(() => isQuiet(2));
  });

  it('cuts off who reads nothing, and gives back what was leased for it', async () => {
    await start({}, { timeouts: { answerMs: 100 } });
    await fill(20);
    const raw = await connect();
    raw.socket.pause();
    const body = `{"topics":["${FULL}"],"max":100}`;
    raw.socket.write(withLength('/v1/leases', body.length) + body);
    await eventually(() => server.queue.status().delivered > 0);
    await eventually(() => usage().refused['slow-reader'] === 1);
    await eventually(() => server.queue.status().ready === 20 && isQuiet());
  });

  it('looks after no answer that is over, whoever refused the request', async () => {
    const open = new Set<ServerResponse>();
    const { begins, ended } = Answers.prototype;
    onTestFinished(() => void vi.restoreAllMocks());
    vi.spyOn(Answers.prototype, 'begins').mockImplementation(function (this: Answers, response, bytes) {
      open.add(response);
      begins.call(this, response, bytes);
    });
    vi.spyOn(Answers.prototype, 'ended').mockImplementation(function (this: Answers, response) {
      open.delete(response);
      ended.call(this, response);
    });
    const refusals = [
      [401, '/v1/topics', {}],
      [403, '/healthz', { host: 'example.org' }],
      [404, '/nowhere', {}],
    ] as const;
    server = await startServer({ needsKeys: true });
    for (const [status, path, headers] of refusals) {
      expect((await server.call('GET', path, { headers })).status).toBe(status);
    }
    await eventually(() => open.size === 0);
    expect(Answers.prototype.begins).toHaveBeenCalledTimes(refusals.length);
  });

  it('gives what is read as it is sent as long as all of it takes', async () => {
    await start({}, { timeouts: { answerMs: 50 } });
    // More than what lies between the server and a reader who reads nothing.
    for (let n = 0; n < 16; n++) {
      const tasks = Array.from({ length: 1_000 }, () => ({ payload: 'x'.repeat(1_000) }));
      await server.queue.enqueue('large', tasks);
    }
    const response = await fetch(`${server.url}/v1/admin/backup`);
    const since = performance.now();
    await eventually(() => performance.now() - since > 300);
    expect((await response.arrayBuffer()).byteLength).toBe(Number(response.headers.get('content-length')));
    const raw = await connect();
    raw.socket.write('GET /v1/admin/backup HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await raw.until(/\r\n\r\n/);
    raw.socket.pause();
    await eventually(() => usage().refused['slow-reader'] === 1);
  });

  it('does not count the time that an answer waits for its turn', async () => {
    await start({}, { timeouts: { answerMs: 50 } });
    const raw = await connect();
    const wait = '{"topics":["quiet"],"waitMs":500}';
    raw.socket.write(`${withLength('/v1/leases', wait.length)}${wait}GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    expect(await raw.until(/"status":"ok"/)).toMatch(/"tasks":\[\]/);
    expect(usage().refused['slow-reader']).toBe(0);
  });
});

describe('tasks', () => {
  it('are leases held: enqueues and leases are refused, settlements make room', async () => {
    await start({ tasks: 3 });
    await server.enqueue('held', { payload: 1 }, { payload: 2 }, { payload: 3 });
    await server.enqueue('held', { payload: 4 });
    const held = await server.lease('held', { max: 10 });
    expect(held).toHaveLength(3);
    expect(usage().tasks).toEqual({ now: 3, limit: 3 });
    const raw = await connect();
    raw.socket.write(withLength(PATH, 100));
    expect(await raw.until(/"busy"/)).toMatch(BUSY);
    const other = await connect();
    other.socket.write(withLength('/v1/leases', 100));
    expect(await other.until(/"busy"/)).toMatch(BUSY);
    expect(usage().refused.tasks).toBe(2);
    await server.settle({ ack: [{ leaseId: held[0].leaseId }], nack: [{ leaseId: held[1].leaseId, delayMs: 60_000 }] });
    expect(usage().tasks.now).toBe(1);
    await server.enqueue('held', { payload: 5 });
    expect(await server.lease('held', { max: 10 })).toHaveLength(2);
    expectProblem(await server.post(PATH, { tasks: [{ payload: 1 }] }), 503, 'busy');
  });

  it('are held until a lease lapses', async () => {
    await start({ tasks: 1 });
    await server.enqueue('lapses', { payload: 1 });
    expect(await server.lease('lapses', { leaseMs: 100 })).toHaveLength(1);
    expect(usage().tasks.now).toBe(1);
    await eventually(() => usage().tasks.now === 0);
    await server.enqueue('lapses', { payload: 2 });
  });

  it('are results that are awaited', async () => {
    await start({ tasks: 1 });
    const [id] = await server.enqueue('awaited', { payload: 1 });
    const path = `${tasksPath('awaited')}/${encodeURIComponent(id!)}`;
    const raw = await connect();
    raw.socket.write(`GET ${path}?waitMs=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    await eventually(() => usage().tasks.now === 1);
    expectProblem(await server.get(`${path}?waitMs=60000`), 503, 'busy');
    expectProblem(await server.get('/v1/topics/awaited?drainedWaitMs=60000'), 503, 'busy');
    expect((await server.get(path)).status).toBe(200);
    raw.socket.destroy();
    await eventually(() => usage().tasks.now === 0);
    const drained = await connect();
    drained.socket.write('GET /v1/topics/awaited?drainedWaitMs=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await eventually(() => usage().tasks.now === 1);
    drained.socket.destroy();
    await eventually(() => usage().tasks.now === 0);
  });

  it('are enqueues not yet answered', async () => {
    await start({ tasks: 3 });
    for (let n = 1; n <= 3; n++) {
      (await connect()).socket.write(withLength(PATH, 100));
      await eventually(() => usage().tasks.now === n);
    }
    const raw = await connect();
    raw.socket.write(withLength(PATH, 100));
    expect(await raw.until(/"busy"/)).toMatch(BUSY);
  });

  it('leave three quarters to others where they are enqueues', async () => {
    await start({ tasks: 80 });
    for (let n = 1; n <= 20; n++) (await connect()).socket.write(withLength(PATH, 100));
    await eventually(() => usage().tasks.now === 20);
    const raw = await connect();
    raw.socket.write(withLength(PATH, 100));
    expect(await raw.until(/"busy"/)).toMatch(BUSY);
    // Workers make room.
    await server.queue.enqueue(
      'left',
      Array.from({ length: 100 }, () => ({ payload: 1 })),
    );
    expect(await server.lease('left', { max: 100 })).toHaveLength(60);
    expect(usage().tasks.now).toBe(80);
  });

  it('leave next to nothing to enqueues while workers get less than they ask for', async () => {
    await start({ tasks: 80 });
    const tasks = (count: number) => ({ tasks: Array.from({ length: count }, () => ({ payload: 1 })) });
    await server.queue.enqueue('short', tasks(100).tasks);
    const held = await server.lease('short', { max: 90 });
    expect(held).toHaveLength(80);
    await server.settle({ ack: held.map(({ leaseId }) => ({ leaseId })) });
    expectProblem(await server.post(PATH, tasks(17)), 503, 'busy');
    expect((await server.post(PATH, tasks(16))).status).toBe(201);
    // Once they have got all there was.
    expect(await server.lease('short', { max: 80 })).toHaveLength(20);
    expect((await server.post(PATH, tasks(60))).status).toBe(201);
  });

  it('of one call are counted once they are known', async () => {
    await start({ tasks: 4 });
    const tasks = (count: number) => ({ tasks: Array.from({ length: count }, () => ({ payload: 1 })) });
    expectProblem(await server.post(PATH, tasks(5)), 413, 'body-too-large');
    expect((await server.post(PATH, tasks(4))).status).toBe(201);
    await server.lease('budgets', { max: 2 });
    expectProblem(await server.post(PATH, tasks(3)), 503, 'busy');
    expect((await server.post(PATH, tasks(2))).status).toBe(201);
    expect(server.queue.status().enqueued).toBe(6);
    await eventually(() => isQuiet(2));
  });

  it('that are too many for all who waited for them go back, and are delivered later', async () => {
    await start({ tasks: 4 });
    await server.queue.enqueue(
      'burst',
      Array.from({ length: 12 }, (_, n) => ({ payload: n })),
    );
    await server.queue.pause('burst');
    const polls = Array.from({ length: 4 }, () =>
      server.call('POST', '/v1/leases', { body: { topics: ['burst'], max: 3, waitMs: 20_000 } }),
    );
    await eventually(() => server.queue.status().waiting === 4);
    await server.queue.resume('burst');
    const answers = await Promise.all(polls);
    const got = answers.flatMap(({ status, json }) => (status === 200 ? json.tasks : []));
    for (const answer of answers) if (answer.status !== 200) expectProblem(answer, 503, 'busy');
    expect(got.length).toBeGreaterThan(0);
    expect(got.length).toBeLessThanOrEqual(4);
    await eventually(() => server.queue.status().leased === got.length);
    const seen = new Set<number>(got.map(({ payload }) => payload));
    let held = got;
    while (seen.size < 12) {
      await server.settle({ ack: held.map(({ leaseId }) => ({ leaseId })) });
      held = await server.lease('burst', { max: 4, waitMs: 1_000 });
      for (const { payload, attempt } of held) {
        expect(attempt).toBe(1);
        seen.add(payload);
      }
    }
  });
});

describe('connections', () => {
  it('over the limit are told so before they ask, and closed; those within go on', async () => {
    await start({ connections: 2 });
    const first = await connect();
    const second = await connect();
    await eventually(() => usage().connections.now === 2);
    const third = await connect();
    expect(await third.closed).toMatch(BUSY);
    expect(third.received()).toMatch(/connection: close/i);
    expect(third.received()).toContain('application/problem+json');
    expect(usage()).toMatchObject({ connections: { now: 2, limit: 2 }, refused: { connections: 1 } });
    first.socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await first.until(/"status":"ok"/);
    second.socket.destroy();
    await eventually(() => usage().connections.now === 1);
    const fourth = await connect();
    fourth.socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await fourth.until(/"status":"ok"/);
  });

  it('that are idle between requests count', async () => {
    await start({ connections: 1 });
    const raw = await connect();
    raw.socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await raw.until(/"status":"ok"/);
    expect(await (await connect()).closed).toMatch(BUSY);
  });

  it('that send requests without end, and wait for no answer, are closed', async () => {
    await start({});
    const raw = await connect();
    const wait = '{"topics":["quiet"],"waitMs":60000}';
    raw.socket.write(`${withLength('/v1/leases', wait.length)}${wait}`.repeat(65));
    expect(await raw.closed).toBe('');
    expect(usage().refused.pipelining).toBe(1);
    await eventually(() => server.queue.status().waiting === 0 && isQuiet());
  });

  it('that send requests without end are closed also where nobody lets them in', async () => {
    server = await startServer({ needsKeys: true });
    const raw = await connect();
    raw.socket.write('GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(100));
    await raw.closed;
    expect(usage().refused.pipelining).toBeGreaterThan(0);
  });
});

describe('requests that take their time', () => {
  const timeouts = { headersMs: 150, requestMs: 300 };
  /** Sends something again and again until the connection is closed. */
  const trickle = async (raw: RawConnection, text: string): Promise<string> => {
    const timer = setInterval(() => raw.socket.write(text), 20);
    const all = await raw.closed;
    clearInterval(timer);
    return all;
  };

  it.each([
    ['nothing', '', ''],
    ['headers, one byte after the other', 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ', 'x'],
    ['a body, one byte after the other', withLength(PATH, 100_000), ' '],
    ['chunks without end', head(PATH, CHUNKED), chunk(' ')],
  ])('are ended: %s', async (_name, begin, more) => {
    await start({}, { timeouts });
    const raw = await connect();
    if (begin !== '') raw.socket.write(begin);
    const answer = await trickle(raw, more);
    expect(answer).toMatch(/^HTTP\/1\.1 408 [\s\S]*"code":"request-timeout"/);
    expect(usage().refused['slow-request']).toBe(1);
    await eventually(() => isQuiet() && usage().connections.now === 0);
  });

  it('leave others alone', async () => {
    await start({ connections: 60 }, { timeouts });
    const slow = await Promise.all(Array.from({ length: 50 }, connect));
    for (const { socket } of slow) socket.write('POST /v1/leases HTTP/1.1\r\nHost: loc');
    await server.expectAlive();
    await Promise.all(slow.map(({ closed }) => closed));
    await server.expectAlive();
  });
});

describe('headers', () => {
  it('are 100 at the most', async () => {
    await start({});
    const headers = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`x-${n}`, 'y']));
    expect((await server.call('GET', '/healthz', { headers: headers(90) })).status).toBe(200);
    expectProblem(await server.call('GET', '/healthz', { headers: headers(101) }), 431, 'headers-too-large');
    const raw = await connect();
    raw.socket.write(`GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`);
    expect(await raw.closed).toMatch(/^HTTP\/1\.1 431 /);
    expect(usage().refused.headers).toBe(2);
  });
});

it('nothing is kept of calls that waited behind each other on a connection that was cut', async () => {
  const answers: WeakRef<ServerResponse>[] = [];
  server = await startServer({}, (app) => {
    app.addHook('onRequest', async (_request, reply) => {
      answers.push(new WeakRef(reply.raw));
    });
  });
  const body = '{"topics":["none"],"waitMs":30000}';
  const raw = await connect();
  raw.socket.write((withLength('/v1/leases', body.length) + body).repeat(10));
  await eventually(() => server.queue.status().waiting === 10);
  raws.pop();
  raw.socket.destroy();
  await eventually(() => server.queue.status().waiting === 0 && isQuiet());
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  await eventually(() => {
    collect();
    return answers.every((answer) => answer.deref() === undefined);
  });
});

describe('what was taken', () => {
  /** Kinds of requests, and how a connection that sent one goes: after how much of it, and whether it reads. */
  const way = fc.record({
    kind: fc.constantFrom('enqueue', 'chunks', 'gzip', 'lease', 'poll', 'settle', 'await', 'list', 'broken', 'nowhere'),
    /** Of the request's bytes. */
    part: fc.constantFrom(0.2, 0.6, 0.9, 1, 1, 1),
    leaves: fc.constantFrom('resets', 'destroys', 'ends', 'answered'),
    again: fc.boolean(),
  });

  it('is given back on every way out', async () => {
    await start({ memoryBytes: 4 * MIB, tasks: 50 });
    const [id] = await server.queue.enqueue('kept', [{ payload: 'x'.repeat(100 * KIB), delayMs: 3_600_000 }]);
    const request = (path: string, body: string) => withLength(path, body.length) + body;
    const text = JSON.stringify({ tasks: [{ payload: 'y'.repeat(20 * KIB) }, { payload: 1 }] });
    const zipped = gzipSync(text);
    const requests: Readonly<Record<string, string | Buffer>> = {
      enqueue: request(PATH, text),
      chunks: head(PATH, CHUNKED) + chunk(text.slice(0, 9)) + chunk(text.slice(9)) + chunk(''),
      gzip: Buffer.concat([
        Buffer.from(head(PATH, `Content-Length: ${zipped.length}`, 'Content-Encoding: gzip')),
        zipped,
      ]),
      lease: request('/v1/leases', '{"topics":["budgets"],"max":7,"leaseMs":60000}'),
      poll: request('/v1/leases', '{"topics":["quiet"],"waitMs":40}'),
      settle: request('/v1/leases/settle', '{"ack":[{"leaseId":"none"}]}'),
      await: `GET ${tasksPath('kept')}/${encodeURIComponent(id!.id!)}?waitMs=40 HTTP/1.1\r\nHost: localhost\r\n\r\n`,
      list: `GET ${PATH}?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n`,
      broken: request(PATH, '{"tasks":['),
      nowhere: request('/nowhere', text),
    };
    await fc.assert(
      fc.asyncProperty(fc.array(way, { minLength: 1, maxLength: 12 }), async (ways) => {
        await Promise.all(
          ways.map(async ({ kind, part, leaves, again }) => {
            const raw = await connectRaw(server.port);
            const all = Buffer.from(requests[kind]!);
            const some = all.subarray(0, Math.ceil(all.length * part));
            raw.socket.write(again && part === 1 ? Buffer.concat([all, all]) : some);
            if (leaves === 'answered' && part === 1) await raw.until(/^HTTP/);
            if (leaves === 'resets') raw.socket.resetAndDestroy();
            else if (leaves === 'ends') raw.socket.end();
            else raw.socket.destroy();
            await raw.closed;
          }),
        );
        await eventually(() => usage().connections.now === 0 && isQuiet(server.queue.status().leased));
        // Leases whose answers were taken are held; they must not be what fills the budget from run to run.
        await server.queue.purge('budgets').catch(() => {});
        const { tasks } = await server.queue.tasks('budgets', { state: 'leased' }).catch(() => ({ tasks: [] }));
        for (const task of tasks) await server.queue.cancel('budgets', task.id).catch(() => {});
        await eventually(() => isQuiet());
      }),
      { numRuns: 40 },
    );
  }, 60_000);
});
