/**
 * Puts another file where a store is, or is to be. In this order, so that whoever dies in between leaves a store that is
 * whole at its path, the old one or the new one, and never the log of the one beside the other:
 *
 * 1. the old store is locked, so that no server has it, nor can open it;
 * 2. its log is copied into it, and gone: what a log beside the path says would be put into the new file;
 * 3. the old file gets a second name, and the new one takes the first, in one step;
 * 4. the lock goes with the old file.
 */
import { existsSync, linkSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import Database from 'better-sqlite3';
import { StoreDamagedError, StoreOutdatedError, StoreUnavailableError } from '../store.ts';
import { type CopyOptions, checkCopy, copyFile, partialOf, rename, sync } from './copy.ts';
import { inUse, isBusy, storeError } from './errors.ts';
import { BUSY_MS, hasLog, openFile } from './open.ts';

/** A file that is whole and is to become a store. */
export interface StagedStore {
  /** Where it is until then. */
  readonly path: string;
  /**
   * @returns what the store that was there is called now; null where there was none
   * @throws StoreInUseError a server has it; StoreUnavailableError
   */
  install(): string | null;
  /** Removes it, where it was not installed. Idempotent. */
  discard(): void;
}

/**
 * Copies a backup beside the path at which it is to be a store, and looks whether it is whole.
 * @throws StoreDamagedError where it is not; StoreInUseError; StoreUnavailableError where there is a store already
 */
export async function stageSqliteStore(from: string, to: string, options: CopyOptions = {}): Promise<StagedStore> {
  const source = resolve(from);
  const target = existsSync(to) ? realpathSync(to) : resolve(to);
  if (!existsSync(source)) throw new StoreUnavailableError(`${source} is not there`);
  if (existsSync(target) && realpathSync(source) === target)
    throw new StoreUnavailableError(`${source} is the store itself, and not a backup of it`);
  if (hasLog(source))
    throw new StoreUnavailableError(
      `${source} has a log (-wal) beside it: it is a store that was in use, and not a backup; ebbmark backup makes one of it`,
    );
  const isThere = existsSync(target) || hasLog(target);
  if (isThere && options.overwrite !== true)
    throw new StoreUnavailableError(`${target} is there already; --force puts it aside and restores`);
  // Before anything is copied: it is the likeliest fault.
  if (existsSync(target)) lockOld(target).release();
  const path = partialOf(target);
  const discard = (): void => {
    for (const end of ['', '-wal', '-shm']) rmSync(`${path}${end}`, { force: true });
  };
  try {
    await copyFile(source, path, options.progress);
    checkCopy(path, source);
  } catch (error) {
    discard();
    throw error;
  }
  return { path, install: () => install(path, target), discard };
}

function install(path: string, target: string): string | null {
  if (!existsSync(target)) {
    if (hasLog(target)) renameSync(`${target}-wal`, `${aside(target)}-wal`);
    rename(path, target);
    return null;
  }
  const old = lockOld(target);
  try {
    old.endLog();
    const kept = aside(target);
    if (hasLog(target)) renameSync(`${target}-wal`, `${kept}-wal`);
    linkOrCopy(target, kept);
    rename(path, target, true);
    return kept;
  } finally {
    old.release();
  }
}

/** Where there are no links, nothing has the path for a moment. */
function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to);
  } catch {
    renameSync(from, to);
  }
  sync(dirname(to));
}

const aside = (target: string): string => `${target}.replaced-${new Date().toISOString().replace(/[:.]/g, '-')}`;

interface OldStore {
  /** Brings its log into it. */
  endLog(): void;
  release(): void;
}

/** Takes the lock of the store that is there. One that is damaged is left as it is. */
function lockOld(target: string): OldStore {
  try {
    const { db, close } = openFile(target, { asIs: true });
    // Not WAL any more: on closing, a connection deletes the log at its path, which may be another one's by then.
    return { endLog: () => db.pragma('journal_mode = DELETE'), release: close };
  } catch (error) {
    if (!(error instanceof StoreDamagedError || error instanceof StoreOutdatedError)) throw error;
    mustBeUnused(target);
    // No server can open it; so there is nothing to lock.
    return { endLog: () => {}, release: () => {} };
  }
}

/** Changes nothing. A server that had it open before it was damaged may have it still. */
function mustBeUnused(target: string): void {
  const hadShm = existsSync(`${target}-shm`);
  const db = new Database(target, { readonly: true, timeout: BUSY_MS });
  try {
    db.prepare('SELECT count(*) FROM sqlite_schema').get();
  } catch (error) {
    if (isBusy(error)) throw inUse(target, 'another process');
  } finally {
    db.close();
    if (!hadShm) rmSync(`${target}-shm`, { force: true });
  }
}

export interface Compaction {
  readonly before: number;
  readonly after: number;
}

/**
 * Writes a store anew, without what is free in it, and so that free space is given back from then on.
 * @throws what openSqliteStore throws; StoreUnavailableError where there is no space for a second file
 */
export function compactSqliteStore(target: string): Compaction {
  const { db, path, close } = openFile(target, { asIs: true });
  if (path === null) throw new StoreUnavailableError('a store in memory has no file');
  const partial = partialOf(path);
  try {
    const bytes = (of: Database.Database): number =>
      Number(of.pragma('page_count', { simple: true })) * Number(of.pragma('page_size', { simple: true }));
    const before = bytes(db);
    db.pragma('auto_vacuum = INCREMENTAL');
    db.prepare('VACUUM INTO ?').run(partial);
    sync(partial);
    checkCopy(partial, partial);
    const made = new Database(partial, { readonly: true });
    const after = bytes(made);
    made.close();
    db.pragma('journal_mode = DELETE');
    rename(partial, path, true);
    return { before, after };
  } catch (error) {
    throw storeError(error, path);
  } finally {
    close();
    rmSync(partial, { force: true });
  }
}
