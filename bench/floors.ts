import { readdirSync, readFileSync } from 'node:fs';
import Database from 'better-sqlite3';
import { monotonicFactory } from 'ulid';
import { PAYLOAD } from './payload.ts';

/** The least that storing tasks can cost: writes `count` rows, `batch` a transaction, and tells how long it took. */
export interface Floor {
  /** Times each transaction, in milliseconds. */
  write(count: number, batch: number): readonly number[];
  close(): void;
}

const SCHEMA = new URL('../schema/sqlite/', import.meta.url);

/** The columns of a row as an enqueue writes it; the others are null. */
const COLUMNS = [
  'topic',
  'tier',
  'id',
  'status',
  'version',
  'uid',
  'updated_at',
  'priority',
  'attempt',
  'hops',
  'enqueued_at',
  'placed_at',
  'payload',
] as const;

/**
 * The same rows in the same table, written by better-sqlite3 and nothing else, with the store's settings: without them
 * (the log's size above all) it would be slower, and no floor. Uids and rows are made beforehand.
 */
export function sqliteInsertFloor(path: string): Floor {
  const db = new Database(path);
  for (const pragma of [
    'locking_mode = EXCLUSIVE',
    'journal_mode = WAL',
    'synchronous = FULL',
    'wal_autocheckpoint = 4000',
    'cache_size = -32768',
  ]) {
    db.pragma(pragma);
  }
  for (const name of readdirSync(SCHEMA).sort()) db.exec(readFileSync(new URL(name, SCHEMA), 'utf8'));
  const insert = db.prepare(`INSERT INTO task (${COLUMNS.join(', ')}) VALUES (${COLUMNS.map(() => '?').join(', ')})`);
  const insertAll = db.transaction((rows: readonly (readonly unknown[])[]) => {
    for (const row of rows) insert.run(row);
  });
  const ulid = monotonicFactory();
  let next = 0;
  return {
    write: (count, batch) => {
      const at = Date.now();
      const text = JSON.stringify(PAYLOAD);
      const row = () => ['bench', 5, next++, 'ready', 1, ulid(), at, 5, 0, 0, at, at, text];
      const groups = Array.from({ length: Math.ceil(count / batch) }, () => Array.from({ length: batch }, row));
      return groups.map((rows) => {
        const start = performance.now();
        insertAll(rows);
        return performance.now() - start;
      });
    },
    close: () => void db.close(),
  };
}
