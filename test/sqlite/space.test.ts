import { statSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { compactSqliteStore } from '../../src/store/sqlite/replace.ts';
import { append, entry, range, readAll } from '../conformance/harness.ts';
import { eventually } from '../http/support/server.ts';
import { ackAll, testQueue } from '../support/queue.ts';
import { contents, opened, scratch } from './scratch.ts';

const MIB = 1024 * 1024;
const TASKS = 10_000;
const BYTES = 1_000;

it('is given back after a drain, once the retention is over, and the log with it', async () => {
  const path = join(scratch(), 'store.db');
  const size = () => statSync(path).size;
  const { queue, env } = await testQueue({ path });
  await queue.configure('t', { retentionMs: 300_000 });
  const before = queue.status().space!;
  for (let n = 0; n < TASKS; n += 1_000)
    await queue.enqueue(
      't',
      range(0, 1_000).map(() => ({ payload: 'x'.repeat(BYTES) })),
    );
  const filled = queue.status().space!;
  expect(filled.bytes).toBeGreaterThan(TASKS * BYTES);
  for (let some = await queue.lease({ max: 1_000 }); some.length > 0; some = await queue.lease({ max: 1_000 }))
    await ackAll(queue, some);
  // Kept for the retention.
  await env.advance(120_000);
  expect(queue.status().space!.freeBytes).toBeLessThan(MIB);
  await env.advance(300_000);
  await eventually(async () => {
    await env.advance(60_000);
    return size() < 2 * MIB;
  });
  await eventually(async () => {
    await env.advance(60_000);
    return queue.status().space!.logBytes < MIB;
  });
  const after = queue.status().space!;
  console.log(`bytes of the file: ${before.bytes} before, ${filled.bytes} filled, ${after.bytes} after`);
  expect(after).toMatchObject({ bytes: size(), givesBack: true });
  // A mebibyte stays for what comes next.
  expect(after.freeBytes).toBeLessThanOrEqual(MIB + 128 * 4096);
  await queue.enqueue('t', { payload: 1 });
});

it('stays where it is soon used again: a quarter of what is in use', async () => {
  const store = await opened(join(scratch(), 'store.db'));
  const log = { topic: 't', tier: 5 };
  for (let n = 0; n < 10_000; n += 200) {
    const entries = range(n, n + 200).map((id) => entry(`${id}`, { payload: JSON.stringify('x'.repeat(BYTES)) }));
    await append(store, log, entries);
  }
  const { bytes } = store.file!.space();
  await store.trim(log, 0, 0, 1_500);
  await store.file!.reclaim();
  expect(store.file!.space().bytes).toBe(bytes);
  await store.trim(log, 0, 1_500, 5_000);
  await store.file!.reclaim();
  const after = store.file!.space();
  expect(after.bytes).toBeLessThan(bytes * 0.75);
  expect(after.freeBytes / (after.bytes - after.freeBytes)).toBeLessThan(0.26);
  expect((await readAll(store, log)).map(({ id }) => id)).toEqual(range(5_000, 10_000));
});

it('goes on beside writes, and ends with the store', async () => {
  const store = await opened(join(scratch(), 'store.db'));
  const log = { topic: 't', tier: 5 };
  for (let n = 0; n < 10_000; n += 200) {
    const entries = range(n, n + 200).map((id) => entry(`${id}`, { payload: JSON.stringify('x'.repeat(BYTES)) }));
    await append(store, log, entries);
  }
  await store.trim(log, 0, 0, 10_000);
  let isDone = false;
  const reclaiming = store.file!.reclaim().then(() => {
    isDone = true;
  });
  // There is always something else to write.
  let writes = 0;
  while (!isDone) {
    await store.writeTopic(`t${writes}`, null, '{}');
    writes++;
  }
  await reclaiming;
  expect(writes).toBeGreaterThan(20);
  expect(store.file!.space().bytes).toBeLessThan(2 * MIB);

  const other = await opened(join(scratch(), 'store.db'));
  for (let n = 0; n < 2_000; n += 200) {
    const entries = range(n, n + 200).map((id) => entry(`${id}`, { payload: JSON.stringify('x'.repeat(BYTES)) }));
    await append(other, log, entries);
  }
  await other.trim(log, 0, 0, 2_000);
  const cut = other.file!.reclaim();
  await Promise.all([other.close(), expect(cut).rejects.toMatchObject({ name: 'StoreUnavailableError' })]);
});

it('is given back by a file of an older version once it was compacted', async () => {
  const directory = scratch();
  const path = join(directory, 'store.db');
  const log = { topic: 't', tier: 5 };
  const made = await opened(path);
  await made.close();
  // As files were made before.
  const older = new Database(path);
  older.pragma('journal_mode = DELETE');
  older.pragma('auto_vacuum = NONE');
  older.exec('VACUUM');
  older.close();
  const store = await opened(path);
  expect(store.file!.space().givesBack).toBe(false);
  for (let n = 0; n < 4_000; n += 200) {
    const entries = range(n, n + 200).map((id) => entry(`${id}`, { payload: JSON.stringify('x'.repeat(BYTES)) }));
    await append(store, log, entries);
  }
  await store.trim(log, 0, 0, 3_900);
  const { bytes } = store.file!.space();
  await store.file!.reclaim();
  expect(store.file!.space().bytes).toBe(bytes);
  expect(() => compactSqliteStore(path)).toThrow('already open in this process');
  await store.close();

  const { before, after } = compactSqliteStore(path);
  expect(before).toBe(bytes);
  expect(after).toBeLessThan(MIB);
  expect(Object.keys(contents(directory))).toEqual(['store.db']);
  const compacted = await opened(path);
  expect(compacted.file!.space()).toMatchObject({ givesBack: true, freeBytes: 0 });
  expect((await readAll(compacted, log)).map(({ id }) => id)).toEqual(range(3_900, 4_000));
});
