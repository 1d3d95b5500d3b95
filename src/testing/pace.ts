import * as timers from 'node:timers';
import type { VirtualClock } from './virtual-clock.ts';

// Node's own, taken before a test can put fake ones in their place.
const { clearTimeout, setTimeout } = timers;

/** Turns of Node's event loop, without a change of the queue, that work in hand gets before the clock moves on. */
const TURNS_IN_HAND = 10;
/** How often it is looked whether something has changed that the queue is not told of, in milliseconds of real time. */
const LOOK_EVERY_MS = 5;

/** Lets the virtual time of a queue and the real work of whoever uses it go on in turn. */
export class Pace {
  readonly clock: VirtualClock;
  readonly #isInHand: () => boolean;
  #changes = 0;
  readonly #waiting = new Set<() => void>();
  #moving: Promise<void> = Promise.resolve();

  /** @param isInHand whether somebody is at work on a task */
  constructor(clock: VirtualClock, isInHand: () => boolean) {
    this.clock = clock;
    this.#isInHand = isInHand;
  }

  /** How often something was changed in the queue. */
  get changes(): number {
    return this.#changes;
  }

  changed(): void {
    this.#changes++;
    for (const wake of [...this.#waiting]) wake();
  }

  /** Moves the clock, once those that were asked for before have moved it. */
  moveTo(at: () => number): Promise<void> {
    const settle = () => this.settle();
    const moved = this.#moving.then(async () => {
      await settle();
      await this.clock.goTo(Math.max(this.clock.now, at()), settle);
    });
    this.#moving = moved.catch(() => {});
    return moved;
  }

  /** Moves the clock to what falls due next, or to `latest` where that is sooner. */
  step(latest: number): Promise<void> {
    return this.moveTo(() => Math.min(this.clock.nextAt ?? latest, latest));
  }

  /** Lets go on what can without time: until nothing changes any more, and for some turns where work is in hand. */
  async settle(): Promise<void> {
    let quiet = 0;
    do {
      const seen = this.#changes;
      await this.clock.turn();
      quiet = this.#changes === seen ? quiet + 1 : 0;
    } while (quiet < (this.#isInHand() ? TURNS_IN_HAND : 1));
  }

  /** Whether the queue is changed within a moment of real time. */
  change(): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (isChanged: boolean): void => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve(isChanged);
      };
      const wake = (): void => end(true);
      const timer = setTimeout(() => end(false), LOOK_EVERY_MS);
      this.#waiting.add(wake);
    });
  }
}

/** How long real work may take, without a change of the queue, before it is no longer waited for. */
export class Patience {
  readonly #pace: Pace;
  readonly #realMs: number;
  #waitedMs = 0;

  /** @param realMs milliseconds of real time */
  constructor(pace: Pace, realMs: number) {
    this.#pace = pace;
    this.#realMs = realMs;
  }

  get isOver(): boolean {
    return this.#waitedMs >= this.#realMs;
  }

  /** The clock stands still for a moment, or until something changes. */
  async wait(): Promise<void> {
    const isChanged = await this.#pace.change();
    this.#waitedMs = isChanged ? 0 : this.#waitedMs + LOOK_EVERY_MS;
  }
}
