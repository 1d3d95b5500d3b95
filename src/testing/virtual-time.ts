import TinyQueue from 'tinyqueue';

interface Step {
  readonly at: number;
  readonly order: number;
  run: (() => void) | null;
}

/**
 * Time that stands still while code runs, and jumps to the next step when it is told to: an hour takes no longer than
 * what happens in it. Of two steps of the same time the one that was asked for first runs first.
 */
export class VirtualTime {
  /** Milliseconds since it began. */
  now = 0;
  /** How many were run. */
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

  /** When the next step is to run; null: there is none. */
  get nextAt(): number | null {
    for (let step = this.#heap.peek(); step !== undefined; step = this.#heap.peek()) {
      if (step.run !== null) return step.at;
      this.#heap.pop();
    }
    return null;
  }

  /** Goes to the next step and runs it. @returns false where there is none */
  step(): boolean {
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
