import type { Frontier } from './frontier.ts';

interface Held {
  readonly controller: AbortController;
  /** By the monotonic clock. */
  endsAt: number;
}

/**
 * Keeps the leases of the tasks in hand alive, all of them in one call three times a lease time, and ends the work on
 * those that are lost: somebody else is at it by then, and what we would bring is not wanted any more.
 */
export class LeaseKeeper {
  readonly #frontier: Frontier;
  readonly #leaseMs: number;
  readonly #held = new Map<string, Held>();
  #timer: NodeJS.Timeout | null = null;
  #extending: Promise<void> | null = null;

  constructor(frontier: Frontier, leaseMs: number) {
    this.#frontier = frontier;
    this.#leaseMs = leaseMs;
  }

  start(): void {
    this.#timer ??= setInterval(() => {
      this.#extending ??= this.#extend().finally(() => {
        this.#extending = null;
      });
    }, this.#leaseMs / 3);
  }

  async stop(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    await this.#extending;
  }

  /** @returns a signal that is aborted once the lease is lost */
  hold(leaseId: string): AbortSignal {
    const controller = new AbortController();
    this.#held.set(leaseId, { controller, endsAt: performance.now() + this.#leaseMs });
    return controller.signal;
  }

  /** To be called before a lease is settled, so that no extension crosses the settlement. */
  drop(leaseId: string): void {
    this.#held.delete(leaseId);
  }

  /** Ends all work in hand. */
  abortAll(): void {
    for (const { controller } of this.#held.values()) controller.abort();
  }

  async #extend(): Promise<void> {
    const extend = [...this.#held.keys()].map((leaseId) => ({ leaseId, leaseMs: this.#leaseMs }));
    if (extend.length === 0) return;
    const asked = performance.now();
    try {
      const answer = await this.#frontier.settle({ extend });
      for (const item of answer.extend) {
        const held = this.#held.get(item.leaseId);
        if (held === undefined) continue;
        if (item.ok) held.endsAt = asked + this.#leaseMs;
        else held.controller.abort();
      }
    } catch {
      // A server that can't be reached: a lease is lost when it ends, not before.
      for (const held of this.#held.values()) if (held.endsAt < performance.now()) held.controller.abort();
    }
  }
}
