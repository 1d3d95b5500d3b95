/**
 * What keeps servers on one store informed of each other. A server that has put something into a log of another's shard,
 * or has settled something there, tells the holder at once, and what comes up meanwhile together. Where the holder
 * cannot be reached, or says that the shard is no longer its own, the bell is rung for the log (bell.ts).
 *
 * All this is for speed. What a client is told has been passed on before (passedOn), to a holder or by the bell, so that
 * nothing that was acknowledged waits for a server that died. A hint that is lost with the process that was to give it
 * concerns what nobody was told of, and is found at the next period, by a take-over, or when a lease lapses.
 */
import type { LogAddress } from '../core/entry.ts';
import { isSlotTopic, logKey } from '../core/log.ts';
import { type Deferred, deferred } from '../queue/deferred.ts';
import type { Engine } from '../queue/engine.ts';
import type { Log } from '../queue/log.ts';
import {
  type Appended,
  type Hint,
  type LogEnd,
  type PeerCalls,
  type PeerMethod,
  type Transport,
  unlessBusy,
} from '../queue/peers.ts';
import type { Waiting } from '../queue/quotas.ts';
import type { ActivityRow, NodeRow } from '../store/store.ts';
import type { ActivityIndex } from './activity.ts';
import { emptyMinute, heardSince, oldMinute, ringBell } from './bell.ts';
import type { Holdings } from './holdings.ts';
import type { Scanner } from './scanner.ts';

/** At the same time; what comes up while so many are under way is told together behind them. */
const TELLINGS = 8;
const TELL_TIMEOUT_MS = 1_000;
/** For so long the bell is rung for a holder that did not answer: who waits for an answer is not to wait for that too. */
const UNREACHABLE_MS = 5_000;
const HINTS_PER_CALL = 1_000;
/** What is rung for is looked at within a second, and no server reads for nothing more often than this takes. */
const FOLLOW_EVERY_MS = 500;
const REFRESH_EVERY_MS = 5_000;
/** Rows may come in this much out of order: servers' clocks differ, and writes take their time. */
const OVERLAP_MS = 15_000;
/** A log that was not used for this long is let go by a server that doesn't schedule it. */
const UNUSED_MS = 30_000;
const AGAIN_MS = 500;
/** What is to be told of one log. */
interface Told {
  readonly address: LogAddress;
  readonly left: Set<number>;
  readonly appended: Appended[];
  put: boolean;
}

export class Neighbours {
  readonly #engine: Engine;
  readonly #activity: ActivityIndex;
  readonly #holdings: Holdings;
  readonly #transport: Transport;
  readonly #scanner: Scanner;
  readonly #noteSlot: (slot: LogAddress) => void;
  readonly #told = new Map<string, Told>();
  readonly #looking = new Map<string, { again: boolean }>();
  readonly #cancels = new Set<() => void>();
  readonly #running = new Set<Promise<void>>();
  /** Rows of the bell seen lately, by when they say they were written. */
  readonly #seen = new Map<string, number>();
  /** Holders that did not answer, and until when they are not asked, by the monotonic clock. */
  readonly #unreachable = new Map<string, number>();
  /** Resolves once what was heard since the last telling began is told. */
  #gathered: Deferred | null = null;
  readonly #tellings = new Set<Promise<boolean>>();
  #telling = false;
  /** When the bell was last listened to, and settings read again, with success; by the monotonic clock. */
  lastFollowedAt: number;
  lastRefreshedAt: number;
  #stopped = false;
  #emptied = -1;

  constructor(
    engine: Engine,
    activity: ActivityIndex,
    holdings: Holdings,
    transport: Transport,
    scanner: Scanner,
    noteSlot: (slot: LogAddress) => void,
  ) {
    this.#engine = engine;
    this.#activity = activity;
    this.#holdings = holdings;
    this.#transport = transport;
    this.#scanner = scanner;
    this.#noteSlot = noteSlot;
    this.lastFollowedAt = this.lastRefreshedAt = engine.env.monotonic();
  }

  start(): void {
    if (this.#engine.store.exclusive) return;
    const { env } = this.#engine;
    this.#every(FOLLOW_EVERY_MS, async () => {
      await this.#follow();
      this.lastFollowedAt = env.monotonic();
    });
    this.#every(REFRESH_EVERY_MS, async () => {
      await this.#refresh();
      this.lastRefreshedAt = env.monotonic();
    });
  }

  /** Tells what is left to tell, and ends. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const cancel of this.#cancels) cancel();
    await Promise.allSettled([...this.#running, ...this.#tellings]);
    await this.#tell().catch(() => false);
  }

  /** Whoever schedules a log should know of this, this server or another. */
  heard(hint: Hint): void {
    if (this.#isOwn(hint)) {
      this.#take(hint);
      return;
    }
    this.#note(hint);
    this.#tellNext();
  }

  /**
   * Resolves once those who schedule them know of all that was heard until now, or the bell was rung for it, or neither
   * could be done: then it is tried again, but nobody waits for that.
   */
  async passedOn(): Promise<void> {
    if (this.#tellings.size === 0 && this.#gathered === null) return;
    await Promise.allSettled([...this.#tellings, this.#gathered?.promise]);
  }

  #isOwn({ topic }: LogAddress): boolean {
    return this.#engine.holds(this.#engine.book.tenureOf(topic));
  }

  #note(hint: Hint): void {
    const key = logKey(hint);
    let told = this.#told.get(key);
    if (told === undefined) {
      told = { address: { topic: hint.topic, tier: hint.tier }, left: new Set(), appended: [], put: false };
      this.#told.set(key, told);
    }
    this.#gathered ??= deferred();
    for (const id of hint.left ?? []) told.left.add(id);
    told.appended.push(...(hint.appended ?? []));
    if (hint.put) told.put = true;
  }

  /** What comes up in the same moment is told together. */
  #tellNext(): void {
    if (this.#gathered === null || this.#telling || this.#stopped || this.#tellings.size >= TELLINGS) return;
    this.#telling = true;
    queueMicrotask(() => {
      this.#telling = false;
      this.#tell().catch((error: unknown) => this.#warn(error));
    });
  }

  /** Resolves once whoever schedules them knows of all that was heard until now; or it is given up. */
  async told(): Promise<void> {
    try {
      // Who follows the bell has looked at it twice by then.
      const rung = await Promise.all([...this.#tellings, this.#tell()]);
      if (rung.includes(true))
        await new Promise<void>((resolve) => this.#engine.env.timer(2 * FOLLOW_EVERY_MS, resolve));
    } catch (error) {
      this.#engine.log.warn({ err: error }, 'other servers could not be told');
    }
  }

  /** Looks now at all that may hold tasks of a topic of a shard held here, whether anybody has told of it or not. */
  async lookInto(topic: string): Promise<void> {
    const { shard } = this.#engine.book.tenureOf(topic);
    for (const { period: _, ...address } of await this.#activity.active(shard)) {
      if (address.topic === topic || isSlotTopic(address.topic)) await this.#look(address);
    }
  }

  /** What another server tells; returns what concerns shards that are not held here. */
  receive(hints: readonly Hint[]): readonly Hint[] {
    const missed: Hint[] = [];
    for (const hint of hints) {
      const tenure = this.#engine.book.tenureOf(hint.topic);
      if (this.#engine.mayClaim(tenure)) this.#take(hint);
      else missed.push(hint);
    }
    return missed;
  }

  // ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────

  /** Whether the bell had to be rung. */
  #tell(): Promise<boolean> {
    const gathered = this.#gathered;
    if (gathered === null) return Promise.resolve(false);
    this.#gathered = null;
    const telling = this.#tellAll().finally(() => {
      this.#tellings.delete(telling);
      gathered.resolve();
    });
    this.#tellings.add(telling);
    // Whoever began this one, what came up meanwhile may have had no room beside it.
    telling.then(
      () => this.#tellNext(),
      () => this.#later(AGAIN_MS, async () => this.#tellNext()),
    );
    return telling;
  }

  async #tellAll(): Promise<boolean> {
    let rung = false;
    const all = [...this.#told.values()];
    this.#told.clear();
    const byHolder = new Map<NodeRow | null, Told[]>();
    for (const told of all) {
      const holder = this.#holdings.holderOf(this.#engine.book.tenureOf(told.address.topic).shard);
      const key = holder?.address == null ? null : holder;
      byHolder.set(key, [...(byHolder.get(key) ?? []), told]);
    }
    await Promise.all(
      [...byHolder].map(async ([holder, some]) => {
        for (let at = 0; at < some.length; at += HINTS_PER_CALL) {
          const hints = some.slice(at, at + HINTS_PER_CALL).map(asHint);
          try {
            if (await this.#ring(holder === null ? hints : await this.#tellHolder(holder, hints))) rung = true;
          } catch (error) {
            for (const hint of hints) this.#note(hint);
            throw error;
          }
        }
      }),
    );
    return rung;
  }

  /** @returns what the bell has to be rung for */
  async #tellHolder(holder: NodeRow, hints: readonly Hint[]): Promise<readonly Hint[]> {
    const answer = await this.#ask(holder, 'hints', { hints });
    if (answer === null) return hints;
    if (answer.missed.length > 0) this.#holdings.lookAgain().catch((error: unknown) => this.#warn(error));
    return answer.missed;
  }

  /** @returns null: it gave no answer, or gave none a moment ago */
  async #ask<M extends PeerMethod>(
    holder: NodeRow,
    method: M,
    body: PeerCalls[M]['body'],
  ): Promise<PeerCalls[M]['answer'] | null> {
    const { env } = this.#engine;
    if ((this.#unreachable.get(holder.id) ?? 0) > env.monotonic()) return null;
    const answer = await unlessBusy(this.#transport.call(holder, method, body, { timeoutMs: TELL_TIMEOUT_MS }));
    if (answer !== null) this.#unreachable.delete(holder.id);
    else this.#unreachable.set(holder.id, env.monotonic() + UNREACHABLE_MS);
    return answer;
  }

  // ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Asks whoever schedules a log for a turn to put something there; null: there is none to be had. */
  async takeTurn(log: Log): Promise<LogEnd | null> {
    const { address, tenure } = log;
    const holder = this.#holdings.holderOf(tenure.shard);
    if (holder?.address == null || this.#engine.book.tenureOf(address.topic).holds) return null;
    // Whatever is wrong there, the way without a turn is open.
    const answer = await this.#ask(holder, 'turn', address).catch(() => null);
    if (answer?.period !== undefined) log.recordedPeriod = Math.max(log.recordedPeriod, answer.period);
    return answer?.end ?? null;
  }

  /** Asks whoever schedules a topic what waits in it; null: that cannot be told now. */
  async askWaiting(topic: string): Promise<Waiting | null> {
    const holder = this.#holdings.holderOf(this.#engine.book.tenureOf(topic).shard);
    if (holder?.address == null) return null;
    const answer = await this.#ask(holder, 'call', { method: 'waiting', topic, args: [] }).catch(() => null);
    return (answer?.value ?? null) as Waiting | null;
  }

  /** Another server is to put something into a log of a shard that is held here. */
  async lend({ topic, tier }: LogAddress, signal?: AbortSignal): Promise<PeerCalls['turn']['answer']> {
    const { book } = this.#engine;
    const tenure = book.tenureOf(topic);
    if (!this.#engine.mayClaim(tenure)) return {};
    const log = await book.log({ topic, tier });
    await this.#activity.ensure(log);
    const end = await log.lend(signal);
    return end === null ? {} : { end, period: log.recordedPeriod };
  }

  async #ring(hints: readonly Hint[]): Promise<boolean> {
    if (hints.length === 0) return false;
    const { store, env } = this.#engine;
    // It may have become our own meanwhile.
    const own = hints.filter((hint) => this.#isOwn(hint));
    for (const hint of own) this.#take(hint);
    const others = hints.filter((hint) => !own.includes(hint));
    await ringBell(store, env.now(), others);
    return others.length > 0;
  }

  // ── hearing ───────────────────────────────────────────────────────────────────────────────────────────────────

  #take({ topic, tier, left = [], appended = [], put }: Hint): void {
    const address = { topic, tier };
    if (left.length > 0) this.#close(address, left);
    const log = appended.length > 0 ? this.#engine.book.peekLog(address) : undefined;
    // What doesn't follow on what is known here has to be looked at.
    const isKnown = appended.every((one) => log?.learnAppended(one));
    if ((put || !isKnown) && !this.#stopped) this.#lookSoon(address);
  }

  /** What another server has settled, with its message rows: the scanner need not look. */
  #close(address: LogAddress, ids: readonly number[]): void {
    const { book, signals, env } = this.#engine;
    const log = book.peekLog(address);
    const topic = log && book.peekTopicOf(log);
    if (log === undefined || topic === undefined) return;
    let leased = false;
    for (const id of ids) {
      const open = log.open.get(id);
      if (open === undefined) continue;
      if (open.leased) leased = true;
      log.settled(id);
      signals.settled(open.uid);
    }
    if (leased) topic.leaseEnded(env.monotonic());
    signals.ready(topic);
    signals.due(log, env.now());
    signals.changed(topic);
  }

  /** One look at a time; one that is asked for meanwhile follows, since the first may have begun too early. */
  #lookSoon(address: LogAddress): void {
    const key = logKey(address);
    const looking = this.#looking.get(key);
    if (looking !== undefined) {
      looking.again = true;
      return;
    }
    const state = { again: false };
    this.#looking.set(key, state);
    this.#later(0, async () => {
      let failed = true;
      try {
        await this.#look(address);
        failed = false;
      } finally {
        this.#looking.delete(key);
        if (failed) this.#later(AGAIN_MS, async () => this.heard({ ...address, put: true }));
        else if (state.again) this.#lookSoon(address);
      }
    });
  }

  async #look(address: LogAddress): Promise<void> {
    if (isSlotTopic(address.topic)) return this.#lookAtSlot(address);
    const { book, env, signals } = this.#engine;
    // Where it is loaded just now, that may have begun before what it is looked at for.
    const known = await book.log(address);
    await known.findNewTail();
    if (known.isDead) known.recount = true;
    signals.due(known, env.now());
  }

  /** What is new in a slot of delayed tasks is counted later; a slot whose time is to come is not even read. */
  async #lookAtSlot(address: LogAddress): Promise<void> {
    const { book } = this.#engine;
    const log = await book.loadedLog(address);
    const tenure = book.tenureOf(address.topic);
    if (!tenure.holds) return;
    if (log?.tenure === tenure) await log.findNewTail();
    else book.slotsOf(tenure).of(address).reopen();
    this.#noteSlot(address);
  }

  // ── the bell ──────────────────────────────────────────────────────────────────────────────────────────────────

  async #follow(): Promise<void> {
    if (this.#holdings.held.length === 0) return;
    const now = this.#engine.env.now();
    const since = now - OVERLAP_MS;
    for (const [key, at] of this.#seen) if (at < since - OVERLAP_MS) this.#seen.delete(key);
    for await (const row of heardSince(this.#engine.store, since, now)) this.#rung(row);
    await this.#emptyOld(now);
  }

  #rung(row: ActivityRow): void {
    const key = `${row.at}/${logKey(row)}`;
    if (this.#seen.has(key) || !this.#engine.book.tenureOf(row.topic).holds) return;
    this.#seen.set(key, row.at);
    const log = this.#engine.book.peekLog(row);
    // Which entries were settled it does not say.
    if (log !== undefined) this.#scanner.recheck(log);
    this.#take({ ...row, put: true });
  }

  /** The holder of the first shard empties partitions of half an hour ago. */
  async #emptyOld(now: number): Promise<void> {
    const old = oldMinute(now);
    if (old === this.#emptied || this.#holdings.termOf(0) === null) return;
    await emptyMinute(this.#engine.store, old);
    this.#emptied = old;
  }

  /** What other servers schedule is kept only while it is used here, and its settings are read again. */
  async #refresh(): Promise<void> {
    const { book } = this.#engine;
    for (const tenure of book.tenures) {
      if (tenure.holds) continue;
      for (const log of [...book.logsOf(tenure)]) if (log.untouchedFor > UNUSED_MS) book.forget(log);
      for (const topic of [...book.topicsOf(tenure)]) {
        const untouchedFor = book.uptime.now() - topic.touchedAt;
        if (topic.logs.size === 0 && untouchedFor > UNUSED_MS) book.drop(topic);
        else if (untouchedFor <= REFRESH_EVERY_MS) await book.reload(topic);
      }
    }
  }

  #warn(error: unknown): void {
    if (!this.#stopped) this.#engine.log.warn({ err: error }, 'other servers could not be followed or told');
  }

  #every(ms: number, work: () => Promise<void>): void {
    this.#later(ms, async () => {
      try {
        await work();
      } finally {
        if (!this.#stopped) this.#every(ms, work);
      }
    });
  }

  #later(ms: number, work: () => Promise<void>): void {
    if (this.#stopped) return;
    const cancel = this.#engine.env.timer(ms, () => {
      this.#cancels.delete(cancel);
      const run = work()
        .catch((error: unknown) => this.#warn(error))
        .finally(() => this.#running.delete(run));
      this.#running.add(run);
    });
    this.#cancels.add(cancel);
  }
}

const asHint = ({ address, left, appended, put }: Told): Hint => ({
  ...address,
  ...(appended.length > 0 ? { appended } : {}),
  ...(left.size > 0 ? { left: [...left] } : {}),
  ...(put ? { put } : {}),
});
