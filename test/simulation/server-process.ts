import { monotonicFactory } from 'ulid';
import { type Environment, steadyClock } from '../../src/queue/environment.ts';
import type { Loop } from './loop.ts';
import type { Random } from './random.ts';

/** When a simulation begins by the database's clock. */
export const EPOCH = 1_700_000_000_000;

/** How a process's clock differs from the database's. */
export interface ClockFault {
  /** Milliseconds it is ahead at the start. */
  readonly ahead: number;
  /** Seconds it gains in a second. */
  readonly drift: number;
}

/**
 * A process of a server: it can be paused and crash. What runs in it runs between two steps of the loop; a crash lets
 * nothing of it go on at the next step, but cannot call back what was sent already.
 */
export class ServerProcess {
  readonly id: number;
  readonly environment: Environment;
  readonly #loop: Loop;
  readonly #clock: ClockFault;
  #jumped = 0;
  #alive = true;
  #pausedSteps: (() => void)[] | null = null;
  readonly #onCrash: (() => void)[] = [];
  readonly #onCut = new Set<() => void>();
  /** Calls that it has not come to the end of, whether or not somebody still waits for the answer. */
  calls = 0;

  constructor(id: number, loop: Loop, random: Random, clock: ClockFault) {
    this.id = id;
    this.#loop = loop;
    this.#clock = clock;
    const wall = (): number => EPOCH + this.#monotonic() + clock.ahead + this.#jumped;
    const own = random.fork();
    const tokens = random.fork();
    const digits = random.fork();
    const ulid = monotonicFactory(() => digits.next());
    this.environment = {
      now: steadyClock(wall, () => this.#monotonic()),
      monotonic: () => this.#monotonic(),
      random: () => own.next(),
      token: () => tokens.token(),
      ulid,
      timer: (ms, call) => this.after(Math.max(0, ms) / (1 + clock.drift), call),
    } as Environment;
  }

  get alive(): boolean {
    return this.#alive;
  }

  get paused(): boolean {
    return this.#pausedSteps !== null;
  }

  #monotonic(): number {
    return this.#loop.now * (1 + this.#clock.drift);
  }

  /** Something that happens in this process: not once it is gone, and late while it is paused. */
  after(ms: number, run: () => void): () => void {
    let cancelled = false;
    const cancel = this.#loop.after(ms, () => {
      if (!cancelled) this.receive(run, () => cancelled);
    });
    return () => {
      cancelled = true;
      cancel();
    };
  }

  receive(run: () => void, cancelled: () => boolean = () => false): void {
    if (!this.#alive) return;
    if (this.#pausedSteps === null) run();
    else
      this.#pausedSteps.push(() => {
        if (!cancelled()) run();
      });
  }

  /** Carries out a call. */
  serve<T>(call: () => Promise<T>): Promise<T> {
    this.calls++;
    return call().finally(() => this.calls--);
  }

  jump(ms: number): void {
    this.#jumped += ms;
  }

  jumpTo(ms: number): void {
    this.#jumped = ms;
  }

  pause(): void {
    this.#pausedSteps ??= [];
  }

  resume(): void {
    const steps = this.#pausedSteps;
    this.#pausedSteps = null;
    for (const run of steps ?? []) this.#loop.after(0, () => this.receive(run));
  }

  crash(): void {
    if (!this.#alive) return;
    this.#alive = false;
    this.cut();
    for (const tell of this.#onCrash.splice(0)) tell();
  }

  onCrash(tell: () => void): void {
    this.#onCrash.push(tell);
  }

  /** Breaks all connections to it. */
  cut(): void {
    const told = [...this.#onCut];
    this.#onCut.clear();
    for (const tell of told) tell();
  }

  /** Calls back when the connections break; the returned function calls it off. */
  onCut(tell: () => void): () => void {
    this.#onCut.add(tell);
    return () => this.#onCut.delete(tell);
  }
}
