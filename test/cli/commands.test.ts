/** Every command, against a running server and against a stopped one's store. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.ts';
import { startServer, type TestServer } from '../http/support/server.ts';
import { type Run, type RunOptions, run } from './support/run.ts';

let server: TestServer;
let directory: string;
beforeAll(async () => {
  server = await startServer();
  directory = await mkdtemp(join(tmpdir(), 'ebbmark-cli-'));
});
afterAll(async () => {
  await server.close();
  await rm(directory, { recursive: true, force: true });
});

const ebbmark = (args: readonly string[], options: RunOptions = {}): Promise<Run> =>
  run(args, { ...options, env: { EBBMARK_URL: server.url, ...options.env } });

/** Runs a command that has to do, with --json. */
// biome-ignore lint/suspicious/noExplicitAny: answers have every shape
async function json(args: readonly string[], options: RunOptions = {}): Promise<any> {
  const result = await ebbmark([...args, '--json'], options);
  expect(result, JSON.stringify(result)).toMatchObject({ code: 0, err: '' });
  return JSON.parse(result.out);
}

describe('the way of a task, against a running server', () => {
  it('enqueue, task, lease, ack', async () => {
    const { id } = await json([
      'enqueue',
      'way',
      '{"n":1}',
      '--priority',
      '7',
      '--message-id',
      'm1',
      '--ttl',
      '1h',
      '--metadata',
      'a=b=c',
      '--metadata',
      'd=',
    ]);
    expect(await json(['task', 'way', id])).toMatchObject({
      state: 'ready',
      priority: 7,
      messageId: 'm1',
      payload: { n: 1 },
      metadata: { a: 'b=c', d: '' },
    });
    const again = await ebbmark(['enqueue', 'way', '2', '--message-id', 'm1']);
    expect(again).toMatchObject({ code: 0, out: expect.stringMatching(new RegExp(`^${id}  .*known`)) });
    const { tasks } = await json(['lease', 'way', '--max', '5', '--lease', '2m', '--worker', 'me']);
    expect(tasks).toMatchObject([{ id, payload: { n: 1 } }]);
    const acked = await ebbmark(['ack', tasks[0].leaseId, '--result', '{"ok":true}']);
    expect(acked).toMatchObject({ code: 0, out: `${tasks[0].leaseId}: ok\n` });
    const done = await ebbmark(['task', 'way', id, '--wait', '5s']);
    expect(done.out).toMatch(/^state +done$/m);
    expect(done.out).toMatch(/^result +\{"ok":true\}$/m);
    expect(done.out).toMatch(/^ +1 +me +\d{4}-/m);
  });

  it('enqueue, task, lease and extend with all that goes with them', async () => {
    const at = new Date(Date.now() + 3_600_000).toISOString();
    const later = await json([
      'enqueue',
      'more-flags',
      '1',
      '--run-at',
      at,
      '--message-id',
      'm2',
      '--max-attempts',
      '2',
    ]);
    expect(await json(['task', 'more-flags', '--message-id', 'm2'])).toMatchObject({
      id: later.id,
      state: 'delayed',
      dueAt: Date.parse(at),
      maxAttempts: 2,
    });
    const replaced = ['enqueue', 'more-flags', '2', '--message-id', 'm2', '--on-duplicate', 'replace'];
    expect(await json(replaced)).toMatchObject({ deduplicated: true });
    const keyed = ['enqueue', 'more-flags', '3', '--priority', '8', '--idempotency-key', 'k'];
    expect((await json(keyed)).id).toBe((await json(keyed)).id);
    expect(await json(['lease', 'more-flags', '--priority', '7'])).toEqual({ tasks: [] });
    const taken = ['lease', 'more-*', '--priority', '8', '--max', '9', '--max-per-topic', '1', '--order', 'priority'];
    const { tasks } = await json(taken);
    expect(tasks).toHaveLength(1);
    const [extended] = await json(['extend', tasks[0].leaseId, '--lease', '10m']);
    expect(extended.leaseUntil).toBeGreaterThan(tasks[0].leaseUntil);
    expect(await run(['--url', server.url, 'topics', '--prefix', 'more-flags'])).toMatchObject({ code: 0 });
    expect(await ebbmark(['enqueue', 'more-flags', '1', '--priority', '10'])).toMatchObject({
      code: 2,
      out: expect.stringMatching(/^Refused: invalid-input: /),
    });
  });

  it('dead letters: nack, tasks, redrive', async () => {
    await json(['enqueue', 'dead', '"x"']);
    const { tasks } = await json(['lease', 'dead']);
    expect((await ebbmark(['nack', tasks[0].leaseId, '--dead', '--reason', 'no\u001b[31mgood'])).code).toBe(0);
    const list = await ebbmark(['tasks', 'dead', '--state', 'dead']);
    expect(list.out).toMatch(/^id +state +priority +attempt/);
    expect(list.out).toContain('no\\u{1b}[31mgood');
    expect(await ebbmark(['redrive', 'dead'])).toMatchObject({ code: 0, out: '1 redriven, 0 refused.\n' });
    const refused = await ebbmark(['redrive', 'dead', '--id', 'nothing']);
    expect(refused).toMatchObject({ code: 1, out: expect.stringMatching(/^0 redriven, 1 refused\.\nnothing: /) });
  });

  it('settings: set, topic, pause, resume, purge', async () => {
    await json(['enqueue', 'set', '1']);
    expect(
      (await json(['set', 'set', 'maxInFlight=3', 'rate={"tasks":1,"perMs":1,"burst":1}'])).settings,
    ).toMatchObject({ maxInFlight: 3, rate: { tasks: 1 } });
    expect((await json(['set', 'set', 'maxInFlight=null'])).settings.maxInFlight).toBeNull();
    expect(await ebbmark(['pause', 'set'])).toMatchObject({ code: 0, out: 'set is paused.\n' });
    expect(await ebbmark(['lease', 'set'])).toMatchObject({ code: 0, out: 'Nothing is ready.\n' });
    expect(await ebbmark(['resume', 'set'])).toMatchObject({ code: 0, out: 'set is resumed.\n' });
    expect((await ebbmark(['topic', 'set'])).out).toMatch(/^ready +1$/m);
    expect(await ebbmark(['purge', 'set'])).toMatchObject({ code: 0, out: 'set is purged.\n' });
    expect(await ebbmark(['lease', 'set'])).toMatchObject({ out: 'Nothing is ready.\n' });
  });

  it('cancel, reschedule, release, scan, cursors', async () => {
    const first = await json(['enqueue', 'more', '1']);
    const second = await json(['enqueue', 'more', '2', '--delay', '1h']);
    expect(await json(['reschedule', 'more', first.id, '--priority', '9'])).toMatchObject({ priority: 9 });
    expect(await ebbmark(['cancel', 'more', second.id, '--reason', 'why'])).toMatchObject({
      code: 0,
      out: `${second.id} is cancelled.\n`,
    });
    const { tasks } = await json(['lease', 'mo*']);
    expect(await ebbmark(['release', tasks[0].leaseId, 'garbage'])).toMatchObject({
      code: 1,
      out: expect.stringMatching(/: ok\ngarbage: lease-invalid: /),
    });
    // All of it could never be taken.
    expect((await ebbmark(['release', 'garbage'])).code).toBe(2);
    for (const command of ['scan', 'cursors']) {
      const shown = await ebbmark([command, 'more']);
      expect(shown).toMatchObject({ code: 0, err: '' });
      expect(shown.out).toMatch(/^priority +next +scan +completion/);
    }
    expect(await json(['cursors', 'more'])).toMatchObject({ topic: 'more', priorities: expect.any(Array) });
  });

  it('why', async () => {
    const { id } = await json(['enqueue', 'reasons', '1']);
    expect((await ebbmark(['why', 'reasons'])).out).toBe(
      'Nothing keeps reasons from being handed out: the next lease that asks for it gets it.\n',
    );
    await ebbmark(['set', 'reasons', 'maxInFlight=1']);
    const { tasks } = await json(['lease', 'reasons']);
    const shown = await ebbmark(['why', 'reasons']);
    expect(shown.out).toMatch(/^reasons is not handed out just now:\n\n {2}in-flight-limit: 1 of 1 /);
    expect(shown.out).toContain(tasks[0].id);
    expect((await json(['why', 'reasons', id])).obstacles[0]).toMatchObject({ code: 'leased' });
  });

  it('topics and status', async () => {
    await server.enqueue('list/\u202e\u0300', { payload: 1 });
    await server.enqueue('list/b', { payload: 1 }, { payload: 1 });
    const table = await ebbmark(['topics', '--prefix', 'list/']);
    expect(table.out).toMatch(/^topic +ready +delayed +leased +dead\nlist\/b +2 /);
    expect(table.out).toContain('list/\\u{202e}');
    const one = await ebbmark(['topics', '--prefix', 'list/', '--limit', '1']);
    expect(one.err).toContain("--after 'list/b'");
    expect((await json(['topics', '--prefix', 'list/', '--after', 'list/b'])).topics).toHaveLength(1);
    expect(await ebbmark(['topics', '--prefix', 'nothing'])).toMatchObject({ code: 0, out: 'No topic is active.\n' });
    expect((await ebbmark(['status'])).out).toMatch(/^Ebbmark \d/);
    expect(await json(['status'])).toMatchObject({ queue: { store: expect.any(String) } });
  });

  it('enqueue from files and lines', async () => {
    const file = join(directory, 'payload');
    await writeFile(file, Buffer.from([0, 255, 10]));
    const { id } = await json(['enqueue', 'files', '--file', file, '--bytes']);
    expect((await json(['task', 'files', id])).payload).toEqual({ base64: 'AP8K' });
    await json(['enqueue', 'files', '--file', '-'], { input: '[1]' });
    expect((await ebbmark(['enqueue', 'files', '--file', file])).code).toBe(2);
    expect(await ebbmark(['enqueue', 'files', '--file', join(directory, 'none')])).toMatchObject({
      code: 1,
      err: expect.stringContaining('cannot be read'),
    });

    const lines = Array.from({ length: 450 }, (_, at) => `{"at":${at}}`).join('\n');
    expect(await json(['enqueue', 'lines', '--lines'], { input: `${lines}\r\n\n` })).toEqual({
      enqueued: 450,
      deduplicated: 0,
      refused: 0,
    });
    expect((await server.get('/v1/topics/lines')).json.counts.ready).toBe(450);
    const large = await ebbmark(['enqueue', 'lines', '--lines'], { input: `1\n"${'x'.repeat(300_000)}"\n2\n` });
    expect(large).toMatchObject({ code: 1, out: '2 enqueued, 0 known already, 1 refused\n' });
    expect(large.err).toMatch(/^line 2: payload-too-large: /);
    const broken = await ebbmark(['enqueue', 'lines', '--lines'], { input: '1\n{oops\n3\n' });
    expect(broken).toMatchObject({ code: 1, err: expect.stringMatching(/^line 2: "\{oops" is not JSON/) });
  });
});

describe('schedules', () => {
  it('set, show, list, delete', async () => {
    const args = ['nightly', 'reports', '30 8 * * MON-FRI', '{"kind":"daily"}', '--time-zone', 'Europe/Berlin'];
    const more = ['--priority', '8', '--ttl', '2h', '--max-attempts', '2', '--metadata', 'a=b', '--catch-up', '10m'];
    const made = await json(['schedule', 'set', ...args, ...more]);
    expect(made).toMatchObject({
      name: 'nightly',
      topic: 'reports',
      pattern: '30 8 * * MON-FRI',
      timeZone: 'Europe/Berlin',
      payload: { kind: 'daily' },
      priority: 8,
      ttlMs: 7_200_000,
      maxAttempts: 2,
      metadata: { a: 'b' },
      catchUpMs: 600_000,
    });
    expect(await json(['schedule', 'show', 'nightly'])).toEqual(made);
    const shown = await ebbmark(['schedule', 'show', 'nightly']);
    expect(shown).toMatchObject({ code: 0, err: '' });
    expect(shown.out).toMatch(/^pattern +30 8 \* \* MON-FRI$/m);
    expect(shown.out).toMatch(new RegExp(`^next +${new Date(made.next[0]).toISOString()}$`, 'm'));
    expect(shown.out).toMatch(/^last fired for +–$/m);
    await json(['schedule', 'set', 'bytes', 'reports', '@daily', '--file', '-', '--bytes'], { input: 'x' });
    expect((await server.queue.schedule('bytes')).payload).toEqual(new Uint8Array([120]));

    const { schedules } = await json(['schedule', 'list']);
    expect(schedules.map((one: { name: string }) => one.name)).toEqual(['bytes', 'nightly']);
    const listed = await run(['--url', server.url, 'schedule', 'list', '--limit', '1']);
    expect(listed).toMatchObject({ code: 0, err: expect.stringContaining("--after 'bytes'") });
    expect(listed.out).toMatch(/^bytes +reports +@daily +UTC +\d{4}-\d\d-\d\dT00:00:00.000Z +0 +0$/m);
    expect((await ebbmark(['schedule', 'list', '--after', 'bytes'])).out).toContain('nightly');

    expect(await ebbmark(['schedule', 'delete', 'nightly'])).toMatchObject({ code: 0, out: 'nightly is deleted.\n' });
    await json(['schedule', 'delete', 'bytes']);
    expect(await ebbmark(['schedule', 'list'])).toMatchObject({ code: 0, out: 'There is no schedule.\n' });
    const gone = await ebbmark(['schedule', 'show', 'nightly']);
    expect(gone).toMatchObject({ code: 1, err: expect.stringContaining('there is no schedule of this name') });
  });

  it('are refused with what would be right', async () => {
    const set = (...args: readonly string[]) => ebbmark(['schedule', 'set', ...args]);
    const pattern = await set('s', 't', '61 * * * *', '1');
    expect(pattern).toMatchObject({ code: 2, err: expect.stringContaining('for example: "30 8 * * MON-FRI"') });
    const zone = await set('s', 't', '@daily', '1', '--time-zone', 'Berlin');
    expect(zone).toMatchObject({ code: 2, err: expect.stringContaining('"Berlin" is not the IANA name') });
    const none = await set('s', 't', '@daily');
    expect(none).toMatchObject({ code: 2, err: expect.stringContaining('Give one payload') });
    expect(await set('s', 'a*', '@daily', '1')).toMatchObject({ code: 2 });
  });
});

describe('with --store', () => {
  it('does the same on the store of a stopped server', async () => {
    const store = `sqlite:${join(directory, 'stopped.db')}`;
    const missing = await run(['topics', '--store', store]);
    expect(missing).toMatchObject({ code: 1, err: expect.stringContaining(`ebbmark migrate --store '${store}'`) });
    expect(await run(['migrate', '--store', store])).toMatchObject({
      code: 0,
      out: `${store} was created: schema 0 → 4 (001_tables.sql, 002_servers.sql, 003_schedules.sql, 004_keys.sql).\n`,
    });
    expect(await run(['migrate', '--store', store])).toMatchObject({
      code: 0,
      out: `${store} is up to date (schema 4).\n`,
    });

    const with_ = (args: readonly string[]) => run([...args, '--store', store, '--json']);
    const { id } = JSON.parse((await with_(['enqueue', 'a', '{"n":1}'])).out);
    const { tasks } = JSON.parse((await with_(['lease', 'a', '--lease', '10m'])).out);
    expect(tasks).toMatchObject([{ id, payload: { n: 1 } }]);
    expect(JSON.parse((await with_(['ack', tasks[0].leaseId, '--result', '1'])).out)).toMatchObject([{ ok: true }]);
    expect(JSON.parse((await with_(['task', 'a', id])).out)).toMatchObject({ state: 'done', result: 1 });
    expect(JSON.parse((await with_(['topics'])).out)).toMatchObject({ topics: [{ topic: 'a' }] });
    expect(JSON.parse((await with_(['status'])).out)).toMatchObject({ queue: { store: expect.any(String) } });
  });
});

describe('what goes wrong', () => {
  it('no server: says how to go on', async () => {
    // Port 9 of loopback: nothing listens there.
    const result = await run(['topics', '--url', 'http://127.0.0.1:9']);
    expect(result).toMatchObject({ code: 1, out: '' });
    for (const hint of ['ebbmark serve', '--url', 'EBBMARK_URL', '--store']) expect(result.err).toContain(hint);
  });

  it('no cluster: says why', async () => {
    const result = await run(['topics', '--store', 'cassandra://127.0.0.1:9/none']);
    expect(result).toMatchObject({ code: 1, out: '' });
    expect(result.err).toMatch(/^cassandra:\/\/127\.0\.0\.1:9\/none cannot be used: .*ECONNREFUSED/);
  });

  it('not found: the code and the detail', async () => {
    expect(await ebbmark(['task', 'way', 'nothing'])).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringMatching(/^task-not-found: /),
    });
    expect(await ebbmark(['topic', 'never'])).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^topic-not-found: /),
    });
  });

  it.each([
    [['nonsense'], 'unknown command'],
    [['topics', '--nonsense'], 'unknown option'],
    [['enqueue'], 'missing required argument'],
    [['enqueue', 'a'], 'Give one payload'],
    [['enqueue', 'a', '1', '--lines'], 'Give one payload'],
    [['enqueue', 'a', 'hello'], 'It is not JSON (a text needs quotes of its own)'],
    [['enqueue', 'a*', '1'], "free of '*'"],
    [['enqueue', 'a', '1', '--delay', '5'], 'a number with a unit'],
    [['enqueue', 'a', '1', '--priority', 'high'], 'an integer'],
    [['enqueue', 'a', '1', '--metadata', 'x'], 'NAME=VALUE'],
    [['tasks', 'a', '--state', 'gone'], 'is not one of ready'],
    [['topics', '--limit', '0'], 'a positive integer'],
    [['set', 'a', 'nonsense=1'], 'is not SETTING=VALUE'],
    [['set', 'a', 'maxInFlight=many'], 'is not JSON'],
    [['set', 'a', 'maxInFlight=0'], 'invalid-input'],
    [['reschedule', 'a', 'b'], 'Say what to change'],
    [['task', 'a'], 'Name one task'],
    [['extend', 'x'], 'required option'],
    [['enqueue', 'a', '1', '--run-at', 'tomorrow'], 'a time with its offset'],
    [['topics', '--url', 'nonsense'], '--url: "nonsense" is not'],
    [['topics', '--store', 'nonsense'], '--store: "nonsense" is not sqlite:PATH'],
    [['topics', '--store', 'cassandra://a/B'], '--store: "B" is not a keyspace'],
  ])('%j is bad usage', async (args, message) => {
    // In this process: a process of its own for each would take most of the time of these tests.
    let err = '';
    const told = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
      err += text;
      return true;
    });
    const code = await main(args, { EBBMARK_URL: server.url });
    told.mockRestore();
    expect(code, err).toBe(2);
    expect(err).toContain(message);
    expect(err).not.toMatch(/\n\s+at /);
  });

  it('bad usage, as a process', async () => {
    const result = await ebbmark(['enqueue', 'a', 'hello']);
    expect(result).toMatchObject({ code: 2, out: '', err: expect.stringContaining('It is not JSON') });
  });
});

describe('help', () => {
  it('suffices', async () => {
    const { out, code } = await run(['--help']);
    expect(code).toBe(0);
    const commands = [
      ...out
        .split('Commands:')[1]!
        .split('Examples:')[0]!
        .matchAll(/^ {2}(\w+) /gm),
    ].map((match) => match[1]!);
    expect(commands).toEqual(
      expect.arrayContaining(['serve', 'topics', 'cursors', 'enqueue', 'migrate', 'lease', 'ack', 'status']),
    );
    expect(out).toContain('Exit codes');
    const serve = await run(['serve', '--help']);
    for (const name of [
      'EBBMARK_STORE',
      'EBBMARK_LISTEN',
      'EBBMARK_LOG_LEVEL',
      'EBBMARK_MAX_BODY_BYTES',
      'EBBMARK_MIGRATE',
      'EBBMARK_ALLOW_PUBLIC',
      'EBBMARK_CASSANDRA_PASSWORD',
      'EBBMARK_CASSANDRA_TLS_CA',
    ]) {
      expect(serve.out).toContain(name);
    }
    expect(await run(['enqueue', '--help'])).toMatchObject({ code: 0, out: expect.stringContaining('Examples:') });
    expect(await run(['--version'])).toMatchObject({ code: 0, out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
    expect((await run([])).code).toBe(2);
  });
});
