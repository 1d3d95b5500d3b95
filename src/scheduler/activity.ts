/**
 * The activity index: which logs have work, so that topics are never enumerated.
 *
 * Each shard has periods, numbered in its row. A log is recorded once a period, and nothing that was put into it is
 * acknowledged before it is recorded in a period that was known to be current KNOWN_MS before the acknowledgement at the
 * most. About hourly the holder of a shard advances the period, waits until nobody can still take the old one for
 * current, looks at every log of it again, records those that still hold something in the new one, and only then deletes
 * the old period as a whole. A take-over reads the periods that are not deleted, and knows every log that may hold work.
 *
 * Who may be paused where: a server that puts something into a log and then sleeps asks again whether the period is
 * current, and reads the row where it does not know, before it acknowledges. So what it appended was there at least
 * WAIT_OUT_MS − KNOWN_MS before the holder looked at the log, or it learns of the new period. A holder that sleeps
 * anywhere in this writes to the row under the version that it knows, and finds that another one has changed it; a drop
 * comes behind that write, and drops what nobody reads any more.
 */
import type { LogAddress } from '../core/entry.ts';
import { isSlotTopic, logKey } from '../core/log.ts';
import type { Activity } from '../queue/engine.ts';
import type { Environment } from '../queue/environment.ts';
import { FoldedTopic } from '../queue/folded.ts';
import { GroupCommit } from '../queue/group-commit.ts';
import type { Log } from '../queue/log.ts';
import type { TopicBook } from '../queue/topics.ts';
import { type ActivityRow, type Store, StoreUnavailableError } from '../store/store.ts';
import type { Holdings, KnownPeriod } from './holdings.ts';

/** For how long a period that was seen to be current may be relied on, in milliseconds; the holder waits for longer. */
const KNOWN_MS = 8_000;
const WAIT_OUT_MS = 10_000;
const ROWS_PER_BATCH = 500;
const ROWS_PER_PAGE = 1_000;
/** How often it is made sure of anew, where the store takes longer than a period is known to be current. */
const TRIES = 5;

/** What is recorded: a log, or a slot of delayed tasks known by its address alone. */
type Recorded = Pick<Log, 'address' | 'tenure' | 'recordedPeriod'>;

export class ActivityIndex implements Activity {
  readonly #store: Store;
  readonly #env: Environment;
  readonly #holdings: Holdings;
  readonly #recorders: GroupCommit<Recorded, true>[] = [];

  constructor(store: Store, env: Environment, holdings: Holdings) {
    this.#store = store;
    this.#env = env;
    this.#holdings = holdings;
    for (let shard = 0; shard < store.meta.shards; shard++) {
      this.#recorders[shard] = new GroupCommit((batch) => this.#record(shard, batch), ROWS_PER_BATCH);
    }
  }

  ensure(log: Recorded): Promise<void> | null {
    const known = this.#holdings.period(log.tenure.shard);
    const isCurrent = known !== null && this.#isCurrent(known);
    if (isCurrent && log.recordedPeriod === known.period) return null;
    return this.#ensure(log, isCurrent);
  }

  async confirm(log: Recorded): Promise<void> {
    for (let tries = 0; tries < TRIES; tries++) {
      const ensured = this.ensure(log);
      if (ensured === null) return;
      await ensured;
    }
    throw new StoreUnavailableError('the activity index could not be read and written in time');
  }

  #isCurrent(known: KnownPeriod): boolean {
    return this.#store.exclusive || this.#env.monotonic() - known.knownAt < KNOWN_MS;
  }

  async #ensure(log: Recorded, isCurrent: boolean): Promise<void> {
    const { shard } = log.tenure;
    if (!isCurrent) await this.#holdings.look();
    if (this.#holdings.period(shard) === null) await this.#holdings.introduce(shard);
    if (log.recordedPeriod === this.#periods(shard).period) return;
    await this.#recorders[shard]!.submit([log]);
  }

  /** @throws StoreUnavailableError where there is no row of the shard, and none could be written */
  #periods(shard: number): KnownPeriod {
    const known = this.#holdings.period(shard);
    if (known === null) throw new StoreUnavailableError('which period there is could not be read');
    return known;
  }

  async #record(shard: number, logs: readonly Recorded[]): Promise<readonly true[]> {
    const { period } = this.#periods(shard);
    const at = this.#env.now();
    await this.#store.recordActivity(
      shard,
      period,
      logs.map(({ address }) => ({ ...address, at })),
    );
    for (const log of logs) log.recordedPeriod = period;
    return logs.map(() => true);
  }

  /** The logs of a shard that may hold work, and the newest period in which each is recorded. */
  async active(shard: number): Promise<readonly (LogAddress & { readonly period: number })[]> {
    const { oldestPeriod, period } = this.#periods(shard);
    const logs = new Map<string, LogAddress & { readonly period: number }>();
    for (let at = oldestPeriod; at <= period; at++) {
      for await (const { topic, tier } of this.#rows(shard, at)) {
        logs.set(logKey({ topic, tier }), { topic, tier, period: at });
      }
    }
    return [...logs.values()];
  }

  /** Begins a new period of a shard, carries over what is active, and deletes the periods before. Only its holder does. */
  async advance(shard: number, book: TopicBook): Promise<void> {
    const old = this.#periods(shard);
    if (!(await this.#holdings.update(shard, { period: old.period + 1 }))) return;
    if (!this.#store.exclusive) await new Promise<void>((resolve) => this.#env.timer(WAIT_OUT_MS, resolve));
    for (let period = old.oldestPeriod; period <= old.period; period++) {
      for await (const row of this.#rows(shard, period)) await this.#carryOver(row, book);
    }
    // All is recorded, and we still hold the shard: only now may the old periods go.
    if (!(await this.#holdings.update(shard, { oldestPeriod: old.period + 1 }))) return;
    for (let period = old.oldestPeriod; period <= old.period; period++) await this.#store.dropPeriod(shard, period);
  }

  async #carryOver(row: ActivityRow, book: TopicBook): Promise<void> {
    const slot = isSlotTopic(row.topic) ? book.slotsOf(book.tenureOf(row.topic)).peek(row) : undefined;
    // Nobody here needed to know more of it than its address: its time is still to come.
    if (slot !== undefined && slot.log === null) return this.confirm(slot);
    const folded = book.known(row.topic);
    if (folded instanceof FoldedTopic && folded.tier === row.tier) return this.confirm(folded);
    const known = book.peekLog(row);
    // An embedded store has no other servers: what is not in memory holds nothing.
    if (known === undefined && this.#store.exclusive) return;
    const log = known ?? (await book.log(row));
    // On a shared store others may have put something into it that nobody has told of here.
    if (known?.isIdle && !this.#store.exclusive) await known.findNewTail();
    // What is drained and trimmed is left behind; what is put into it now is recorded in the new period.
    if (isStillNeeded(log)) await this.confirm(log);
  }

  async *#rows(shard: number, period: number): AsyncGenerator<ActivityRow> {
    let from: string | number | null = null;
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
}

/** A time slot is known until its headers are gone, too: a server that stops before that leaves them to the next one. */
const isStillNeeded = (log: Log): boolean => !log.isIdle || (isSlotTopic(log.address.topic) && log.nextId > 0);
