import type { Environment } from '../queue/environment.ts';

/** Topics that are looked at before others get their turn: some two milliseconds. */
export const TOPICS_PER_TURN = 5_000;

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

  /** Nobody waits any more. */
  stop(): void {
    this.#stopped = true;
    for (const goOn of [...this.#waiting]) goOn();
  }
}
