/** SQLite as a place for the bench's tasks: files in a folder of their own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Floor, sqliteInsertFloor } from './floors.ts';
import type { Place } from './place.ts';

export interface SqlitePlace extends Place {
  /** What the same database does at best. */
  insertFloor(): Floor;
}

export function openSqlite(): SqlitePlace {
  const folder = mkdtempSync(join(tmpdir(), 'ebbmark-bench-'));
  let files = 0;
  const path = () => join(folder, `${files++}.db`);
  return {
    fresh: () => `sqlite:${path()}`,
    insertFloor: () => sqliteInsertFloor(path()),
    clear: async () => rmSync(folder, { recursive: true, force: true }),
  };
}
