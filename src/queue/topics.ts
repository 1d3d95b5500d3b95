import { LRUCache } from 'lru-cache';
import { TIERS } from '../core/bounds.ts';
import type { LogAddress, Place } from '../core/entry.ts';
import { QueueError } from '../core/errors.ts';
import { afterLease, afterSettle, closedBy, type Gate, gateOf, hasLimits, type LimitState } from '../core/limits.ts';
import {
  DEAD_TIER,
  EMPTY_CHECKPOINT,
  entriesEnd,
  isSlotTopic,
  logKey,
  segmentOf,
  segmentStart,
  shardOfLog,
} from '../core/log.ts';
import { parseSettings, type TopicSettings } from '../core/settings.ts';
import type { Store } from '../store/store.ts';
import { type Clock, type Environment, monotonicAt } from './environment.ts';
import { FoldedTopic, type TopicAtRest } from './folded.ts';
import { LOOKED_UP_MS, Log, type LogHome, type LogPeers, logHome, type TimeSlot } from './log.ts';
import type { Appended, LogEnd } from './peers.ts';
import { Slots } from './slots.ts';
import { Tenure } from './tenure.ts';
import { Uptime } from './uptime.ts';

/** The active logs of a topic by tier. Most have one, and a Map takes as much memory as the rest of a topic. */
export class LogsByTier {
  #first: Log | null = null;
  #others: Map<number, Log> | null = null;

  get size(): number {
    return this.#first === null ? 0 : 1 + (this.#others?.size ?? 0);
  }

  /** Where there is no other. */
  get only(): Log | null {
    return this.#others === null ? this.#first : null;
  }

  get(tier: number): Log | undefined {
    return this.#first?.address.tier === tier ? this.#first : this.#others?.get(tier);
  }

  add(log: Log): void {
    if (this.#first === null || this.#first.address.tier === log.address.tier) {
      this.#first = log;
      return;
    }
    this.#others ??= new Map();
    this.#others.set(log.address.tier, log);
  }

  delete(tier: number): void {
    if (this.#first?.address.tier !== tier) this.#others?.delete(tier);
    else {
      this.#first = this.#others?.values().next().value ?? null;
      if (this.#first !== null) this.#others!.delete(this.#first.address.tier);
    }
    if (this.#others?.size === 0) this.#others = null;
  }

  *[Symbol.iterator](): Generator<Log> {
    if (this.#first !== null) yield this.#first;
    if (this.#others !== null) yield* this.#others.values();
  }
}

/** A topic as known here: its settings, its logs that are active, and what its limits remember. */
export class Topic {
  readonly name: string;
  readonly tenure: Tenure;
  settings: TopicSettings;
  /** The version of its settings row; null: it has none. */
  version: number | null;
  readonly logs = new LogsByTier();
  /** Tasks that wait in time slots; kept by the book. */
  delayed = 0;
  /** Moves under way: their tasks may count nowhere just now. */
  moving = 0;
  /** Work on it that may take longer than whoever looked it up is waited for. */
  #underWay = 0;
  /** Another one has its place: whoever still has this one is late. */
  isFolded = false;
  /** Null as long as there was no limit. */
  #limits: LimitState | null = null;
  /** When it was last served, counted in leases: who waits longest is next. */
  servedNth = 0;
  /** Turns it had in this round, of as many as it weighs. */
  turnsTaken = 0;
  /** Percent of a lease that the tiers which wait are owed. */
  shareDue = 0;
  /** Deals tasks out over buckets. */
  turn = 0;
  /** Leases from buckets in turn. */
  leaseTurn = 0;
  /** When it was last looked up, in milliseconds of the uptime: whoever did may still be busy with it. */
  touchedAt: number;
  /** When it was last leased from, at the latest, as long as there was no limit; by the monotonic clock. */
  #lastLeaseAt: number;

  constructor(name: string, tenure: Tenure, settings: TopicSettings, version: number | null, clock: Clock, uptime = 0) {
    this.name = name;
    this.tenure = tenure;
    this.settings = settings;
    this.version = version;
    this.touchedAt = uptime;
    // What went before a take-over isn't known until all is loaded.
    this.#lastLeaseAt = tenure.isLoaded ? Number.NEGATIVE_INFINITY : clock.monotonic();
    if (this.limited) this.#limits = this.#limitsFrom(clock.monotonic());
  }

  /** A topic as it was at rest, with its log. */
  static goingOn(rest: TopicAtRest, log: Log, clock: Clock, uptime: number): Topic {
    const { name, tenure, settings, version } = rest;
    const topic = new Topic(name, tenure, settings, version, clock, uptime);
    topic.#limits = rest.limits;
    topic.#lastLeaseAt = rest.lastLeaseAt;
    topic.delayed = rest.delayed;
    topic.servedNth = rest.servedNth;
    topic.logs.add(log);
    return topic;
  }

  /** The same in little, where tasks wait in it and nothing else goes on; null: more does, or may. */
  folded(uptime: number): FoldedTopic | null {
    const { name, tenure, settings, version, delayed, servedNth } = this;
    if (uptime - this.touchedAt <= LOOKED_UP_MS || !tenure.serves) return null;
    if (this.moving > 0 || this.#underWay > 0 || this.turnsTaken > 0 || this.hasByteQuota) return null;
    const log = this.logs.only?.atRest() ?? null;
    if (log === null) return null;
    const rest = { name, tenure, settings, version, delayed, servedNth };
    return new FoldedTopic({ ...rest, limits: this.#limits, lastLeaseAt: this.#lastLeaseAt }, log);
  }

  /** Takes in settings that were read or written, unless newer ones are known: answers may come out of order. */
  learn(settings: TopicSettings, version: number | null, clock: Clock): void {
    if ((version ?? 0) < (this.version ?? 0)) return;
    this.settings = settings;
    this.version = version;
    if (this.limited) this.#limits ??= this.#limitsFrom(clock.monotonic());
  }

  /** What went before isn't known: a cooldown counts from now at the latest, and the rate's bucket is empty. */
  #limitsFrom(now: number): LimitState {
    return { lastLeaseAt: this.#lastLeaseAt, lastSettledAt: now, tokens: 0, refilledAt: now };
  }

  /** So many tasks were leased; at a time of the monotonic clock. */
  leased(count: number, at: number): void {
    if (this.#limits !== null) this.#limits = afterLease(this.#limits, this.settings, count, at);
    else if (count > 0) this.hadLease(at);
  }

  /** It was leased from at a time of the monotonic clock, or may have been until then. */
  hadLease(at: number): void {
    if (this.#limits === null) this.#lastLeaseAt = Math.max(this.#lastLeaseAt, at);
    else if (at > this.#limits.lastLeaseAt) this.#limits = { ...this.#limits, lastLeaseAt: at };
  }

  /** Leases ended, by a settlement or by their time; at a time of the monotonic clock. */
  leaseEnded(at: number): void {
    if (this.#limits !== null) this.#limits = afterSettle(this.#limits, at);
  }

  /** It is neither folded nor let go of until the work is done. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#underWay++;
    try {
      return await work();
    } finally {
      this.#underWay--;
    }
  }

  get limited(): boolean {
    return hasLimits(this.settings);
  }

  /** Its gate, by the monotonic clock. */
  gate(clock: Clock): Gate {
    if (!this.limited || this.#limits === null) return { allowed: Number.POSITIVE_INFINITY, nextAt: null };
    if (this.claiming) return { allowed: 0, nextAt: null };
    return gateOf(this.#limits, this.inFlight, this.#settingsBy(clock), clock.monotonic());
  }

  /** The limits by which the gate is shut, each with the time of `now` when that ends by itself; null: it does not. */
  closedBy(clock: Clock): ReturnType<typeof closedBy> {
    if (this.#limits === null) return [];
    const now = clock.monotonic();
    return closedBy(this.#limits, this.inFlight, this.#settingsBy(clock), now).map(({ limit, until }) => ({
      limit,
      until: until === null ? null : Math.ceil(clock.now() + until - now),
    }));
  }

  /** When the next lease no longer has to wait for the interval behind the last one, by the monotonic clock. */
  get intervalEndsAt(): number {
    const { minIntervalMs } = this.settings;
    if (minIntervalMs === null || this.#limits === null) return Number.NEGATIVE_INFINITY;
    return this.#limits.lastLeaseAt + minIntervalMs;
  }

  /** What limits go by is the monotonic clock: a correction of the other would shorten a cooldown. */
  #settingsBy(clock: Clock): TopicSettings {
    const { blockedUntil } = this.settings;
    return blockedUntil === null ? this.settings : { ...this.settings, blockedUntil: monotonicAt(clock, blockedUntil) };
  }

  /** Tasks under a lease. */
  get inFlight(): number {
    let sum = 0;
    for (const log of this.logs) sum += log.open.leased;
    return sum;
  }

  /** Claims are under way that its limits have to be counted for. */
  get claiming(): boolean {
    for (const log of this.logs) if (log.reserved > 0) return true;
    return false;
  }

  /** Ready entries that no claim under way will take, on tiers that leases serve. */
  get available(): number {
    let sum = 0;
    for (const log of this.logs) if (!log.isDead) sum += Math.max(0, log.ready - log.reserved);
    return sum;
  }

  /** How many of them its limits let go now. */
  leasable(clock: Clock): number {
    return Math.min(this.gate(clock).allowed, this.available);
  }

  /** Since when a task may have been waiting at the most; null: none is ready. */
  get readySince(): number | null {
    let since: number | null = null;
    for (const log of this.logs) {
      if (!log.isDead && log.ready > 0) since = Math.min(since ?? Number.POSITIVE_INFINITY, log.readySince);
    }
    return since;
  }

  counts(): { ready: number; delayed: number; leased: number; dead: number } {
    let ready = 0;
    for (const log of this.logs) if (!log.isDead) ready += log.ready;
    const delayed = Math.max(0, this.delayed);
    return { ready, delayed, leased: this.inFlight, dead: this.logs.get(DEAD_TIER)?.ready ?? 0 };
  }

  get hasByteQuota(): boolean {
    return this.settings.maxWaitingBytes !== null;
  }

  get hasLogs(): boolean {
    return this.logs.size > 0;
  }

  /** Whether something is ready in one of the tiers that no claim under way will take. */
  hasReady(tiers: ReadonlySet<number>): boolean {
    for (const tier of tiers) {
      const log = this.logs.get(tier);
      if (log !== undefined && log.ready > log.reserved) return true;
    }
    return false;
  }

  /** Nothing is in it, as far as is known here. */
  get isIdle(): boolean {
    return this.delayed === 0 && this.moving === 0 && this.#underWay === 0 && this.logs.size === 0 && !this.claiming;
  }
}

/** A topic that is in memory, as a whole or folded: what can be told of it either way. */
export type KnownTopic = Topic | FoldedTopic;

/** What is in memory of one shard, for one tenure of it. */
class Shelf {
  /** A topic stays in its place when it is folded or unfolded: whoever goes through them meets each once. */
  readonly topics = new Map<string, KnownTopic>();
  /** Those that are not folded. */
  readonly unfolded = new Set<Topic>();
  /** Slots of delayed tasks. */
  readonly slots: Slots<Log>;
  readonly loadingTopics = new Map<string, Promise<Topic>>();
  readonly loadingLogs = new Map<string, Promise<Log>>();
  /** Topics without logs: those just loaded, and those whose last log was let go. */
  readonly maybeIdle = new Set<Topic>();

  constructor(tenure: Tenure, onUncounted: (slot: TimeSlot) => void) {
    this.slots = new Slots(tenure, this.topics, onUncounted);
  }

  add(topic: Topic): void {
    this.topics.set(topic.name, topic);
    this.unfolded.add(topic);
  }

  drop(topic: Topic): void {
    this.maybeIdle.delete(topic);
    this.unfolded.delete(topic);
    if (this.topics.get(topic.name) === topic) this.topics.delete(topic.name);
  }
}

/** The topics and logs that are active here. A log is loaded when it is first needed, and forgotten when idle. */
export class TopicBook {
  readonly #store: Store;
  readonly #readingCheckpoints = new Map<string, ReturnType<Store['readCheckpoints']>>();
  readonly #env: Environment;
  readonly #tenures: Tenure[];
  /** By their text. */
  readonly #settings = new LRUCache<string, TopicSettings>({ max: 1_000 });
  /** To be ticked by whoever lets what is not needed be forgotten. */
  readonly uptime: Uptime;
  readonly #home: LogHome;
  readonly #shelves = new WeakMap<Tenure, Shelf>();
  /** Called with each log as it becomes active: before anybody else sees it, and once it is seen. */
  onLoad: (log: Log, topic: Topic | null) => Promise<void> = async () => {};
  onLoaded: (log: Log, topic: Topic | null) => void = () => {};
  /** Takes a turn to put something into a log that another server schedules; null: it cannot be asked. */
  takeTurn: (log: Log) => Promise<LogEnd | null> = async () => null;
  /** Called when something was put into a log here, and when others were found, or said, to have done so. */
  onAppended: (log: Log, appended: Appended | 'partly' | null) => void = () => {};
  onFound: (log: Log) => void = () => {};
  /** Called with a slot of which something has to be counted by a look. */
  onUncounted: (slot: TimeSlot) => void = () => {};
  /** Called when a topic takes the place of what it was folded to. */
  onUnfolded: (folded: FoldedTopic, topic: Topic) => void = () => {};

  constructor(store: Store, env: Environment) {
    this.#store = store;
    this.#env = env;
    this.uptime = new Uptime(env.monotonic);
    this.#home = logHome(store, env, this.#peers, this.uptime);
    this.#tenures = Array.from({ length: store.meta.shards }, (_, shard) => this.#tenure(shard, null));
  }

  /** The shard of a topic, or of a time slot's log. */
  tenureOf(topic: string): Tenure {
    return this.#tenures[shardOfLog(topic, this.#tenures.length)]!;
  }

  #tenure(shard: number, term: number | null): Tenure {
    const tenure = new Tenure(shard, term, this.#env.now());
    this.#shelves.set(tenure, new Shelf(tenure, (slot) => this.onUncounted(slot)));
    return tenure;
  }

  #shelf(tenure: Tenure): Shelf {
    return this.#shelves.get(tenure)!;
  }

  /** Those that are not folded. */
  topicsOf(tenure: Tenure): Iterable<Topic> {
    return this.#shelf(tenure).unfolded;
  }

  knownOf(tenure: Tenure): Iterable<KnownTopic> {
    return this.#shelf(tenure).topics.values();
  }

  /** The slots of delayed tasks of a shard, as one tenure of it knows them. */
  slotsOf(tenure: Tenure): Slots<Log> {
    return this.#shelf(tenure).slots;
  }

  /** The logs of a shard that are active here, but for those of topics that are folded. */
  *logsOf(tenure: Tenure): Generator<Log> {
    const { slots, unfolded } = this.#shelf(tenure);
    yield* slots.logs();
    for (const topic of unfolded) yield* topic.logs;
  }

  get tenures(): readonly Tenure[] {
    return this.#tenures;
  }

  /** Begins anew with a shard: what was known of it is what its former tenure knew. */
  begin(shard: number, term: number | null): { readonly before: Tenure; readonly tenure: Tenure } {
    const before = this.#tenures[shard]!;
    before.ended = true;
    const tenure = this.#tenure(shard, term);
    this.#tenures[shard] = tenure;
    return { before, tenure };
  }

  /** Bytes of what waits in a topic: as they are kept where it has a quota of them, else estimated. */
  waitingBytes(topic: Topic): number {
    let sum = 0;
    for (const log of topic.logs) {
      if (!log.isDead) sum += log.waitingBytes ?? Math.round(log.ready * log.averageBytes);
    }
    const slots = this.slotsOf(topic.tenure);
    const delayed = slots.bytesOf(topic.name);
    if (delayed !== null) return sum + Math.round(delayed);
    for (const [slot, count] of topic.delayed > 0 ? slots.holding(topic.name) : []) {
      sum += Math.round(count * (slot.log?.averageBytes ?? 0));
    }
    return sum;
  }

  /** A topic that is in memory. */
  peek(name: string): Topic | undefined {
    const topic = this.#topicOn(this.#shelf(this.tenureOf(name)), name);
    if (topic !== undefined) topic.touchedAt = this.uptime.now();
    return topic;
  }

  /** The same, for who only wants to tell what is known of it. */
  known(name: string): KnownTopic | undefined {
    return this.#shelf(this.tenureOf(name)).topics.get(name);
  }

  /** Of the shards that this server schedules. */
  *held(): Generator<KnownTopic> {
    for (const tenure of this.#tenures) if (tenure.holds) yield* this.knownOf(tenure);
  }

  #topicOn(shelf: Shelf, name: string): Topic | undefined {
    const known = shelf.topics.get(name);
    return known instanceof FoldedTopic ? this.unfold(known) : known;
  }

  /** Goes on with a topic that is folded; or was, when it was last looked at. */
  unfold(folded: FoldedTopic): Topic {
    const shelf = this.#shelf(folded.tenure);
    const known = shelf.topics.get(folded.name);
    if (known instanceof Topic) return known;
    const rest = known ?? folded;
    const log = Log.goingOn(rest.address, rest.tenure, this.#home, rest.log);
    const topic = Topic.goingOn(rest.topic, log, this.#env, this.uptime.now());
    shelf.add(topic);
    this.onUnfolded(rest, topic);
    return topic;
  }

  /** Folds a topic, where that can be. */
  fold(topic: Topic): FoldedTopic | null {
    const shelf = this.#shelf(topic.tenure);
    const folded = shelf.topics.get(topic.name) === topic ? topic.folded(this.uptime.now()) : null;
    if (folded === null) return null;
    topic.isFolded = true;
    shelf.unfolded.delete(topic);
    shelf.topics.set(topic.name, folded);
    return folded;
  }

  /** Topics in memory of the shards that this server schedules, and how many of their tasks are where; as it is counted. */
  totals(): { topics: number; ready: number; delayed: number; leased: number; dead: number } {
    const sum = { topics: 0, ready: 0, delayed: 0, leased: 0, dead: 0 };
    for (const tenure of this.#tenures) {
      if (!tenure.holds) continue;
      sum.topics += this.#shelf(tenure).topics.size;
      sum.ready += tenure.totals.ready;
      sum.delayed += this.slotsOf(tenure).total;
      sum.leased += tenure.totals.leased;
      sum.dead += tenure.totals.dead;
    }
    return sum;
  }

  /** Tasks under a lease in those shards: asked for with every enqueue and lease, and so not with all the others. */
  get leased(): number {
    let leased = 0;
    for (const { holds, totals } of this.#tenures) if (holds) leased += totals.leased;
    return leased;
  }

  get size(): number {
    return this.totals().topics;
  }

  async topic(name: string): Promise<Topic> {
    const known = this.peek(name);
    if (known !== undefined) return known;
    const tenure = this.tenureOf(name);
    const { loadingTopics } = this.#shelf(tenure);
    return together(loadingTopics, name, () => this.#loadTopic(tenure, name));
  }

  async #loadTopic(tenure: Tenure, name: string): Promise<Topic> {
    const row = await this.#store.readTopic(name);
    const settings = this.#settingsOf(row?.settings ?? null);
    const topic = new Topic(name, tenure, settings, row?.version ?? null, this.#env, this.uptime.now());
    const shelf = this.#shelf(tenure);
    topic.delayed = shelf.slots.delayedOf(name);
    shelf.add(topic);
    shelf.maybeIdle.add(topic);
    return topic;
  }

  peekLog(address: LogAddress): Log | undefined {
    const shelf = this.#shelf(this.tenureOf(address.topic));
    const log = isSlotTopic(address.topic) ? shelf.slots.peek(address)?.log : this.#logOn(shelf, address);
    if (log == null) return undefined;
    log.touched();
    return log;
  }

  #logOn(shelf: Shelf, { topic, tier }: LogAddress): Log | undefined {
    const known = shelf.topics.get(topic);
    if (known instanceof FoldedTopic && known.tier !== tier) return undefined;
    return this.#topicOn(shelf, topic)?.logs.get(tier);
  }

  /** A log that is in memory, or will be soon. */
  async loadedLog(address: LogAddress): Promise<Log | undefined> {
    const { loadingLogs } = this.#shelf(this.tenureOf(address.topic));
    return this.peekLog(address) ?? (await loadingLogs.get(logKey(address)));
  }

  /** The log, loaded. */
  async log(address: LogAddress): Promise<Log> {
    const known = this.peekLog(address);
    if (known !== undefined) return known;
    const tenure = this.tenureOf(address.topic);
    const key = logKey(address);
    const { loadingLogs } = this.#shelf(tenure);
    return together(loadingLogs, key, () => this.#loadLog(tenure, address));
  }

  /**
   * The log with its cursors, which only whoever schedules it knows.
   * @throws QueueError `not-holder`
   */
  async scheduledLog(address: LogAddress): Promise<Log> {
    const log = await this.log(address);
    if (log.tenure.term === null) throw new QueueError('not-holder');
    return log;
  }

  async #loadLog(tenure: Tenure, address: LogAddress): Promise<Log> {
    if (isSlotTopic(address.topic)) return this.#loadLogOf(null, tenure, address);
    const topic = await this.topicIn(tenure, address.topic);
    return topic.during(() => this.#loadLogOf(topic, tenure, address));
  }

  async #loadLogOf(topic: Topic | null, tenure: Tenure, address: LogAddress): Promise<Log> {
    const log = new Log(address, tenure, this.#home);
    // Whoever only puts into it, and settles, asks where it ends when that is needed.
    if (tenure.term !== null) {
      const wasLeased = await this.#loadCursors(log);
      // What was handed out before this server scheduled it is gone after the retention; an interval may be longer.
      if (wasLeased) topic?.hadLease(monotonicAt(this.#env, tenure.beganAt));
    }
    log.touched();
    try {
      await this.onLoad(log, topic);
    } catch (error) {
      this.#uncount(log);
      throw error;
    }
    if (topic === null) {
      log.slot = this.#shelf(tenure).slots.of(address);
      log.slot.attach(log);
    } else {
      topic.logs.add(log);
      this.#shelf(tenure).maybeIdle.delete(topic);
    }
    this.onLoaded(log, topic);
    return log;
  }

  readonly #peers: LogPeers = {
    askEnd: async (log, inTurn) => {
      const end = inTurn ? await this.takeTurn(log) : null;
      if (end === null && !log.hasEnd) await this.#findTail(log);
      return end;
    },
    appended: (log, appended) => this.onAppended(log, appended),
    found: (log) => this.onFound(log),
  };

  /**
   * Not from the first segment on, where its cursors say that it goes on behind that.
   * @returns whether something of the topic was ever handed out, as its checkpoints tell
   */
  async #findTail(log: Log): Promise<boolean> {
    const { topic, tier } = log.address;
    if (isSlotTopic(topic)) {
      await log.findTail(0);
      return false;
    }
    const checkpoints = await this.#checkpointsOf(topic);
    log.saved = checkpoints.get(tier) ?? EMPTY_CHECKPOINT;
    log.completion = log.saved.completion;
    log.trimmed = log.saved.trimmed;
    log.scan = Math.max(log.saved.scan, log.completion);
    await log.findTail(log.scan);
    for (const { scan } of checkpoints.values()) if (scan > 0) return true;
    return false;
  }

  /** @returns whether something of its topic was handed out before */
  async #loadCursors(log: Log): Promise<boolean> {
    const wasLeased = await this.#findTail(log);
    if (isSlotTopic(log.address.topic)) return false;
    if (!log.isAtNewSegment) await log.enterScanSegment();
    // All between the cursors is looked at now.
    log.unseen = null;
    await countUnscanned(log, this.#store);
    return wasLeased || log.scan > 0;
  }

  /** Read once for all logs of a topic that are loaded at the same time, as they are with a shard. */
  #checkpointsOf(topic: string): ReturnType<Store['readCheckpoints']> {
    return together(this.#readingCheckpoints, topic, () => this.#store.readCheckpoints(topic));
  }

  /** The topic that goes with a log, or that has tasks in a time slot: of the same tenure, also where that ended meanwhile. */
  topicOf(log: Log, name = log.address.topic): Promise<Topic> {
    return this.topicIn(log.tenure, name);
  }

  peekTopicOf(log: Log, name = log.address.topic): Topic | undefined {
    return this.#topicOn(this.#shelf(log.tenure), name);
  }

  /** The topic as this tenure knows it, also where the tenure ended meanwhile. */
  topicIn(tenure: Tenure, name: string): Promise<Topic> {
    const known = this.#topicOn(this.#shelf(tenure), name);
    if (known !== undefined) {
      // Whoever loads a log of it needs it until then.
      known.touchedAt = this.uptime.now();
      return Promise.resolve(known);
    }
    return this.tenureOf(name) === tenure ? this.topic(name) : this.#loadTopic(tenure, name);
  }

  /** Lets go of a log that is idle, and of its topic if that was the last; its rows stay. */
  forget(log: Log): void {
    const { slots, topics, maybeIdle } = this.#shelf(log.tenure);
    if (log.slot !== null) {
      if (log.slot.log === log) slots.drop(log.slot);
      return;
    }
    const topic = topics.get(log.address.topic);
    // Another one may stand in its place by now.
    if (!(topic instanceof Topic) || topic.logs.get(log.address.tier) !== log) return;
    this.#uncount(log);
    topic.logs.delete(log.address.tier);
    if (topic.logs.size === 0) maybeIdle.add(topic);
  }

  /** It is let go of, or never came to be: nothing in it counts. */
  #uncount(log: Log): void {
    log.ready = 0;
    log.forgetOpen();
  }

  /** Lets go of topics in which nothing is, and that nobody who looked them up can still be busy with. */
  forgetIdle(): readonly Topic[] {
    const before = this.uptime.now() - LOOKED_UP_MS;
    const dropped: Topic[] = [];
    for (const tenure of this.#tenures) {
      const { maybeIdle } = this.#shelf(tenure);
      for (const topic of maybeIdle) {
        if (topic.isIdle && topic.touchedAt <= before && topic.intervalEndsAt <= this.#env.monotonic())
          dropped.push(topic);
      }
    }
    for (const topic of dropped) this.drop(topic);
    return dropped;
  }

  drop(topic: Topic): void {
    this.#shelf(topic.tenure).drop(topic);
  }

  /** Many topics have the same, and share them. */
  #settingsOf(text: string | null): TopicSettings {
    const known = this.#settings.get(text ?? '');
    if (known !== undefined) return known;
    const settings = parseSettings(text);
    this.#settings.set(text ?? '', settings);
    return settings;
  }

  /** Reads a topic's settings again. */
  async reload(topic: Topic): Promise<void> {
    const row = await this.#store.readTopic(topic.name);
    topic.learn(this.#settingsOf(row?.settings ?? null), row?.version ?? null, this.#env);
  }

  /** The tiers in which something was ever put. */
  async tiersOf(topic: string): Promise<readonly number[]> {
    const tiers = new Set((await this.#store.readCheckpoints(topic)).keys());
    for (const { address } of this.peek(topic)?.logs ?? []) tiers.add(address.tier);
    return [...tiers].sort((a, b) => b - a);
  }
}

/** What is under way for a key already, or begins now. */
function together<T>(underWay: Map<string, Promise<T>>, key: string, begin: () => Promise<T>): Promise<T> {
  let one = underWay.get(key);
  if (one === undefined) {
    one = begin().finally(() => underWay.delete(key));
    underWay.set(key, one);
  }
  return one;
}

/** Counts the entries between scan cursor and tail; ids behind the entries of a sealed segment are none. */
async function countUnscanned(log: Log, store: Store): Promise<void> {
  const size = store.meta.segmentSize;
  const end = log.nextId;
  let entries = 0;
  for (let segment = segmentOf(log.scan, size); segmentStart(segment, size) < end; segment++) {
    let last = log.scanHeader?.segment === segment ? log.scanHeader.end : null;
    if (last === null) {
      const header = await store.readSegment(log.address, segment);
      if (header === null) break;
      last = entriesEnd(header);
    }
    entries += Math.max(0, last - Math.max(log.scan, segmentStart(segment, size)));
  }
  // Some of them may be final by now; what is not ready is taken off as it is met.
  log.ready = entries;
}

/** Tiers that leases serve, highest first. */
export const LEASED_TIERS: readonly number[] = Array.from({ length: TIERS }, (_, index) => TIERS - 1 - index);

export const sameLog = (a: LogAddress, b: LogAddress): boolean => a.tier === b.tier && a.topic === b.topic;
export const placeIn = (log: LogAddress, id: number): Place => ({ topic: log.topic, tier: log.tier, id });
