import type { Environment } from '../queue/environment.ts';

/** Looks at a topic before others get their turn: some two milliseconds. */
const LOOKS_PER_TURN = 5_000;

/**
 * Lets what else there is to do go first, in between: reads of an embedded store don't wait for anything, and many of
 * them in a row would hold up everything.
 */
export class Turns {
  readonly #env: Environment;
  readonly #waiting = new Set<() => void>();
  #stopped = false;

  constructor(env: Environment) {
    this.#env = env;
  }

  othersFirst(): Promise<void> {
    if (this.#stopped) return Promise.resolve();
    return new Promise((resolve) => {
      const goOn = (): void => {
        cancel();
        this.#waiting.delete(goOn);
        resolve();
      };
      const cancel = this.#env.timer(0, goOn);
      this.#waiting.add(goOn);
    });
  }

  /**
   * Goes through what there may be millions of, and lets others go first again and again.
   * @param look returns for how many looks at a topic it counts
   */
  async through<T>(items: Iterable<T>, look: (item: T) => number): Promise<void> {
    let looks = 0;
    for (const item of items) {
      looks += look(item);
      if (looks < LOOKS_PER_TURN) continue;
      looks = 0;
      await this.othersFirst();
    }
  }

  /** Nobody waits any more. */
  stop(): void {
    this.#stopped = true;
    for (const goOn of [...this.#waiting]) goOn();
  }
}
