/**
 * Group commit. Writes queue up; once per turn of the event loop one transaction runs all that came meanwhile, so that
 * one fsync serves them all: 6,000 writes a second alone, 200,000 rows in groups.
 *
 *     idle ──submit──▶ scheduled ──turn──▶ BEGIN, writes, COMMIT ──▶ promises answered ──▶ idle, or scheduled again
 *                                              │ one throws
 *                                              ▼
 *                                          ROLLBACK, then each alone: only the one at fault fails
 *
 * All of it is done on the main thread, the wait for the disk as well (docs/adr). A transaction takes about a mebibyte and
 * leaves the rest to the next turn, so that the event loop is not held. Urgent writes (claims and settlements) go first:
 * what is settled makes room, what is enqueued adds to the load. At least one of the others goes along each time, so that
 * they never starve. What can wait for an idle moment (space that is given back) runs when there is nothing else, or with
 * every eighth transaction where there always is.
 */
import type { Database } from 'better-sqlite3';
import { BATCH_BYTES } from '../../core/bounds.ts';
import { StoreUnavailableError } from '../store.ts';
import { isDamage, isIoError, storeError } from './errors.ts';

/** One write: it checks its conditions, writes all or nothing, and returns its answer. */
export interface Write<T> {
  /** Runs inside a transaction, and again in another one if that was rolled back. */
  run(): T;
  /** About how much it writes. */
  readonly bytes: number;
  readonly urgent: boolean;
  /** It waits until there is nothing else to write. */
  readonly idle?: boolean;
  /** The answer where the disk failed in the commit itself, so that nobody knows; an error when absent. */
  readonly unknown?: T;
}

interface Queued {
  readonly write: Write<unknown>;
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

/** Transactions that go before something idle at the most. */
const IDLE_AFTER = 8;

export class Committer {
  readonly #db: Database;
  readonly #path: string;
  readonly #maxBytes: number;
  #urgent: Queued[] = [];
  #others: Queued[] = [];
  #idle: Queued[] = [];
  /** Transactions since something idle ran. */
  #busyFor = 0;
  #commits = 0;
  /** Called behind each group of writes. */
  onCommit: () => void = () => {};
  #scheduled = false;
  #closed = false;
  /** Set by the first sign of damage: what is damaged is not written to again. */
  #damage: unknown = null;

  constructor(db: Database, path: string, maxBytes = BATCH_BYTES) {
    this.#db = db;
    this.#path = path;
    this.#maxBytes = maxBytes;
  }

  submit<T>(write: Write<T>): Promise<T> {
    if (this.#closed) return Promise.reject(new StoreUnavailableError(`${this.#path} is closed`));
    if (this.#damage !== null) return Promise.reject(this.#damage);
    return new Promise<T>((resolve, reject) => {
      const queue = write.idle ? this.#idle : write.urgent ? this.#urgent : this.#others;
      queue.push({ write, resolve: resolve as (answer: unknown) => void, reject });
      this.#schedule();
    });
  }

  /** Transactions that were committed. */
  get commits(): number {
    return this.#commits;
  }

  /** Runs what is queued, now, and takes nothing more. */
  close(): void {
    this.#closed = true;
    for (const { reject } of this.#idle.splice(0)) reject(new StoreUnavailableError(`${this.#path} is closed`));
    while (this.#isWaiting) this.#flush();
  }

  get #isWaiting(): boolean {
    return this.#urgent.length + this.#others.length + this.#idle.length > 0;
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#flush();
      if (this.#isWaiting) this.#schedule();
    });
  }

  #flush(): void {
    const group = this.#take();
    if (group.length === 0) return;
    const answers = this.#runTogether(group);
    if (answers === null) for (const queued of group) this.#runAlone(queued);
    else for (let i = 0; i < group.length; i++) group[i]!.resolve(answers[i]);
    this.onCommit();
  }

  /** The writes of the next transaction. */
  #take(): readonly Queued[] {
    const group: Queued[] = [];
    let bytes = 0;
    for (const queue of [this.#urgent, this.#others]) {
      let taken = 0;
      while (taken < queue.length && (taken === 0 || bytes + queue[taken]!.write.bytes <= this.#maxBytes)) {
        bytes += queue[taken]!.write.bytes;
        group.push(queue[taken]!);
        taken++;
      }
      queue.splice(0, taken);
    }
    if (this.#idle.length > 0 && (group.length === 0 || ++this.#busyFor >= IDLE_AFTER)) {
      this.#busyFor = 0;
      group.push(this.#idle.shift()!);
    }
    return group;
  }

  /** The answers of all, or null where the transaction was rolled back. */
  #runTogether(group: readonly Queued[]): readonly unknown[] | null {
    if (this.#damage !== null) return null;
    try {
      this.#db.exec('BEGIN IMMEDIATE');
      const answers = group.map((queued) => queued.write.run());
      this.#db.exec('COMMIT');
      this.#commits++;
      return answers;
    } catch {
      this.#rollback();
      return null;
    }
  }

  #runAlone(queued: Queued): void {
    if (this.#damage !== null) {
      queued.reject(this.#damage);
      return;
    }
    let committing = false;
    try {
      this.#db.exec('BEGIN IMMEDIATE');
      const answer = queued.write.run();
      committing = true;
      this.#db.exec('COMMIT');
      this.#commits++;
      queued.resolve(answer);
    } catch (error) {
      this.#rollback();
      const told = storeError(error, this.#path);
      if (isDamage(told)) this.#damage = told;
      // The commit's record may have reached the disk although its fsync failed; a restart could then bring it back.
      if (committing && isIoError(error) && queued.write.unknown !== undefined) queued.resolve(queued.write.unknown);
      else queued.reject(told);
    }
  }

  #rollback(): void {
    // SQLite has rolled back by itself after some errors (a full disk, an I/O error).
    if (this.#db.inTransaction) this.#db.exec('ROLLBACK');
  }
}
