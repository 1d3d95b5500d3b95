import { Limiter } from '../core/limiter.ts';

/**
 * Waits over the network take a connection each, and a server has only so many. So they take turns: as many as `most` at a
 * time, the others behind them in the order in which they came, and each for a short time where there are many.
 */
export class Turns {
  readonly #limiter: Limiter;
  readonly #many: number;
  readonly #longMs: number;

  /** @param longMs how long a wait may take where there are few */
  constructor(most: number, longMs: number) {
    this.#limiter = new Limiter(most);
    this.#many = most / 2;
    this.#longMs = longMs;
  }

  /**
   * @param wait called once it is its turn, with how long it may take, in milliseconds
   * @throws the signal's reason, where it is aborted before
   */
  take<T>(signal: AbortSignal, wait: (ms: number) => Promise<T>): Promise<T> {
    const ask = () => wait(this.#limiter.running > this.#many ? Math.min(SHORT_MS, this.#longMs) : this.#longMs);
    return this.#limiter.run(ask, signal);
  }
}

const SHORT_MS = 1_000;
