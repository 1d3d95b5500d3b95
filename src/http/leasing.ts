import type { FastifyReply } from 'fastify';
import type { LeasedTask, LeaseRequest } from '../queue/api.ts';
import type { TopicQueue } from '../queue/confined-queue.ts';
import type { Caller } from './access.ts';
import type { Surroundings } from './app.ts';

/** Leases for those who ask over HTTP: as much as there is room for, and given back where its answer is lost. */
export class Leasing {
  readonly #waits: Surroundings['waits'];
  readonly #budgets: Surroundings['budgets'];
  readonly #log: Surroundings['log'];

  constructor({ waits, budgets, log }: Surroundings) {
    this.#waits = waits;
    this.#budgets = budgets;
    this.#log = log;
  }

  /**
   * Leases at once what there is.
   * @param queue takes back what is lost on its way
   * @param max tasks that are asked for
   * @param lease called with as many of them as there is room for
   * @returns null where there is room for none
   */
  async now(
    reply: FastifyReply,
    queue: TopicQueue,
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
    return this.#handOut(reply, queue, tasks);
  }

  /**
   * Leases what there is, or waits for some. No room is kept for a call while it waits: what it got and there is no room
   * for by then goes back.
   * @throws QueueError `busy` where there is room for none, `unauthenticated` where its key was revoked while it waited
   */
  async lease(
    reply: FastifyReply,
    { queue, recheck }: Caller,
    request: LeaseRequest,
    signal?: AbortSignal,
  ): Promise<readonly LeasedTask[]> {
    const { waitMs, ...atOnce } = request;
    const { max = 1 } = request;
    const there = await this.now(reply, queue, max, (room) => queue.lease({ ...atOnce, max: room }));
    if (there === null) throw this.#budgets.tooManyTasks();
    if (there.length > 0 || !waitMs || signal?.aborted) return there;
    const room = this.#budgets.roomForLeases(max);
    const tasks = await queue.lease({ ...request, max: Math.max(1, room), ...(signal ? { signal } : {}) });
    const excess = this.#budgets.excessOf(tasks.length);
    const kept = tasks.length - excess;
    if (excess > 0) this.#giveBack(queue, tasks.slice(kept));
    if (excess > 0 && kept === 0) throw this.#budgets.tooManyTasks();
    if (kept > 0) {
      await recheck().catch((error: unknown) => {
        this.#giveBack(queue, tasks.slice(0, kept));
        throw error;
      });
    }
    return this.#handOut(reply, queue, tasks.slice(0, kept));
  }

  #handOut(reply: FastifyReply, queue: TopicQueue, tasks: readonly LeasedTask[]): readonly LeasedTask[] {
    if (tasks.length > 0) this.#waits.whenUnsent(reply.raw, () => this.#giveBack(queue, tasks));
    return tasks;
  }

  /** Nobody has them: without this they would wait for their leases to lapse. */
  #giveBack(queue: TopicQueue, tasks: readonly LeasedTask[]): void {
    const returned = this.#budgets.returning(tasks.length);
    queue
      .settle({ release: tasks.map(({ leaseId }) => ({ leaseId })) })
      .catch((error: unknown) => {
        this.#log?.warn({ err: error, tasks: tasks.length }, 'could not give back what was leased for nobody');
      })
      .finally(returned);
  }
}
