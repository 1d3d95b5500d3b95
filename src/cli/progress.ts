import { count, duration, size } from '../http/text.ts';

/** How often the line is drawn anew, in milliseconds. */
const REDRAW_MS = 100;

/** A line on the terminal that is drawn anew now and then; nothing where standard error is no terminal. */
class Line {
  readonly #startedAt = performance.now();
  #drawnAt = Number.NEGATIVE_INFINITY;
  #shown = false;

  /** @param textAfter told after how many milliseconds it is */
  draw(textAfter: (ms: number) => string): void {
    const now = performance.now();
    if (!process.stderr.isTTY || now - this.#drawnAt < REDRAW_MS) return;
    this.#drawnAt = now;
    this.#shown = true;
    process.stderr.write(`\r\u001b[K${textAfter(Math.max(1, now - this.#startedAt))}`);
  }

  end(): void {
    if (this.#shown) process.stderr.write('\r\u001b[K');
    this.#shown = false;
  }
}

/** How far a long command is that has no known end. */
export class Progress extends Line {
  readonly #what: string;

  constructor(what: string) {
    super();
    this.#what = what;
  }

  show(done: number): void {
    this.draw((ms) => `${count(done)} ${this.#what}, ${count(Math.round((done * 1000) / ms))}/s`);
  }
}

const BAR_CELLS = 30;

/** The same of one that has: a bar, and how long it may still take. */
export class ByteProgress extends Line {
  readonly show = (done: number, of: number): void =>
    this.draw((ms) => {
      const cells = Math.floor((BAR_CELLS * done) / Math.max(1, of));
      const left = (ms * (of - done)) / Math.max(1, done);
      const bar = `${'█'.repeat(cells)}${'░'.repeat(BAR_CELLS - cells)}`;
      return `${bar}  ${size(done)} of ${size(of)}, ${size((done * 1000) / ms)}/s, ${duration(left)} left`;
    });
}
