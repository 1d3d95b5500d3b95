/** A backup of a running server, what is made of it, and what is refused. */
import { copyFile, mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { HttpQueue } from '../../src/client/http-queue.ts';
import type { Queue } from '../../src/queue/api.ts';
import { openQueue, saveBackup } from '../../src/queue/open.ts';
import { type Running, run, start } from '../cli/support/run.ts';

let directory: string;
const started: Running[] = [];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'ebbmark-backup-'));
});
afterEach(async () => {
  for (const { child, ended } of started.splice(0)) {
    child.kill('SIGKILL');
    await ended;
  }
  await rm(directory, { recursive: true, force: true });
});

const at = (name: string): string => join(directory, name);
const storeAt = (name: string): string => `sqlite:${at(name)}`;

async function serve(name: string): Promise<Running & { readonly url: string; readonly queue: HttpQueue }> {
  const server = start(['serve', '--listen', '127.0.0.1:0', '--store', storeAt(name)]);
  started.push(server);
  const [, url] = await server.until(/"url":"([^"]+)"/);
  return { ...server, url: url!, queue: new HttpQueue(url!) };
}

async function opened(name: string): Promise<Queue> {
  const queue = await openQueue({ store: storeAt(name) });
  onTestFinished(() => queue.stop());
  return queue;
}

/** A backup of a store with three tasks, one of them leased; and that lease. */
async function backupOfThree(
  name = 'backup.db',
): Promise<{ readonly leaseId: string; readonly ids: readonly string[] }> {
  const queue = await openQueue({ store: storeAt('first.db') });
  const put = await queue.enqueue('t', [{ payload: 1 }, { payload: 2, messageId: 'two' }, { payload: 3 }]);
  const [task] = await queue.lease({ topics: ['t'], leaseMs: 600_000 });
  await saveBackup(queue, at(name));
  await queue.stop();
  return { leaseId: task!.leaseId, ids: put.map(({ id }) => id!) };
}

const restore = (file: string, name: string, ...more: readonly string[]) =>
  run(['restore', at(file), '--store', storeAt(name), ...more]);

describe('a backup of a running server', () => {
  it('is made, restored, and goes on from its moment', async () => {
    const server = await serve('queue.db');
    await server.queue.enqueue('t', [{ payload: 'before' }, { payload: 'before', messageId: 'known' }]);
    const backup = await run(['backup', at('backup.db'), '--url', server.url, '--json']);
    expect(backup).toMatchObject({ code: 0, err: '' });
    const { path, bytes, sha256 } = JSON.parse(backup.out) as { path: string; bytes: number; sha256: string };
    expect({ path, bytes }).toEqual({ path: at('backup.db'), bytes: (await stat(at('backup.db'))).size });
    expect(sha256).toMatch(/^[0-9a-f]{64}$/);
    await server.queue.enqueue('t', [{ payload: 'after' }]);

    const restored = await restore('backup.db', 'restored.db');
    expect(restored).toMatchObject({ code: 0, out: expect.stringContaining('2 entries, 1 message rows') });
    const again = await serve('restored.db');
    const tasks = await again.queue.lease({ topics: ['t'], max: 10 });
    expect(tasks.map(({ payload }) => payload)).toEqual(['before', 'before']);
    expect((await run(['audit', '--store', storeAt('restored.db')])).err).toContain('running already');
    expect((await readdir(directory)).sort()).toEqual(
      expect.not.arrayContaining([expect.stringMatching(/\.partial$/)]),
    );
  });

  it('replaces a file only where that was said', async () => {
    const server = await serve('queue.db');
    await writeFile(at('there.db'), 'mine');
    const refused = await run(['backup', at('there.db'), '--url', server.url]);
    expect(refused).toMatchObject({
      code: 1,
      out: '',
      err: `${at('there.db')} is there already; --force replaces it\n`,
    });
    expect(await readFile(at('there.db'), 'utf8')).toBe('mine');
    expect(await run(['backup', at('there.db'), '--url', server.url, '--force'])).toMatchObject({ code: 0 });
    const nowhere = await run(['backup', join(directory, 'no', 'x.db'), '--url', server.url]);
    expect(nowhere).toMatchObject({ code: 1, err: expect.stringContaining('is no directory that is there') });
    // The server can be asked again at once, whatever became of the ones before.
    expect(await run(['backup', at('other.db'), '--url', server.url])).toMatchObject({ code: 0 });
  });

  it('leaves nothing where the server breaks it off', async () => {
    const breaking = createServer((_request, response) => {
      response.writeHead(200, { 'content-length': 100_000 });
      response.write('SQLite format 3\0', () => response.destroy());
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void breaking.close());
    await new Promise((resolve) => breaking.once('listening', resolve));
    const { port } = breaking.address() as AddressInfo;
    const result = await run(['backup', at('cut.db'), '--url', `http://127.0.0.1:${port}`]);
    expect(result).toMatchObject({ code: 1, err: expect.stringContaining('broke the backup off') });
    expect(await readdir(directory)).toEqual([]);
  });

  it('is refused in words on a store that is no file', async () => {
    const keyspace = await run(['backup', at('x.db'), '--store', 'cassandra://127.0.0.1:9/none']);
    expect(keyspace).toMatchObject({ code: 1, err: expect.stringContaining('nodetool snapshot') });
    const restored = await run(['restore', at('x.db'), '--store', 'cassandra://127.0.0.1:9/none']);
    expect(restored).toMatchObject({ code: 1, err: expect.stringContaining('nodetool snapshot') });
    expect((await run(['backup'])).code).toBe(2);
  });
});

describe('a backup of a store that no server has open', () => {
  it('is made as the store is, also of an older schema', async () => {
    await backupOfThree('unused.db');
    const older = new Database(at('first.db'));
    for (const table of ['schedule', 'api_key', 'api_key_version']) older.exec(`DROP TABLE ${table}`);
    older.pragma('user_version = 2');
    older.close();
    const made = await run(['backup', at('backup.db'), '--store', storeAt('first.db')]);
    expect(made).toMatchObject({ code: 0, out: expect.stringMatching(/whole\nsha256 {2}[0-9a-f]{64}\n$/) });
    for (const name of ['first.db', 'backup.db']) {
      const db = new Database(at(name), { readonly: true });
      expect(db.pragma('user_version', { simple: true })).toBe(2);
      db.close();
    }
    // A restore brings it up to date.
    expect(await restore('backup.db', 'restored.db')).toMatchObject({ code: 0 });
    expect((await run(['migrate', '--store', storeAt('restored.db')])).out).toContain('is up to date');
  });

  it('is refused while one has it', async () => {
    const server = await serve('queue.db');
    const result = await run(['backup', at('backup.db'), '--store', storeAt('queue.db')]);
    expect(result).toMatchObject({ code: 1, err: expect.stringContaining(`--url ${server.url} in place of --store`) });
    const missing = await run(['backup', at('backup.db'), '--store', storeAt('missing.db')]);
    expect(missing).toMatchObject({ code: 1, err: expect.stringContaining('is not there') });
    expect(await readdir(directory)).not.toContain('missing.db');
  });
});

describe('a restore', () => {
  it('gives nobody a task by a lease or an id of the time that is lost', async () => {
    const { leaseId, ids } = await backupOfThree();
    // The time that will be lost: two more are leased, one more is put in, leased, and another settled.
    const lost = await openQueue({ store: storeAt('first.db') });
    const [newer] = await lost.enqueue('t', [{ payload: 'lost', messageId: 'lost' }]);
    const tasks = await lost.lease({ topics: ['t'], max: 10, leaseMs: 600_000 });
    expect(tasks.map(({ id }) => id).sort()).toEqual([ids[1], ids[2], newer!.id].sort());
    await lost.settle({ ack: [{ leaseId: tasks[0]!.leaseId }] });
    await lost.stop();

    expect(await restore('backup.db', 'first.db', '--force')).toMatchObject({ code: 0 });
    const queue = await opened('first.db');
    // Other tasks stand where those stood, and are leased by others.
    const [other] = await queue.enqueue('t', [{ payload: 'other' }]);
    const again = await queue.lease({ topics: ['t'], max: 10, leaseMs: 600_000 });
    expect(again.map(({ id }) => id).sort()).toEqual([ids[1], ids[2], other!.id].sort());
    const late = tasks.map(({ leaseId: token }) => ({ leaseId: token }));
    const settled = await queue.settle({
      ack: late,
      nack: late,
      release: late,
      extend: late.map((one) => ({ ...one, leaseMs: 1_000 })),
      progress: late.map((one) => ({ ...one, position: 1 })),
    });
    for (const list of Object.values(settled)) {
      for (const item of list) expect(item).toMatchObject({ ok: false, code: 'lease-lost' });
    }
    for (const { id } of again) expect(await queue.task('t', id)).toMatchObject({ state: 'leased', progress: null });
    await expect(queue.task('t', newer!.id!)).rejects.toMatchObject({ code: 'task-not-found' });
    // The message id of what is lost is free, and that of what was there is not.
    expect(await queue.enqueue('t', { payload: 0, messageId: 'lost' })).toMatchObject({ deduplicated: false });
    expect(await queue.enqueue('t', { payload: 0, messageId: 'two' })).toMatchObject({
      id: ids[1],
      deduplicated: true,
    });
    // A lease from before the backup is as good as it was then.
    expect((await queue.settle({ ack: [{ leaseId }] })).ack).toMatchObject([{ ok: true }]);
    expect((await queue.settle({ ack: again.map((one) => ({ leaseId: one.leaseId })) })).ack).toEqual(
      again.map((one) => ({ leaseId: one.leaseId, ok: true })),
    );
  });

  it('puts what is there aside where that was said, its log included, and else leaves it', async () => {
    await backupOfThree();
    // What a killed server leaves: a file and a log.
    const old = await openQueue({ store: storeAt('old.db') });
    await old.enqueue('old', [{ payload: 'in the log' }]);
    for (const end of ['', '-wal']) await copyFile(at(`old.db${end}`), at(`queue.db${end}`));
    await old.stop();
    const before = await readFile(at('queue.db-wal'));
    const refused = await restore('backup.db', 'queue.db');
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining('is there already; --force puts it aside') });
    expect((await readFile(at('queue.db-wal'))).equals(before)).toBe(true);

    const restored = await restore('backup.db', 'queue.db', '--force', '--json');
    expect(restored).toMatchObject({ code: 0 });
    const { replaced } = JSON.parse(restored.out) as { replaced: string };
    expect(await readdir(directory)).not.toContain('queue.db-wal');
    const now = await opened('queue.db');
    expect((await now.topics()).topics.map(({ topic }) => topic)).toEqual(['t']);
    const aside = await openQueue({ store: `sqlite:${replaced}` });
    onTestFinished(() => aside.stop());
    expect(await aside.lease()).toMatchObject([{ topic: 'old', payload: 'in the log' }]);
  });

  it('puts a store aside that is damaged, as it is', async () => {
    await backupOfThree();
    await writeFile(at('queue.db'), 'not a store at all'.repeat(100));
    await writeFile(at('queue.db-wal'), 'and its log');
    const { code, out } = await restore('backup.db', 'queue.db', '--force', '--json');
    expect(code).toBe(0);
    const { replaced } = JSON.parse(out) as { replaced: string };
    expect(await readFile(replaced, 'utf8')).toBe('not a store at all'.repeat(100));
    expect(await readFile(`${replaced}-wal`, 'utf8')).toBe('and its log');
    expect((await (await opened('queue.db')).topics()).topics).toHaveLength(1);
  });

  it('is refused while a server has the store, said or not', async () => {
    await backupOfThree();
    const server = await serve('queue.db');
    for (const more of [[], ['--force']]) {
      const result = await restore('backup.db', 'queue.db', ...more);
      expect(result.code).toBe(1);
      expect(result.err).toMatch(more.length === 0 ? /is there already/ : new RegExp(`process ${server.child.pid}`));
    }
    expect(await server.queue.enqueue('t', [{ payload: 1 }])).toMatchObject([{ deduplicated: false }]);
  });

  it.each([
    [
      'cut off',
      async (path: string) => truncate(path, (await stat(path)).size - 5_000),
      /cut off after \d+ of \d+ bytes/,
    ],
    ['empty', (path: string) => truncate(path, 0), /it is empty/],
    ['of another kind', (path: string) => writeFile(path, 'a letter'), /is not an Ebbmark store/],
    [
      'of another application',
      async (path: string) => {
        await rm(path);
        new Database(path).exec('CREATE TABLE t (a)').close();
      },
      /of another application/,
    ],
    [
      'spoilt in the middle',
      async (path: string) => {
        const bytes = await readFile(path);
        bytes.fill(0xa5, bytes.length / 2, bytes.length / 2 + 4096);
        await writeFile(path, bytes);
      },
      /is damaged/,
    ],
    [
      'of a newer version',
      async (path: string) => {
        const db = new Database(path);
        db.pragma('user_version = 99');
        db.close();
      },
      /was written by a newer Ebbmark \(schema 99/,
    ],
    [
      'beside a log',
      (path: string) => writeFile(`${path}-wal`, 'x'),
      /it is a store that was in use, and not a backup/,
    ],
    ['not there', (path: string) => rm(path), /is not there/],
  ])('takes no file that is %s', async (_, spoil, message) => {
    await backupOfThree();
    await spoil(at('backup.db'));
    const before = await readdir(directory);
    const target = await readFile(at('first.db'));
    const result = await restore('backup.db', 'first.db', '--force');
    expect(result).toMatchObject({ code: 1, out: '', err: expect.stringMatching(message) });
    expect(result.err).not.toMatch(/\n\s+at /);
    expect(await restore('backup.db', 'new.db')).toMatchObject({ code: 1, err: expect.stringMatching(message) });
    expect(await readdir(directory)).toEqual(before);
    expect((await readFile(at('first.db'))).equals(target)).toBe(true);
  });

  it('takes a backup in which something must not be only where that was said', async () => {
    await backupOfThree();
    const db = new Database(at('backup.db'));
    db.exec('UPDATE checkpoint SET completion = 9, scan = 3');
    db.exec("INSERT OR REPLACE INTO checkpoint VALUES ('t', 5, 3, 9, 0, 0)");
    db.pragma('journal_mode = DELETE');
    db.close();
    const refused = await restore('backup.db', 'new.db');
    expect(refused).toMatchObject({ code: 1, err: expect.stringMatching(/cursor-order: 1 [\s\S]*--force/) });
    expect(await readdir(directory)).not.toContain('new.db');
    expect(await restore('backup.db', 'new.db', '--force')).toMatchObject({ code: 0 });
  });

  it('does not take the store for a backup of itself', async () => {
    await backupOfThree();
    const result = await restore('first.db', 'first.db', '--force');
    expect(result).toMatchObject({ code: 1, err: expect.stringContaining('is the store itself') });
  });
});

describe('ebbmark compact', () => {
  it('writes a store anew, and says how large it was', async () => {
    await backupOfThree();
    const result = await run(['compact', '--store', storeAt('first.db')]);
    expect(result).toMatchObject({ code: 0, out: expect.stringMatching(/: [\d.]+ KiB → [\d.]+ KiB\n$/) });
    expect((await (await opened('first.db')).topics()).topics).toHaveLength(1);
    expect(await run(['compact', '--store', storeAt('missing.db')])).toMatchObject({ code: 1 });
    const server = await serve('queue.db');
    const refused = await run(['compact', '--store', storeAt('queue.db')]);
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining(`kill ${server.child.pid}`) });
  });
});
