/**
 * Opens a store file so that nobody else has it and nothing damaged is written to.
 *
 * 1. The file's header is read with plain file access: what is not ours is never touched by SQLite.
 * 2. What is in the file is checked before anything is written. After a clean stop there is no log (`-wal`), and a
 *    connection that only reads leaves the file as it is. After a crash there is one, and the first connection that may
 *    write would copy it into the file when it closes; so then a connection that cannot write does the check.
 * 3. The lock is SQLite's own (`locking_mode = EXCLUSIVE`), held for as long as the file is open and gone with the
 *    process, whatever ends it.
 */
import { accessSync, constants, existsSync, realpathSync, rmSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import Database from 'better-sqlite3';
import { type Migration, StoreUnavailableError } from '../store.ts';
import { inUse, isBusy, storeError } from './errors.ts';
import { checkContents, checkHeader, damaged } from './inspect.ts';
import { migrate, outdated, type Upgrade } from './migrate.ts';
import { logFault } from './wal.ts';

/** How long to wait for a process that is just letting go of the file. */
export const BUSY_MS = 200;

/** Pages of the log (`-wal`) after which a commit copies them into the file. */
export const CHECKPOINT_PAGES = 4_000;

export interface OpenFile {
  readonly db: Database.Database;
  /** Where it is, without symbolic links; null: in memory. */
  readonly path: string | null;
  /** What was done to bring it up to date. */
  readonly migration: Migration;
  /** Closes the connection and lets go of the lock. */
  close(): void;
}

/**
 * Files that this thread has open, by device and inode. POSIX drops all of a process's locks on a file when it closes
 * *any* descriptor of it, so even looking at the header of a file that we have open would give away its lock.
 */
const openHere = new Set<string>();

/**
 * Opens or creates a store file.
 * @param path `:memory:`, or a path in a directory that is there: one that is missing is more often misspelt than meant
 * @throws StoreInUseError, StoreDamagedError, StoreUnavailableError; StoreOutdatedError where it may not be changed
 */
export function openFile(path: string, upgrade: Upgrade = {}): OpenFile {
  if (path === ':memory:') {
    const db = new Database(path);
    configure(db);
    return { db, path: null, migration: migrate(db, path, upgrade), close: () => void db.close() };
  }
  const file = locate(path);
  if ((upgrade.migrate === false || upgrade.asIs) && identityOf(file) === null) throw outdated(file, 0);
  const before = inspectFile(file);
  const { db, migration } = openExclusively(file, before.contentsChecked, upgrade);
  // Nobody else can be using it now: whoever reads a file with a log holds a lock that excludes ours.
  if (before.leavesShm) rmSync(`${file}-shm`, { force: true });
  const identity = identityOf(file)!;
  openHere.add(identity);
  return {
    db,
    path: file,
    migration,
    close: () => {
      db.close();
      openHere.delete(identity);
    },
  };
}

/** Looks at the file as it is, changing nothing. */
function inspectFile(file: string): { readonly contentsChecked: boolean; readonly leavesShm: boolean } {
  const identity = identityOf(file);
  if (identity === null) checkDirectory(dirname(file));
  else if (openHere.has(identity)) throw inUse(file, 'this process');
  const isEmpty = identity === null || checkHeader(file);
  if (!hasLog(file)) return { contentsChecked: false, leavesShm: false };
  if (isEmpty) throw damaged(file, 'it is empty or gone, while its log (-wal) is there and not empty');
  const hadShm = existsSync(`${file}-shm`);
  try {
    checkReadOnly(file);
  } catch (error) {
    if (!hadShm) rmSync(`${file}-shm`, { force: true });
    throw error;
  }
  return { contentsChecked: true, leavesShm: !hadShm };
}

function checkReadOnly(file: string): void {
  guarded(file, () => {
    const db = new Database(file, { readonly: true, timeout: BUSY_MS });
    try {
      // The first read takes a shared lock; from here on nobody changes the file or its log.
      db.prepare('SELECT count(*) FROM sqlite_schema').get();
      const fault = hasLog(file) ? logFault(`${file}-wal`) : null;
      if (fault !== null) throw damaged(file, fault);
      checkContents(db, file);
    } finally {
      db.close();
    }
  });
}

function openExclusively(file: string, contentsChecked: boolean, upgrade: Upgrade): Pick<OpenFile, 'db' | 'migration'> {
  return guarded(file, () => {
    const db = new Database(file, { timeout: BUSY_MS });
    try {
      db.pragma('locking_mode = EXCLUSIVE');
      // No pages: it is new, or its creation was cut off and has just been undone.
      if (!contentsChecked && Number(db.pragma('page_count', { simple: true })) > 0) checkContents(db, file);
      const migration = migrate(db, file, upgrade);
      configure(db);
      return { db, migration };
    } catch (error) {
      db.close();
      throw error;
    }
  });
}

function configure(db: Database.Database): void {
  db.pragma('journal_mode = WAL');
  db.pragma('synchronous = FULL');
  db.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  db.pragma('cache_size = -32768');
  db.pragma('temp_store = MEMORY');
  db.pragma('trusted_schema = OFF');
}

function guarded<T>(file: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (isBusy(error)) throw inUse(file, 'another process');
    throw storeError(error, file);
  }
}

/** Bytes of the log beside a file. */
export const logBytes = (file: string): number => statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0;
/** Whether there is a log beside a file that says something. */
export const hasLog = (file: string): boolean => logBytes(file) > 0;

/** The path without a symbolic link at its end: SQLite puts the log beside the file that is meant. */
function locate(path: string): string {
  const file = resolve(path);
  return existsSync(file) ? realpathSync(file) : file;
}

function identityOf(file: string): string | null {
  try {
    const stat = statSync(file, { bigint: true, throwIfNoEntry: false });
    if (stat === undefined) return null;
    accessSync(file, constants.R_OK | constants.W_OK);
    if (stat.isFile()) return `${stat.dev}:${stat.ino}`;
  } catch (error) {
    throw new StoreUnavailableError(`${file} cannot be opened: ${(error as Error).message}`, { cause: error });
  }
  throw new StoreUnavailableError(`${file} is not a file; a store is one file, for example ./ebbmark.db`);
}

/** @throws StoreUnavailableError where it is none */
export function checkDirectory(directory: string): void {
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory()) return;
  throw new StoreUnavailableError(`${directory} is no directory that is there: make it first, or correct the path`);
}
