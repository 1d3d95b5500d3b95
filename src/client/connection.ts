import { backoffMs } from '../core/backoff.ts';
import { QueueError } from '../core/errors.ts';
import { sleep, untilAborted } from './abort.ts';
import { ConnectionError, isPassing } from './errors.ts';

/** 100–200 ms at first, doubling, up to 2.5–5 s. */
const PAUSES = { backoffMs: 200, maxBackoffMs: 5_000 } as const;

const pauseMs = (failures: number): number => backoffMs(failures, PAUSES, Math.random());

export interface Persistence {
  /** How long a call is made again, from its first failure on, in milliseconds. */
  readonly forMs: number;
  /** Cuts it short, back-off included. */
  readonly signal: AbortSignal;
  /** Ends the waits between tries, and no try that is under way; `signal` alone does when absent. */
  readonly callOff?: AbortSignal;
  /** Whether it may be made again after this; it may be when absent. */
  readonly isRepeatable?: (error: unknown) => boolean;
}

/**
 * What calls to a queue have in common: they are made again while it cannot be reached, or says that it could in a
 * moment, and while it cannot be reached they wait for each other.
 *
 *     reached ──(a call fails to reach it)──▶ lost, pause ──(the pause is over: all that wait try)──▶ …
 *        ▲                                                                                    │
 *        └───────────────────────────(any call is answered: pauses begin anew)────────────────┘
 *
 * Calls that were under way when the connection broke fail together, and count as one failure: only one that began
 * behind the last pause makes the next one longer.
 */
export class Connection {
  /** Whether a queue that shuts down may be back later: a server may, one in this process is gone. */
  readonly #comesBack: boolean;
  readonly #onPause: (error: ConnectionError) => void;
  readonly #onLost = new Set<(error: ConnectionError) => void>();
  #failures = 0;
  #round = 0;
  #pause: { readonly over: Promise<void>; readonly end: () => void } | null = null;
  #closed = false;

  /** @param onPause told whenever calls begin to pause because the queue cannot be reached */
  constructor(comesBack: boolean, onPause: (error: ConnectionError) => void) {
    this.#comesBack = comesBack;
    this.#onPause = onPause;
  }

  /** Calls back whenever a call fails to reach the queue; returns what takes that back. */
  onLost(callback: (error: ConnectionError) => void): () => void {
    this.#onLost.add(callback);
    return () => this.#onLost.delete(callback);
  }

  /** @throws the queue's refusal; what was in the way, once persistence is over; the signal's reason */
  async call<T>(
    send: () => Promise<T>,
    { forMs, signal, callOff = signal, isRepeatable = () => true }: Persistence,
  ): Promise<T> {
    let until = Number.POSITIVE_INFINITY;
    let refusals = 0;
    let mayBeIdle = true;
    for (;;) {
      while (this.#pause !== null) await untilAborted(this.#pause.over, callOff);
      callOff.throwIfAborted();
      const round = this.#round;
      try {
        const answer = await untilAborted(send(), signal);
        this.#failures = 0;
        return answer;
      } catch (error) {
        signal.throwIfAborted();
        if (!this.#isPassing(error) || !isRepeatable(error)) throw error;
        const isLost = error instanceof ConnectionError;
        if (isLost && error.wasIdle && mayBeIdle) {
          mayBeIdle = false;
          continue;
        }
        const now = performance.now();
        if (until === Number.POSITIVE_INFINITY) until = now + forMs;
        if (now >= until) throw error;
        if (isLost) this.#lose(error, round);
        else await sleep(pauseMs(++refusals), callOff);
      }
    }
  }

  #isPassing(error: unknown): boolean {
    const isGone = !this.#comesBack && error instanceof QueueError && error.code === 'shutting-down';
    return !isGone && isPassing(error);
  }

  /** A pause of the shortest kind: for who was answered before its time, which a server does that stops. */
  rest(signal: AbortSignal): Promise<void> {
    return sleep(pauseMs(1), signal);
  }

  /** Ends a pause that is on; there will be none any more. */
  close(): void {
    this.#closed = true;
    this.#pause?.end();
  }

  #lose(error: ConnectionError, round: number): void {
    for (const tell of [...this.#onLost]) tell(error);
    if (this.#pause !== null || round !== this.#round || this.#closed) return;
    this.#onPause(error);
    let end = (): void => {};
    const over = new Promise<void>((resolve) => {
      const timer = setTimeout(() => end(), pauseMs(++this.#failures));
      end = () => {
        clearTimeout(timer);
        this.#pause = null;
        this.#round++;
        resolve();
      };
    });
    this.#pause = { over, end };
  }
}
