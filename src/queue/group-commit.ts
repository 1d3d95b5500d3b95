/**
 * Group commit: calls that arrive while a round is under way share the next one. A call stays whole: all its items
 * are in one round, so that what a round writes atomically, a call writes atomically.
 */
export class GroupCommit<T, R> {
  readonly #run: (items: readonly T[]) => Promise<readonly R[]>;
  readonly #maxWeight: number;
  readonly #weigh: (item: T) => number;
  readonly #onIdle: () => void;
  #waiting: Waiting<T, R>[] = [];
  readonly #between: (() => Promise<void>)[] = [];
  #running = false;

  /**
   * @param run writes the items of a round and answers for each, in order
   * @param maxWeight of a round; a call that is heavier has a round of its own
   * @param onIdle called when the last round is over and nothing waits
   */
  constructor(
    run: (items: readonly T[]) => Promise<readonly R[]>,
    maxWeight: number,
    weigh: (item: T) => number = EACH_ALIKE,
    onIdle: () => void = NOTHING,
  ) {
    this.#run = run;
    this.#maxWeight = maxWeight;
    this.#weigh = weigh;
    this.#onIdle = onIdle;
  }

  submit(items: readonly T[]): Promise<readonly R[]> {
    return new Promise((resolve, reject) => {
      let weight = 0;
      for (const item of items) weight += this.#weigh(item);
      this.#waiting.push({ items, weight, resolve, reject });
      if (!this.#running) void this.#rounds();
    });
  }

  /** Does something between two rounds, which wait for it; it must not throw. */
  between(work: () => Promise<void>): void {
    this.#between.push(work);
    if (!this.#running) void this.#rounds();
  }

  async #rounds(): Promise<void> {
    this.#running = true;
    // Calls of the same turn of the event loop share the first round already.
    await null;
    for (;;) {
      const work = this.#between.shift();
      if (work !== undefined) await work();
      if (this.#waiting.length > 0) await this.#round();
      else if (work === undefined) break;
    }
    this.#running = false;
    this.#onIdle();
  }

  async #round(): Promise<void> {
    let weight = 0;
    let count = 0;
    for (const call of this.#waiting) {
      if (count > 0 && weight + call.weight > this.#maxWeight) break;
      weight += call.weight;
      count++;
    }
    const calls = count === this.#waiting.length ? this.#waiting : this.#waiting.slice(0, count);
    this.#waiting = count === this.#waiting.length ? [] : this.#waiting.slice(count);
    const items = calls.length === 1 ? calls[0]!.items : calls.flatMap((call) => call.items);
    try {
      const results = await this.#run(items);
      let at = 0;
      for (const call of calls) {
        call.resolve(calls.length === 1 ? results : results.slice(at, at + call.items.length));
        at += call.items.length;
      }
    } catch (error) {
      for (const call of calls) call.reject(error);
    }
  }
}

/** Group commits by key, each there for as long as something is under way in it. */
export class GroupCommits<K, T, R> {
  readonly #run: (key: K, items: readonly T[]) => Promise<readonly R[]>;
  readonly #maxWeight: number;
  readonly #weigh: ((item: T) => number) | undefined;
  readonly #groups = new Map<K, GroupCommit<T, R>>();

  /** @param run as of GroupCommit, with the key of the group */
  constructor(
    run: (key: K, items: readonly T[]) => Promise<readonly R[]>,
    maxWeight: number,
    weigh?: (item: T) => number,
  ) {
    this.#run = run;
    this.#maxWeight = maxWeight;
    this.#weigh = weigh;
  }

  isIdle(key: K): boolean {
    return !this.#groups.has(key);
  }

  submit(key: K, items: readonly T[]): Promise<readonly R[]> {
    return this.#group(key).submit(items);
  }

  between(key: K, work: () => Promise<void>): void {
    this.#group(key).between(work);
  }

  #group(key: K): GroupCommit<T, R> {
    let group = this.#groups.get(key);
    if (group === undefined) {
      const run = (items: readonly T[]) => this.#run(key, items);
      group = new GroupCommit(run, this.#maxWeight, this.#weigh, () => this.#groups.delete(key));
      this.#groups.set(key, group);
    }
    return group;
  }
}

const EACH_ALIKE = (): number => 1;
const NOTHING = (): void => {};

interface Waiting<T, R> {
  readonly items: readonly T[];
  readonly weight: number;
  readonly resolve: (results: readonly R[]) => void;
  readonly reject: (error: unknown) => void;
}
