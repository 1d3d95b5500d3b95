import { ANSWER_BYTES, BATCH_ENTRIES } from '../core/bounds.ts';
import { type ClaimDecision, decideClaim, isDeposed, isPurged } from '../core/claim.ts';
import {
  bytesOf,
  type Entry,
  type EntryChange,
  type EntryPatch,
  entryBytes,
  FINAL_VERSION,
  leasePatch,
} from '../core/entry.ts';
import { QueueError } from '../core/errors.ts';
import { segmentEnd } from '../core/log.ts';
import { type MessageRow, type MessageWrite, messageIdKey } from '../core/message.ts';
import { mustBeChecked } from '../core/scan.ts';
import { adoptUnseen, measureWaiting, recountReady, recountWaiting, takeTerm } from '../scheduler/recover.ts';
import type { Engine } from './engine.ts';
import { type Moment, momentOf } from './environment.ts';
import { GroupCommit } from './group-commit.ts';
import type { Log } from './log.ts';
import { liveRow, type Messages } from './messages.ts';
import { asPending, type Mover } from './move.ts';
import { openEntry } from './open-entries.ts';
import { changeDefinitely } from './outcomes.ts';
import { placeIn, type Topic } from './topics.ts';

/** Under what a lease call takes entries. */
export interface Grant {
  readonly leaseId: string;
  readonly worker: string | null;
  /** null: the topic's. */
  readonly leaseMs: number | null;
}

/** An entry that was handed out. */
export interface Claimed {
  readonly entry: Entry;
  readonly leaseId: string;
  readonly leaseUntil: number;
}

interface Want {
  readonly count: number;
  readonly grant: Grant;
}

/** Wants nothing but that what cannot be handed out is passed. */
const SWEEP: Want = { count: 0, grant: { leaseId: '', worker: null, leaseMs: null } };

/** Wants what is in flight to be known exactly. */
const COUNT: Want = { ...SWEEP };

/** Wants it to be known what waits. */
const MEASURE: Want = { ...SWEEP };

/** How often a claim reads again after it lost against a change, before it lets others go first. */
const TRIES = 20;

/**
 * Claims entries at the scan cursor of a log: what is read there is leased, and the cursor moved on, in one
 * conditional batch. A pending entry is carried to an end first; an expired or purged one, or one whose message id
 * belongs to another task, is ended in the same batch.
 */
export class Claimer {
  readonly #engine: Engine;
  readonly #mover: Mover;
  readonly #groups = new Map<Log, GroupCommit<Want, readonly Claimed[]>>();

  constructor(engine: Engine, mover: Mover) {
    this.#engine = engine;
    this.#mover = mover;
  }

  /** Takes up to `count` entries; claims of concurrent callers share one batch. */
  async claim(topic: Topic, log: Log, count: number, grant: Grant): Promise<readonly Claimed[]> {
    log.reserved += count;
    // What is handed out is taken off as it is; others see at once what is left for them.
    let unused = count;
    try {
      const [claimed] = await this.#group(topic, log).submit([{ count, grant }]);
      unused -= claimed!.length;
      return claimed!;
    } finally {
      log.reserved -= unused;
    }
  }

  /** Ends what stands at the scan cursor and cannot be handed out: cancelled, purged and expired entries. */
  async sweep(topic: Topic, log: Log): Promise<void> {
    await this.#group(topic, log).submit([SWEEP]);
  }

  /**
   * A topic got its first limit: from here on no claim of a predecessor can land any more, and those that have are counted.
   * In turn with our own claims, which would else be taken for a predecessor's while they are being accounted for.
   */
  async countExactly(topic: Topic): Promise<void> {
    for (const log of [...topic.logs]) if (!log.isDead) await this.#group(topic, log).submit([COUNT]);
  }

  /** A topic got a quota. In turn with claims, which take off what they pass. */
  async measure(topic: Topic): Promise<void> {
    for (const log of [...topic.logs]) if (!log.isDead) await this.#group(topic, log).submit([MEASURE]);
  }

  /** One round at a time moves the cursor of a log, whoever asked for it. */
  #group(topic: Topic, log: Log): GroupCommit<Want, readonly Claimed[]> {
    let group = this.#groups.get(log);
    if (group === undefined) {
      group = new GroupCommit(
        (wants) => this.#serve(topic, log, wants),
        BATCH_ENTRIES,
        (want) => want.count,
        () => this.#groups.delete(log),
      );
      this.#groups.set(log, group);
    }
    return group;
  }

  async #serve(topic: Topic, log: Log, wants: readonly Want[]): Promise<readonly (readonly Claimed[])[]> {
    const asked = wants.filter(({ count }) => count > 0);
    const claimed: Claimed[][] = asked.map(() => []);
    try {
      await this.#claimFor(topic, log, asked, claimed);
      if (wants.includes(COUNT)) {
        await takeTerm(this.#engine, log);
        await adoptUnseen(this.#engine, log, topic);
        if (log.waitingBytes !== null) await measureWaiting(this.#engine, log);
      }
      if (wants.includes(MEASURE)) {
        if (topic.settings.maxWaiting !== null) await recountWaiting(this.#engine, log, topic);
        if (topic.settings.maxWaitingBytes !== null) await measureWaiting(this.#engine, log);
      }
      if (wants.includes(SWEEP)) await this.#sweep(topic, log);
    } catch (error) {
      // Entries may be handed out that nobody here knows of: the cursor is read again, soon.
      log.scanHeader = null;
      log.sweep = true;
      this.#engine.signals.due(log, this.#engine.env.now());
      // What was handed out before is, and is told.
      if (claimed.every(({ length }) => length === 0)) throw error;
    }
    let nth = 0;
    return wants.map(({ count }) => (count > 0 ? claimed[nth++]! : []));
  }

  async #sweep(topic: Topic, log: Log): Promise<void> {
    for (let tries = 0; tries < TRIES; tries++) {
      const before = log.scan;
      const round = await this.#round(topic, log, [], [], 0, ANSWER_BYTES);
      if (round === 'end' || (round !== 'again' && log.scan === before)) break;
      if (round !== 'again') tries = 0;
    }
    if (log.ready > 0 || log.unscanned === 0) return;
    await recountReady(this.#engine, log, topic);
    this.#engine.signals.ready(topic);
  }

  async #claimFor(topic: Topic, log: Log, wants: readonly Want[], results: Claimed[][]): Promise<void> {
    let turn = 0;
    let bytes = 0;
    let readAhead = 0;
    for (let tries = 0; tries < TRIES && turn < wants.length && bytes < ANSWER_BYTES; ) {
      const from = log.scan;
      const round = await this.#round(topic, log, wants, results, turn, ANSWER_BYTES - bytes, readAhead);
      if (round === 'end') break;
      if (round === 'again') {
        tries++;
        continue;
      }
      bytes += round;
      // Where nothing could be handed out, as after a purge, more is looked at at once.
      if (round === 0 && log.scan > from) readAhead = Math.min(BATCH_ENTRIES, Math.max(8, readAhead * 4));
      while (turn < wants.length && results[turn]!.length >= wants[turn]!.count) turn++;
    }
  }

  /** One batch: `end` where nothing is left, `again` where somebody else was faster, else the bytes handed out. */
  async #round(
    topic: Topic,
    log: Log,
    wants: readonly Want[],
    results: Claimed[][],
    firstWant: number,
    budget: number,
    readAhead = BATCH_ENTRIES,
  ): Promise<number | 'end' | 'again'> {
    const { env } = this.#engine;
    const { tenure } = log;
    const header = await log.enterScanSegment();
    if (log.unseen !== null) {
      await adoptUnseen(this.#engine, log, topic);
      if (log.waitingBytes !== null) await measureWaiting(this.#engine, log);
      return 'again';
    }
    if (header === null || log.scan >= header.end) {
      if (log.unscanned === 0) return 'end';
      // Something was appended since the header was read.
      log.scanHeader = null;
      return 'again';
    }
    if (tenure.term === null || isDeposed(tenure.term, header.term)) {
      // Whoever claimed here last holds the shard by now: this process was paused past its own time.
      this.#engine.deposed(tenure);
      throw new QueueError('not-holder');
    }
    let wanted = 0;
    for (let at = firstWant; at < wants.length; at++) wanted += wants[at]!.count - results[at]!.length;
    const bySize = Math.max(1, Math.floor(budget / Math.max(1, header.averageBytes)));
    const most = Math.min(Math.max(wanted, readAhead), BATCH_ENTRIES, bySize);
    const entries = await this.#readPrefix(log, header.end, most);
    if (entries.length === 0) {
      // A gap: its append is still under way. The scanner counts again what is ready.
      log.ready = 0;
      this.#engine.signals.due(log, env.now());
      return 'end';
    }
    const rows = await this.#rowsOf(topic, entries);
    if (await this.#finishMoves(log, entries)) return 'again';

    const moment = momentOf(env);
    const decisions: ClaimDecision[] = [];
    const own: MessageWrite[] = [];
    let bytes = 0;
    for (const entry of entries) {
      const message = entry.messageId === null ? undefined : (rows.get(messageIdKey(entry.messageId)) ?? null);
      const decision = decideClaim(entry, { now: moment.now, purgedAt: topic.settings.purgedAt, message });
      if ((decision.kind === 'claim' || decision.kind === 'own') && wanted-- === 0) break;
      const more = entryBytes(entry);
      if (decisions.length > 0 && bytes + more > budget) break;
      bytes += more;
      decisions.push(decision);
      if (decision.kind === 'own') own.push(ownership(log, entry, decision.supersedes));
    }
    if (decisions.length === 0) return 'end';
    if (own.length > 0) {
      const answers = await this.#engine.messages.write(topic.name, own);
      // Somebody else wrote a row meanwhile: decide anew by what stands there.
      if (answers.some((answer, at) => answer !== null && (answer === 'absent' || answer.uid !== own[at]!.row.uid))) {
        return 'again';
      }
    }
    return this.#commit(topic, log, header, entries, decisions, wants, results, firstWant, moment);
  }

  async #commit(
    topic: Topic,
    log: Log,
    header: NonNullable<Log['scanHeader']>,
    entries: readonly Entry[],
    decisions: readonly ClaimDecision[],
    wants: readonly Want[],
    results: Claimed[][],
    firstWant: number,
    moment: Moment,
  ): Promise<number | 'again'> {
    const { store, env } = this.#engine;
    const { now } = moment;
    const changes: EntryChange[] = [];
    const taken = new Map<number, Claimed>();
    const wantOf: number[] = [];
    const patchOf = new Map<string, EntryPatch>();
    let want = firstWant;
    let left = want < wants.length ? wants[want]!.count - results[want]!.length : 0;
    let bytes = 0;
    for (const [at, decision] of decisions.entries()) {
      const entry = entries[at]!;
      const expect = { uid: entry.uid, version: entry.version };
      if (decision.kind === 'end') {
        const { status, reason } = decision;
        changes.push({ id: entry.id, expect, set: { status, reason, version: FINAL_VERSION, updatedAt: now } });
      } else if (decision.kind === 'claim' || decision.kind === 'own') {
        while (left === 0) {
          want++;
          left = wants[want]!.count - results[want]!.length;
        }
        const { grant } = wants[want]!;
        // One patch for all entries alike, so that a store may write a run of them at once.
        const alike = `${want}/${entry.version}`;
        let set = patchOf.get(alike);
        if (set === undefined) {
          const { leaseId, worker } = grant;
          set = leasePatch(entry, { leaseId, worker, leaseUntil: now + leaseTime(grant, topic) }, now);
          patchOf.set(alike, set);
        }
        changes.push({ id: entry.id, expect, set });
        taken.set(entry.id, { entry, leaseId: grant.leaseId, leaseUntil: set.leaseUntil! });
        wantOf.push(want);
        left--;
        bytes += entryBytes(entry);
      }
    }
    // Where the entries begin that were decided on: the cursor may have moved since they were read.
    const from = entries[0]!.id;
    const to = from + decisions.length;
    // What is handed out must be found again if this process dies, also where whoever put it in has died before that was sure.
    await this.#engine.activity.ensure(log);
    const term = log.tenure.term!;
    // Looked at last, right before the write: so what a holder claims stood there while it was the holder, and its
    // successor finds it, or shuts it out where it takes the term of the segment.
    if (!this.#engine.mayClaim(log.tenure)) throw new QueueError('not-holder');
    const outcome = await changeDefinitely(store, env, {
      log: log.address,
      segment: header.segment,
      changes,
      scan: { from, to, seenTerm: header.term, term },
    });
    if (outcome.kind === 'conflict') {
      log.scanHeader = null;
      return 'again';
    }
    log.scan = to;
    if (log.waitingBytes !== null) log.addWaitingBytes(-bytesOf(entries.slice(0, decisions.length)));
    header.term = term;
    await this.#account(topic, log, entries, decisions, taken, moment);
    let nth = 0;
    for (const claimed of taken.values()) results[wantOf[nth++]!]!.push(claimed);
    return bytes;
  }

  /** Entries from the scan cursor on, up to the first gap: behind it, a write may still be under way. */
  async #readPrefix(log: Log, end: number, limit: number): Promise<readonly Entry[]> {
    const size = this.#engine.store.meta.segmentSize;
    const to = Math.min(end, segmentEnd(Math.floor(log.scan / size), size));
    for (const serial of [false, true]) {
      const read = await this.#engine.store.readEntries({ log: log.address, from: log.scan, to, limit, serial });
      let length = 0;
      while (length < read.length && read[length]!.id === log.scan + length) length++;
      if (length > 0) return length === read.length ? read : read.slice(0, length);
    }
    return [];
  }

  async #rowsOf(topic: Topic, entries: readonly Entry[]): Promise<ReadonlyMap<string, MessageRow>> {
    const keys: string[] = [];
    for (const entry of entries) if (entry.messageId !== null) keys.push(messageIdKey(entry.messageId));
    return keys.length === 0 ? NONE : this.#engine.messages.read(topic.name, keys);
  }

  /** Carries pending entries to an end; whether there were any. */
  async #finishMoves(log: Log, entries: readonly Entry[]): Promise<boolean> {
    const pendings = entries.filter((entry) => entry.status === 'pending').map((entry) => asPending(log, entry));
    if (pendings.length === 0) return false;
    await this.#mover.resolve(log, pendings);
    return true;
  }

  async #account(
    topic: Topic,
    log: Log,
    entries: readonly Entry[],
    decisions: readonly ClaimDecision[],
    taken: ReadonlyMap<number, Claimed>,
    { now, monotonic }: Moment,
  ): Promise<void> {
    const { counters, signals, messages } = this.#engine;
    const ended: Parameters<Messages['settle']>[2][number][] = [];
    let met = 0;
    let until = Number.POSITIVE_INFINITY;
    // In the order of ids, which is the order in which `open` is kept.
    for (const [at, decision] of decisions.entries()) {
      const entry = entries[at]!;
      const claimed = taken.get(entry.id);
      // Purged ones were taken off when they were purged.
      if (entry.status === 'ready' && !isPurged(entry, topic.settings.purgedAt)) met++;
      if (claimed !== undefined) {
        log.opens(entry.id, openEntry(entry, true, claimed.leaseUntil));
        until = Math.min(until, claimed.leaseUntil);
        if (entry.attempt > 0) counters.redelivered++;
      } else if (decision.kind === 'end' && decision.status !== 'duplicate') {
        log.opens(entry.id, openEntry(entry, false, 0));
        ended.push({ task: entry, place: placeIn(log.address, entry.id), status: decision.status, at: now });
        if (decision.status === 'expired') counters.expired++;
      } else if (decision.kind === 'pass' && mustBeChecked(entry)) {
        // Whether its destination is ready and its row agrees was not looked at here: the scanner does.
        log.opens(entry.id, openEntry(entry, false, 0));
        until = now;
      }
    }
    log.countReady(-met);
    // What stands behind them was put there later.
    log.readySince = Math.max(log.readySince, entries.at(-1)?.placedAt ?? 0);
    log.reserved -= taken.size;
    if (log.ready === 0 && log.unscanned > 0) signals.due(log, now);
    counters.delivered += taken.size;
    topic.leased(taken.size, monotonic);
    signals.due(log, until);
    if (met > taken.size) signals.changed(topic);
    if (ended.length === 0) return;
    signals.due(log, now);
    for (const { task } of ended) signals.settled(task.uid);
    try {
      await messages.settle(topic.name, topic.settings, ended);
      for (const { place } of ended) log.settled(place.id);
    } catch (error) {
      // What was handed out in the same batch must not get lost for it: the scanner lets the rows agree.
      this.#engine.log.warn({ err: error }, 'message rows of tasks that ended could not be written; they will be');
    }
  }
}

const NONE: ReadonlyMap<string, MessageRow> = new Map();

const leaseTime = (grant: Grant, topic: Topic): number => {
  const leaseMs = grant.leaseMs ?? topic.settings.leaseMs;
  return topic.settings.maxRunMs === null ? leaseMs : Math.min(leaseMs, topic.settings.maxRunMs);
};

function ownership(log: Log, entry: Entry, supersedes: string | null): MessageWrite {
  const row = liveRow(messageIdKey(entry.messageId!), entry, placeIn(log.address, entry.id));
  const expect =
    supersedes === null
      ? ({ absent: true } as const)
      : { uid: supersedes, statusIn: ['done', 'dead', 'expired', 'cancelled'] as const };
  return { expect, row, ttlMs: null };
}
