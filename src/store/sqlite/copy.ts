/**
 * Files that are made beside the one that they are to be, and take its name when they are whole: who dies before leaves
 * what was there, and a file that ends with `.partial`.
 */
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, linkSync, openSync, renameSync, rmSync, statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import Database from 'better-sqlite3';
import { type Snapshot, StoreUnavailableError } from '../store.ts';
import { storeError } from './errors.ts';
import { checkContents, checkHeader, damaged } from './inspect.ts';
import { checkDirectory } from './open.ts';

export interface CopyOptions {
  /** Replaces a file that is there; off, it is refused. */
  readonly overwrite?: boolean;
  /** Told now and then how many bytes of how many were written. */
  readonly progress?: (bytes: number, of: number) => void;
}

export interface SavedCopy {
  readonly path: string;
  readonly bytes: number;
  /** In hexadecimal digits, as `sha256sum` prints it. */
  readonly sha256: string;
}

/** The name of a file that is to become `path`. */
export const partialOf = (path: string): string =>
  join(dirname(path), `.${basename(path)}.${randomBytes(4).toString('hex')}.partial`);

/**
 * Writes a snapshot into a file, looks whether it is whole, and gives it its name, all of it on disk by then.
 * @throws StoreUnavailableError where the file is there, cannot be written, or the snapshot broke off;
 *   StoreDamagedError where what came is damaged
 */
export async function saveSnapshot(snapshot: Snapshot, target: string, options: CopyOptions = {}): Promise<SavedCopy> {
  const path = resolve(target);
  const partial = partialOf(path);
  try {
    mustBeFree(path, options.overwrite);
    const sha256 = await writePieces(snapshot, partial, options.progress);
    checkCopy(partial, `what was copied for ${path}`);
    rename(partial, path, options.overwrite);
    return { path, bytes: snapshot.bytes, sha256 };
  } finally {
    snapshot.close();
    rmSync(partial, { force: true });
  }
}

/** Copies a file that nobody has open, as a snapshot. @throws StoreUnavailableError */
export async function copyFile(from: string, to: string, progress: CopyOptions['progress']): Promise<void> {
  const file = await written(from, () => open(from, 'r'));
  const { size } = await file.stat();
  let at = 0;
  const read = async (): Promise<Uint8Array | null> => {
    const { bytesRead, buffer } = await written(from, () =>
      file.read(Buffer.allocUnsafe(COPY_BYTES), 0, COPY_BYTES, at),
    );
    at += bytesRead;
    return bytesRead === 0 ? null : buffer.subarray(0, bytesRead);
  };
  try {
    await writePieces({ bytes: size, read, close: () => {} }, to, progress);
  } finally {
    await file.close();
  }
}

const COPY_BYTES = 1024 * 1024;

/** @returns the SHA-256 of what was written */
async function writePieces(snapshot: Snapshot, path: string, progress: CopyOptions['progress']): Promise<string> {
  const hash = createHash('sha256');
  const file: FileHandle = await written(path, () => open(path, 'wx', 0o600));
  try {
    let bytes = 0;
    for (let piece = await snapshot.read(); piece !== null; piece = await snapshot.read()) {
      const content = piece;
      hash.update(content);
      await written(path, () => file.writeFile(content));
      bytes += content.length;
      progress?.(bytes, snapshot.bytes);
    }
    if (bytes !== snapshot.bytes)
      throw new StoreUnavailableError(`the copy broke off after ${bytes} of ${snapshot.bytes} bytes`);
    await written(path, () => file.sync());
  } finally {
    await file.close();
  }
  return hash.digest('hex');
}

async function written<T>(path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw new StoreUnavailableError(`${path}: ${(error as Error).message}`, { cause: error });
  }
}

function mustBeFree(path: string, overwrite = false): void {
  checkDirectory(dirname(path));
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat !== undefined && !stat.isFile()) throw new StoreUnavailableError(`${path} is not a file`);
  if (stat !== undefined && !overwrite) throw isThere(path);
}

const isThere = (path: string): StoreUnavailableError =>
  new StoreUnavailableError(`${path} is there already; --force replaces it`);

/** Gives a file its name, for good. */
export function rename(from: string, to: string, overwrite = false): void {
  if (overwrite) renameSync(from, to);
  else {
    // A rename would replace what came meanwhile; not every file system has links.
    try {
      linkSync(from, to);
    } catch (error) {
      if (existsSync(to)) throw isThere(to);
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw error;
      renameSync(from, to);
    }
    rmSync(from, { force: true });
  }
  sync(dirname(to));
}

/** Brings what was written to it to the disk: a file's bytes, or a directory's names. */
export function sync(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Looks at every page of a file that nobody has open.
 * @param name what it is called in errors
 * @throws StoreDamagedError
 */
export function checkCopy(file: string, name: string): void {
  if (checkHeader(file, name)) throw damaged(name, 'it is empty');
  try {
    const db = new Database(file);
    try {
      db.pragma('locking_mode = EXCLUSIVE');
      checkContents(db, name);
      const faults = db.pragma('integrity_check(3)') as { readonly integrity_check: string }[];
      const said = faults.map((fault) => fault.integrity_check).join('; ');
      if (said !== 'ok') throw damaged(name, said);
    } finally {
      db.close();
    }
  } catch (error) {
    throw storeError(error, name);
  }
}
