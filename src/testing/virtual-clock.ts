import * as timers from 'node:timers';
import { monotonicFactory } from 'ulid';
import type { Environment } from '../queue/environment.ts';
import { SeededRandom } from './seeded-random.ts';
import { VirtualTime } from './virtual-time.ts';

// Node's own, taken before a test can put fake ones in their place.
const { setImmediate } = timers;

/**
 * The environment of a queue whose time is moved by hand, and whose randomness follows from a seed. No handle of Node's
 * stands behind a timer: a process ends whether or not some are left.
 *
 * A timer of no time at all is not one that waits for time: it runs in the next turn of Node's event loop, and the clock
 * stands still meanwhile.
 */
export class VirtualClock {
  readonly environment: Environment;
  readonly #start: number;
  readonly #time = new VirtualTime();
  /** Timers of no time that are to run in the next turn. */
  #atOnce = 0;

  /** @param start milliseconds since 1970 */
  constructor(start: number, seed: number) {
    this.#start = start;
    const seeds = new SeededRandom(seed);
    const stream = () => new SeededRandom(seeds.next() * 2 ** 32);
    const [jitter, tokens, digits] = [stream(), stream(), stream()];
    this.environment = {
      now: () => this.now,
      monotonic: () => this.#time.now,
      random: () => jitter.next(),
      token: () => {
        for (;;) {
          const text = tokens.token();
          if (!text.startsWith('-')) return text;
        }
      },
      ulid: monotonicFactory(() => digits.next()),
      // Whole milliseconds, as `now` tells them: what is due at a time is done when the clock shows it.
      timer: (ms, call) => (ms <= 0 ? this.#inNextTurn(call) : this.#time.after(Math.ceil(ms), call)),
    };
  }

  /** Milliseconds since 1970. */
  get now(): number {
    return this.#start + this.#time.now;
  }

  /** When something falls due next, in milliseconds since 1970; null: nothing will. */
  get nextAt(): number | null {
    const { nextAt } = this.#time;
    return nextAt === null ? null : this.#start + nextAt;
  }

  #inNextTurn(call: () => void): () => void {
    let isOver = false;
    this.#atOnce++;
    const end = (): boolean => {
      if (isOver) return false;
      isOver = true;
      this.#atOnce--;
      return true;
    };
    setImmediate(() => {
      if (end()) call();
    });
    return end;
  }

  /** Moves to a time, and runs what falls due then, one after the other in the order in which it was asked for. */
  async goTo(at: number, settle: () => Promise<void>): Promise<void> {
    for (let next = this.nextAt; next !== null && next <= at; next = this.nextAt) {
      this.#time.step();
      await settle();
    }
    this.#time.now = at - this.#start;
    await settle();
  }

  /** Lets a turn of Node's event loop pass, and with it every promise that can be carried on without time. */
  async turn(): Promise<void> {
    do await new Promise<void>((resolve) => setImmediate(resolve));
    while (this.#atOnce > 0);
  }
}
