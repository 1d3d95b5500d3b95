import { LEASE_TASKS } from '../core/bounds.ts';
import { QueueError } from '../core/errors.ts';
import { optionalInteger } from '../core/numbers.ts';
import type { JsonValue, LeasedTask, Queue, QueueStatus, TaskInfo } from '../queue/api.ts';
import { type CheckedLease, checkLease } from '../queue/validate.ts';
import { timedOut, timeOf } from './left-over.ts';
import { allTopics, unsettledOf } from './look.ts';
import { type Pace, Patience } from './pace.ts';
import { type WaitOptions, waitLimits } from './wait-for.ts';

/**
 * Works on a task. What it returns, or resolves to, is the result that the task is acked with: any JSON value, or
 * undefined for none. What it throws is the reason of a nack.
 */
export type DrainHandler = (task: LeasedTask) => unknown;

export interface DrainOptions extends WaitOptions {
  /** Names, or prefixes that end with `*`; all topics when absent. */
  readonly topics?: readonly string[];
  /** Tasks that the handler works on at the same time; 1 when absent. */
  readonly concurrency?: number;
}

/** What happened while the queue was drained, in all topics and by all who worked. */
export interface DrainReport {
  readonly delivered: number;
  readonly succeeded: number;
  /** Deliveries that failed: by a nack, or since their lease ran out. */
  readonly failed: number;
  readonly deadLettered: number;
  readonly expired: number;
  /** By how much the clock went on, in milliseconds. */
  readonly tookMs: number;
  /** What the handler threw, in the order in which it did. */
  readonly errors: readonly unknown[];
}

/** How long a drain goes on by the virtual clock when it is not told, in milliseconds: a week. */
const DRAIN_WITHIN_MS = 7 * 86_400_000;

/** Works a queue off until nothing is left, or the limits are reached. */
export class Drain {
  readonly #queue: Queue;
  readonly #pace: Pace;
  readonly #handler: DrainHandler | null;
  readonly #topics: CheckedLease;
  readonly #selectors: Pick<DrainOptions, 'topics'>;
  readonly #concurrency: number;
  readonly #withinMs: number;
  readonly #patience: Patience;
  readonly #errors: unknown[] = [];
  #running = 0;
  /** What went wrong behind the handler: its task could not be settled. */
  #trouble: unknown = null;

  /**
   * @param queue told of every change, so that the pace is
   * @throws QueueError `invalid-input`
   */
  constructor(queue: Queue, pace: Pace, handler: DrainHandler | null, options: DrainOptions) {
    const { withinMs, realMs } = waitLimits(options, DRAIN_WITHIN_MS);
    this.#queue = queue;
    this.#pace = pace;
    this.#handler = handler;
    this.#topics = checkLease(options);
    this.#selectors = options.topics === undefined ? {} : { topics: options.topics };
    this.#concurrency = optionalInteger(options.concurrency, '/concurrency', 1, LEASE_TASKS) ?? 1;
    this.#withinMs = withinMs;
    this.#patience = new Patience(pace, realMs);
  }

  /** @throws TestTimeoutError where something is left */
  async run(): Promise<DrainReport> {
    const before = this.#queue.status();
    const began = this.#pace.clock.now;
    const latest = began + this.#withinMs;
    for (;;) {
      if (this.#trouble !== null) throw this.#trouble;
      const { changes } = this.#pace;
      await this.#workOn();
      await this.#pace.settle();
      // Time goes on only where nothing is to be had without.
      if (this.#pace.changes !== changes) continue;
      const { ready, delayed, leased } = await this.#counts();
      const isInHand = this.#running > 0 || leased > 0;
      if (!isInHand && ready === 0 && delayed === 0) return this.#report(before, began);
      const isNobodyThere = this.#handler === null && ready > 0 && this.#queue.status().waiting === 0;
      if (!isInHand && !isNobodyThere && this.#pace.clock.now < latest) {
        await this.#pace.step(latest);
      } else if (!this.#patience.isOver) {
        await this.#patience.wait();
      } else if (isInHand) {
        throw await this.#timedOut(
          'somebody is at work on a task, and has not settled it in the real time given (realMs); the clock stands still ' +
            'meanwhile. To let a lease run out, move the clock: await queue.advance(30_000)',
        );
      } else if (isNobodyThere) {
        throw await this.#timedOut(
          'no lease call waits for what is ready. Give drain a handler, or start a worker before: ' +
            'await queue.drain(async (task) => …)',
        );
      } else {
        throw await this.#timedOut(
          `it was not empty by ${timeOf(latest)} (withinMs: ${this.#withinMs}). To go on for longer: ` +
            `await queue.drain(handler, { withinMs: ${2 * this.#withinMs} })`,
        );
      }
    }
  }

  /** Hands the handler as many tasks as it has places for. */
  async #workOn(): Promise<void> {
    const free = this.#concurrency - this.#running;
    if (this.#handler === null || free === 0) return;
    const tasks = await this.#queue.lease({ ...this.#selectors, max: free, worker: 'drain' });
    for (const task of tasks) {
      this.#running++;
      this.#work(this.#handler, task)
        .catch((error: unknown) => {
          this.#trouble ??= error;
        })
        .finally(() => {
          this.#running--;
        });
    }
  }

  async #work(handler: DrainHandler, task: LeasedTask): Promise<void> {
    const { leaseId } = task;
    let result: JsonValue | undefined;
    try {
      // Whether it has JSON text is for the queue to see.
      result = (await handler(task)) as JsonValue | undefined;
    } catch (error) {
      this.#errors.push(error);
      const reason = error instanceof Error ? error.message : String(error);
      await this.#queue.settle({ nack: [{ leaseId, reason }] });
      return;
    }
    const { ack } = await this.#queue.settle({ ack: [result === undefined ? { leaseId } : { leaseId, result }] });
    const answer = ack[0]!;
    // One whose lease is lost is another's by now, or cancelled: it is delivered again, or needs no more work.
    if (!answer.ok && answer.code !== 'lease-lost') {
      throw new QueueError('invalid-input', `what the handler returned for ${task.topic} ${task.id}: ${answer.detail}`);
    }
  }

  async #counts(): Promise<{ readonly ready: number; readonly delayed: number; readonly leased: number }> {
    const sum = { ready: 0, delayed: 0, leased: 0 };
    for await (const { counts } of this.#asked()) {
      sum.ready += counts.ready;
      sum.delayed += counts.delayed;
      sum.leased += counts.leased;
    }
    return sum;
  }

  async *#asked() {
    const { names, prefixes } = this.#topics;
    for await (const summary of allTopics(this.#queue)) {
      const { topic } = summary;
      if (names?.includes(topic) || prefixes.some((prefix) => topic.startsWith(prefix))) yield summary;
    }
  }

  #report(before: QueueStatus, began: number): DrainReport {
    const after = this.#queue.status();
    return {
      delivered: after.delivered - before.delivered,
      succeeded: after.succeeded - before.succeeded,
      failed: after.failed - before.failed,
      deadLettered: after.deadLettered - before.deadLettered,
      expired: after.expired - before.expired,
      tookMs: this.#pace.clock.now - began,
      errors: this.#errors,
    };
  }

  async #timedOut(why: string) {
    const left: TaskInfo[] = [];
    for await (const { topic } of this.#asked()) left.push(...(await unsettledOf(this.#queue, topic)));
    return timedOut(this.#queue, `drain: ${why}`, left);
  }
}
