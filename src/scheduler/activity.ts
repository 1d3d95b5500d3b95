/**
 * The activity index: which logs have work, so that topics are never enumerated.
 *
 * A log is recorded once a period, before anything put into it is acknowledged, in a period that was known to be
 * current within KNOWN_MS. About hourly the holder advances the period, waits until nobody can still take the old one
 * for current, records again what is still active, and only then deletes the old period as a whole. A start reads the
 * periods that are not deleted, and knows every log that may hold work.
 *
 * For speed, whoever is not the holder records a log again after it put something into it: the holder follows the
 * newest rows.
 */
import type { LogAddress } from '../core/entry.ts';
import { isSlotTopic, logKey } from '../core/log.ts';
import { shardOf } from '../core/message.ts';
import type { Activity } from '../queue/engine.ts';
import type { Environment } from '../queue/environment.ts';
import { GroupCommit } from '../queue/group-commit.ts';
import type { Log } from '../queue/log.ts';
import type { TopicBook } from '../queue/topics.ts';
import { type ActivityRow, type Store, StoreUnavailableError } from '../store/store.ts';
import type { HolderLease } from './holder.ts';

/** For how long a period that was seen to be current may be relied on, in milliseconds; the holder waits for longer. */
const KNOWN_MS = 8_000;
const WAIT_OUT_MS = 10_000;
const ROWS_PER_BATCH = 500;
const ROWS_PER_PAGE = 1_000;

export class ActivityIndex implements Activity {
  readonly #store: Store;
  readonly #env: Environment;
  readonly #lease: HolderLease;
  readonly #recorders: GroupCommit<Log, true>[] = [];

  constructor(store: Store, env: Environment, lease: HolderLease) {
    this.#store = store;
    this.#env = env;
    this.#lease = lease;
    for (let shard = 0; shard < store.meta.shards; shard++) {
      this.#recorders[shard] = new GroupCommit((batch) => this.#record(shard, batch), ROWS_PER_BATCH);
    }
  }

  ensure(log: Log): Promise<void> | null {
    const known = this.#lease.period;
    const isCurrent = known !== null && this.#env.monotonic() - known.knownAt < KNOWN_MS;
    if (isCurrent && log.recordedPeriod === known.period) return null;
    return this.#ensure(log, isCurrent);
  }

  /** @throws StoreUnavailableError where no server could write yet which period there is */
  get #periods(): NonNullable<HolderLease['period']> {
    const known = this.#lease.period;
    if (known === null) throw new StoreUnavailableError('no server schedules this store yet');
    return known;
  }

  async #ensure(log: Log, isCurrent: boolean): Promise<void> {
    if (!isCurrent) await this.#lease.look();
    if (log.recordedPeriod === this.#periods.period) return;
    await this.#recorders[this.#shardOf(log.address.topic)]!.submit([log]);
  }

  /** Records logs once more, so that the holder sees that something happened in them. Best effort. */
  async announce(logs: readonly Log[]): Promise<void> {
    await Promise.all(logs.map((log) => this.#recorders[this.#shardOf(log.address.topic)]!.submit([log])));
  }

  async #record(shard: number, logs: readonly Log[]): Promise<readonly true[]> {
    const { period } = this.#periods;
    const at = this.#env.now();
    await this.#store.recordActivity(
      shard,
      period,
      logs.map(({ address }) => ({ ...address, at })),
    );
    for (const log of logs) log.recordedPeriod = period;
    return logs.map(() => true);
  }

  /** The logs that may hold work. */
  async active(): Promise<readonly LogAddress[]> {
    const { oldestPeriod, period } = this.#periods;
    const logs = new Map<string, LogAddress>();
    for (let shard = 0; shard < this.#store.meta.shards; shard++) {
      for (let at = oldestPeriod; at <= period; at++) {
        for await (const { topic, tier } of this.#rows(shard, at)) logs.set(logKey({ topic, tier }), { topic, tier });
      }
    }
    return [...logs.values()];
  }

  /** Begins a new period, carries over what is active, and deletes the periods before. Only the holder does. */
  async advance(book: TopicBook): Promise<void> {
    const old = this.#periods;
    if (!(await this.#lease.update({ period: old.period + 1 }))) return;
    if (!this.#store.exclusive) await new Promise<void>((resolve) => this.#env.timer(WAIT_OUT_MS, resolve));
    for (let shard = 0; shard < this.#store.meta.shards; shard++) {
      for (let period = old.oldestPeriod; period <= old.period; period++) {
        for await (const row of this.#rows(shard, period)) {
          // On a shared store, one that is not in memory may have been put into by others: it is looked at again.
          const log = book.peekLog(row) ?? (this.#store.exclusive ? undefined : await book.log(row));
          // What is drained and trimmed is left behind; what is put into it now is recorded in the new period.
          if (log !== undefined && !log.isIdle) await this.ensure(log);
        }
      }
    }
    // All is recorded, and we still hold the lease: only now may the old periods go.
    if (!(await this.#lease.update({ oldestPeriod: old.period + 1 }))) return;
    for (let shard = 0; shard < this.#store.meta.shards; shard++) {
      for (let period = old.oldestPeriod; period <= old.period; period++) await this.#store.dropPeriod(shard, period);
    }
  }

  /** Rows of the current period that were written at a time or later. */
  newest(shard: number, since: number): AsyncGenerator<ActivityRow> {
    return this.#rows(shard, this.#periods.period, since);
  }

  async *#rows(shard: number, period: number, since: number | null = null): AsyncGenerator<ActivityRow> {
    let from: string | number | null = since;
    do {
      const page: Awaited<ReturnType<Store['readActivity']>> = await this.#store.readActivity(
        shard,
        period,
        from,
        ROWS_PER_PAGE,
      );
      yield* page.rows;
      from = page.next;
    } while (from !== null);
  }

  #shardOf(topic: string): number {
    return isSlotTopic(topic) ? Number(topic.slice(topic.indexOf('/') + 1)) : shardOf(topic, this.#store.meta.shards);
  }
}
