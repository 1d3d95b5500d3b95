/** Runs so many things at the same time at the most; the others wait, in the order in which they came. */
export class Limiter {
  readonly #most: number;
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** How many run now. */
  get running(): number {
    return this.#running;
  }

  /**
   * @param signal ends the wait for a place, and not what runs
   * @throws the signal's reason; what `work` throws
   */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    if (this.#running >= this.#most) await this.#place(signal);
    else this.#running++;
    try {
      return await work();
    } finally {
      // Who waits takes over the place.
      const [next] = this.#waiting;
      if (next === undefined) this.#running--;
      else next();
    }
  }

  #place(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const leave = (): void => {
        this.#waiting.delete(come);
        signal?.removeEventListener('abort', abort);
      };
      const come = (): void => {
        leave();
        resolve();
      };
      const abort = (): void => {
        leave();
        reject(signal!.reason);
      };
      this.#waiting.add(come);
      signal?.addEventListener('abort', abort, { once: true });
    });
  }
}
