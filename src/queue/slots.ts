/**
 * Which slots of delayed tasks there are, and how many tasks of each topic wait in them. A slot may be known by its
 * address alone, as the activity index tells it: then nothing of it is read, and no log is kept in memory, until it is
 * counted or its time comes.
 *
 * Counting. What this server puts into a slot, or takes out of it, is counted at once. What was there before, or was
 * put there by others, is counted by a look at its heads (scheduler/slot-counter.ts); until then its ids are among the
 * uncounted ranges of the slot. Whether an entry that goes away is taken off the count is decided by whether it was
 * counted before it was sent away: where both happen at once it may be counted too often, never too seldom, until the
 * slot is empty. So who waits until a topic is drained may wait too long, but is never told too early.
 *
 * All this is of one tenure of a shard, and begins anew with the next: nothing of one that ended is seen to any more.
 */
import type { LogAddress } from '../core/entry.ts';
import { logKey } from '../core/log.ts';
import type { Tenure } from './tenure.ts';

interface Range {
  readonly from: number;
  /** The id behind the last; infinite: up to the end, wherever that is. */
  readonly to: number;
}

/** What a slot has to know of its log. */
interface Tailed {
  readonly nextId: number;
  readonly averageBytes: number;
}

/** A topic in memory whose count is kept. */
interface Counted {
  delayed: number;
  /** Whether bytes are kept as well. */
  readonly hasByteQuota: boolean;
}

/** A slot of delayed tasks as known in one tenure of its shard; `L` is the log of one. */
export class Slot<L extends Tailed> {
  readonly address: LogAddress;
  readonly #slots: Slots<L>;
  /** Its log, once somebody needed it. */
  log: L | null = null;
  /** The period of the activity index in which it was recorded by its address. */
  recordedPeriod = -1;
  /** How many tasks of each topic wait in it, as far as they were counted. */
  readonly waiting = new Map<string, number>();
  /** Ids of entries that were on their way when they were looked at: they are counted once they have arrived. */
  readonly arriving = new Set<number>();
  /** Until when entries that ended in it can be looked at. */
  keepUntil = 0;
  /** Nobody here has to do with it any more: nothing is in it, or its tenure ended. */
  gone = false;
  #uncounted: readonly Range[] = [{ from: 0, to: Number.POSITIVE_INFINITY }];
  /** Up to here it was counted when there was no log yet. */
  #seenTo = 0;
  #looks = 0;

  constructor(address: LogAddress, slots: Slots<L>) {
    this.address = address;
    this.#slots = slots;
  }

  get tenure(): Tenure {
    return this.#slots.tenure;
  }

  get isCounted(): boolean {
    return this.#uncounted.length === 0 && this.arriving.size === 0;
  }

  /** The first ids that are to be counted by a look; null: there are none. */
  get uncounted(): Range | null {
    return this.#uncounted[0] ?? null;
  }

  /** How often it was said that more may be behind its end. */
  get looks(): number {
    return this.#looks;
  }

  /** Whether the count includes this id, should something wait there. */
  counts(id: number): boolean {
    return !this.arriving.has(id) && !this.isUncounted(id);
  }

  isUncounted(id: number): boolean {
    return this.#uncounted.some(({ from, to }) => id >= from && id < to);
  }

  /** From now on its end is known: what is appended here behind it is counted as it is. */
  attach(log: L): void {
    this.log = log;
    this.#looks++;
    const end = log.nextId;
    const ranges = this.#isOpen ? this.#uncounted : [...this.#uncounted, { from: this.#seenTo, to: end }];
    this.#set(ranges.map(({ from, to }) => ({ from, to: Math.min(to, end) })));
  }

  /** Others may have put something into it, of which only a look can tell. */
  reopen(): void {
    this.#looks++;
    if (!this.#isOpen) this.#set([...this.#uncounted, { from: this.#seenTo, to: Number.POSITIVE_INFINITY }]);
  }

  /** Others have put something there. */
  uncount(from: number, to: number): void {
    this.markCounted(from, to);
    this.#set([...this.#uncounted, { from, to }]);
  }

  markCounted(from: number, to: number): void {
    this.#set(
      this.#uncounted.flatMap((range) => [
        { from: range.from, to: Math.min(range.to, from) },
        { from: Math.max(range.from, to), to: range.to },
      ]),
    );
  }

  /**
   * Counts tasks of a topic that wait in it: so many more, or fewer.
   * @param bytes of these, at or above 0; null: they are not known
   */
  add(topic: string, by: number, bytes: number | null = null): void {
    this.#slots.add(this, topic, by, bytes);
  }

  /** Counts tasks of a topic that were put into it; those in ranges that are to be looked at are counted there. */
  arrived(topic: string, ids: readonly number[], bytes: number | null = null): void {
    if (this.isCounted) this.add(topic, ids.length, bytes);
    else {
      const counted = ids.filter((id) => this.counts(id)).length;
      this.add(topic, counted, bytes === null ? null : (bytes * counted) / Math.max(1, ids.length));
    }
  }

  /** Nothing waits in it any more, whatever was counted; returns the topics whose count was wrong. */
  empty(): readonly string[] {
    const wrong = [...this.waiting];
    for (const [name, count] of wrong) this.add(name, -count);
    return wrong.map(([name]) => name);
  }

  /** It ends there, as was found after so many looks; where there was another look since, that is not sure. */
  markEnd(end: number, looks: number): void {
    if (looks !== this.#looks) return;
    this.#seenTo = end;
    this.markCounted(end, Number.POSITIVE_INFINITY);
  }

  /** Nothing waits in it below an id, whatever was counted. */
  markEmpty(below: number): void {
    for (const id of this.arriving) if (id < below) this.arriving.delete(id);
    this.markCounted(0, below);
  }

  /** Its ids begin anew. */
  restart(): void {
    this.#looks++;
    this.#seenTo = 0;
    this.arriving.clear();
    this.#set([]);
  }

  get #isOpen(): boolean {
    return this.#uncounted.some(({ to }) => to === Number.POSITIVE_INFINITY);
  }

  #set(ranges: readonly Range[]): void {
    this.#uncounted = ranges.filter(({ from, to }) => from < to).sort((a, b) => a.from - b.from);
    this.#slots.changed(this);
  }
}

/** The slots of delayed tasks of a shard that are known in one tenure of it, and what waits in them. */
export class Slots<L extends Tailed> {
  readonly tenure: Tenure;
  readonly #topics: Pick<ReadonlyMap<string, Counted>, 'get'>;
  readonly #onUncounted: (slot: Slot<L>) => void;
  readonly #slots = new Map<string, Slot<L>>();
  readonly #uncounted = new Set<Slot<L>>();
  /** How many tasks of each topic wait in all slots. */
  readonly #delayed = new Map<string, number>();
  /** Bytes of them, of topics with a quota of bytes. */
  readonly #bytes = new Map<string, number>();
  #total = 0;

  /**
   * @param topics those in memory, whose counts are kept
   * @param onUncounted called with a slot of which something has to be counted by a look
   */
  constructor(tenure: Tenure, topics: Pick<ReadonlyMap<string, Counted>, 'get'>, onUncounted: (slot: Slot<L>) => void) {
    this.tenure = tenure;
    this.#topics = topics;
    this.#onUncounted = onUncounted;
  }

  peek(address: LogAddress): Slot<L> | undefined {
    return this.#slots.get(logKey(address));
  }

  /** The slot of an address; it is known from now on. */
  of(address: LogAddress): Slot<L> {
    const known = this.peek(address);
    if (known !== undefined) return known;
    const slot = new Slot<L>({ topic: address.topic, tier: address.tier }, this);
    this.#slots.set(logKey(address), slot);
    this.changed(slot);
    return slot;
  }

  /** What of a slot is counted has changed. */
  changed(slot: Slot<L>): void {
    if (slot.uncounted === null || slot.gone) return;
    this.#uncounted.add(slot);
    this.#onUncounted(slot);
  }

  all(): readonly Slot<L>[] {
    return [...this.#slots.values()];
  }

  *logs(): Generator<L> {
    for (const { log } of this.#slots.values()) if (log !== null) yield log;
  }

  /** Whether all that is delayed in the shard was counted. */
  get isCounted(): boolean {
    for (const slot of this.#uncounted) {
      if (!slot.isCounted && !slot.gone) return false;
      this.#uncounted.delete(slot);
    }
    return true;
  }

  /** How many tasks wait in all of them, as far as they were counted. */
  get total(): number {
    return Math.max(0, this.#total);
  }

  /** How many tasks of a topic wait, as far as they were counted. */
  delayedOf(topic: string): number {
    return this.#delayed.get(topic) ?? 0;
  }

  /** The slots in which tasks of a topic wait, as far as they were counted, and how many in each. */
  holding(topic: string): readonly (readonly [Slot<L>, number])[] {
    return this.all().flatMap((slot) => {
      const count = slot.waiting.get(topic) ?? 0;
      return count > 0 ? [[slot, count] as const] : [];
    });
  }

  /** Bytes of the tasks of a topic that wait, as far as they were counted; null: they are not kept. */
  bytesOf(topic: string): number | null {
    return this.#topics.get(topic)?.hasByteQuota ? (this.#bytes.get(topic) ?? null) : null;
  }

  /** They were measured. */
  setBytes(topic: string, bytes: number): void {
    this.#bytes.set(topic, bytes);
  }

  /** Counts tasks of a topic that wait in a slot: so many more, or fewer. */
  add(slot: Slot<L>, topic: string, by: number, bytes: number | null): void {
    if (by === 0 || slot.gone) return;
    const before = this.delayedOf(topic);
    addTo(slot.waiting, topic, by);
    addTo(this.#delayed, topic, by);
    this.#total += by;
    const known = this.#topics.get(topic);
    if (known === undefined) return;
    known.delayed += by;
    if (!known.hasByteQuota || before + by <= 0) {
      this.#bytes.delete(topic);
      return;
    }
    // What is not known is taken for as large as those that wait are on average, or what else is in the slot.
    const average = slot.log?.averageBytes ?? 0;
    const kept = this.#bytes.get(topic) ?? Math.max(0, before) * average;
    const mean = before > 0 ? kept / before : average;
    this.#bytes.set(topic, Math.max(0, kept + Math.sign(by) * (bytes ?? Math.abs(by) * mean)));
  }

  /** Lets go of a slot: nothing is in it. */
  drop(slot: Slot<L>): void {
    if (slot.gone) return;
    slot.empty();
    slot.gone = true;
    this.#slots.delete(logKey(slot.address));
    this.#uncounted.delete(slot);
  }

  /** Lets go of all of them: their tenure ended. */
  end(): void {
    for (const slot of this.#slots.values()) slot.gone = true;
    this.#slots.clear();
    this.#uncounted.clear();
  }
}

function addTo(counts: Map<string, number>, name: string, by: number): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}
