import TinyQueue from 'tinyqueue';
import type { Environment } from '../queue/environment.ts';

interface Alarm<K> {
  readonly at: number;
  readonly key: K;
}

/**
 * One timer for many things that fall due. Each key has at most one time, the earliest it was set to; an alarm that
 * was set earlier meanwhile, or cleared, is skipped when it comes up.
 */
export class AlarmClock<K> {
  readonly #env: Pick<Environment, 'now' | 'timer'>;
  readonly #ring: (keys: readonly K[]) => void;
  readonly #heap = new TinyQueue<Alarm<K>>([], (a, b) => a.at - b.at);
  readonly #times = new Map<K, number>();
  #cancel: (() => void) | null = null;
  #armedAt = Number.POSITIVE_INFINITY;
  #stopped = false;

  /**
   * @param env the clock that times are told by
   * @param ring called with the keys that are due, whose times are cleared by then
   */
  constructor(env: Pick<Environment, 'now' | 'timer'>, ring: (keys: readonly K[]) => void) {
    this.#env = env;
    this.#ring = ring;
  }

  /** Sets a key to a time, unless it is set to an earlier one. */
  set(key: K, at: number): void {
    if (this.#stopped || at === Number.POSITIVE_INFINITY) return;
    const known = this.#times.get(key);
    if (known !== undefined && known <= at) return;
    this.#times.set(key, at);
    this.#heap.push({ at, key });
    if (at < this.#armedAt) this.#arm(at);
  }

  keys(): readonly K[] {
    return [...this.#times.keys()];
  }

  timeOf(key: K): number | undefined {
    return this.#times.get(key);
  }

  clear(key: K): void {
    this.#times.delete(key);
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel?.();
    this.#cancel = null;
    this.#times.clear();
    while (this.#heap.length > 0) this.#heap.pop();
  }

  #arm(at: number): void {
    this.#cancel?.();
    this.#armedAt = at;
    this.#cancel = this.#env.timer(Math.max(0, at - this.#env.now()), () => this.#fire());
  }

  #fire(): void {
    this.#cancel = null;
    this.#armedAt = Number.POSITIVE_INFINITY;
    const now = this.#env.now();
    const due: K[] = [];
    for (let next = this.#heap.peek(); next !== undefined && next.at <= now; next = this.#heap.peek()) {
      this.#heap.pop();
      if (this.#times.get(next.key) !== next.at) continue;
      this.#times.delete(next.key);
      due.push(next.key);
    }
    const next = this.#heap.peek();
    if (next !== undefined) this.#arm(next.at);
    if (due.length > 0) this.#ring(due);
  }
}
