/**
 * A copy of the store while it is written to.
 *
 * In WAL mode the file itself changes only when the log is copied into it (a checkpoint). So: copy the log, all of it,
 * and from then on none; then the file stays as it was at that moment, and can be read with plain file access, by the
 * threads that read files, while writes go to the log. Nothing is copied twice, nothing waits, and no disk of the server's
 * has to hold the copy.
 *
 * What it costs is a log that grows for as long as somebody reads, and is copied at one go afterwards: a second of it is
 * some 10 MB under full load, and 128 MiB take a moment. Whoever reads so slowly that it grows beyond that loses the
 * snapshot, and the queue goes on as ever.
 *
 * The file is opened once, and closed only after the connection: see `openHere` in open.ts.
 */
import { closeSync, openSync, read as readCallback } from 'node:fs';
import { promisify } from 'node:util';
import type { Database } from 'better-sqlite3';
import { type Snapshot, StoreUnavailableError } from '../store.ts';
import { CHECKPOINT_PAGES, logBytes, openFile } from './open.ts';

const read = promisify(readCallback);

/** Bytes of a piece: a fraction of a millisecond of the event loop. */
const PIECE_BYTES = 256 * 1024;
/** How far the log may grow while a snapshot is read. */
export const MAX_LOG_BYTES = 128 * 1024 * 1024;

export class Snapshots {
  readonly #db: Database;
  readonly #path: string;
  readonly #maxLogBytes: number;
  #current: OpenSnapshot | null = null;
  #descriptor: number | null = null;

  constructor(db: Database, path: string, maxLogBytes = MAX_LOG_BYTES) {
    this.#db = db;
    this.#path = path;
    this.#maxLogBytes = maxLogBytes;
  }

  get isOpen(): boolean {
    return this.#current !== null;
  }

  /** To be called between two transactions. @returns null where one is open */
  begin(): Snapshot | null {
    if (this.#current !== null) return null;
    const [state] = this.#db.pragma('wal_checkpoint(TRUNCATE)') as { readonly busy: number }[];
    if (state?.busy !== 0) throw new StoreUnavailableError(`${this.#path}: its log could not be copied into the file`);
    this.#db.pragma('wal_autocheckpoint = 0');
    this.#descriptor ??= openSync(this.#path, 'r');
    const pages = Number(this.#db.pragma('page_count', { simple: true }));
    const bytes = pages * Number(this.#db.pragma('page_size', { simple: true }));
    this.#current = new OpenSnapshot(this.#path, this.#descriptor, bytes, () => this.#end());
    return this.#current;
  }

  /** To be called behind each commit: gives a snapshot up that holds the log for too long. */
  committed(): void {
    if (this.#current === null || logBytes(this.#path) <= this.#maxLogBytes) return;
    this.#current.giveUp(
      `${this.#path}: the copy was given up, because ${this.#maxLogBytes} bytes were written while it was read; read it faster, or when less is written`,
    );
  }

  /** To be called before the connection is closed. @returns what has to be called behind that */
  close(): () => void {
    this.#current?.giveUp(`${this.#path} is closed`);
    return () => {
      if (this.#descriptor !== null) closeSync(this.#descriptor);
      this.#descriptor = null;
    };
  }

  #end(): void {
    this.#current = null;
    // Here, so that the next commit, which waits for it anyhow, brings the log back to its size.
    if (this.#db.open) this.#db.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  }
}

/**
 * Of a store that nobody has open, whatever schema it has; the file is open for as long as the snapshot is.
 * @throws what openSqliteStore throws
 */
export function snapshotOfFile(target: string): Snapshot {
  const { db, path, close } = openFile(target, { asIs: true });
  if (path === null) throw new StoreUnavailableError('a store in memory has no file');
  const snapshots = new Snapshots(db, path);
  const snapshot = snapshots.begin()!;
  return {
    bytes: snapshot.bytes,
    read: () => snapshot.read(),
    close: () => {
      const closeDescriptor = snapshots.close();
      close();
      closeDescriptor();
    },
  };
}

class OpenSnapshot implements Snapshot {
  readonly bytes: number;
  readonly #path: string;
  readonly #descriptor: number;
  readonly #end: () => void;
  #at = 0;
  #isOpen = true;
  #fault = 'the snapshot was closed';

  constructor(path: string, descriptor: number, bytes: number, end: () => void) {
    this.bytes = bytes;
    this.#path = path;
    this.#descriptor = descriptor;
    this.#end = end;
  }

  async read(): Promise<Uint8Array | null> {
    if (this.#at === this.bytes) return null;
    const piece = Buffer.allocUnsafe(Math.min(PIECE_BYTES, this.bytes - this.#at));
    let filled = 0;
    while (filled < piece.length) {
      this.#mustBeOpen();
      const bytesRead = await this.#readInto(piece, filled);
      if (bytesRead === 0) throw new StoreUnavailableError(`${this.#path} ends after ${this.#at + filled} bytes`);
      filled += bytesRead;
    }
    // What was read while it ended may be newer than the rest.
    this.#mustBeOpen();
    this.#at += filled;
    if (this.#at === this.bytes) this.close();
    return piece;
  }

  async #readInto(piece: Buffer, from: number): Promise<number> {
    try {
      return (await read(this.#descriptor, piece, from, piece.length - from, this.#at + from)).bytesRead;
    } catch (error) {
      throw new StoreUnavailableError(`${this.#path} cannot be read: ${(error as Error).message}`, { cause: error });
    }
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#end();
  }

  giveUp(fault: string): void {
    if (!this.#isOpen) return;
    this.#fault = fault;
    this.close();
  }

  #mustBeOpen(): void {
    if (!this.#isOpen) throw new StoreUnavailableError(this.#fault);
  }
}
