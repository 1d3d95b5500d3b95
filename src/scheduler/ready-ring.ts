import { TIERS } from '../core/bounds.ts';
import type { Clock, Environment } from '../queue/environment.ts';
import { FoldedTopic } from '../queue/folded.ts';
import type { Log } from '../queue/log.ts';
import { type KnownTopic, LEASED_TIERS, type Topic } from '../queue/topics.ts';
import type { CheckedLease } from '../queue/validate.ts';
import { AlarmClock } from './alarm.ts';
import { ReadyTopics } from './ready-topics.ts';

/** Entries that a lease call is to take from a log. */
export interface Pick {
  readonly topic: Topic;
  readonly log: Log;
  readonly count: number;
}

/** A lease call that waits for a task to come up. */
export interface Waiter {
  readonly request: CheckedLease;
  /** @param ready tasks that are there at least */
  readonly wake: (ready: number) => void;
}

/** From so many logs a call takes, or from more where they don't have enough, or may not give more. */
const LOGS_PER_CALL = 32;

/**
 * The ring of topics that have something to lease now: ready entries and an open gate. A lease goes round it
 * (promise Q8) and takes the highest tier of each topic (Q7). Topics whose gate is shut are kept apart until their
 * time comes, so that a lease costs what it gets and not what is shut.
 */
export class ReadyRing {
  readonly #env: Environment;
  readonly #unfold: (folded: FoldedTopic) => Topic;
  readonly #ring = new ReadyTopics();
  readonly #gates: AlarmClock<Topic>;
  readonly #waitersByName = new Map<string, Set<Waiter>>();
  readonly #waitersByPrefix = new Set<Waiter>();
  #servedCount = 0;

  /** @param unfold called where the turn of a topic comes that is folded */
  constructor(env: Environment, unfold: (folded: FoldedTopic) => Topic) {
    this.#env = env;
    this.#unfold = unfold;
    this.#gates = new AlarmClock({ now: env.monotonic, timer: env.timer }, (topics) => {
      for (const topic of topics) this.offer(topic);
    });
  }

  get waiting(): number {
    return this.#waiters().size;
  }

  /** Lease calls that wait for a topic, among others. */
  waitingFor(topic: string): readonly CheckedLease[] {
    const byName = [...(this.#waitersByName.get(topic) ?? [])];
    const byPrefix = [...this.#waitersByPrefix].filter(
      (waiter) => !byName.includes(waiter) && waiter.request.prefixes.some((text) => topic.startsWith(text)),
    );
    return [...byName, ...byPrefix].map(({ request }) => request);
  }

  /** Looks at a topic again: something came up in it, or its gate may have changed. */
  offer(topic: Topic): void {
    // What is told late of a former tenure, or of what was folded, is no business of what stands there since.
    if (topic.tenure.ended || topic.isFolded) return;
    if (topic.available === 0 || !topic.tenure.serves) {
      this.#ring.delete(topic);
      return;
    }
    const gate = topic.gate(this.#env);
    if (gate.allowed < 1) {
      this.#ring.delete(topic);
      if (gate.nextAt !== null) this.#gates.set(topic, gate.nextAt);
      return;
    }
    this.#ring.add(topic);
    this.#wake(topic, Math.min(gate.allowed, topic.available));
  }

  /**
   * Chooses from which logs a lease call takes how many.
   * @param had how many tasks of each topic the call has already
   */
  pick(request: CheckedLease, want: number, had: ReadonlyMap<string, number>): readonly Pick[] {
    const plan = new Plan(request, want, had, this.#env);
    /** How many tasks are a turn. */
    let turn = 1;
    if (request.order === 'priority') {
      for (const [tier, ofTier] of byTier(request)) {
        for (const topic of this.#fitting(ofTier, had)) {
          if (plan.left === 0) break;
          plan.take(topic, plan.left, [topic.logs.get(tier)]);
        }
      }
    } else {
      const candidates = this.#candidates(request, want, had);
      // Round after round, so that a large call does not take all from the first topic it meets. Where there are many
      // topics it takes several tasks of each and leaves the others to the next call: each log costs a write of its own.
      const least = Math.max(1, Math.floor(want / LOGS_PER_CALL));
      const turns = candidates.reduce((sum, { settings }) => sum + settings.weight, 0);
      turn = Math.max(least, Math.floor(want / Math.max(1, turns)));
      for (let share = turn; plan.left > 0; ) {
        const before = plan.left;
        for (const topic of candidates) {
          if (plan.left === 0) break;
          plan.take(topic, share * topic.settings.weight, plan.logsOf(topic));
        }
        if (plan.left === before) break;
        share = plan.left;
      }
    }
    for (const [topic, count] of plan.topics()) this.#served(topic, Math.ceil(count / turn));
    const picks = plan.picks();
    for (const { log } of picks) log.servedNth = this.#servedCount;
    return picks;
  }

  /** Topics in the ring that a call asks for, next first. */
  #candidates(request: CheckedLease, most: number, had?: ReadonlyMap<string, number>): readonly Topic[] {
    const found: Topic[] = [];
    for (const topic of this.#fitting(request, had)) {
      found.push(topic);
      // The next one may be folded, and stays so.
      if (found.length >= most) break;
    }
    return found;
  }

  *#fitting(request: CheckedLease, had: ReadonlyMap<string, number> = NONE): Generator<Topic> {
    const { names, prefixes, tiers } = request;
    const selected =
      names !== null && prefixes.length === 0
        ? names.flatMap((name) => this.#ring.get(name) ?? []).sort((a, b) => a.servedNth - b.servedNth)
        : this.#ring.select(request);
    for (const topic of selected) {
      // Not one whose tasks are all on their way to others already, nor one of which the call may have no more.
      if ((had.get(topic.name) ?? 0) >= request.maxPerTopic) continue;
      if (!(tiers === null ? topic.available > 0 : topic.hasReady(tiers))) continue;
      yield topic instanceof FoldedTopic ? this.#unfold(topic) : topic;
    }
  }

  /** Served: to the end of the ring, once its turns are over. A limited topic leaves it until its claim is counted. */
  #served(topic: Topic, turns: number): void {
    this.#servedCount++;
    this.#ring.served(topic, turns);
    if (topic.turnsTaken === 0) topic.servedNth = this.#servedCount;
    if (!topic.limited) this.#ring.add(topic);
  }

  /** The claims of a pick are done. */
  claimed(topic: Topic): void {
    this.offer(topic);
  }

  /** Somebody who was woken went away: wakes others for what is there. */
  passOn(): void {
    const promised = new Map<Topic, number>();
    for (const waiter of this.#waiters()) {
      const { request } = waiter;
      for (const topic of this.#fitting(request)) {
        const before = promised.get(topic) ?? 0;
        const there = topic.leasable(this.#env) - before;
        if (there <= 0) continue;
        promised.set(topic, before + Math.min(request.max, request.maxPerTopic));
        this.#forget(waiter);
        waiter.wake(there);
        break;
      }
    }
  }

  #waiters(): ReadonlySet<Waiter> {
    return new Set([...this.#waitersByPrefix, ...[...this.#waitersByName.values()].flatMap((set) => [...set])]);
  }

  #wake(topic: Topic, ready: number): void {
    let left = ready;
    const tell = (waiters: Iterable<Waiter>): void => {
      for (const waiter of waiters) {
        if (left <= 0) return;
        if (waiter.request.tiers !== null && !topic.hasReady(waiter.request.tiers)) continue;
        const there = left;
        left -= Math.min(waiter.request.max, waiter.request.maxPerTopic);
        this.#forget(waiter);
        waiter.wake(there);
      }
    };
    const named = this.#waitersByName.get(topic.name);
    if (named !== undefined) tell([...named]);
    if (this.#waitersByPrefix.size > 0 && left > 0) {
      tell(
        [...this.#waitersByPrefix].filter(({ request }) =>
          request.prefixes.some((text) => topic.name.startsWith(text)),
        ),
      );
    }
  }

  /** How many tasks a lease call could get now, of one topic at least; 0: none. */
  readyFor(request: CheckedLease): number {
    for (const topic of this.#fitting(request)) {
      const ready = topic.leasable(this.#env);
      if (ready > 0) return ready;
    }
    return 0;
  }

  /** How many tasks a lease call could get now of each tier, counted up to its `max`. */
  census(request: CheckedLease): readonly number[] {
    const counts = new Array<number>(TIERS).fill(0);
    const counted = new Map<Topic, number>();
    for (const [tier, ofTier] of byTier(request)) {
      for (const topic of this.#fitting(ofTier)) {
        if (counts[tier]! >= request.max) break;
        const { ready, reserved } = topic.logs.get(tier)!;
        const before = counted.get(topic) ?? 0;
        const allowed = Math.min(request.maxPerTopic, topic.gate(this.#env).allowed) - before;
        const count = Math.max(0, Math.min(allowed, ready - reserved));
        counts[tier] = Math.min(request.max, counts[tier]! + count);
        counted.set(topic, before + count);
      }
    }
    return counts;
  }

  /** Waits until something comes up that the call asks for. */
  wait(waiter: Waiter): void {
    for (const name of waiter.request.names ?? []) {
      const set = this.#waitersByName.get(name);
      if (set === undefined) this.#waitersByName.set(name, new Set([waiter]));
      else set.add(waiter);
    }
    if (waiter.request.prefixes.length > 0) this.#waitersByPrefix.add(waiter);
  }

  stopWaiting(waiter: Waiter): void {
    this.#forget(waiter);
  }

  #forget(waiter: Waiter): void {
    for (const name of waiter.request.names ?? []) {
      const set = this.#waitersByName.get(name);
      set?.delete(waiter);
      if (set?.size === 0) this.#waitersByName.delete(name);
    }
    this.#waitersByPrefix.delete(waiter);
  }

  /** Ends all waits. */
  wakeAll(): void {
    for (const waiter of this.#waiters()) {
      this.#forget(waiter);
      waiter.wake(0);
    }
  }

  drop(topic: KnownTopic): void {
    this.#ring.delete(topic);
    if (!(topic instanceof FoldedTopic)) this.#gates.clear(topic);
  }

  /** Whether a topic waits for its turn, and for nothing else. */
  has(topic: Topic): boolean {
    return this.#ring.get(topic.name) === topic && this.#gates.timeOf(topic) === undefined;
  }

  /** A topic was folded, or unfolded: its turn comes when it would have come. */
  replace(before: KnownTopic, topic: KnownTopic): void {
    this.#ring.replace(before, topic);
  }

  stop(): void {
    this.#gates.stop();
    this.wakeAll();
  }
}

const NONE: ReadonlyMap<string, number> = new Map();

const ONLY: readonly ReadonlySet<number>[] = Array.from({ length: TIERS }, (_, tier) => new Set([tier]));

/** A call as one for each of the tiers that it asks for, highest first. */
function* byTier(request: CheckedLease): Generator<readonly [tier: number, CheckedLease]> {
  for (const tier of LEASED_TIERS) {
    if (request.tiers === null || request.tiers.has(tier)) yield [tier, { ...request, tiers: ONLY[tier]! }];
  }
}

/**
 * Logs of the tiers asked for: highest first, or, with buckets, in turn; of a share of the leases, those first that were
 * served longest ago.
 */
function* logsInOrder(topic: Topic, tiers: ReadonlySet<number> | null): Generator<Log | undefined> {
  const buckets = topic.settings.buckets ?? 0;
  if (buckets === 0 && isShared(topic)) {
    const logs = [...topic.logs].filter((log) => !log.isDead && (tiers === null || tiers.has(log.address.tier)));
    yield* logs.sort((a, b) => a.servedNth - b.servedNth || b.address.tier - a.address.tier);
    return;
  }
  const first = buckets > 0 ? topic.leaseTurn++ : 0;
  for (let nth = 0; nth < TIERS; nth++) {
    // What was put elsewhere before the topic had buckets comes after them.
    const tier = nth < buckets ? (first + nth) % buckets : TIERS - 1 - (nth - buckets);
    if (tiers === null || tiers.has(tier)) yield topic.logs.get(tier);
  }
}

/** Whether it is the turn of the tiers that wait, by the topic's `tierShare`. */
function isShared(topic: Topic): boolean {
  topic.shareDue += topic.settings.tierShare ?? 0;
  if (topic.shareDue < 100) return false;
  topic.shareDue -= 100;
  return true;
}

/** What a lease call takes, as it is put together. */
class Plan {
  readonly #request: CheckedLease;
  readonly #had: ReadonlyMap<string, number>;
  readonly #clock: Clock;
  readonly #counts = new Map<Log, { readonly topic: Topic; count: number }>();
  readonly #perTopic = new Map<Topic, number>();
  readonly #logs = new Map<Topic, readonly (Log | undefined)[]>();
  left: number;

  constructor(request: CheckedLease, want: number, had: ReadonlyMap<string, number>, clock: Clock) {
    this.#request = request;
    this.#had = had;
    this.#clock = clock;
    this.left = want;
  }

  take(topic: Topic, most: number, logs: Iterable<Log | undefined>): void {
    const taken = this.#perTopic.get(topic) ?? 0;
    const mayHave = this.#request.maxPerTopic - (this.#had.get(topic.name) ?? 0);
    const allowed = Math.min(mayHave, topic.gate(this.#clock).allowed) - taken;
    let wanted = Math.min(most, this.left, allowed);
    for (const log of logs) {
      if (wanted <= 0) break;
      if (log === undefined) continue;
      const planned = this.#counts.get(log);
      const count = Math.min(wanted, log.ready - log.reserved - (planned?.count ?? 0));
      if (count <= 0) continue;
      if (planned === undefined) this.#counts.set(log, { topic, count });
      else planned.count += count;
      wanted -= count;
      this.left -= count;
      this.#perTopic.set(topic, (this.#perTopic.get(topic) ?? 0) + count);
    }
  }

  /** The logs of a topic in the order in which this call takes from them. */
  logsOf(topic: Topic): readonly (Log | undefined)[] {
    let logs = this.#logs.get(topic);
    if (logs === undefined) {
      logs = [...logsInOrder(topic, this.#request.tiers)];
      this.#logs.set(topic, logs);
    }
    return logs;
  }

  /** The topics, and how many tasks it takes of each. */
  topics(): Iterable<readonly [Topic, number]> {
    return this.#perTopic;
  }

  picks(): readonly Pick[] {
    return [...this.#counts].map(([log, { topic, count }]) => ({ topic, log, count }));
  }
}
