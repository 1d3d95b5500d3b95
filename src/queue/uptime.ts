/** How often it is told that the process runs, and the most that counts between two times, in milliseconds. */
export const TICK_MS = 15_000;
const MOST_MS = 2 * TICK_MS;

/**
 * For how long the process has run, without what it stood still (it was stopped, say): whoever was about to do something
 * then goes on with it now, and has not had the time that went by.
 */
export class Uptime {
  readonly #monotonic: () => number;
  #counted = 0;
  #tickedAt: number;

  constructor(monotonic: () => number) {
    this.#monotonic = monotonic;
    this.#tickedAt = monotonic();
  }

  /** Milliseconds. */
  now(): number {
    return this.#counted + Math.min(MOST_MS, this.#monotonic() - this.#tickedAt);
  }

  /** To be called every TICK_MS. */
  tick(): void {
    this.#counted = this.now();
    this.#tickedAt = this.#monotonic();
  }
}
