import type { FastifyReply } from 'fastify';
import type { LeasedTask, LeaseRequest } from '../queue/api.ts';
import type { Surroundings } from './app.ts';

/** Leases for those who ask over HTTP: as much as there is room for, and given back where its answer is lost. */
export class Leasing {
  readonly #queue: Surroundings['queue'];
  readonly #waits: Surroundings['waits'];
  readonly #budgets: Surroundings['budgets'];
  readonly #log: Surroundings['log'];

  constructor({ queue, waits, budgets, log }: Surroundings) {
    this.#queue = queue;
    this.#waits = waits;
    this.#budgets = budgets;
    this.#log = log;
  }

  /**
   * Leases at once what there is.
   * @param max tasks that are asked for
   * @param lease called with as many of them as there is room for
   * @returns null where there is room for none
   */
  async now(
    reply: FastifyReply,
    max: number,
    lease: (max: number) => Promise<readonly LeasedTask[]>,
  ): Promise<readonly LeasedTask[] | null> {
    const room = this.#budgets.reserveLeases(max);
    if (room === 0) return null;
    let tasks: readonly LeasedTask[] = [];
    try {
      tasks = await lease(room);
    } finally {
      this.#budgets.reservationEnded(max, room, tasks.length);
    }
    return this.#handOut(reply, tasks);
  }

  /**
   * Leases what there is, or waits for some. No room is kept for a call while it waits: what it got and there is no room
   * for by then goes back.
   * @throws QueueError `busy` where there is room for none
   */
  async lease(reply: FastifyReply, request: LeaseRequest, signal?: AbortSignal): Promise<readonly LeasedTask[]> {
    const { waitMs, ...atOnce } = request;
    const { max = 1 } = request;
    const there = await this.now(reply, max, (room) => this.#queue.lease({ ...atOnce, max: room }));
    if (there === null) throw this.#budgets.tooManyTasks();
    if (there.length > 0 || !waitMs || signal?.aborted) return there;
    const room = this.#budgets.roomForLeases(max);
    const tasks = await this.#queue.lease({ ...request, max: Math.max(1, room), ...(signal ? { signal } : {}) });
    const excess = this.#budgets.excessOf(tasks.length);
    const kept = tasks.length - excess;
    if (excess > 0) this.#giveBack(tasks.slice(kept));
    if (excess > 0 && kept === 0) throw this.#budgets.tooManyTasks();
    return this.#handOut(reply, tasks.slice(0, kept));
  }

  #handOut(reply: FastifyReply, tasks: readonly LeasedTask[]): readonly LeasedTask[] {
    if (tasks.length > 0) this.#waits.whenUnsent(reply.raw, () => this.#giveBack(tasks));
    return tasks;
  }

  /** Nobody has them: without this they would wait for their leases to lapse. */
  #giveBack(tasks: readonly LeasedTask[]): void {
    const returned = this.#budgets.returning(tasks.length);
    this.#queue
      .settle({ release: tasks.map(({ leaseId }) => ({ leaseId })) })
      .catch((error: unknown) => {
        this.#log?.warn({ err: error, tasks: tasks.length }, 'could not give back what was leased for nobody');
      })
      .finally(returned);
  }
}
