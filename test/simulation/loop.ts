import { VirtualTime } from '../../src/testing/virtual-time.ts';

/** Steps handed to Node's event loop at once; between any two of them it runs the microtasks out. */
const STEPS_AT_ONCE = 64;

/**
 * The virtual event loop. Time jumps to the next step when nothing is left to run. Two steps never run at the same time,
 * and all promises that one of them resolved are carried out before the next: the order of everything follows from the
 * steps' times. Times count from the start of the simulation, and are no whole numbers.
 */
export class Loop extends VirtualTime {
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
            else if (!this.step()) finish(true);
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
}
