/** The status page, which is also asked by many at once, and when something is wrong; and what a full topic is answered. */
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { Client } from '../../src/client/index.ts';
import { Budgets, type BudgetUsage, limitsFrom } from '../../src/http/budgets.ts';
import { createStatusServer } from '../../src/http/server.ts';
import { type Status, StatusDesk, statusText } from '../../src/http/status-page.ts';
import { safeText, size } from '../../src/http/text.ts';
import { deferred } from '../../src/queue/deferred.ts';
import { openQueue } from '../../src/queue/open.ts';
import {
  connectRaw,
  eventually,
  expectProblem,
  startServer,
  type TestServer,
  tasksPath,
  topicPath,
} from './support/server.ts';

const GIB = 1024 ** 3;
const BUDGETS: BudgetUsage = {
  connections: { now: 12, limit: 1_024 },
  tasks: { now: 3, limit: 100_000 },
  memory: { input: { now: 0, limit: 3 * GIB }, rest: { now: 1_500, limit: GIB } },
  refused: { ...new Budgets(limitsFrom({}), () => 0).usage().refused, tasks: 1_000, 'too-large': 2 },
};

describe('the page', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startServer({ budgets: { tasks: 100_000, connections: 1_024 }, logLinesDropped: () => 7 });
  });
  afterAll(() => server.close());

  it('tells what the server has taken on, and who works on the busiest topics', async () => {
    await server.enqueue('mail', { payload: 'x'.repeat(880) }, { payload: 1, delayMs: 60_000 }, { payload: 2 });
    await server.enqueue('news', { payload: 1 });
    await server.queue.lease({ topics: ['mail'], worker: 'w1' });
    const abort = new AbortController();
    const waits = [
      server.queue.lease({ topics: ['quiet'], worker: 'w1', waitMs: 60_000, signal: abort.signal }),
      server.queue.lease({ topics: ['qu*'], worker: 'w2', waitMs: 60_000, signal: abort.signal }),
      server.queue.lease({ topics: ['other'], waitMs: 60_000, signal: abort.signal }),
    ];
    await eventually(() => server.queue.status().waiting === 3);
    await server.enqueue('quiet', { payload: 1, delayMs: 60_000 });
    const { text } = await server.get('/status');
    const json = (await server.call('GET', '/status', { headers: { accept: 'application/json' } })).json as Status;
    expect(json).toMatchObject({ budgets: { connections: { limit: 1_024 }, tasks: { now: 1, limit: 100_000 } } });
    expect(text).toMatch(/^connections +\d+ of 1,024$/m);
    const lines = statusText({ ...json, budgets: BUDGETS })
      .split('\n')
      .map((line) => line.trimEnd());
    expect(lines).toContain('connections        12 of 1,024');
    expect(lines).toContain('tasks              3 of 100,000');
    expect(lines).toContain('memory, input      0 B (0) of 3.0 GiB (3,221,225,472)');
    expect(lines).toContain('memory, rest       1.5 KiB (1,500) of 1.0 GiB (1,073,741,824)');
    expect(lines).toContain('requests refused   1,002 (tasks 1,000, too-large 2)');
    expect(lines).toContain('log lines dropped  7');
    for (const word of ['published', 'succeeded', 'failed', 'expired', 'redelivered', 'refused', 'shards held']) {
      expect(text).toContain(word);
    }
    expect(json.logLinesDropped).toBe(7);
    expect(json.topics[0]).toEqual({
      topic: 'mail',
      counts: { ready: 1, delayed: 1, leased: 1, dead: 0 },
      paused: false,
      waitingBytes: expect.any(Number),
      subscribers: 1,
      idle: 0,
    });
    expect(json.topics[0]!.waitingBytes).toBeGreaterThan(240);
    expect(json.topics.find(({ topic }) => topic === 'quiet')).toMatchObject({ subscribers: 2, idle: 2 });
    expect(json.topics.find(({ topic }) => topic === 'news')).toMatchObject({ subscribers: 0, idle: 0 });
    abort.abort();
    await Promise.all(waits);
  });
});

describe('who asks', () => {
  const status = { version: '1.0.0' } as Status;

  it('gets the same answer for a second, and a failure only once', async () => {
    let reads = 0;
    const desk = new StatusDesk(async () => {
      if (++reads === 1) throw new Error('not now');
      return status;
    });
    await expect(desk.read()).rejects.toThrow('not now');
    for (let nth = 0; nth < 50; nth++) expect(await desk.read()).toBe(status);
    expect(reads).toBe(2);
  });

  it('is one of eight at the most', () => {
    const desk = new StatusDesk(async () => status);
    const leave = Array.from({ length: 8 }, () => desk.enter());
    expect(() => desk.enter()).toThrow('The status is answered to 8 requests at once');
    leave[0]!();
    leave[0]!();
    desk.enter();
    expect(() => desk.enter()).toThrow('busy');
  });

  it('is told within two seconds that it takes too long, and the ninth at once; the others are answered', async () => {
    const queue = await openQueue({ store: 'sqlite::memory:' });
    const held = deferred();
    let asked = 0;
    const slow = new Proxy(queue, {
      get(target, name) {
        if (name === 'busiest') return () => (asked++ === 0 ? held.promise.then(() => []) : target.busiest());
        const member = Reflect.get(target, name) as unknown;
        return typeof member === 'function' ? member.bind(target) : member;
      },
    });
    const server = createStatusServer(slow, {});
    const url = await server.listen('127.0.0.1', 0);
    onTestFinished(async () => {
      await server.stop();
      await queue.stop();
    });
    const port = Number(new URL(url).port);
    const at = performance.now();
    const early = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const connection = await connectRaw(port);
        connection.socket.write('GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n');
        return connection;
      }),
    );
    await eventually(() => asked === 1);
    await eventually(async () => (await fetch(`${url}/status`)).status === 503);
    expect(performance.now() - at).toBeLessThan(1_900);
    for (const { until } of early)
      expect(await until(/"code":"busy"/)).toMatch(/^HTTP\/1\.1 503 [\s\S]*retry-after: 1/i);
    expect(performance.now() - at).toBeLessThan(5_000);
    held.resolve();
    await eventually(async () => (await fetch(`${url}/status`)).status === 200);
    for (const { socket } of early) socket.destroy();
  });

  it('finds it at its own address alone, where it has one, and there nothing else', async () => {
    const main = await startServer({ statusPage: false });
    const apart = createStatusServer(main.queue, {});
    const url = await apart.listen('127.0.0.1', 0);
    onTestFinished(async () => {
      await apart.stop();
      await main.close();
    });
    expectProblem(await main.get('/status'), 404, 'not-found');
    expect(await (await fetch(`${url}/status`)).text()).toMatch(/^Ebbmark /);
    expect((await fetch(`${url}/v1/topics`)).status).toBe(404);
    expect((await fetch(`${url}/status?x=1`)).status).toBe(400);
  });
});

describe('names', () => {
  it.each([
    ['plain', 'plain'],
    ['a\u202eb', 'a\\u{202e}b'],
    ['a\u001b[2J', 'a\\u{1b}[2J'],
    ['line\nfeed', 'line\\u{a}feed'],
    ['e\u0301', 'e\u0301'],
    ['\u0301e', '\\u{301}e'],
    [`e${'\u0301'.repeat(5)}`, `e${'\u0301'.repeat(3)}\\u{301}\\u{301}`],
    ['a\u3164b\u00adc', 'a\\u{3164}b\\u{ad}c'],
    ['❤\ufe0f😀', '❤\ufe0f😀'],
    ['😀'.repeat(128), '😀'.repeat(128)],
    ['😀'.repeat(129), `${'😀'.repeat(127)}…`],
    ['\u202e'.repeat(200), `${'\\u{202e}'.repeat(15)}…`],
  ])('%j', (name, shown) => {
    expect(safeText(name)).toBe(shown);
    expect(Array.from(safeText(name)).length).toBeLessThanOrEqual(128);
  });

  it.each([
    [0, '0 B'],
    [1_023, '1023 B'],
    [1_024, '1.0 KiB'],
    [1_536 * 1_024, '1.5 MiB'],
    [2 ** 53 - 1, '8.0 PiB'],
  ])('%d bytes are %s', (bytes, shown) => expect(size(bytes)).toBe(shown));
});

describe('a topic that is full', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startServer();
  });
  afterAll(() => server.close());

  it('answers 429 with Retry-After where nothing came in, and a result per task where some did', async () => {
    const set = await server.call('PUT', topicPath('full'), { body: { maxWaiting: 2, maxWaitingBytes: 10_000 } });
    expect(set.json.settings).toMatchObject({ maxWaiting: 2, maxWaitingBytes: 10_000 });
    const some = await server.post(tasksPath('full'), { tasks: [{ payload: 1 }, { payload: 2 }, { payload: 3 }] });
    expect(some.status).toBe(201);
    expect(some.json.tasks.map(({ code }: { code?: string }) => code)).toEqual([undefined, undefined, 'topic-full']);
    const none = await server.post(tasksPath('full'), { tasks: [{ payload: 1 }, { payload: 2 }] });
    expectProblem(none, 429, 'topic-full');
    expect(none.headers['retry-after']).toBe('5');
    expect(none.json.errors).toHaveLength(2);
    expect((await server.get('/metrics')).text).toMatch(/^ebbmark_tasks_refused_total 3$/m);
  });

  it.each([
    [{ maxWaiting: 0 }, '/maxWaiting'],
    [{ maxWaitingBytes: '1g' }, '/maxWaitingBytes'],
  ])('is not made by %j', async (body, path) => {
    const answer = await server.call('PUT', topicPath('wrong'), { body });
    expectProblem(answer, 400, 'invalid-input');
    expect(answer.json.errors[0].path).toBe(path);
  });

  it('is told to a publisher at once, with one call for all that it had', async () => {
    await server.queue.configure('busy', { maxWaiting: 1 });
    await server.queue.enqueue('busy', { payload: 0 });
    let calls = 0;
    server.server.app.server.on('request', (request) => {
      if (request.url?.startsWith('/v1/topics/busy/tasks')) calls++;
    });
    const client = new Client(server.url);
    onTestFinished(() => client.close());
    const publisher = client.publisher();
    const published = await Promise.allSettled(Array.from({ length: 50 }, (_, nth) => publisher.publish('busy', nth)));
    for (const one of published) {
      expect(one).toMatchObject({ status: 'rejected', reason: { name: 'QueueError', code: 'topic-full' } });
    }
    // The first goes alone, the others together behind it.
    expect(calls).toBeLessThanOrEqual(3);
  });
});
