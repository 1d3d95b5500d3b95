/**
 * Tells whether a file is a store of ours and whole, without changing it.
 *
 * Layout of the header: https://sqlite.org/fileformat2.html#the_database_header
 */
import { closeSync, existsSync, fstatSync, openSync, readSync } from 'node:fs';
import type { Database } from 'better-sqlite3';
import { StoreDamagedError, StoreUnavailableError } from '../store.ts';
import { APPLICATION_ID, checkSchemaNumber, readMeta } from './migrate.ts';

const HEADER_BYTES = 100;
const MAGIC = 'SQLite format 3\0';

/** Up to this size every page is checked at start (about a second); above it, the structure only. */
const FULL_CHECK_BYTES = 256 * 1024 * 1024;

const TABLES = ['meta', 'task', 'segment', 'checkpoint', 'message', 'topic', 'activity', 'shard'];

export const damaged = (file: string, what: string): StoreDamagedError =>
  new StoreDamagedError(`${file} is damaged: ${what}. The file was left as it is; restore a backup that is whole.`);

/**
 * Reads the header with plain file access.
 * @param name what it is called in errors
 * @returns whether the file is empty, as one that is about to be created
 * @throws StoreDamagedError where the file is not a store of ours, or is cut short
 */
export function checkHeader(file: string, name = file): boolean {
  const { header, size } = readHeader(file);
  if (size === 0) return true;
  if (header.toString('latin1', 0, MAGIC.length) !== MAGIC) {
    throw new StoreDamagedError(
      `${name} is not an Ebbmark store: it does not begin as a SQLite file does. The file was left as it is.`,
    );
  }
  if (size < HEADER_BYTES) throw damaged(name, `it is cut off after ${size} bytes`);
  const application = header.readUInt32BE(68);
  if (application !== APPLICATION_ID) {
    throw new StoreDamagedError(
      `${name} is a SQLite file of another application (application_id ${application}), not an Ebbmark store. ` +
        'The file was left as it is.',
    );
  }
  checkSchemaNumber(header.readUInt32BE(60), name);
  checkSize(file, name, header, size);
  return false;
}

/** A file is as long as its header says; beside a log it may still be about to grow. */
function checkSize(file: string, name: string, header: Buffer, size: number): void {
  const stored = header.readUInt16BE(16);
  const pageSize = stored === 1 ? 65_536 : stored;
  if (pageSize < 512 || (pageSize & (pageSize - 1)) !== 0) throw damaged(name, `its page size is ${pageSize}`);
  const pages = header.readUInt32BE(28);
  if (!existsSync(`${file}-wal`) && !existsSync(`${file}-journal`) && size < pages * pageSize) {
    throw damaged(name, `it is cut off after ${size} of ${pages * pageSize} bytes`);
  }
}

function readHeader(file: string): { readonly header: Buffer; readonly size: number } {
  let descriptor: number | undefined;
  try {
    descriptor = openSync(file, 'r');
    const header = Buffer.alloc(HEADER_BYTES);
    readSync(descriptor, header, 0, HEADER_BYTES, 0);
    return { header, size: fstatSync(descriptor).size };
  } catch (error) {
    throw new StoreUnavailableError(`${file} cannot be read: ${(error as Error).message}`, { cause: error });
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

/**
 * Checks what is in the file, by reading alone.
 * @throws StoreDamagedError
 */
export function checkContents(db: Database, file: string): void {
  const found = new Set(db.prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table'").pluck().all());
  checkSchemaNumber(Number(db.pragma('user_version', { simple: true })), file);
  for (const table of TABLES) {
    if (!found.has(table)) throw damaged(file, `the table ${table} is missing`);
    db.prepare(`SELECT * FROM ${table} LIMIT 1`).get();
  }
  readMeta(db, file);
  const size = Number(db.pragma('page_count', { simple: true })) * Number(db.pragma('page_size', { simple: true }));
  if (size > FULL_CHECK_BYTES) return;
  const [first] = db.pragma('quick_check(1)') as { quick_check: string }[];
  if (first?.quick_check !== 'ok') throw damaged(file, first?.quick_check ?? 'quick_check gave no answer');
}
