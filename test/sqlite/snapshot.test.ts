import { spawnSync } from 'node:child_process';
import { appendFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { openFile } from '../../src/store/sqlite/open.ts';
import { Snapshots } from '../../src/store/sqlite/snapshot.ts';
import type { Snapshot, Store } from '../../src/store/store.ts';
import { append, entry, range, readAll } from '../conformance/harness.ts';
import { opened, scratch } from './scratch.ts';

const LOG = { topic: 'copied', tier: 5 };
const MIB = 1024 * 1024;

const fill = (store: Store, from: number, count: number, bytes = 1_000) =>
  append(
    store,
    LOG,
    range(from, from + count).map((n) => entry(`${n}`, { payload: JSON.stringify('x'.repeat(bytes)) })),
  );

async function readInto(path: string, snapshot: Snapshot, meanwhile: () => Promise<unknown>): Promise<void> {
  writeFileSync(path, '');
  for (let piece = await snapshot.read(); piece !== null; piece = await snapshot.read()) {
    appendFileSync(path, piece);
    await meanwhile();
  }
}

it('is the store as it was at its beginning, whatever is written meanwhile', async () => {
  const directory = scratch();
  const store = await opened(join(directory, 'store.db'));
  for (let n = 0; n < 2_000; n += 100) await fill(store, n, 100);
  const snapshot = store.file!.snapshot()!;
  expect(snapshot.bytes).toBeGreaterThan(2 * MIB);
  let next = 2_000;
  const copy = join(directory, 'copy.db');
  await readInto(copy, snapshot, async () => {
    await fill(store, next, 100);
    next += 100;
    await store.trim(LOG, 0, 0, next / 4);
  });
  expect(statSync(copy).size).toBe(snapshot.bytes);
  expect(next).toBeGreaterThan(2_500);
  const copied = await readAll(await opened(copy), LOG);
  expect(copied.map(({ uid }) => uid)).toEqual(range(0, 2_000).map((n) => `uid-${n}`));
  expect((await readAll(store, LOG)).at(-1)!.uid).toBe(`uid-${next - 1}`);
});

it('is one at a time, and lets the log go on when it is closed', async () => {
  const path = join(scratch(), 'store.db');
  const store = await opened(path);
  const first = store.file!.snapshot()!;
  expect(store.file!.snapshot()).toBeNull();
  for (let n = 0; n < 9_000; n += 200) await fill(store, n, 200, 2_500);
  const grown = store.file!.space().logBytes;
  expect(grown).toBeGreaterThan(20 * MIB);
  // Space is not given back, nor the log copied, while somebody reads the file.
  await store.file!.reclaim();
  expect(store.file!.space().logBytes).toBe(grown);
  first.close();
  first.close();
  await expect(first.read()).rejects.toThrow('the snapshot was closed');
  await fill(store, 9_000, 1);
  await store.file!.reclaim();
  await store.file!.reclaim();
  expect(store.file!.space().logBytes).toBe(0);
  store.file!.snapshot()!.close();
});

it('is given up where the log grows too long, and the store goes on', async () => {
  const store = await opened(join(scratch(), 'store.db'));
  await fill(store, 0, 10);
  const snapshot = store.file!.snapshot()!;
  expect(await snapshot.read()).not.toBeNull();
  // All of a small store is one piece; what is asked for behind the end is answered.
  expect(await snapshot.read()).toBeNull();
  for (let n = 10; n < 5_000; n += 10) await fill(store, n, 10);
  const slow = store.file!.snapshot()!;
  let n = 5_000;
  for (; store.file!.space().logBytes < 128 * MIB; n += 10) await fill(store, n, 10, 100_000);
  await fill(store, n, 1);
  await expect(slow.read()).rejects.toThrow(/given up, because 134217728 bytes were written while it was read/);
  await fill(store, n + 1, 1);
  store.file!.snapshot()!.close();
});

it('goes back to copying the log by itself', () => {
  const path = join(scratch(), 'store.db');
  const { db, close } = openFile(path);
  const snapshots = new Snapshots(db, path, 1);
  const before = db.pragma('wal_autocheckpoint', { simple: true });
  expect(before).toBeGreaterThan(0);
  snapshots.begin();
  expect(db.pragma('wal_autocheckpoint', { simple: true })).toBe(0);
  db.exec("INSERT INTO topic (topic, settings, version) VALUES ('t', '{}', 1)");
  snapshots.committed();
  expect(snapshots.isOpen).toBe(false);
  expect(db.pragma('wal_autocheckpoint', { simple: true })).toBe(before);
  close();
  snapshots.close()();
});

it('keeps the lock on the file, while it is read and afterwards', async () => {
  const path = join(scratch(), 'store.db');
  const store = await opened(path);
  await fill(store, 0, 100);
  const other = () =>
    spawnSync(process.execPath, ['--import', 'tsx', fileURLToPath(new URL('appender.ts', import.meta.url)), path], {
      encoding: 'utf8',
    }).stderr;
  const snapshot = store.file!.snapshot()!;
  await snapshot.read();
  expect(other()).toContain('already open in another process');
  snapshot.close();
  expect(other()).toContain('already open in another process');
});

it('ends with the store', async () => {
  const path = join(scratch(), 'store.db');
  const store = await opened(path);
  for (let n = 0; n < 1_000; n += 100) await fill(store, n, 100);
  const snapshot = store.file!.snapshot()!;
  await snapshot.read();
  await store.close();
  await expect(snapshot.read()).rejects.toMatchObject({
    name: 'StoreUnavailableError',
    message: `${path} is closed`,
  });
  expect(await readAll(await opened(path), LOG)).toHaveLength(1_000);
});
