/**
 * Delayed tasks. They wait in the logs of time slots: in a near slot what is due soon, in a far one what is due later
 * (core/log.ts). Of a slot whose time is to come nothing but its address is known here. A little before its time a near
 * one is read, heads only, to know what is due when; from then on its entries are moved to their topics as each falls
 * due, those together that are due by then. A far one is emptied into near ones a little before its time. What is put
 * into a slot that is being read is taken up at once.
 *
 * Who may be paused where? A slot is a log like any other, recorded in the activity index before what is put into it is
 * acknowledged: a holder that starts finds every slot that holds something, and whoever finds entries in one whose time
 * has come moves them. So nothing rests on what is kept here, or on any cursor: a process may stop at any point.
 *
 * - Before an append, for long: who was paused puts its task into a slot that is over. The slot is recorded, so the
 *   holder hears of it by a signal, by the newest rows of the index, or at the next start, and moves it at once.
 * - Within a move, from a worker's topic into a slot, from a far slot into a near one, or from a slot to a topic: the
 *   protocol of core/move.ts. Before the commit the entry is where it was; after it, where it was to go. A pending
 *   entry in a slot is carried to its end when it is due, so that who moves it is not disturbed before.
 * - After the commit, before the entry in the slot is passed: whoever reads the slot next finds it moved, and makes
 *   sure that it arrived. Nothing is deleted from a slot before.
 * - A holder that lost its right and does not know: it moves entries under the same conditions as its successor. Of two
 *   who move one, one commits, and the other's entry is void. It deletes only what it knows to have moved, and headers
 *   only `IF next_id` is as it knows; and it looks right before whether it may still hold the shard.
 * - With a shard all that is known of its slots is forgotten; who gains it begins anew, from the addresses in the index.
 * - Nothing comes early: what is due is decided by the store's clock, which never goes back, and a move to a topic is
 *   begun only once it is due. A clock that is ahead makes tasks early by as much, everywhere.
 *
 * The headers of a slot stay for LATE_WRITES_MS after its time: a write that timed out may be carried out late, and
 * would be carried out once more where its condition, that there is no header, holds again.
 */
import { DUE_TICK_MS, DUE_TIMES_KEPT } from '../core/bounds.ts';
import type { EntryHead, LogAddress } from '../core/entry.ts';
import { Limiter } from '../core/limiter.ts';
import { isFarTopic, type SlotTimes, segmentEnd, segmentOf, slotTimes } from '../core/log.ts';
import type { Engine } from '../queue/engine.ts';
import type { Log, TimeSlot } from '../queue/log.ts';
import type { Mover } from '../queue/move.ts';
import { definitely } from '../queue/outcomes.ts';
import type { Tenure } from '../queue/tenure.ts';
import { AlarmClock } from './alarm.ts';
import { type Cut, DueTimes } from './due-times.ts';
import type { SlotCounter } from './slot-counter.ts';
import { readSlotHeads } from './slot-heads.ts';
import { entriesIn, SlotMover } from './slot-mover.ts';
import { Turns } from './turns.ts';

/** Pages of heads that are read at the same time, of all slots. */
const READS_AT_ONCE = 4;
/** Rounds of moves under way at the same time, of all slots and of one: while one writes, the next one reads. */
const ROUNDS_AT_ONCE = 8;
const ROUNDS_OF_A_SLOT = 2;
/**
 * Entries of one round, which share writes where they go to the same log: measured on SQLite, 100,000 due at once are
 * moved in 3.2 s by 2,000 and in 5.7 s by 10,000. What leaves a far slot goes to hundreds of logs, so more of it is
 * worth collecting.
 */
const ROUND_ENTRIES = 2_000;
const FAR_ROUND_ENTRIES = 10_000;
/** Bytes that a round reads at the most. */
const ROUND_BYTES = 8 * 1024 * 1024;
const RETRY_MS = 500;
/** How often it is looked whether an empty slot can be let go, in milliseconds. */
const LET_GO_EVERY_MS = 15_000;
const LATE_WRITES_MS = 60_000;

/** A slot whose time has come. */
interface OpenSlot {
  readonly slot: TimeSlot;
  readonly times: SlotTimes;
  readonly isFar: boolean;
  /** Entries of one round. */
  readonly most: number;
  readonly due: DueTimes;
  /** Ids below this were read. */
  taken: number;
  /** It was said that something was put into it. */
  isNoted: boolean;
  isReading: boolean;
  isFinishing: boolean;
  /** Not read before then: reading failed. */
  readAt: number;
  /** When it is looked whether it can be let go, once nothing is in it. */
  finishAt: number;
  /** What was left out of the due times is read again: ids from, to, and from which due time on. */
  again: { at: number; readonly to: number; readonly after: Cut } | null;
  rounds: number;
  /** The last read of entries to be moved. */
  entries: Promise<unknown>;
  /** Ids that have to be looked at again, and when. */
  readonly retries: number[];
  retryAt: number;
}

export class Timers {
  readonly #engine: Engine;
  readonly #turns: Turns;
  readonly #mover: SlotMover;
  readonly #counter: SlotCounter;
  readonly #alarms: AlarmClock<TimeSlot>;
  readonly #open = new Map<TimeSlot, OpenSlot>();
  readonly #reads = new Limiter(READS_AT_ONCE);
  readonly #rounds = new Limiter(ROUNDS_AT_ONCE);
  /** What is under way. */
  readonly #busy = new Set<Promise<void>>();
  #stopped = false;

  constructor(engine: Engine, mover: Mover, counter: SlotCounter) {
    this.#engine = engine;
    this.#turns = new Turns(engine.env);
    this.#mover = new SlotMover(engine, mover, this.#turns);
    this.#counter = counter;
    this.#alarms = new AlarmClock(engine.env, (slots) => {
      for (const slot of slots) this.#wake(slot);
    });
  }

  /** A slot has entries, or may have. */
  note(log: Log): void {
    if (log.tenure.holds) this.noteAddress(log.address);
  }

  /** The same for one of which only the address is known: until its time comes, nothing is read of it. */
  noteAddress(address: LogAddress): void {
    const { book } = this.#engine;
    const tenure = book.tenureOf(address.topic);
    if (this.#stopped || !tenure.holds) return;
    const slot = book.slotsOf(tenure).of(address);
    const open = this.#open.get(slot);
    if (open !== undefined) {
      open.isNoted = true;
      // What was moved before its append was answered may have been counted after that: an empty slot tells so.
      open.finishAt = open.times.overAt;
    }
    this.#alarms.set(slot, slotTimes(address, this.#engine.store.meta.slotMs).opensAt);
  }

  /** Forgets all slots of a tenure that ended. What is under way in them finishes by itself. */
  forget(tenure: Tenure): void {
    const slots = this.#engine.book.slotsOf(tenure);
    for (const slot of slots.all()) {
      this.#alarms.clear(slot);
      this.#open.delete(slot);
      this.#counter.forget(slot);
    }
    slots.end();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#alarms.stop();
    this.#turns.stop();
    await Promise.allSettled(this.#busy);
  }

  #wake(slot: TimeSlot): void {
    if (slot.gone) return;
    const known = this.#open.get(slot);
    if (known !== undefined) {
      this.#goOn(known);
      return;
    }
    const times = slotTimes(slot.address, this.#engine.store.meta.slotMs);
    const isFar = isFarTopic(slot.address.topic);
    const open: OpenSlot = {
      slot,
      times,
      isFar,
      most: isFar ? FAR_ROUND_ENTRIES : ROUND_ENTRIES,
      due: new DueTimes(DUE_TICK_MS, DUE_TIMES_KEPT),
      taken: 0,
      isNoted: true,
      isReading: false,
      isFinishing: false,
      readAt: 0,
      finishAt: times.overAt,
      again: null,
      rounds: 0,
      entries: Promise.resolve(),
      retries: [],
      retryAt: 0,
    };
    this.#open.set(slot, open);
    this.#goOn(open);
  }

  /** Does what there is to do in a slot now, and sets the alarm for what comes next. */
  #goOn(open: OpenSlot): void {
    if (this.#stopped || open.slot.gone || open.isFinishing) return;
    const now = this.#engine.env.now();
    if (this.#hasToRead(open, now)) {
      open.isReading = true;
      this.#do(open, this.#reads, async () => {
        try {
          await this.#readPage(open);
          if (open.taken !== open.slot.log?.nextId) await this.#turns.othersFirst();
        } catch (error) {
          open.isNoted = true;
          open.readAt = this.#engine.env.now() + RETRY_MS;
          throw error;
        } finally {
          open.isReading = false;
        }
      });
    }
    while (open.rounds < ROUNDS_OF_A_SLOT && isDue(open, now, open.rounds)) {
      open.rounds++;
      this.#do(open, this.#rounds, () => this.#round(open).finally(() => open.rounds--));
    }
    if (now >= open.finishAt && this.#isEmpty(open)) {
      open.isFinishing = true;
      open.finishAt = now + LET_GO_EVERY_MS;
      this.#do(open, this.#reads, () => this.#finish(open).finally(() => (open.isFinishing = false)));
    } else this.#setAlarm(open, now);
  }

  /** Works on a slot, and goes on with it then. */
  #do(open: OpenSlot, limiter: Limiter, work: () => Promise<void>): void {
    const done = limiter
      .run(work)
      .catch((error: unknown) => {
        if (this.#stopped || open.slot.gone) return;
        this.#engine.log.warn({ err: error }, 'delayed tasks of a slot could not be seen to; it is tried again');
        this.#alarms.set(open.slot, this.#engine.env.now() + RETRY_MS);
      })
      .finally(() => {
        this.#busy.delete(done);
        this.#goOn(open);
      });
    this.#busy.add(done);
  }

  #setAlarm(open: OpenSlot, now: number): void {
    const { slot, due, finishAt, retries } = open;
    if (due.nextAt !== null && due.nextAt > now) this.#alarms.set(slot, due.nextAt);
    if (retries.length > 0 && open.retryAt > now) this.#alarms.set(slot, open.retryAt);
    if (open.isNoted && open.readAt > now) this.#alarms.set(slot, open.readAt);
    if (finishAt > now) this.#alarms.set(slot, finishAt);
  }

  #isEmpty({ slot, due, taken, isNoted, isReading, again, rounds, retries }: OpenSlot): boolean {
    const isRead = !isNoted && !isReading && again === null && due.cut === null && taken === slot.log?.nextId;
    return isRead && due.size === 0 && rounds === 0 && retries.length === 0;
  }

  // ── what is due when ──────────────────────────────────────────────────────────────────────────────────────────

  #hasToRead(open: OpenSlot, now: number): boolean {
    if (open.isReading || now < open.readAt) return false;
    const { slot, due, taken, times } = open;
    // What was left out is looked for again while there is still enough to do.
    if (open.again === null && due.cut !== null && due.size <= DUE_TIMES_KEPT / 2) {
      open.again = { at: slot.log!.trimmed, to: taken, after: due.uncut()! };
    }
    if (!open.isNoted && open.again === null && taken === slot.log?.nextId) return false;
    // Where all is due, it is read only as it is moved.
    return due.size < open.most || (!open.isFar && now < times.overAt);
  }

  async #readPage(open: OpenSlot): Promise<void> {
    const { slot } = open;
    open.isNoted = false;
    const log = slot.log ?? (await this.#engine.book.log(slot.address));
    if (slot.gone) return;
    // Its headers were deleted by another server, and it began anew.
    if (log.nextId < open.taken) open.taken = 0;
    if (open.taken < log.nextId) await this.#readOn(open, log);
    if (open.again !== null) await this.#readAgain(open, log);
  }

  async #readOn(open: OpenSlot, log: Log): Promise<void> {
    const { store } = this.#engine;
    const size = store.meta.segmentSize;
    const from = open.taken;
    // Not beyond the known tail: an append that was not answered yet may be repeated, and must find its entries.
    const to = Math.min(log.nextId, segmentEnd(segmentOf(from, size), size));
    const { heads, next } = await readSlotHeads(store, log.address, from, to);
    await this.#mover.arrive(heads.filter(({ status }) => status === 'moved'));
    await this.#counter.count(open.slot, heads, from, next);
    await this.#mover.keep(log, heads);
    for (const head of heads) if (isWaiting(head)) open.due.add(head.id, open.isFar ? 0 : head.dueAt!);
    open.taken = next;
  }

  async #readAgain(open: OpenSlot, log: Log): Promise<void> {
    const { store } = this.#engine;
    const size = store.meta.segmentSize;
    const again = open.again!;
    const to = Math.min(again.to, segmentEnd(segmentOf(again.at, size), size));
    const { heads, next } = await readSlotHeads(store, log.address, again.at, to);
    for (const head of heads) if (isWaiting(head)) open.due.add(head.id, open.isFar ? 0 : head.dueAt!, again.after);
    again.at = next;
    if (again.at >= again.to) open.again = null;
  }

  // ── moving ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Moves what is due by now. */
  async #round(open: OpenSlot): Promise<void> {
    const { env } = this.#engine;
    const { log } = open.slot;
    if (log === null || open.slot.gone || this.#stopped) return;
    const left = new Set(takeDue(open, env.now(), entriesIn(log, ROUND_BYTES, open.most)));
    if (left.size === 0) return;
    let retryAt = env.now();
    try {
      const reading = open.entries.then(() => this.#mover.read(log, [...left]));
      // One read after the other, so that what is due together is moved in the order in which it was put there.
      open.entries = reading.catch(() => {});
      await this.#mover.moveOn(log, await reading, left);
    } catch (error) {
      retryAt = env.now() + RETRY_MS;
      throw error;
    } finally {
      for (const id of left) open.retries.push(id);
      if (left.size > 0) open.retryAt = Math.max(open.retryAt, retryAt);
    }
  }

  // ── the end of a slot ─────────────────────────────────────────────────────────────────────────────────────────

  /** Nothing waits in it any more, and its time is over. */
  async #finish(open: OpenSlot): Promise<void> {
    const { book, signals, env, store } = this.#engine;
    const { slot, taken } = open;
    const log = slot.log!;
    if (slot.gone || !this.#isEmpty(open)) return;
    slot.markEmpty(taken);
    for (const name of slot.empty()) {
      const topic = book.peek(name);
      if (topic !== undefined) signals.changed(topic);
    }
    log.completion = log.scan = taken;
    // What was cancelled in it, or expired, can be looked at for the retention.
    const size = store.meta.segmentSize;
    for (let at = log.trimmed; at < taken && slot.keepUntil <= env.now(); ) {
      const segment = segmentOf(at, size);
      const end = Math.min(taken, segmentEnd(segment, size));
      // Looked at right before: who holds the shard after us may have begun the slot anew.
      if (!this.#engine.mayClaim(slot.tenure)) return;
      await definitely(env, () => store.trim(log.address, segment, at, end));
      log.trimmed = at = end;
    }
    if (this.#mayGo(open, log)) await this.#letGo(open, log);
  }

  #mayGo({ slot, times }: OpenSlot, log: Log): boolean {
    const now = this.#engine.env.now();
    if (!this.#engine.mayClaim(slot.tenure)) return false;
    return log.isForgettable && slot.keepUntil <= now && times.overAt + LATE_WRITES_MS <= now;
  }

  /** A slot that is over leaves nothing behind: its topics go on elsewhere. */
  async #letGo(open: OpenSlot, log: Log): Promise<void> {
    if (!(await log.dropHeaders())) {
      // Others may have put something into it.
      await log.findNewTail();
      return;
    }
    open.taken = 0;
    // Somebody may have looked it up meanwhile, and puts something into it now: then that is noted.
    if (!this.#mayGo(open, log)) return;
    this.#alarms.clear(open.slot);
    this.#open.delete(open.slot);
    this.#engine.book.forget(log);
    this.#counter.forget(open.slot);
  }
}

/** Whether an entry is to be seen to when it is due; one that is on its way may have arrived by then. */
const isWaiting = ({ status }: EntryHead): boolean => status === 'ready' || status === 'pending';

/** Whether there is something to be moved; beside a round that is under way, only what is worth another. */
function isDue({ due, retries, retryAt, most }: OpenSlot, now: number, rounds: number): boolean {
  if (retries.length > 0 && retryAt <= now && rounds === 0) return true;
  return retries.length < most && due.nextAt !== null && due.nextAt <= now;
}

/** Takes ids that are due, as many as fit, those that have to be looked at again first. */
function takeDue({ due, retries, retryAt, most }: OpenSlot, now: number, fit: number): readonly number[] {
  const ids = retryAt <= now ? retries.splice(0, fit) : [];
  return retries.length < most ? [...ids, ...due.take(now, fit - ids.length)] : ids;
}
