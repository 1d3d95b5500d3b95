import TinyQueue from 'tinyqueue';

interface Step {
  readonly at: number;
  readonly order: number;
  run: (() => void) | null;
}

/** Steps handed to Node's event loop at once; between any two of them it runs the microtasks out. */
const STEPS_AT_ONCE = 64;

/**
 * The virtual event loop. Time stands still while code runs and jumps to the next step when nothing is left to run, so
 * an hour takes no longer than what happens in it. Two steps never run at the same time, and all promises that one of
 * them resolved are carried out before the next: the order of everything follows from the steps' times.
 */
export class Loop {
  /** Milliseconds since the start of the simulation; not a whole number. */
  now = 0;
  steps = 0;
  readonly #heap = new TinyQueue<Step>([], (a, b) => a.at - b.at || a.order - b.order);
  #order = 0;

  /** Runs something after so many milliseconds; the returned function calls it off. */
  after(ms: number, run: () => void): () => void {
    const step: Step = { at: this.now + Math.max(0, ms), order: this.#order++, run };
    this.#heap.push(step);
    return () => {
      step.run = null;
    };
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }

  /** Runs until `done`, or nothing is left to run. @returns false where it stopped after `maxSteps` */
  run(done: () => boolean, maxSteps: number): Promise<boolean> {
    return new Promise((resolve, reject) => {
      let left = 0;
      let over = false;
      const finish = (value: boolean): void => {
        over = true;
        resolve(value);
      };
      const one = (): void => {
        left--;
        if (!over) {
          try {
            if (done()) finish(true);
            else if (this.steps >= maxSteps) finish(false);
            else if (!this.#step()) finish(true);
          } catch (error) {
            over = true;
            reject(error);
          }
        }
        if (left === 0 && !over) schedule();
      };
      const schedule = (): void => {
        left = STEPS_AT_ONCE;
        for (let nth = 0; nth < STEPS_AT_ONCE; nth++) setImmediate(one);
      };
      schedule();
    });
  }

  #step(): boolean {
    for (let step = this.#heap.pop(); step !== undefined; step = this.#heap.pop()) {
      if (step.run === null) continue;
      this.now = step.at;
      this.steps++;
      step.run();
      return true;
    }
    return false;
  }
}
