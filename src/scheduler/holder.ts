/**
 * Who schedules: the holder of the lease in the row of shard 0, the distributed mutex of the design.
 *
 * The holder raises the row's version every RENEW_MS. Another server that has watched a version stand still for LEASE_MS
 * of its own monotonic clock takes the lease, with a higher term; no two clocks are ever compared. A holder that could
 * not renew for LEASE_MS − MARGIN_MS stops by its own monotonic clock, before anybody may take over. One that was
 * paused past all this can do nothing: its term is in the condition of every claim.
 *
 * The mutex saves work; safety rests on the conditions of the writes alone.
 */
import type { QueueLogger } from '../queue/engine.ts';
import type { Environment } from '../queue/environment.ts';
import { definitely } from '../queue/outcomes.ts';
import type { ShardRow, Store } from '../store/store.ts';

export const LEASE_MS = 10_000;
const RENEW_MS = 2_000;
const MARGIN_MS = 2_000;
/** The row that holds the lease of everything. */
const LEASE_SHARD = 0;

const EMPTY: ShardRow = { holder: null, term: 0, version: 0, period: 1, oldestPeriod: 1, slotCursor: 0 };

export interface HolderEvents {
  /** This server schedules from now on, under this term. */
  gained(term: number): void;
  /** It no longer does. */
  lost(): void;
}

export class HolderLease {
  readonly #store: Store;
  readonly #env: Environment;
  readonly #logger: QueueLogger;
  readonly #id: string;
  readonly #events: HolderEvents;
  #row: ShardRow | null = null;
  #holding = false;
  /** When the row was last seen to change, or was last renewed here; by the monotonic clock. */
  #changedAt = 0;
  /** When the row, with the period in it, was last known to be as it is here. */
  #knownAt = 0;
  #cancel: (() => void) | null = null;
  #step: Promise<void> = Promise.resolve();
  #stopped = false;
  /** When the store last answered, by the monotonic clock. */
  lastAnswerAt: number;

  constructor(store: Store, env: Environment, logger: QueueLogger, id: string, events: HolderEvents) {
    this.#store = store;
    this.#env = env;
    this.#logger = logger;
    this.#id = id;
    this.#events = events;
    this.lastAnswerAt = env.monotonic();
  }

  get holding(): boolean {
    return this.#holding;
  }

  /** Who holds the lease as last seen; null: nobody, or not known. */
  get holder(): string | null {
    return this.#row?.holder ?? null;
  }

  /** The periods of the activity index as last seen, and when that was by the monotonic clock; null: not yet. */
  get period(): { readonly period: number; readonly oldestPeriod: number; readonly knownAt: number } | null {
    return this.#row && { period: this.#row.period, oldestPeriod: this.#row.oldestPeriod, knownAt: this.#knownAt };
  }

  get term(): number {
    return this.#row?.term ?? 0;
  }

  /** Reads the row now, so that the period is known to be current. */
  async look(): Promise<void> {
    const look = this.#step.then(() => this.#read());
    this.#step = look.then(
      () => {},
      () => {},
    );
    await look;
  }

  /** Takes the lease at once where it is free, and goes on to renew or to watch it. */
  async start(): Promise<void> {
    this.#changedAt = this.#env.monotonic();
    await this.#tick();
    this.#again();
  }

  /** Hands the lease over, so that another server can take it at once. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    await this.#step;
    if (!this.#holding || this.#row === null) return;
    this.#lose();
    const row = this.#row;
    await this.#write(row, { ...row, holder: null }).catch(() => {});
  }

  /** A claim found a higher term than ours: another server has taken over. */
  deposed(): void {
    if (this.#holding) this.#lose();
  }

  /** Writes another part of the row while holding it. @throws where the lease was lost */
  async update(change: Partial<Pick<ShardRow, 'period' | 'oldestPeriod'>>): Promise<boolean> {
    const done = this.#step.then(async () => {
      if (!this.#holding || this.#row === null) return false;
      return this.#renew({ ...this.#row, ...change });
    });
    this.#step = done.then(
      () => {},
      () => {},
    );
    return done;
  }

  #again(): void {
    if (this.#stopped) return;
    this.#cancel = this.#env.timer(RENEW_MS, () => {
      const watchdog = this.#holding ? this.#watchdog() : null;
      this.#step = this.#step
        .then(() => this.#tick())
        .finally(() => {
          watchdog?.();
          this.#again();
        });
    });
  }

  /** Stops holding in time even where the store does not answer at all. */
  #watchdog(): () => void {
    const left = this.#changedAt + LEASE_MS - MARGIN_MS - this.#env.monotonic();
    return this.#env.timer(Math.max(0, left), () => {
      if (this.#holding && this.#env.monotonic() - this.#changedAt >= LEASE_MS - MARGIN_MS) this.#lose();
    });
  }

  async #tick(): Promise<void> {
    try {
      if (this.#holding && this.#row !== null) await this.#renew(this.#row);
      else await this.#watch();
      this.lastAnswerAt = this.#env.monotonic();
    } catch (error) {
      if (!this.#stopped) this.#logger.warn({ err: error }, 'the lease of the scheduler could not be renewed or read');
      if (this.#holding && this.#env.monotonic() - this.#changedAt >= LEASE_MS - MARGIN_MS) this.#lose();
    }
  }

  async #renew(row: ShardRow): Promise<boolean> {
    // It counts from before the write: others may have seen it since then.
    const at = this.#env.monotonic();
    if (await this.#write(this.#row!, row)) {
      this.#changedAt = at;
      return true;
    }
    this.#lose();
    return false;
  }

  async #watch(): Promise<void> {
    const seen = await this.#read();
    const now = this.#env.monotonic();
    const isFree = seen === null || seen.holder === null || this.#store.exclusive;
    if (this.#stopped || !(isFree || now - this.#changedAt >= LEASE_MS)) return;
    const before = seen ?? EMPTY;
    if (!(await this.#write(seen, { ...before, holder: this.#id, term: before.term + 1 }))) return;
    this.#changedAt = now;
    this.#holding = true;
    this.#events.gained(this.#row!.term);
  }

  /** The row as it stands; where a holder finds that another one is in it, it has lost the lease. */
  async #read(): Promise<ShardRow | null> {
    const at = this.#env.monotonic();
    const seen = await this.#store.readShard(LEASE_SHARD, true);
    if (this.#holding) {
      if (seen?.holder !== this.#id) this.#lose();
    } else if (seen?.version !== this.#row?.version) this.#changedAt = at;
    this.#row = seen;
    this.#knownAt = at;
    return seen;
  }

  async #write(seen: ShardRow | null, row: ShardRow): Promise<boolean> {
    const next = { ...row, version: (seen?.version ?? 0) + 1 };
    const at = this.#env.monotonic();
    const write = () => this.#store.writeShard(LEASE_SHARD, seen?.version ?? null, next);
    if ((await definitely(this.#env, write)) === 'applied') {
      this.#row = next;
      this.#knownAt = at;
      return true;
    }
    // After an unknown outcome, the row that stands there may be ours.
    const stands = await this.#store.readShard(LEASE_SHARD, true);
    const ours = stands?.version === next.version && stands.holder === next.holder && stands.term === next.term;
    this.#row = stands;
    this.#knownAt = at;
    return ours;
  }

  #lose(): void {
    this.#holding = false;
    this.#events.lost();
  }
}
