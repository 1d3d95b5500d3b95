/** The server as a process: its start, its log, and its end by signals. */
import { readFile, stat, writeFile } from 'node:fs/promises';
import net from 'node:net';
import Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import { run } from './support/run.ts';
import { type Served, servers } from './support/servers.ts';

const { beside, newStore, serve: serveWith } = servers('serve');

const serve = (args: readonly string[] = [], env: Readonly<Record<string, string>> = {}): Promise<Served> =>
  serveWith([...(args.includes('--store') ? [] : ['--store', newStore()]), ...args], env);

const post = (url: string, path: string, body: unknown) =>
  fetch(url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

/** Resolves once so many lease calls wait. */
async function untilWaiting(url: string, calls: number): Promise<void> {
  for (;;) {
    const metrics = await (await fetch(`${url}/metrics`)).text();
    if (metrics.includes(`\nebbmark_lease_calls_waiting ${calls}\n`)) return;
  }
}

describe('ebbmark serve', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)(
    'ends by %s with 0 within five seconds, long polls answered',
    async (signal) => {
      const server = await serve();
      const polls = [1, 2, 3].map(() => post(server.url, '/v1/leases', { topics: ['quiet'], waitMs: 60_000 }));
      await untilWaiting(server.url, 3);
      const at = performance.now();
      server.child.kill(signal);
      for (const poll of polls) expect(await (await poll).json()).toEqual({ tasks: [] });
      expect(await server.ended).toMatchObject({ code: 0, signal: null, err: '' });
      expect(performance.now() - at).toBeLessThan(5000);
      expect(server.out()).toContain('"msg":"stopped"');
    },
  );

  it('keeps what it acknowledged over a stop, and over a kill', async () => {
    const store = newStore();
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      const server = await serve(['--store', store]);
      expect((await post(server.url, '/v1/topics/kept/tasks', { tasks: [{ payload: signal }] })).status).toBe(201);
      server.child.kill(signal);
      await server.ended;
    }
    const server = await serve(['--store', store]);
    const leased = (await (await post(server.url, '/v1/leases', { topics: ['kept'], max: 10 })).json()) as {
      tasks: { payload: string }[];
    };
    expect(leased.tasks.map((task) => task.payload)).toEqual(['SIGTERM', 'SIGKILL']);
  });

  it('serves its status page apart, or nowhere', async () => {
    const apart = await serve(['--status-listen', '127.0.0.1:0']);
    const [, page] = await apart.until(/"url":"([^"]+)\/status"/);
    expect(await (await fetch(`${page}/status`)).text()).toMatch(/^Ebbmark /);
    expect((await fetch(`${apart.url}/status`)).status).toBe(404);
    const nowhere = await serve([], { EBBMARK_STATUS_LISTEN: 'off' });
    expect((await fetch(`${nowhere.url}/status`)).status).toBe(404);
    const { port } = new URL(page!);
    const third = await run([
      'serve',
      '--store',
      newStore(),
      '--status-listen',
      `127.0.0.1:${port}`,
      '--listen',
      '127.0.0.1:0',
    ]);
    expect(third.code).toBe(1);
    expect(third.err).toContain(`127.0.0.1:${port} is in use; choose another address for the status page`);
    apart.child.kill('SIGTERM');
    expect(await apart.ended).toMatchObject({ code: 0 });
  });

  it('takes nothing new into a store that is full', async () => {
    const server = await serve([], { EBBMARK_MAX_STORE_BYTES: '1m' });
    const tasks = Array.from({ length: 10 }, () => ({ payload: 'x'.repeat(100_000) }));
    let answer = await post(server.url, '/v1/topics/t/tasks', { tasks });
    while (answer.status === 201) answer = await post(server.url, '/v1/topics/t/tasks', { tasks });
    expect(answer.status).toBe(507);
    expect(answer.headers.get('retry-after')).toBe('30');
    expect(await answer.json()).toMatchObject({ code: 'store-full' });
    const leased = (await (await post(server.url, '/v1/leases', { topics: ['t'] })).json()) as {
      tasks: { leaseId: string }[];
    };
    const settled = await post(server.url, '/v1/leases/settle', { ack: [{ leaseId: leased.tasks[0]!.leaseId }] });
    expect(await settled.json()).toMatchObject({ ack: [{ ok: true }] });
  });

  it('waits for a request that is on its way, but not for ever', async () => {
    const server = await serve();
    const socket = net.connect(Number(new URL(server.url).port), '127.0.0.1');
    socket.on('error', () => {});
    socket.write(
      'POST /v1/topics/a/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{',
    );
    await fetch(`${server.url}/healthz`);
    const at = performance.now();
    server.child.kill('SIGTERM');
    expect(await server.ended).toMatchObject({ code: 0 });
    expect(performance.now() - at).toBeLessThan(5000);
    socket.destroy();
  });

  it('ends at once by a second signal', async () => {
    const server = await serve();
    const socket = net.connect(Number(new URL(server.url).port), '127.0.0.1');
    socket.on('error', () => {});
    socket.write(
      'POST /v1/topics/a/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{',
    );
    await fetch(`${server.url}/healthz`);
    const at = performance.now();
    server.child.kill('SIGTERM');
    await server.until(/"msg":"stopping"/);
    server.child.kill('SIGINT');
    expect((await server.ended).code).toBe(1);
    expect(performance.now() - at).toBeLessThan(2000);
    socket.destroy();
  });

  it('logs no payload, result or metadata at any level, and requests at debug only', async () => {
    const server = await serve(['--log-level', 'trace'], { EBBMARK_TYPO: 'x' });
    const secret = 'canary-7f3a';
    await post(server.url, '/v1/topics/logs/tasks', {
      tasks: [
        { payload: secret, metadata: { secret } },
        { payload: { secret }, priority: 99 },
      ],
    });
    await post(server.url, '/v1/topics/logs/tasks', { tasks: [{ payload: secret, [secret]: 1 }] });
    const leased = (await (await post(server.url, '/v1/leases', {})).json()) as { tasks: { leaseId: string }[] };
    await post(server.url, '/v1/leases/settle', { ack: [{ leaseId: leased.tasks[0]!.leaseId, result: secret }] });
    server.child.kill('SIGTERM');
    const { out, err } = await server.ended;
    expect(out + err).not.toContain(secret);
    expect(out).toContain('"route":"/v1/topics/:topic/tasks"');
    expect(out).toContain('"name":"EBBMARK_TYPO"');
    for (const line of out.trim().split('\n'))
      expect(JSON.parse(line)).toMatchObject({ level: expect.any(String), time: expect.any(String) });
  });

  it('listens on other addresses only with keys, or with a word for it', async () => {
    const refused = await run(['serve', '--listen', '0.0.0.0:0', '--store', newStore()]);
    expect(refused).toMatchObject({ code: 1, out: '' });
    expect(refused.err).toMatch(/ebbmark keys create .*\n.*--allow-public/);
    const open = await run(['serve', '--listen', '0.0.0.0:0', '--require-keys', 'off', '--store', newStore()]);
    expect(open).toMatchObject({ code: 2, out: '', err: expect.stringContaining('--allow-public') });
    // 127.0.0.2 is loopback: nothing here may really be public.
    const server = await serve(['--listen', '127.0.0.2:0']);
    expect(server.url).toMatch(/^http:\/\/127\.0\.0\.2:\d+$/);
    // Nor is this one: it is nobody's (RFC 5737).
    const page = ['--status-listen', '192.0.2.1:9001', '--allow-public', '--store', newStore()];
    const apart = await run(['serve', '--listen', '127.0.0.1:0', ...page]);
    expect(apart).toMatchObject({ code: 1, err: expect.stringContaining('EADDRNOTAVAIL') });
    expect(apart.out).toContain('ANYONE who reaches the address of the status page');
  });

  it('takes budgets from flags and environment, and warns of memory that is more than half of what there is', async () => {
    const server = await serve(['--max-connections', '2'], {
      EBBMARK_MAX_MEMORY_BYTES: '8388607g',
      EBBMARK_MAX_TASKS: '1',
    });
    expect(server.out()).toMatch(
      /"level":"warn".*"given":9007198180999168,"used":\d+,.*EBBMARK_MAX_MEMORY_BYTES .* is more than half of the memory there is; half of it is used/,
    );
    const enqueue = async (count: number) => {
      const tasks = Array.from({ length: count }, () => ({ payload: 1 }));
      return (await post(server.url, '/v1/topics/budget/tasks', { tasks })).status;
    };
    expect(await enqueue(2)).toBe(413);
    expect(await enqueue(1)).toBe(201);
    await post(server.url, '/v1/leases', {});
    expect(await enqueue(1)).toBe(503);
  });

  it('warns where a body that is allowed finds no room', async () => {
    const server = await serve(['--max-memory-bytes', '4']);
    expect(server.out()).toContain('a body of EBBMARK_MAX_BODY_BYTES does not fit into three quarters of');
    expect((await post(server.url, '/v1/topics/budget/tasks', { tasks: [{ payload: 1 }] })).status).toBe(413);
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
  });

  it('says nothing of budgets that fit', async () => {
    const server = await serve([], { EBBMARK_MAX_MEMORY_BYTES: '64m' });
    expect(server.out()).not.toContain('"warn"');
  });

  it('does not start with a bad value, and names all of them', async () => {
    const { code, err, out } = await run(['serve', '--log-level', 'loud'], { env: { EBBMARK_MAX_BODY_BYTES: '0' } });
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err.trim().split('\n')).toEqual([
      expect.stringMatching(/^EBBMARK_MAX_BODY_BYTES: "0" is not a size from 1k to 256m; for example: 8m$/),
      expect.stringMatching(/^--log-level: "loud" is not one of trace, .*; for example: info$/),
    ]);
  });

  it('creates no store where it may not', async () => {
    const store = newStore();
    const { code, err } = await run(['serve', '--listen', '127.0.0.1:0', '--store', store, '--migrate', 'off']);
    expect(code).toBe(1);
    expect(err).toContain(`ebbmark migrate --store '${store}'`);
    await expect(stat(store.slice('sqlite:'.length))).rejects.toThrow('ENOENT');
    expect((await run(['migrate', '--store', store])).code).toBe(0);
    await serve(['--store', store, '--migrate', 'off']);
  });

  it('upgrades no store where it may not, and takes none of a newer version', async () => {
    const store = newStore();
    await run(['migrate', '--store', store]);
    const setVersion = (version: number): number => {
      const db = new Database(store.slice('sqlite:'.length));
      const before = Number(db.pragma('user_version', { simple: true }));
      db.pragma(`user_version = ${version}`);
      db.close();
      return before;
    };
    const args = ['serve', '--listen', '127.0.0.1:0', '--store', store];
    const current = setVersion(0);
    const older = await run([...args, '--migrate', 'off']);
    expect(older).toMatchObject({ code: 1, out: '' });
    expect(older.err).toMatch(/migrations are off\.\n.*ebbmark migrate --store/);
    setVersion(999);
    expect(await run(args)).toMatchObject({ code: 1, err: expect.stringContaining('was written by a newer Ebbmark') });
    setVersion(current);
    await serve(['--store', store, '--migrate', 'off']);
  });

  it('listens while its cluster is down, says why it is not ready, and ends by a signal', async () => {
    // Port 9 of loopback: nothing listens there.
    const server = await serve(['--store', 'cassandra://127.0.0.1:9/none']);
    const ready = await fetch(`${server.url}/readyz`);
    expect(ready.status).toBe(503);
    expect(await ready.json()).toEqual({
      ready: false,
      reasons: [expect.stringMatching(/not reached yet: .*ECONNREFUSED/)],
    });
    const refused = await post(server.url, '/v1/topics/t/tasks', { tasks: [{ payload: 1 }] });
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).toBe('2');
    expect(await refused.json()).toMatchObject({ code: 'store-unavailable' });
    server.child.kill('SIGTERM');
    expect(await server.ended).toMatchObject({ code: 0 });
  });

  it('does not start on a store that is in use, and the one who uses it goes on', async () => {
    const store = newStore();
    const first = await serve(['--store', store]);
    const second = await run(['serve', '--listen', '127.0.0.1:0', '--store', store]);
    expect(second.code).toBe(1);
    expect(second.err).toContain(`running already (process ${first.child.pid}, ${first.url})`);
    expect(second.err).toContain(`--url ${first.url}`);
    expect(second.err).toContain(`kill ${first.child.pid}`);
    // The same command again, as it is typed in the same folder: its port is taken as well.
    const again = await run(['serve', '--listen', first.url.slice('http://'.length), '--store', store]);
    expect(again).toMatchObject({ code: 1, err: second.err });
    const asked = await run(['topics', '--store', store]);
    expect(asked).toMatchObject({ code: 1, err: expect.stringContaining(`--url ${first.url} in place of --store`) });
    const migrated = await run(['migrate', '--store', store]);
    expect(migrated).toMatchObject({ code: 1, err: expect.stringMatching(/^Stop it first:/m) });
    expect(migrated.err).not.toContain('--url');
    expect((await fetch(`${first.url}/readyz`)).status).toBe(200);
    first.child.kill('SIGTERM');
    await first.ended;
    await expect(stat(`${store.slice('sqlite:'.length)}-server`)).rejects.toThrow('ENOENT');
  });

  it('starts where a server was killed, whatever that one has left', async () => {
    const store = newStore();
    const first = await serve(['--store', store]);
    first.child.kill('SIGKILL');
    await first.ended;
    expect((await stat(`${store.slice('sqlite:'.length)}-server`)).isFile()).toBe(true);
    const second = await serve(['--store', store]);
    expect((await run(['migrate', '--store', store])).err).toContain(`process ${second.child.pid}, ${second.url}`);
  });

  it('does not start on a store in a folder that is not there', async () => {
    const store = `sqlite:${beside('nope', 'x.db')}`;
    const { code, err } = await run(['serve', '--listen', '127.0.0.1:0', '--store', store]);
    expect(code).toBe(1);
    expect(err).toContain(`${beside('nope')} is no directory that is there`);
    await expect(stat(beside('nope'))).rejects.toThrow('ENOENT');
  });

  it('does not start on a damaged store, and leaves it as it is', async () => {
    const path = beside('damaged.db');
    await writeFile(path, 'this is a letter to my aunt, not a database'.repeat(100));
    const before = await readFile(path);
    const { code, err } = await run(['serve', '--listen', '127.0.0.1:0', '--store', `sqlite:${path}`]);
    expect(code).toBe(1);
    expect(err).toContain(path);
    expect(err).not.toMatch(/\n\s+at /);
    expect((await readFile(path)).equals(before)).toBe(true);
  });

  it('says so when its address is taken, and creates no store', async () => {
    const first = await serve();
    const store = newStore();
    const { code, err } = await run(['serve', '--listen', first.url.slice('http://'.length), '--store', store]);
    expect(code).toBe(1);
    expect(err).toContain('is in use; choose another address with --listen');
    await expect(stat(store.slice('sqlite:'.length))).rejects.toThrow('ENOENT');
    const server = await serve(['--store', store]);
    expect(server.out()).toContain(`"path":"${store.slice('sqlite:'.length)}","msg":"created a new store"`);
  });
});
