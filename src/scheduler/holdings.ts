/**
 * Who schedules which shard: the distributed mutex of the design, for many shards with one beat a server.
 *
 * Each server raises its beat every BEAT_MS, in a plain write. Another server that has watched a beat stand still for
 * LEASE_MS of its own monotonic clock, from the answer that told of it to the beginning of a look that finds it still the
 * same, takes the server for dead, and its shards for nobody's; no two clocks are ever compared. A server that could not raise its beat for LEASE_MS − MARGIN_MS lets go of all its shards by its own monotonic
 * clock, before anybody may take them. The row of a shard names its holder and the holder's term; it is changed only
 * under the version that was read, so that of two who take a shard one gets it.
 *
 * Whoever wakes up from a pause that was longer than all this can do nothing: its term is in the condition of each of its
 * claims, and the version of the row in that of what it writes into the index. The mutex saves work; safety rests on these
 * conditions alone.
 *
 * A server that comes tells the others, which hand over what is more than their share; one that goes hands over all it
 * has, to servers it names in the rows and tells. What is told may get lost: everything is found at the next beat.
 */
import { planLeaving, planSpread } from '../core/spread.ts';
import type { QueueLogger } from '../queue/engine.ts';
import type { Environment } from '../queue/environment.ts';
import { definitely } from '../queue/outcomes.ts';
import type { Tenure } from '../queue/tenure.ts';
import type { NodeRow, ShardRow, ShardWrite, Store } from '../store/store.ts';

export const BEAT_MS = 2_000;
export const LEASE_MS = 9_000;
const MARGIN_MS = 2_000;
const LOOK_AGAIN_MS = 250;
/** Rows that one conditional batch changes. */
const ROWS_PER_WRITE = 64;
/** How often a plan is made anew at once, because others were faster. */
const TRIES = 5;

const NEW_ROW: ShardRow = { holder: null, term: 0, version: 0, period: 1, oldestPeriod: 1 };

/** This server, as others see it. */
export type Self = Omit<NodeRow, 'beat' | 'holds'>;

export interface HoldingEvents {
  /** This server schedules the shard from now on, under this term. */
  gained(shard: number, term: number): void;
  /** It no longer does. */
  lost(shard: number): void;
  /** Others should look at the rows now. */
  changed(nodes: readonly NodeRow[]): void;
}

/** What is known of a shard's index, and when that was last so, by the monotonic clock. */
export interface KnownPeriod {
  readonly period: number;
  readonly oldestPeriod: number;
  readonly knownAt: number;
}

interface Seen {
  readonly node: NodeRow;
  /** When a new beat was last seen, by the monotonic clock: when the answer that told of it was there. */
  readonly changedAt: number;
  /** When the last look began that found the same beat. */
  readonly sameAt: number;
}

export class Holdings {
  readonly #store: Store;
  readonly #env: Environment;
  readonly #logger: QueueLogger;
  #self: Self;
  readonly #events: HoldingEvents;
  #rows: ReadonlyMap<number, ShardRow> = new Map();
  #nodes = new Map<string, Seen>();
  /** Shards that this server holds, by term. */
  readonly #held = new Map<number, number>();
  /** The highest term under which it ever held each: it never goes on under one that it has lost. */
  readonly #terms = new Map<number, number>();
  #holds: boolean;
  #beat = 0;
  #lookedAgain: { readonly at: number; readonly done: Promise<void> } | null = null;
  /** When the last beat that was answered was sent; by the monotonic clock. */
  #beatAt: number;
  /** When the rows were last known to be as they are here. */
  #knownAt = Number.NEGATIVE_INFINITY;
  #cancel: (() => void) | null = null;
  #step: Promise<void> = Promise.resolve();
  #stepAgain = false;
  /** No turn of the timer's is under way. */
  #rested = true;
  #stopped = false;
  /** When it was last known which servers there are, and what each holds, by the monotonic clock. */
  lastAnswerAt: number;

  constructor(store: Store, env: Environment, logger: QueueLogger, self: Self, holds: boolean, events: HoldingEvents) {
    this.#store = store;
    this.#env = env;
    this.#logger = logger;
    this.#self = self;
    this.#holds = holds;
    this.#events = events;
    this.#beatAt = env.monotonic();
    this.lastAnswerAt = this.#beatAt;
  }

  get id(): string {
    return this.#self.id;
  }

  /** When the last beat that was answered was sent, by which this server's shards are renewed; by the monotonic clock. */
  get lastBeatAt(): number {
    return this.#beatAt;
  }

  /** The term under which this server holds a shard now; null where it doesn't, or may not count on it any more. */
  termOf(shard: number): number | null {
    return this.#isSure() ? (this.#held.get(shard) ?? null) : null;
  }

  /** Whether nobody else can hold a shard of which this is the tenure. */
  holds(tenure: Tenure): boolean {
    return tenure.holds && this.termOf(tenure.shard) === tenure.term;
  }

  get held(): readonly number[] {
    return [...this.#held.keys()];
  }

  /** The other server that holds a shard, as far as is known; null: nobody that is alive, or this one. */
  holderOf(shard: number): NodeRow | null {
    const holder = this.#rows.get(shard)?.holder ?? null;
    if (holder === null || holder === this.#self.id) return null;
    const seen = this.#nodes.get(holder);
    return seen !== undefined && this.#isAlive(seen) ? seen.node : null;
  }

  /** Other servers that are alive. */
  get others(): readonly NodeRow[] {
    const others: NodeRow[] = [];
    for (const seen of this.#nodes.values()) {
      if (seen.node.id !== this.#self.id && this.#isAlive(seen)) others.push(seen.node);
    }
    return others;
  }

  /** Whether a server holds any shard, as far as is known. */
  holdsAny(id: string): boolean {
    for (const { holder } of this.#rows.values()) if (holder === id) return true;
    return false;
  }

  /** What is known of a shard's index; null: nothing, no server ever held it. */
  period(shard: number): KnownPeriod | null {
    const row = this.#rows.get(shard);
    return row === undefined ? null : { period: row.period, oldestPeriod: row.oldestPeriod, knownAt: this.#knownAt };
  }

  /** Reads the rows now, so that the periods are known to be current. */
  look(): Promise<void> {
    return this.#inTurn(() => this.#read());
  }

  /**
   * A server was asked for what it does not hold: who holds what is read again, once for all who find so at the same time,
   * and not again for a moment.
   */
  lookAgain(): Promise<void> {
    const now = this.#env.monotonic();
    if (this.#lookedAgain === null || now - this.#lookedAgain.at >= LOOK_AGAIN_MS) {
      this.#lookedAgain = { at: now, done: this.look() };
    }
    return this.#lookedAgain.done;
  }

  /** Makes sure that there is a row of a shard which no server has held yet, so that there is a period. */
  introduce(shard: number): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#rows.has(shard)) return;
      await this.#read();
      if (this.#rows.has(shard)) return;
      if (!(await this.#write([{ shard, expect: null, row: { ...NEW_ROW, version: 1 } }]))) await this.#read(true);
    });
  }

  /** Takes its share of the shards where they are free, and goes on to raise its beat and to watch the others'. */
  async start(): Promise<void> {
    // Nobody else could schedule an embedded store: a start that failed is the caller's to know.
    if (!this.#store.exclusive) await this.#raiseBeat();
    await this.#inTurn(() => (this.#store.exclusive ? this.#work() : this.#turn()));
    if (!this.#store.exclusive) this.#events.changed(this.others);
    this.#again();
  }

  /** Somebody says that something has changed. */
  nudge(): void {
    if (this.#stopped || this.#stepAgain) return;
    // Many may say so while one look is under way: one more will do.
    this.#stepAgain = true;
    void this.#inTurn(() => {
      this.#stepAgain = false;
      return this.#turn();
    });
  }

  /** Whether this server is to have a share of the shards. */
  async want(holds: boolean): Promise<void> {
    if (this.#holds === holds || this.#stopped) return;
    this.#holds = holds;
    await this.#raiseBeat();
    await this.#inTurn(() => this.#turn());
  }

  /** Others reach this server from now on, so that it may have a share of the shards. */
  async join(address: string): Promise<void> {
    this.#self = { ...this.#self, address };
    this.#holds = true;
    await this.#raiseBeat();
    await this.#inTurn(() => this.#turn());
    this.#events.changed(this.others);
  }

  /** Hands all over, so that other servers go on at once. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel?.();
    await this.#step;
    // First, or others would give it a share while it goes.
    await this.#raiseBeat();
    await this.#leave().catch((error: unknown) => {
      this.#logger.warn({ err: error }, 'shards could not be handed over; others take them when they find us gone');
    });
    for (const shard of this.held) this.#lose(shard);
    if (!this.#store.exclusive) await this.#store.dropNode(this.#self.id).catch(() => {});
  }

  /** A claim found a higher term than ours: another server has taken the shard over. */
  deposed(shard: number): void {
    this.#lose(shard);
    this.nudge();
  }

  /** Writes another part of a shard's row while holding it; whether that was so. */
  update(shard: number, change: Partial<Pick<ShardRow, 'period' | 'oldestPeriod'>>): Promise<boolean> {
    return this.#inTurn(async () => {
      const row = this.#rows.get(shard);
      const term = this.termOf(shard);
      if (row === undefined || term === null || row.term !== term) return false;
      return this.#write([{ shard, expect: row.version, row: { ...row, ...change, version: row.version + 1 } }]);
    });
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#step.then(work);
    this.#step = done.then(
      () => {},
      () => {},
    );
    return done;
  }

  #again(): void {
    // Nobody else can change what is in an embedded store.
    if (this.#stopped || this.#store.exclusive) return;
    // The beat does not wait for its turn: a write of rows may be in doubt for longer than a lease lasts.
    this.#cancel = this.#env.timer(this.#nextTurnInMs(), () => {
      const watchdog = this.#watchdog();
      if (this.#rested) {
        this.#rested = false;
        void this.#inTurn(() => this.#turn()).finally(() => {
          this.#rested = true;
        });
      }
      void this.#raiseBeat().finally(() => {
        watchdog();
        this.#again();
      });
    });
  }

  /** At the next beat; sooner where another server will be taken for dead before that, should its beat stand still. */
  #nextTurnInMs(): number {
    const now = this.#env.monotonic();
    let inMs = BEAT_MS;
    for (const { node, changedAt } of this.#nodes.values()) {
      const left = changedAt + LEASE_MS - now;
      if (node.id !== this.#self.id && left > 0) inMs = Math.min(inMs, left + 1);
    }
    return inMs;
  }

  /** Lets go in time even where the store does not answer at all. */
  #watchdog(): () => void {
    const left = this.#beatAt + LEASE_MS - MARGIN_MS - this.#env.monotonic();
    return this.#env.timer(Math.max(0, left), () => this.#letGoInTime());
  }

  #letGoInTime(): void {
    if (this.#isSure()) return;
    for (const shard of this.held) this.#lose(shard);
  }

  #isSure(): boolean {
    return this.#store.exclusive || this.#env.monotonic() - this.#beatAt < LEASE_MS - MARGIN_MS;
  }

  #isAlive(seen: Seen): boolean {
    return !this.#store.exclusive && seen.sameAt - seen.changedAt < LEASE_MS;
  }

  async #turn(): Promise<void> {
    try {
      await this.#work();
    } catch (error) {
      this.#tellTrouble(error, 'the rows of shards could not be read or written');
    }
    this.#letGoInTime();
  }

  async #work(): Promise<void> {
    await this.#read();
    await this.#balance();
    this.lastAnswerAt = this.#env.monotonic();
  }

  async #raiseBeat(): Promise<void> {
    if (this.#store.exclusive) return;
    // It counts from before the write: others may have seen it since then.
    const at = this.#env.monotonic();
    try {
      await this.#store.writeNode({ ...this.#self, beat: ++this.#beat, holds: this.#holds && !this.#stopped });
    } catch (error) {
      this.#tellTrouble(error, 'the beat of this server could not be raised');
      return;
    }
    // A process that was paused past its lease lets go before it counts on this beat: others may have taken its shards.
    this.#letGoInTime();
    this.#beatAt = Math.max(this.#beatAt, at);
  }

  #tellTrouble(error: unknown, what: string): void {
    if (!this.#stopped) this.#logger.warn({ err: error }, what);
  }

  async #read(serial = false): Promise<void> {
    const at = this.#env.monotonic();
    const [rows, nodes] = await Promise.all([
      this.#store.readShards(serial),
      this.#store.exclusive ? [] : this.#store.readNodes(),
    ]);
    const answeredAt = this.#env.monotonic();
    this.#rows = rows;
    this.#knownAt = at;
    const seen = new Map<string, Seen>();
    for (const node of nodes) {
      const before = this.#nodes.get(node.id);
      // A replica that missed the last beat still tells of the one before.
      const isNew = before === undefined || node.beat > before.node.beat;
      seen.set(node.id, isNew ? { node, changedAt: answeredAt, sameAt: at } : { ...before, sameAt: at });
    }
    this.#nodes = seen;
    for (const [shard, term] of this.#held) {
      const row = rows.get(shard);
      if (row?.holder !== this.#self.id || row.term !== term) this.#lose(shard);
    }
    if (this.#stopped) return;
    for (const [shard, row] of rows) {
      // Another server has handed it over to us.
      if (row.holder === this.#self.id && row.term > (this.#terms.get(shard) ?? 0)) this.#gain(shard, row.term);
    }
  }

  /** Who holds each shard; null: nobody, or one that is not alive. */
  #holders(): (string | null)[] {
    return Array.from({ length: this.#store.meta.shards }, (_, shard) => {
      const holder = this.#rows.get(shard)?.holder ?? null;
      if (holder === this.#self.id) return holder;
      const seen = holder === null ? undefined : this.#nodes.get(holder);
      return seen !== undefined && this.#isAlive(seen) ? holder : null;
    });
  }

  #members(): string[] {
    const members = this.#holds && !this.#stopped ? [this.#self.id] : [];
    for (const node of this.others) if (node.holds) members.push(node.id);
    return members;
  }

  async #balance(): Promise<void> {
    for (let tries = 0; tries < TRIES; tries++) {
      if (this.#stopped || !this.#isSure()) return;
      const [holders, members] = [this.#holders(), this.#members()];
      const { take, handOver } = planSpread({ holders, members });
      const taken = [...take].flatMap(([shard, to]) => (to === this.#self.id ? [shard] : []));
      // Ours by the row, which nobody else can take then; but let go of, so that it is begun anew under another term.
      for (const [shard, { holder }] of this.#rows) {
        if (holder === this.#self.id && !this.#held.has(shard)) taken.push(shard);
      }
      const given = new Map(
        members.includes(this.#self.id)
          ? [...handOver].filter(([shard]) => this.#held.has(shard))
          : planLeaving(holders, this.#self.id, members),
      );
      if (taken.length === 0 && given.size === 0) return;
      const done = (await this.#take(taken)) && (await this.#give(given));
      if (done) return;
      await this.#read(true);
    }
  }

  async #take(shards: readonly number[]): Promise<boolean> {
    const writes = shards.map((shard): ShardWrite => {
      const row = this.#rows.get(shard) ?? NEW_ROW;
      const next = { ...row, holder: this.#self.id, term: row.term + 1, version: row.version + 1 };
      return { shard, expect: this.#rows.has(shard) ? row.version : null, row: next };
    });
    const done = await this.#writeAll(writes);
    for (const { shard, row } of done) this.#gain(shard, row.term);
    if (done.length > 0) this.#events.changed(this.others);
    return done.length === writes.length;
  }

  /** Hands shards over to others, which begin under a term of their own. */
  async #give(heirs: ReadonlyMap<number, string | null>): Promise<boolean> {
    if (heirs.size === 0) return true;
    const writes = [...heirs].flatMap(([shard, heir]): ShardWrite[] => {
      const row = this.#rows.get(shard);
      if (row === undefined || row.holder !== this.#self.id || !this.#held.has(shard)) return [];
      const term = row.term + (heir === null ? 0 : 1);
      return [{ shard, expect: row.version, row: { ...row, holder: heir, term, version: row.version + 1 } }];
    });
    // First: what this server claims from here on would be claimed after another one has counted.
    for (const { shard } of writes) this.#lose(shard);
    const done = await this.#writeAll(writes);
    const told = new Set(done.map(({ row }) => row.holder));
    this.#events.changed(this.others.filter(({ id }) => told.has(id)));
    return done.length === heirs.size;
  }

  async #leave(): Promise<void> {
    if (this.#held.size === 0) return;
    if (!this.#store.exclusive) await this.#read();
    const plan = planLeaving(this.#holders(), this.#self.id, this.#members());
    await this.#give(new Map(this.held.map((shard) => [shard, plan.get(shard) ?? null])));
  }

  async #writeAll(writes: readonly ShardWrite[]): Promise<readonly ShardWrite[]> {
    const done: ShardWrite[] = [];
    for (let at = 0; at < writes.length; at += ROWS_PER_WRITE) {
      const some = writes.slice(at, at + ROWS_PER_WRITE);
      if (await this.#write(some)) done.push(...some);
    }
    return done;
  }

  async #write(writes: readonly ShardWrite[]): Promise<boolean> {
    let applied = (await definitely(this.#env, () => this.#store.writeShards(writes))) === 'applied';
    if (!applied) {
      // After an unknown outcome, the rows that stand there may be ours.
      const rows = await this.#store.readShards(true);
      applied = writes.every(({ shard, row }) => isSame(rows.get(shard), row));
    }
    if (!applied) return false;
    const rows = new Map(this.#rows);
    for (const { shard, row } of writes) rows.set(shard, row);
    this.#rows = rows;
    return true;
  }

  #gain(shard: number, term: number): void {
    this.#held.set(shard, term);
    this.#terms.set(shard, term);
    this.#events.gained(shard, term);
  }

  #lose(shard: number): void {
    if (this.#held.delete(shard)) this.#events.lost(shard);
  }
}

const isSame = (row: ShardRow | undefined, other: ShardRow): boolean =>
  row !== undefined &&
  row.version === other.version &&
  row.holder === other.holder &&
  row.term === other.term &&
  row.period === other.period &&
  row.oldestPeriod === other.oldestPeriod;
