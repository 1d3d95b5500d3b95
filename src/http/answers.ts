import type { ServerResponse } from 'node:http';
import type { Budgets } from './budgets.ts';

/** An answer has to be taken within this time, and as much again for each MiB. */
const TAKEN_MS = 30_000;
const MIB = 1024 ** 2;
const LOOK_EVERY_MS = 1_000;

interface Answer {
  since: number;
  readonly bytes: number;
}

/**
 * Answers that are being sent. A connection whose other side doesn't take its answer in time is cut: what is in the
 * answer takes up memory, and what was leased for it is given back once the connection is closed.
 */
export class Answers {
  readonly #budgets: Budgets;
  readonly #takenMs: number;
  readonly #open = new Map<ServerResponse, Answer>();
  readonly #timer: NodeJS.Timeout;

  /** @param takenMs how long a small answer has, in milliseconds */
  constructor(budgets: Budgets, takenMs = TAKEN_MS) {
    this.#budgets = budgets;
    this.#takenMs = takenMs;
    this.#timer = setInterval(() => this.#look(), Math.min(LOOK_EVERY_MS, takenMs)).unref();
  }

  begins(response: ServerResponse, bytes: number): void {
    // One that was not reached yet, behind others of its connection, does not know that this is closed, and was ended already.
    if (!response.destroyed && !response.req.socket.destroyed)
      this.#open.set(response, { since: performance.now(), bytes });
  }

  ended(response: ServerResponse): void {
    this.#open.delete(response);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const now = performance.now();
    for (const [response, answer] of this.#open) {
      // It is not its turn yet: an earlier request of the connection is not answered.
      if (response.socket === null) answer.since = now;
      else if (now - answer.since > this.#takenMs * (1 + answer.bytes / MIB)) {
        this.#budgets.countRefusal('slow-reader');
        response.socket.destroy();
      }
    }
  }
}
