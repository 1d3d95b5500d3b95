import { count } from '../http/text.ts';

/** How often the line is drawn anew, in milliseconds. */
const REDRAW_MS = 100;

/** A line on the terminal that says how far a long command is; nothing where standard error is no terminal. */
export class Progress {
  readonly #what: string;
  readonly #startedAt = performance.now();
  #drawnAt = Number.NEGATIVE_INFINITY;
  #shown = false;

  constructor(what: string) {
    this.#what = what;
  }

  show(done: number): void {
    const now = performance.now();
    if (!process.stderr.isTTY || now - this.#drawnAt < REDRAW_MS) return;
    this.#drawnAt = now;
    this.#shown = true;
    const rate = Math.round((done * 1000) / Math.max(1, now - this.#startedAt));
    process.stderr.write(`\r\u001b[K${count(done)} ${this.#what}, ${count(rate)}/s`);
  }

  end(): void {
    if (this.#shown) process.stderr.write('\r\u001b[K');
  }
}
