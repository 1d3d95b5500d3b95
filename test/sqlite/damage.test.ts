import { copyFileSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it } from 'vitest';
import { latestSchema } from '../../src/store/sqlite/migrate.ts';
import { openFile } from '../../src/store/sqlite/open.ts';
import { openSqliteStore, SqliteStore } from '../../src/store/sqlite/store.ts';
import { append, entry, range, readAll } from '../conformance/harness.ts';
import { contents, opened, scratch } from './scratch.ts';

const LOG = { topic: 'kept', tier: 5 };
const PAGE = 4096;

/** A directory with a store of some hundred entries that was closed. */
async function closedStore(): Promise<{ directory: string; path: string }> {
  const directory = scratch();
  const path = join(directory, 'store.db');
  const store = await opened(path);
  for (let i = 0; i < 5; i++) {
    await append(
      store,
      LOG,
      range(0, 100).map((n) => entry(`${i}/${n}`, { payload: JSON.stringify('p'.repeat(150)) })),
    );
  }
  await store.close();
  return { directory, path };
}

/** The same as a process leaves it that was killed: the file and a log of several transactions beside it. */
async function killedStore(): Promise<{ directory: string; path: string }> {
  const { path: closed } = await closedStore();
  const store = await opened(closed);
  for (let i = 5; i < 10; i++) {
    await append(
      store,
      LOG,
      range(0, 20).map((n) => entry(`${i}/${n}`)),
    );
  }
  const directory = scratch();
  const path = join(directory, 'store.db');
  for (const end of ['', '-wal']) copyFileSync(`${closed}${end}`, `${path}${end}`);
  return { directory, path };
}

/** Changes bytes of a file; a negative offset counts from its end. */
function spoil(path: string, offset: number, bytes = 64): void {
  const content = readFileSync(path);
  const at = offset < 0 ? content.length + offset : offset;
  for (let i = at; i < Math.min(at + bytes, content.length); i++) content[i]! ^= 0xa5;
  writeFileSync(path, content);
}

async function expectRefused(directory: string, path: string, text: RegExp | string): Promise<void> {
  const before = contents(directory);
  for (let i = 0; i < 2; i++) {
    const refused = openSqliteStore(path);
    await expect(refused).rejects.toMatchObject({ name: 'StoreDamagedError' });
    await expect(refused).rejects.toThrow(text);
    await expect(refused).rejects.toThrow(path);
    expect(contents(directory)).toEqual(before);
  }
}

const sqliteFile = (path: string, applicationId: number, schema: number): void => {
  const db = new Database(path);
  db.exec('CREATE TABLE mine (a)');
  db.pragma(`application_id = ${applicationId}`);
  db.pragma(`user_version = ${schema}`);
  db.close();
};

describe('a file that is not a whole store is refused and left as it is', () => {
  it.each([
    ['text', Buffer.from('This is a text file, not a database.\n'.repeat(500))],
    ['one byte', Buffer.from('S')],
    ['zeros', Buffer.alloc(8192)],
  ])('%s', async (_, content) => {
    const directory = scratch();
    const path = join(directory, 'store.db');
    writeFileSync(path, content);
    await expectRefused(directory, path, 'is not an Ebbmark store');
  });

  it('the first bytes of a header', async () => {
    const directory = scratch();
    const path = join(directory, 'store.db');
    writeFileSync(path, 'SQLite format 3\0 and then');
    await expectRefused(directory, path, 'cut off after 25 bytes');
  });

  it("another application's file, also with a log beside it", async () => {
    const directory = scratch();
    const path = join(directory, 'other.db');
    sqliteFile(path, 77, 3);
    await expectRefused(directory, path, 'another application (application_id 77)');
    const db = new Database(path);
    db.pragma('journal_mode = WAL');
    db.exec('INSERT INTO mine VALUES (1)');
    const copy = scratch();
    for (const end of ['', '-wal']) copyFileSync(`${path}${end}`, join(copy, `other.db${end}`));
    db.close();
    await expectRefused(copy, join(copy, 'other.db'), 'another application');
  });

  it('a store of a newer version', async () => {
    const { directory, path } = await closedStore();
    const db = new Database(path);
    db.pragma(`user_version = ${latestSchema() + 1}`);
    db.close();
    await expectRefused(directory, path, `schema ${latestSchema() + 1}; this version knows up to ${latestSchema()}`);
  });

  it('a store of a newer version that was killed while it migrated', async () => {
    const { path: original } = await closedStore();
    const db = new Database(original);
    db.pragma(`user_version = ${latestSchema() + 1}`);
    const directory = scratch();
    const path = join(directory, 'store.db');
    for (const end of ['', '-wal']) copyFileSync(`${original}${end}`, `${path}${end}`);
    db.close();
    await expectRefused(directory, path, 'newer Ebbmark');
  });

  it.each([1, 3, 20])('a store without its last %i pages', async (pages) => {
    const { directory, path } = await closedStore();
    truncateSync(path, statSync(path).size - pages * PAGE);
    await expectRefused(directory, path, /damaged: it is cut off after \d+ of \d+ bytes/);
  });

  it('a store cut in the middle of a page', async () => {
    const { directory, path } = await closedStore();
    truncateSync(path, statSync(path).size - 100);
    await expectRefused(directory, path, 'damaged');
  });

  it.each([
    ['the page size', 16, 2],
    ['the schema', 100, 60],
    ['the schema text', PAGE - 300, 300],
    ['the head of a page', PAGE * 12, 12],
    ['the head of the last page', -PAGE, 12],
    ['whole pages', PAGE * 10, PAGE * 3],
  ])('a store with other bytes in %s', async (_, offset, bytes) => {
    const { directory, path } = await closedStore();
    spoil(path, offset, bytes);
    await expectRefused(directory, path, path);
  });

  it('a SQLite file of ours without a table', async () => {
    const { directory, path } = await closedStore();
    const db = new Database(path);
    db.exec('DROP TABLE checkpoint');
    db.close();
    await expectRefused(directory, path, 'the table checkpoint is missing');
  });

  it('a store without what was fixed at creation', async () => {
    const { directory, path } = await closedStore();
    const db = new Database(path);
    db.exec("DELETE FROM meta WHERE name = 'slotMs'");
    db.close();
    await expectRefused(directory, path, 'meta has no slotMs');
  });
});

describe('after a crash', () => {
  it('the log is read, and nothing is left over', async () => {
    const { directory, path } = await killedStore();
    const store = await opened(path);
    expect(await readAll(store, LOG)).toHaveLength(600);
    await store.close();
    expect(Object.keys(contents(directory))).toEqual(['store.db']);
  });

  it('a log that was cut off in its last transaction loses that one alone', async () => {
    const { path } = await killedStore();
    truncateSync(`${path}-wal`, statSync(`${path}-wal`).size - 1000);
    expect(await readAll(await opened(path), LOG)).toHaveLength(580);
  });

  it.each([
    ['the file', '', PAGE * 12, /damaged/],
    ['the header of the log', '-wal', 8, 'the header of its log (-wal) is wrong'],
    ['the first frame of the log', '-wal', 32 + 24 + 100, 'frame 0 of its log (-wal) is wrong'],
    ['the head of a frame', '-wal', 32 + 4120 * 5, 'frame 5 of its log (-wal) is wrong'],
    ['a frame in the middle', '-wal', 32 + 4120 * 6 + 500, 'frame 6 of its log (-wal) is wrong'],
  ])('other bytes in %s are found, and both are left as they are', async (_, end, offset, text) => {
    const { directory, path } = await killedStore();
    spoil(`${path}${end}`, offset, 8);
    await expectRefused(directory, path, text);
  });

  it('a log whose file is empty or gone is not thrown away', async () => {
    const { directory, path } = await killedStore();
    truncateSync(path, 0);
    await expectRefused(directory, path, 'it is empty or gone, while its log (-wal) is there');
  });

  it('a creation that was cut off is begun again', async () => {
    const { path } = await closedStore();
    const file = readFileSync(path);
    // Not yet in WAL mode, with the journal that takes it back to no pages at all.
    file.fill(1, 18, 20);
    writeFileSync(path, file);
    const journal = Buffer.alloc(512);
    journal.write('d9d505f920a163d7', 'hex');
    journal.writeUInt32BE(512, 20);
    journal.writeUInt32BE(PAGE, 24);
    writeFileSync(`${path}-journal`, journal);
    const store = await opened(path);
    expect(await readAll(store, LOG)).toEqual([]);
    expect(await append(store, LOG, [entry(0)])).toBe(0);
  });
});

describe('damage met at run time', () => {
  it('is told, and nothing more is written', async () => {
    const { path } = await closedStore();
    const file = openFile(path, undefined);
    const store = new SqliteStore(path, file);
    file.db.pragma('cache_size = 1');
    file.db.pragma('shrink_memory');
    spoil(path, PAGE * 10, statSync(path).size - PAGE * 10);
    await expect(readAll(store, LOG)).rejects.toMatchObject({ name: 'StoreDamagedError' });
    const more = () => append(store, LOG, [entry('more')]);
    await expect(more()).rejects.toMatchObject({ name: 'StoreDamagedError' });
    await expect(store.writeTopic('t', null, '{}')).rejects.toMatchObject({ name: 'StoreDamagedError' });
    await store.close();
  });
});
