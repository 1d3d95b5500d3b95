import TinyQueue from 'tinyqueue';

/** Ids that are due by the end of one tick. */
interface Bucket {
  readonly ids: number[];
  /** Those before were taken. */
  at: number;
}

/** Where what was left out begins, in the order of ticks and, within one, of ids. */
export interface Cut {
  readonly tick: number;
  readonly id: number;
}

/** What is above the bound by less than this part of it is kept, so that cutting is seldom. */
const SLACK = 0.1;

/**
 * When which entries of a slot are due: their ids, in buckets of one tick each. A tick is over when all in it are due,
 * so none is taken early. It keeps the first so many of them; what is due later than those is left out, and has to be
 * found again from where the cut is.
 */
export class DueTimes {
  readonly #tickMs: number;
  readonly #most: number;
  readonly #buckets = new Map<number, Bucket>();
  readonly #ticks = new TinyQueue<number>();
  #size = 0;
  #cut: Cut | null = null;

  /**
   * @param tickMs width of a tick in milliseconds
   * @param most ids that are kept
   */
  constructor(tickMs: number, most: number) {
    this.#tickMs = tickMs;
    this.#most = most;
  }

  get size(): number {
    return this.#size;
  }

  /** From where on ids were left out; null: none were. */
  get cut(): Cut | null {
    return this.#cut;
  }

  /** When the next ids can be taken, in milliseconds since 1970; null: there are none. */
  get nextAt(): number | null {
    const tick = this.#firstTick();
    return tick === null ? null : tick * this.#tickMs;
  }

  /** @param after only what comes at or after a cut, if one is given */
  add(id: number, dueAt: number, after: Cut | null = null): void {
    const tick = Math.ceil(dueAt / this.#tickMs);
    if (this.#cut !== null && !isBefore(tick, id, this.#cut)) return;
    if (after !== null && isBefore(tick, id, after)) return;
    const bucket = this.#buckets.get(tick);
    if (bucket === undefined) {
      this.#buckets.set(tick, { ids: [id], at: 0 });
      this.#ticks.push(tick);
    } else bucket.ids.push(id);
    this.#size++;
    if (this.#size > this.#most * (1 + SLACK)) this.#leaveOut();
  }

  /** Takes ids whose ticks are over, at most so many, the earliest first. */
  take(now: number, most: number): number[] {
    const taken: number[] = [];
    while (taken.length < most) {
      const tick = this.#firstTick();
      if (tick === null || tick * this.#tickMs > now) break;
      const bucket = this.#buckets.get(tick)!;
      const end = Math.min(bucket.ids.length, bucket.at + most - taken.length);
      for (; bucket.at < end; bucket.at++) taken.push(bucket.ids[bucket.at]!);
      if (bucket.at === bucket.ids.length) this.#buckets.delete(tick);
    }
    this.#size -= taken.length;
    return taken;
  }

  /** What was left out is about to be added again, from the returned cut on; `null` where nothing was. */
  uncut(): Cut | null {
    const cut = this.#cut;
    this.#cut = null;
    return cut;
  }

  /** Adding what was left out did not come to its end: from there on it is left out again. */
  recut(cut: Cut): void {
    if (this.#cut === null || isBefore(cut.tick, cut.id, this.#cut)) this.#cut = cut;
  }

  #firstTick(): number | null {
    for (let tick = this.#ticks.peek(); tick !== undefined; tick = this.#ticks.peek()) {
      if (this.#buckets.has(tick)) return tick;
      this.#ticks.pop();
    }
    return null;
  }

  /** From the last tick on, and within one from the last id on. */
  #leaveOut(): void {
    const ticks = [...this.#buckets.keys()].sort((a, b) => b - a);
    for (const tick of ticks) {
      const over = this.#size - this.#most;
      if (over <= 0) return;
      const { ids, at } = this.#buckets.get(tick)!;
      const out = ids.splice(Math.max(at, ids.length - over));
      this.#size -= out.length;
      this.#cut = { tick, id: out.reduce((least, id) => Math.min(least, id)) };
      if (ids.length === at) this.#buckets.delete(tick);
    }
  }
}

const isBefore = (tick: number, id: number, cut: Cut): boolean => tick < cut.tick || (tick === cut.tick && id < cut.id);
