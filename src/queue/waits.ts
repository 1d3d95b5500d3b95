import type { Environment } from './environment.ts';
import type { Topic } from './topics.ts';

/** Those who wait for a task to be settled, or for a topic to be drained. */
export class Waits {
  readonly #env: Environment;
  readonly #isCounted: (topic: Topic) => boolean;
  readonly #bySettlement = new Map<string, Set<() => void>>();
  readonly #byDrain = new Map<Topic, Set<() => void>>();
  readonly #byCount = new Map<Topic, Set<() => void>>();
  #stopped = false;

  /** @param isCounted whether all tasks of a topic that are delayed are known: before that, it is not drained */
  constructor(env: Environment, isCounted: (topic: Topic) => boolean) {
    this.#env = env;
    this.#isCounted = isCounted;
  }

  settled(uid: string): void {
    for (const wake of this.#bySettlement.get(uid) ?? []) wake();
  }

  changed(topic: Topic): void {
    if (this.#byDrain.size === 0 || !this.#isDrained(topic)) return;
    for (const wake of this.#byDrain.get(topic) ?? []) wake();
  }

  /** Whether somebody waits for a topic. */
  has(topic: Topic): boolean {
    return this.#byDrain.has(topic) || this.#byCount.has(topic);
  }

  /** Ends the waits for a topic to be drained: this server no longer knows whether it is. */
  end(topic: Topic): void {
    wakeAll(this.#byDrain, topic);
    wakeAll(this.#byCount, topic);
  }

  /** All delayed tasks of some topics are known by now. */
  counted(): void {
    for (const topic of [...this.#byDrain.keys()]) this.changed(topic);
    for (const topic of [...this.#byCount.keys()]) if (this.#isCounted(topic)) wakeAll(this.#byCount, topic);
  }

  #isDrained(topic: Topic): boolean {
    const { ready, delayed, leased } = topic.counts();
    return ready === 0 && delayed === 0 && leased === 0 && topic.moving === 0 && this.#isCounted(topic);
  }

  /** Ends all waits; later ones end at once. */
  stop(): void {
    this.#stopped = true;
    for (const waits of [this.#bySettlement, this.#byDrain, this.#byCount]) {
      for (const set of [...waits.values()]) for (const wake of [...set]) wake();
    }
  }

  /** Waits until a task is settled, or the time is over. `isSettled` is asked once the wait is registered. */
  async forSettlement(
    uid: string,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    isSettled: () => Promise<boolean>,
  ): Promise<void> {
    const wait = this.#wait(this.#bySettlement, uid, timeoutMs, signal);
    // It may have been settled between the look and the wait.
    if (await isSettled()) wait.end();
    await wait.over;
  }

  /** Whether nothing of the topic is ready, delayed or leased any more before the time is over (null: never over). */
  async forDrain(topic: Topic, timeoutMs: number | null, signal: AbortSignal | undefined): Promise<boolean> {
    if (!this.#isDrained(topic) && !topic.tenure.ended) await this.#wait(this.#byDrain, topic, timeoutMs, signal).over;
    return this.#isDrained(topic) && !topic.tenure.ended;
  }

  /** Waits until all tasks of a topic that are delayed are known, or the time is over. */
  async forCount(topic: Topic, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.#isCounted(topic) || topic.tenure.ended) return;
    await this.#wait(this.#byCount, topic, timeoutMs, signal).over;
  }

  #wait<K>(
    waits: Map<K, Set<() => void>>,
    key: K,
    timeoutMs: number | null,
    signal: AbortSignal | undefined,
  ): { readonly over: Promise<void>; readonly end: () => void } {
    let end = (): void => {};
    const over = new Promise<void>((resolve) => {
      let cancel = (): void => {};
      end = () => {
        const set = waits.get(key);
        set?.delete(end);
        if (set?.size === 0) waits.delete(key);
        cancel();
        signal?.removeEventListener('abort', end);
        resolve();
      };
      if (timeoutMs !== null) cancel = this.#env.timer(timeoutMs, end);
      signal?.addEventListener('abort', end, { once: true });
      const set = waits.get(key);
      if (set === undefined) waits.set(key, new Set([end]));
      else set.add(end);
      if (this.#stopped || signal?.aborted) end();
    });
    return { over, end };
  }
}

function wakeAll<K>(waits: ReadonlyMap<K, ReadonlySet<() => void>>, key: K): void {
  for (const wake of [...(waits.get(key) ?? [])]) wake();
}
