/**
 * Waits over the network take a connection each, and a server has only so many. So they take turns: as many as `most` at a
 * time, the others behind them in the order in which they came, and each for a short time where there are many.
 */
export class Turns {
  readonly #most: number;
  readonly #longMs: number;
  readonly #waiting = new Set<() => void>();
  #running = 0;

  /** @param longMs how long a wait may take where there are few */
  constructor(most: number, longMs: number) {
    this.#most = most;
    this.#longMs = longMs;
  }

  /**
   * @param wait called once it is its turn, with how long it may take, in milliseconds
   * @throws the signal's reason, where it is aborted before
   */
  async take<T>(signal: AbortSignal, wait: (ms: number) => Promise<T>): Promise<T> {
    if (this.#running >= this.#most) await this.#turn(signal);
    else this.#running++;
    try {
      return await wait(this.#running > this.#most / 2 ? Math.min(SHORT_MS, this.#longMs) : this.#longMs);
    } finally {
      // Who waits takes over the place.
      const [next] = this.#waiting;
      if (next === undefined) this.#running--;
      else next();
    }
  }

  #turn(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        this.#waiting.delete(come);
        signal.removeEventListener('abort', abort);
      };
      const come = (): void => {
        leave();
        resolve();
      };
      const abort = (): void => {
        leave();
        reject(signal.reason);
      };
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      this.#waiting.add(come);
      signal.addEventListener('abort', abort, { once: true });
    });
  }
}

const SHORT_MS = 1_000;
