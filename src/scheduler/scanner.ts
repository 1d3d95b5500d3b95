/**
 * The completion scanner: puts stalled tasks back, lets the completion cursor rise, trims what was settled long
 * enough ago. It works on what is in doubt or falls due, not on the whole window between the cursors: what this
 * process settled itself it knows.
 *
 * One long lease holds the completion cursor, and nothing else: passes go on behind it, and full segments in which
 * all is settled are closed and trimmed (promise Q5).
 */

import { BATCH_ENTRIES } from '../core/bounds.ts';
import { isPurged } from '../core/claim.ts';
import { type Entry, type EntryChange, type EntryHead, FINAL_VERSION, type LogAddress } from '../core/entry.ts';
import { withAttempt } from '../core/history.ts';
import { closableSegments, completionOf, DEAD_TIER, segmentEnd, segmentOf, segmentStart } from '../core/log.ts';
import { endedStatus } from '../core/message.ts';
import { decideDead, decideScan, type ScanDecision } from '../core/scan.ts';
import type { Claimer } from '../queue/claim.ts';
import type { Engine } from '../queue/engine.ts';
import { readByIds, readHeadsByIds } from '../queue/locate.ts';
import type { Log } from '../queue/log.ts';
import { measured } from '../queue/measures.ts';
import { asPending, groupBySegment, type Mover } from '../queue/move.ts';
import { definitely } from '../queue/outcomes.ts';
import { placeIn, type Topic } from '../queue/topics.ts';
import { AlarmClock } from './alarm.ts';
import { heads } from './recover.ts';

/** A lease gets this much longer than it says before its task is taken for stalled, in milliseconds. */
const GRACE_MS = 100;
/** Least time between two passes of a log. */
const PASS_EVERY_MS = 500;
const RETRY_MS = 1_000;
/** How often a log is looked through for tasks that expired while they waited: this, and a millisecond for so many. */
const EXPIRE_EVERY_MS = 1_000;
const ENTRIES_PER_MS = 100;
const RECOUNT_MS = 1_000;
/** When an idle log is looked at again that was in use lately. */
const IDLE_AGAIN_MS = 15_000;
/** Logs that are passed at the same time. */
const PASSES_AT_ONCE = 8;
/** Entries that one pass looks at, before it lets others go first. */
const ENTRIES_PER_PASS = 2_000;
/** Settlements within this part of the retention are trimmed together. */
const MARKS_PER_RETENTION = 16;

/** What was decided on an entry, and the version on which it was. */
type Requeue = Extract<ScanDecision, { readonly kind: 'requeue' | 'bury' }> & { readonly version: number };

/** An entry that ends without having been worked on. */
interface Ending {
  readonly head: EntryHead;
  readonly status: 'expired' | 'cancelled';
  readonly reason: string;
}

export class Scanner {
  readonly #engine: Engine;
  readonly #mover: Mover;
  readonly #claimer: Claimer;
  readonly #alarms: AlarmClock<Log>;
  /** Logs whose pass is due. */
  readonly #waiting = new Set<Log>();
  /** Logs of which no pass has ended well since one was due, and since when by the monotonic clock; the oldest first. */
  readonly #dueSince = new Map<Log, number>();
  readonly #passing = new Map<Log, Promise<void>>();
  readonly #passedAt = new WeakMap<Log, number>();
  readonly #onIdle: (log: Log) => void;
  #stopped = false;
  /** When a pass last ended well. */
  lastPassAt: number | null = null;

  /** @param onIdle told of a log that is drained and trimmed */
  constructor(engine: Engine, mover: Mover, claimer: Claimer, onIdle: (log: Log) => void) {
    this.#engine = engine;
    this.#mover = mover;
    this.#claimer = claimer;
    this.#onIdle = onIdle;
    this.#alarms = new AlarmClock(engine.env, (logs) => {
      const now = engine.env.monotonic();
      for (const log of logs) {
        this.#waiting.add(log);
        if (!this.#dueSince.has(log)) this.#dueSince.set(log, now);
      }
      this.#next();
    });
  }

  /** Something in the log falls due at a time (milliseconds since 1970). */
  due(log: Log, at: number): void {
    if (!log.tenure.holds) return;
    this.#alarms.set(log, Math.max(at + GRACE_MS, (this.#passedAt.get(log) ?? 0) + PASS_EVERY_MS));
  }

  /** Whether a log of a topic is to be passed, or just is. */
  has(topic: Topic): boolean {
    for (const log of topic.logs)
      if (this.#alarms.timeOf(log) !== undefined || this.#waiting.has(log) || this.#passing.has(log)) return true;
    return false;
  }

  /** Others may have settled what is open in a log: it is looked at again, all of it. */
  recheck(log: Log): void {
    for (const open of log.open.values()) open.until = 0;
  }

  /** For how long some log has waited for a pass that ends well, in milliseconds: one that hangs, or fails, does not. */
  lateBy(): number {
    const oldest = this.#dueSince.values().next();
    return oldest.done ? 0 : this.#engine.env.monotonic() - oldest.value;
  }

  /** Passes a log now, and answers when that is done. */
  async passNow(log: Log): Promise<void> {
    for (let passing = this.#passing.get(log); passing !== undefined; passing = this.#passing.get(log)) await passing;
    await this.#start(log);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#alarms.stop();
    this.#waiting.clear();
    await Promise.allSettled(this.#passing.values());
  }

  #next(): void {
    for (const log of this.#waiting) {
      if (this.#passing.size >= PASSES_AT_ONCE || this.#stopped) return;
      if (this.#passing.has(log)) continue;
      this.#waiting.delete(log);
      void this.#start(log);
    }
  }

  #start(log: Log): Promise<void> {
    const pass = this.#guarded(log).finally(() => {
      this.#passing.delete(log);
      this.#next();
    });
    this.#passing.set(log, pass);
    return pass;
  }

  async #guarded(log: Log): Promise<void> {
    const { env, measures, log: logger } = this.#engine;
    this.#passedAt.set(log, env.now());
    try {
      await measured(measures.scannerPasses, env.monotonic, () => this.#pass(log));
      this.lastPassAt = env.now();
      this.#dueSince.delete(log);
      // It fell due again meanwhile.
      if (this.#waiting.has(log)) this.#dueSince.set(log, env.monotonic());
    } catch (error) {
      if (!this.#stopped)
        logger.warn({ err: error, tier: log.address.tier }, 'a scanner pass failed; it is tried again');
      this.due(log, env.now() + RETRY_MS);
    }
  }

  async #pass(log: Log): Promise<void> {
    if (!log.tenure.holds) return;
    const topic = await this.#engine.book.topicOf(log);
    const nextDead = log.isDead ? await this.#passDead(topic, log) : null;
    if (!log.isDead) {
      await this.#sweep(topic, log);
      await this.#expire(topic, log);
      await this.#checkOpen(topic, log);
      this.#raiseCompletion(log);
      await this.#closeSegments(log);
    }
    await this.#trim(topic, log);
    await this.#checkpoint(log);
    if (log.isForgettable) {
      this.#onIdle(log);
      return;
    }
    if (log.isIdle) this.due(log, this.#engine.env.now() + IDLE_AGAIN_MS);
    this.#setNext(topic, log, nextDead);
  }

  /** Where nothing at the scan cursor can be handed out, no lease will meet it: it is passed here. */
  async #sweep(topic: Topic, log: Log): Promise<void> {
    if (!log.sweep && log.unseen === null && (log.ready > 0 || log.unscanned === 0)) return;
    log.sweep = false;
    await this.#claimer.sweep(topic, log);
  }

  /** Ends tasks that expired while they waited: no lease may meet them for long, and they count until then. */
  async #expire(topic: Topic, log: Log): Promise<void> {
    const { env } = this.#engine;
    const now = env.now();
    if (now < Math.max(log.expiresAt, log.expireAgainAt)) return;
    // A look at all that waits: the more that is, the more seldom.
    log.expireAgainAt = now + EXPIRE_EVERY_MS + log.unscanned / ENTRIES_PER_MS;
    log.expiresAt = Number.POSITIVE_INFINITY;
    let next = Number.POSITIVE_INFINITY;
    let ends: Ending[] = [];
    const end = async (): Promise<void> => {
      const ended = await this.#end(topic, log, ends, now);
      log.countReady(-ended.filter((head) => !isPurged(head, topic.settings.purgedAt)).length);
      ends = [];
    };
    try {
      for await (const head of heads(this.#engine, log, log.scan, log.nextId)) {
        if (head.status !== 'ready' || head.expiresAt === null) continue;
        if (head.expiresAt > now) next = Math.min(next, head.expiresAt);
        else ends.push({ head, status: 'expired', reason: 'time to live over' });
        if (ends.length >= ENTRIES_PER_PASS) await end();
      }
      await end();
    } catch (error) {
      next = now;
      throw error;
    } finally {
      log.expiresAt = Math.min(log.expiresAt, next);
    }
  }

  // ── what is open ──────────────────────────────────────────────────────────────────────────────────────────────

  async #checkOpen(topic: Topic, log: Log): Promise<void> {
    const now = this.#engine.env.now();
    const ids: number[] = [];
    for (const [id, open] of log.open) {
      if (open.until <= now) ids.push(id);
      if (ids.length >= ENTRIES_PER_PASS) break;
    }
    if (ids.length === 0) return;
    const found = await readHeadsByIds(this.#engine.store, log.address, ids);
    const requeues = new Map<number, Requeue>();
    const settled: EntryHead[] = [];
    const ends: Ending[] = [];
    for (const id of ids) {
      const head = found.get(id);
      if (head === undefined) {
        // Trimmed: only what was settled is.
        this.#closeOpen(topic, log, id);
        continue;
      }
      const decision = decideScan(head, topic.settings, now);
      // It may have been settled since it was read.
      const open = log.open.get(id);
      if (open === undefined) continue;
      if (decision.kind === 'open') open.until = decision.until;
      else if (decision.kind === 'settled') settled.push(head);
      else if (decision.kind === 'end') ends.push({ head, ...decision });
      else if (decision.kind === 'resolve') await this.#mover.resolve(log, [asPending(log, head)]);
      else if (decision.kind === 'moved') {
        await this.#mover.ensureArrived(head);
        this.#closeOpen(topic, log, id);
      } else requeues.set(id, { ...decision, version: head.version });
    }
    await this.#agree(topic, log, settled);
    await this.#end(topic, log, ends, now);
    await this.#requeue(topic, log, requeues);
  }

  /** Final entries are passed once their message rows agree. */
  async #agree(topic: Topic, log: Log, settled: readonly EntryHead[]): Promise<void> {
    await this.#engine.messages.settle(
      topic.name,
      topic.settings,
      settled.flatMap((head) => {
        const status = endedStatus(head);
        return status === null
          ? []
          : [{ task: head, place: placeIn(log.address, head.id), status, at: head.updatedAt }];
      }),
    );
    for (const head of settled) this.#closeOpen(topic, log, head.id);
  }

  async #end(topic: Topic, log: Log, ends: readonly Ending[], now: number): Promise<readonly EntryHead[]> {
    const done: EntryHead[] = [];
    const batches = groupBySegment(ends, ({ head }) => head.id, this.#engine.store.meta.segmentSize).flatMap(inBatches);
    for (const group of batches) {
      const answers = await log.change(
        group.map(
          ({ head, status, reason }): EntryChange => ({
            id: head.id,
            expect: { uid: head.uid, version: head.version },
            set: { status, reason, version: FINAL_VERSION, updatedAt: now },
          }),
        ),
      );
      const ended = group.filter((_, at) => answers[at]!.applied);
      await this.#engine.messages.settle(
        topic.name,
        topic.settings,
        ended.map(({ head, status }) => ({ task: head, place: placeIn(log.address, head.id), status, at: now })),
      );
      for (const { head, status } of ended) {
        if (status === 'expired') this.#engine.counters.expired++;
        this.#closeOpen(topic, log, head.id);
        this.#engine.signals.settled(head.uid);
        done.push(head);
      }
    }
    if (done.length > 0) this.#engine.signals.changed(topic);
    return done;
  }

  async #requeue(topic: Topic, log: Log, requeues: ReadonlyMap<number, Requeue>): Promise<void> {
    if (requeues.size === 0) return;
    const { store, env, counters, signals } = this.#engine;
    // An entry that was settled or extended since it was looked at is left alone.
    const entries = [...(await readByIds(store, log.address, [...requeues.keys()])).values()].filter(
      (entry) => requeues.get(entry.id)?.version === entry.version,
    );
    for (const kind of ['requeue', 'bury'] as const) {
      const some = entries.filter((entry) => requeues.get(entry.id)!.kind === kind);
      if (some.length === 0) continue;
      const to: LogAddress = kind === 'bury' ? { topic: topic.name, tier: DEAD_TIER } : log.address;
      const at = env.now();
      const places = await this.#mover.move(log, some, to, (entry) =>
        this.#stalled(entry, requeues.get(entry.id)!, at),
      );
      const moved = some.filter((_, nth) => places[nth] !== null);
      counters.failed += moved.length;
      if (kind !== 'bury') continue;
      counters.deadLettered += moved.length;
      for (const entry of moved) signals.settled(entry.uid);
    }
  }

  #stalled(entry: Entry, { attempt, reason }: Requeue, at: number) {
    return {
      placedAt: at,
      attempt,
      reason,
      history: withAttempt(entry.history, entry, { at, outcome: 'lapsed', reason }),
    };
  }

  #closeOpen(topic: Topic, log: Log, id: number): void {
    const open = log.open.get(id);
    if (open === undefined) return;
    const wasLeased = open.leased;
    log.settled(id);
    if (!wasLeased) return;
    topic.leaseEnded(this.#engine.env.monotonic());
    this.#engine.signals.ready(topic);
    this.#engine.signals.changed(topic);
  }

  // ── dead letters ──────────────────────────────────────────────────────────────────────────────────────────────

  /** From the completion cursor up to the first dead letter that still waits; returns when that one expires. */
  async #passDead(topic: Topic, log: Log): Promise<number | null> {
    const now = this.#engine.env.now();
    let until: number | null = null;
    let passed = log.completion;
    let seen = 0;
    // Dead letters that are appended meanwhile are for the next pass.
    const end = log.nextId;
    const expired: Ending[] = [];
    for await (const head of heads(this.#engine, log, log.completion, end)) {
      const decision = decideDead(head, topic.settings, now);
      if (decision.kind === 'open') {
        until = decision.until;
        break;
      }
      if (decision.kind === 'resolve') {
        await this.#mover.resolve(log, [asPending(log, head)]);
        until = now;
        break;
      }
      if (decision.kind === 'moved') await this.#mover.ensureArrived(head);
      if (decision.kind === 'settled') await this.#agree(topic, log, [head]);
      if (decision.kind === 'end') expired.push({ head, ...decision });
      passed = head.id + 1;
      if (++seen >= ENTRIES_PER_PASS) {
        until = now;
        break;
      }
    }
    const ended = await this.#end(topic, log, expired, now);
    const counted = ended.filter((head) => !isPurged(head, topic.settings.purgedAt)).length;
    log.countReady(-counted);
    if (ended.length < expired.length) return now;
    if (until === null) passed = end;
    log.scan = passed;
    this.#raiseCompletion(log);
    return until;
  }

  // ── cursors, segments, trimming ───────────────────────────────────────────────────────────────────────────────

  #raiseCompletion(log: Log): void {
    const first = log.open.keys().next();
    const completion = completionOf(first.done ? null : first.value, log.seen);
    if (completion <= log.completion) return;
    log.completion = completion;
    const now = this.#engine.env.now();
    const last = log.settledMarks.at(-1);
    const together = this.#retentionOf(log) / MARKS_PER_RETENTION;
    if (last !== undefined && now - last.openedAt < together) Object.assign(last, { at: now, completion });
    else log.settledMarks = [...log.settledMarks, { openedAt: now, at: now, completion }];
  }

  #retentionOf(log: Log): number {
    return this.#engine.book.peekTopicOf(log)?.settings.retentionMs ?? 0;
  }

  /** Closes full segments above the completion cursor in which all is settled, so that they can be trimmed. */
  async #closeSegments(log: Log): Promise<void> {
    const { store, env } = this.#engine;
    const size = store.meta.segmentSize;
    for (const segment of closableSegments(log.completion, log.seen, log.open.keys(), size)) {
      if (log.closed.has(segment)) continue;
      if ((await definitely(env, () => store.closeSegment(log.address, segment))) === 'applied') {
        log.close(segment, env.now());
      }
    }
  }

  async #trim(topic: Topic, log: Log): Promise<void> {
    const { store, env } = this.#engine;
    const size = store.meta.segmentSize;
    const before = env.now() - topic.settings.retentionMs;
    let to = log.trimmed;
    const later = log.settledMarks.filter((mark) => mark.at > before);
    const over = log.settledMarks[log.settledMarks.length - later.length - 1];
    if (over !== undefined) {
      to = over.completion;
      log.settledMarks = later;
    }
    // What was settled before this process started is taken as settled at the start.
    if (log.settledMarks.length === 0 && to === log.trimmed && log.trimmed < log.completion) {
      log.settledMarks = [{ openedAt: env.now(), at: env.now(), completion: log.completion }];
    }
    for (let at = log.trimmed; at < to; ) {
      const segment = segmentOf(at, size);
      const end = Math.min(to, segmentEnd(segment, size));
      await definitely(env, () => store.trim(log.address, segment, at, end));
      log.trimmed = at = end;
    }
    for (const [segment, closedAt] of log.closed) {
      if (segmentEnd(segment, size) <= log.trimmed) log.forgetClosed(segment);
      else if (closedAt <= before) {
        await definitely(env, () =>
          store.trim(log.address, segment, segmentStart(segment, size), segmentEnd(segment, size)),
        );
        log.close(segment, Number.POSITIVE_INFINITY);
      }
    }
  }

  async #checkpoint(log: Log): Promise<void> {
    const { saved, scan, completion, trimmed } = log;
    if (saved.scan === scan && saved.completion === completion && saved.trimmed === trimmed) return;
    if (!log.tenure.holds) return;
    const checkpoint = { scan, completion, trimmed };
    await this.#engine.store.advanceCheckpoint(log.address, checkpoint, this.#engine.env.now());
    log.saved = checkpoint;
  }

  #setNext(topic: Topic, log: Log, nextDead: number | null): void {
    let next = nextDead ?? Number.POSITIVE_INFINITY;
    if (!log.isDead) next = Math.min(next, Math.max(log.expiresAt, log.expireAgainAt));
    for (const open of log.open.values()) if (open.until < next) next = open.until;
    const { retentionMs } = topic.settings;
    const mark = log.settledMarks[0];
    if (mark !== undefined)
      next = Math.min(next, Math.max(mark.at, mark.openedAt + retentionMs / MARKS_PER_RETENTION) + retentionMs);
    // Something is there, and nothing of it counts as ready: it is on its way, or was not counted.
    if (!log.isDead && log.unscanned > 0 && log.ready === 0) next = Math.min(next, this.#engine.env.now() + RECOUNT_MS);
    for (const closedAt of log.closed.values()) next = Math.min(next, closedAt + retentionMs);
    this.due(log, next);
  }
}

function inBatches(group: readonly Ending[]): Ending[][] {
  const batches: Ending[][] = [];
  for (let at = 0; at < group.length; at += BATCH_ENTRIES) batches.push(group.slice(at, at + BATCH_ENTRIES));
  return batches;
}
