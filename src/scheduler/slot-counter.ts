/**
 * Counts what waits in slots of delayed tasks that nobody here has put there: of a shard that was gained all of them,
 * later what other servers put into one. It reads heads only, of a few slots at a time, and keeps no log of a slot in
 * memory. See queue/slots.ts for what is counted by whom.
 */
import { isPurged } from '../core/claim.ts';
import type { EntryHead } from '../core/entry.ts';
import { entriesEnd, segmentEnd, segmentOf } from '../core/log.ts';
import type { Engine } from '../queue/engine.ts';
import { readHeadsByIds, sizesOf } from '../queue/locate.ts';
import type { TimeSlot } from '../queue/log.ts';
import { asPending, type Mover } from '../queue/move.ts';
import type { Topic } from '../queue/topics.ts';
import { readSlotHeads } from './slot-heads.ts';
import { Turns } from './turns.ts';

const SLOTS_AT_ONCE = 2;
const RETRY_MS = 1_000;
/** So long an entry that is on its way into a slot is left to whoever moves it, in milliseconds. */
const ARRIVES_WITHIN_MS = 500;

/** A topic got a quota of bytes: what of it waits in slots is measured. What comes or goes meanwhile may be missed. */
export async function measureDelayed({ store, book }: Engine, topic: Topic): Promise<void> {
  const slots = book.slotsOf(topic.tenure);
  let bytes = 0;
  for (const [{ address, log }] of slots.holding(topic.name)) {
    const size = store.meta.segmentSize;
    const { nextId } = log ?? (await book.log(address));
    for (let at = 0; at < nextId; ) {
      const end = Math.min(nextId, segmentEnd(segmentOf(at, size), size));
      const { heads, next } = await readSlotHeads(store, address, at, end);
      const waiting = heads.filter(
        (head) => head.target === topic.name && head.status === 'ready' && !isPurged(head, topic.settings.purgedAt),
      );
      const sizes = await sizesOf(
        store,
        address,
        waiting.map(({ id }) => id),
      );
      for (const one of sizes.values()) bytes += one;
      at = next;
    }
  }
  slots.setBytes(topic.name, bytes);
}

export class SlotCounter {
  readonly #engine: Engine;
  readonly #mover: Mover;
  readonly #turns: Turns;
  readonly #onCounted: () => void;
  readonly #waiting = new Set<TimeSlot>();
  readonly #counting = new Map<TimeSlot, Promise<void>>();
  /** Slots that are looked at again after some time, by how to call that off. */
  readonly #later = new Map<TimeSlot, () => void>();
  #stopped = false;

  /** @param onCounted told whenever all there was to count in a slot was counted */
  constructor(engine: Engine, mover: Mover, onCounted: () => void) {
    this.#engine = engine;
    this.#mover = mover;
    this.#turns = new Turns(engine.env);
    this.#onCounted = onCounted;
  }

  /** Begins to count in a shard, once what is more urgent there is loaded. */
  begin(): void {
    this.#next();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    for (const cancel of this.#later.values()) cancel();
    this.#turns.stop();
    await Promise.allSettled(this.#counting.values());
  }

  /** Something in the slot has to be counted. */
  want(slot: TimeSlot): void {
    this.#waiting.add(slot);
    this.#next();
  }

  /** The slot was let go. */
  forget(slot: TimeSlot): void {
    const waited = this.#waiting.delete(slot);
    this.#later.get(slot)?.();
    if (this.#later.delete(slot) || waited) this.#onCounted();
  }

  /** Counts a page of a slot that somebody has read: all heads with ids from `from` up to, but without, `to`. */
  async count(slot: TimeSlot, heads: readonly EntryHead[], from: number, to: number): Promise<void> {
    if (slot.uncounted === null) return;
    await this.#add(
      slot,
      heads,
      (id) => slot.isUncounted(id),
      () => slot.markCounted(from, to),
    );
  }

  /** Counts some heads; what is on its way is noted, and counted once it has arrived. */
  async #add(
    slot: TimeSlot,
    heads: Iterable<EntryHead>,
    isAsked: (id: number) => boolean,
    added: () => void,
  ): Promise<void> {
    const { book } = this.#engine;
    const topics = new Map<string, Topic>();
    const toBeMeasured: number[] = [];
    for (const { id, target, status } of heads) {
      if (target === null) continue;
      if (!topics.has(target)) topics.set(target, await book.topicIn(slot.tenure, target));
      if (topics.get(target)!.hasByteQuota && status === 'ready') toBeMeasured.push(id);
    }
    const sizes = await sizesOf(this.#engine.store, slot.address, toBeMeasured);
    // Nothing comes in between any more.
    const found = new Map<string, { count: number; bytes: number }>();
    for (const { id, target, status, enqueuedAt } of heads) {
      if (target === null || !isAsked(id)) continue;
      if (status === 'pending') slot.arriving.add(id);
      if (status !== 'ready' || isPurged({ enqueuedAt }, topics.get(target)!.settings.purgedAt)) continue;
      const { count, bytes } = found.get(target) ?? { count: 0, bytes: 0 };
      found.set(target, { count: count + 1, bytes: bytes + (sizes.get(id) ?? 0) });
    }
    for (const [name, { count, bytes }] of found) slot.add(name, count, bytes);
    added();
  }

  #next(): void {
    for (const slot of this.#waiting) {
      if (this.#stopped || this.#counting.size >= SLOTS_AT_ONCE) return;
      if (this.#counting.has(slot) || !slot.tenure.serves) continue;
      this.#waiting.delete(slot);
      const counting = this.#countAll(slot)
        .catch((error: unknown) => {
          if (this.#stopped || slot.gone) return;
          this.#engine.log.warn({ err: error }, 'a slot of delayed tasks could not be counted; it is tried again');
          this.#again(slot, RETRY_MS);
        })
        .finally(() => {
          this.#counting.delete(slot);
          if (slot.isCounted) this.#onCounted();
          this.#next();
        });
      this.#counting.set(slot, counting);
    }
  }

  #again(slot: TimeSlot, ms: number): void {
    if (this.#stopped || slot.gone || this.#later.has(slot)) return;
    const cancel = this.#engine.env.timer(ms, () => {
      this.#later.delete(slot);
      this.want(slot);
    });
    this.#later.set(slot, cancel);
  }

  async #countAll(slot: TimeSlot): Promise<void> {
    // A slot that is new here may be about to get its log, from whose end on all is counted as it is appended.
    await null;
    // Noted before: those that come up now have not had their time.
    if (slot.arriving.size > 0 && !this.#later.has(slot)) await this.#lookAtArriving(slot);
    while (slot.uncounted !== null && !slot.gone && !this.#stopped) await this.#countSegment(slot, slot.uncounted);
    if (slot.arriving.size > 0) this.#again(slot, ARRIVES_WITHIN_MS);
  }

  async #countSegment(slot: TimeSlot, range: { readonly from: number; readonly to: number }): Promise<void> {
    const { store } = this.#engine;
    const size = store.meta.segmentSize;
    const { looks } = slot;
    const segment = segmentOf(range.from, size);
    const end = segmentEnd(segment, size);
    const header = await store.readSegment(slot.address, segment);
    const stop = header === null ? range.from : Math.min(range.to, entriesEnd(header));
    let at = range.from;
    while (at < stop && !slot.gone && !this.#stopped) {
      const { heads, next } = await readSlotHeads(store, slot.address, at, stop);
      await this.count(slot, heads, at, next);
      at = next;
      await this.#turns.othersFirst();
    }
    if (at < stop) return;
    if (header !== null && header.nextId >= end) slot.markCounted(at, end);
    else if (range.to === Number.POSITIVE_INFINITY) slot.markEnd(at, looks);
    else slot.markCounted(at, range.to);
  }

  /** What should have arrived by now is carried to its end by us: who moved it may be gone. */
  async #lookAtArriving(slot: TimeSlot): Promise<void> {
    const { store, book } = this.#engine;
    const ids = [...slot.arriving];
    const before = await readHeadsByIds(store, slot.address, ids);
    const pendings = [...before.values()].filter(({ status }) => status === 'pending');
    if (slot.gone) return;
    if (pendings.length > 0) {
      const log = await book.log(slot.address);
      await this.#mover.resolve(
        log,
        pendings.map((head) => asPending(log, head)),
      );
    }
    const after = await readHeadsByIds(store, slot.address, ids);
    await this.#add(
      slot,
      after.values(),
      (id) => slot.arriving.delete(id),
      () => {
        for (const id of ids) if (after.get(id)?.status !== 'pending') slot.arriving.delete(id);
      },
    );
  }
}
