import Database from 'better-sqlite3';
import { StoreDamagedError, StoreInUseError, StoreUnavailableError } from '../store.ts';

/** SQLite's result code of an error (https://sqlite.org/rescode.html), or null where it isn't one of SQLite's. */
export const sqliteCode = (error: unknown): string | null =>
  error instanceof Database.SqliteError ? error.code : null;

/** Extended codes begin with their primary code: SQLITE_IOERR_FSYNC is an SQLITE_IOERR. */
const isKind = (code: string, kinds: readonly string[]): boolean =>
  kinds.some((kind) => code === kind || code.startsWith(`${kind}_`));

const DAMAGE = ['SQLITE_CORRUPT', 'SQLITE_NOTADB', 'SQLITE_FORMAT'];
const UNAVAILABLE = [
  'SQLITE_FULL',
  'SQLITE_IOERR',
  'SQLITE_BUSY',
  'SQLITE_LOCKED',
  'SQLITE_READONLY',
  'SQLITE_CANTOPEN',
  'SQLITE_NOMEM',
  'SQLITE_PERM',
  'SQLITE_AUTH',
  'SQLITE_PROTOCOL',
  'SQLITE_INTERRUPT',
];

export const isDamage = (error: unknown): boolean => {
  if (error instanceof StoreDamagedError) return true;
  const code = sqliteCode(error);
  return code !== null && isKind(code, DAMAGE);
};

export const isBusy = (error: unknown): boolean => {
  const code = sqliteCode(error);
  return code !== null && isKind(code, ['SQLITE_BUSY', 'SQLITE_LOCKED']);
};

export const isIoError = (error: unknown): boolean => {
  const code = sqliteCode(error);
  return code !== null && isKind(code, ['SQLITE_IOERR']);
};

/** Says an error of SQLite in the port's words; anything else is a fault of the program and stays what it is. */
export function storeError(error: unknown, path: string): unknown {
  const code = sqliteCode(error);
  if (code === null) return error;
  const message = (error as Error).message;
  if (isKind(code, DAMAGE)) return new StoreDamagedError(`${path} is damaged: ${message} (${code})`, { cause: error });
  if (isKind(code, UNAVAILABLE)) {
    return new StoreUnavailableError(`${path}: ${message} (${code}); nothing was written`, { cause: error });
  }
  return error;
}

export const inUse = (path: string, by: 'another process' | 'this process'): StoreInUseError =>
  new StoreInUseError(
    `${path} is already open in ${by}. A store file belongs to one server at a time: ` +
      'stop that server first, or set EBBMARK_URL so that commands speak to it over HTTP.',
  );
