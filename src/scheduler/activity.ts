/**
 * The activity index: which logs have work, so that topics are never enumerated.
 *
 * A log is recorded once a period, before anything put into it is acknowledged. About hourly the holder advances the
 * period, records again what is still active, and only then deletes the old period as a whole. A start reads the
 * periods that are not deleted, and knows every log that may hold work.
 */
import type { LogAddress } from '../core/entry.ts';
import { isSlotTopic, logKey } from '../core/log.ts';
import { shardOf } from '../core/message.ts';
import type { Activity, QueueLogger } from '../queue/engine.ts';
import type { Environment } from '../queue/environment.ts';
import { GroupCommit } from '../queue/group-commit.ts';
import type { Log } from '../queue/log.ts';
import { definitely } from '../queue/outcomes.ts';
import type { TopicBook } from '../queue/topics.ts';
import { type ShardRow, type Store, StoreUnavailableError } from '../store/store.ts';

const PERIOD_MS = 3_600_000;
const RETRY_MS = 5_000;
const ROWS_PER_BATCH = 500;
const ROWS_PER_PAGE = 1_000;

export class ActivityIndex implements Activity {
  readonly #store: Store;
  readonly #env: Environment;
  readonly #logger: QueueLogger;
  readonly #holder: string;
  readonly #shards: ShardRow[] = [];
  readonly #recorders: GroupCommit<Log, true>[] = [];
  #cancel: (() => void) | null = null;
  #advancing: Promise<void> | null = null;
  #stopped = false;

  constructor(store: Store, env: Environment, logger: QueueLogger, holder: string) {
    this.#store = store;
    this.#env = env;
    this.#logger = logger;
    this.#holder = holder;
  }

  /** Takes over every shard, with a new term, and returns the logs that may hold work. */
  async start(): Promise<readonly LogAddress[]> {
    const logs = new Map<string, LogAddress>();
    for (let shard = 0; shard < this.#store.meta.shards; shard++) {
      this.#shards[shard] = await this.#takeOver(shard);
      this.#recorders[shard] = new GroupCommit((batch) => this.#record(shard, batch), ROWS_PER_BATCH);
      const { oldestPeriod, period } = this.#shards[shard]!;
      for (let at = oldestPeriod; at <= period; at++) {
        for await (const row of this.#rows(shard, at)) logs.set(logKey(row), { topic: row.topic, tier: row.tier });
      }
    }
    return [...logs.values()];
  }

  /** The term under which the shard of a topic is held here. */
  term(topic: string): number {
    return this.#shards[this.#shardOf(topic)]!.term;
  }

  ensure(log: Log): Promise<void> | null {
    const shard = this.#shardOf(log.address.topic);
    if (log.recordedPeriod === this.#shards[shard]!.period) return null;
    return this.#recorders[shard]!.submit([log]).then(() => {});
  }

  /** Advances the period now and then, from now on. */
  run(book: TopicBook): void {
    if (this.#stopped) return;
    this.#cancel = this.#env.timer(PERIOD_MS, () => {
      this.#advancing = this.advance(book)
        .catch((error: unknown) =>
          this.#logger.warn({ err: error }, 'the activity index could not be advanced; it is tried again'),
        )
        .finally(() => this.run(book));
    });
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    await this.#advancing;
  }

  /** Begins a new period in every shard, carries over what is active, and deletes the periods before. */
  async advance(book: TopicBook): Promise<void> {
    for (let shard = 0; shard < this.#shards.length; shard++) {
      const old = this.#shards[shard]!;
      await this.#write(shard, { ...old, period: old.period + 1 });
      for (let period = old.oldestPeriod; period <= old.period; period++) {
        for await (const row of this.#rows(shard, period)) {
          // What is not in memory was drained and trimmed; what is put into it now is recorded in the new period.
          const log = book.peekLog(row);
          if (log !== undefined) await this.ensure(log);
        }
      }
      // Recorded before anything is deleted: a start in between reads both.
      for (let period = old.oldestPeriod; period <= old.period; period++) await this.#store.dropPeriod(shard, period);
      await this.#write(shard, { ...this.#shards[shard]!, oldestPeriod: old.period + 1 });
    }
  }

  async #record(shard: number, logs: readonly Log[]): Promise<readonly true[]> {
    const { period } = this.#shards[shard]!;
    const at = this.#env.now();
    await this.#store.recordActivity(
      shard,
      period,
      logs.map(({ address }) => ({ ...address, at })),
    );
    for (const log of logs) log.recordedPeriod = period;
    return logs.map(() => true);
  }

  async *#rows(shard: number, period: number) {
    let after: string | null = null;
    do {
      const page: Awaited<ReturnType<Store['readActivity']>> = await this.#store.readActivity(
        shard,
        period,
        after,
        ROWS_PER_PAGE,
      );
      yield* page.rows;
      after = page.next;
    } while (after !== null);
  }

  async #takeOver(shard: number): Promise<ShardRow> {
    const deadline = this.#env.now() + RETRY_MS;
    do {
      const seen = await this.#store.readShard(shard, true);
      const row: ShardRow = {
        holder: this.#holder,
        term: (seen?.term ?? 0) + 1,
        version: (seen?.version ?? 0) + 1,
        period: seen?.period ?? 1,
        oldestPeriod: seen?.oldestPeriod ?? 1,
        slotCursor: seen?.slotCursor ?? 0,
      };
      if (
        (await definitely(this.#env, () => this.#store.writeShard(shard, seen?.version ?? null, row))) === 'applied'
      ) {
        return row;
      }
    } while (this.#env.now() < deadline);
    throw new StoreUnavailableError(`shard ${shard} is being taken by others again and again`);
  }

  async #write(shard: number, row: ShardRow): Promise<void> {
    const seen = this.#shards[shard]!;
    const next = { ...row, version: seen.version + 1 };
    const outcome = await definitely(this.#env, () => this.#store.writeShard(shard, seen.version, next));
    if (outcome === 'conflict') throw new StoreUnavailableError(`shard ${shard} was taken over by another server`);
    this.#shards[shard] = next;
  }

  #shardOf(topic: string): number {
    return isSlotTopic(topic) ? Number(topic.slice(topic.indexOf('/') + 1)) : shardOf(topic, this.#store.meta.shards);
  }
}
