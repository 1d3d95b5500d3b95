import { invalid, QueueError } from '../core/errors.ts';
import { optionalInteger } from '../core/numbers.ts';
import { type Queue, TASK_STATES, type TaskInfo, type TaskState } from '../queue/api.ts';
import { nameOf, timedOut, timeOf } from './left-over.ts';
import { allTasks, allTopics, unsettledOf } from './look.ts';
import { type Pace, Patience } from './pace.ts';

/** How long to wait. */
export interface WaitOptions {
  /** By the virtual clock, in milliseconds, which moves as far as this where nothing is in hand. */
  readonly withinMs?: number;
  /**
   * By a real one, in milliseconds, while the virtual one stands still: since a task is in hand, say. It begins anew with
   * each change of the queue; 4,000 when absent, so that it ends before the time a test has by default.
   */
  readonly realMs?: number;
}

const REAL_MS = 4_000;
/** How far a wait moves the clock when it is not told, in milliseconds: an hour. */
const WAIT_WITHIN_MS = 3_600_000;
/** Ten years. */
const LONGEST_MS = 3650 * 86_400_000;

/** Which task is waited for. */
export interface TaskFilter {
  readonly topic: string;
  /** The one with this message id. */
  readonly messageId?: string;
  /** The one with this id. */
  readonly id?: string;
  /** In this state, or in one of these; in any when absent. */
  readonly state?: TaskState | readonly TaskState[];
}

const FIELDS = ['topic', 'messageId', 'id', 'state'];

/** Looks for a task by a filter that keeps the rules. */
export class TaskSearch {
  readonly #filter: TaskFilter;
  readonly #states: readonly TaskState[];
  /** The task that the filter names, as it stood when it was last there. */
  seen: TaskInfo | null = null;

  /** @throws QueueError `invalid-input` */
  constructor(filter: TaskFilter) {
    const example = '{"topic": "mail", "messageId": "welcome-ada", "state": "done"}';
    if (typeof filter !== 'object' || filter === null)
      throw invalid('/task', filter, 'a filter or a function', example);
    for (const field of Object.keys(filter)) {
      if (!FIELDS.includes(field))
        throw invalid(`/${field}`, field, `a field of a filter (${FIELDS.join(', ')})`, example);
    }
    if (filter.messageId !== undefined && filter.id !== undefined) {
      throw invalid('/id', filter.id, 'given together with messageId: one of the two', example);
    }
    const { state } = filter;
    this.#filter = filter;
    this.#states = state === undefined ? TASK_STATES : typeof state === 'string' ? [state] : state;
    for (const one of this.#states) {
      if (!TASK_STATES.includes(one)) throw invalid('/state', one, `one of ${TASK_STATES.join(', ')}`, '"done"');
    }
  }

  /** A task that fits; null: there is none. */
  async find(queue: Queue): Promise<TaskInfo | null> {
    const { topic, messageId, id } = this.#filter;
    if (messageId !== undefined) return this.#fitting(queue.taskByMessageId(topic, messageId));
    if (id !== undefined) return this.#fitting(queue.task(topic, id));
    for (const state of this.#states) {
      for await (const task of allTasks(queue, topic, state)) return task;
    }
    return null;
  }

  async #fitting(look: Promise<TaskInfo>): Promise<TaskInfo | null> {
    try {
      this.seen = await look;
    } catch (error) {
      if (error instanceof QueueError && error.code === 'task-not-found') return null;
      throw error;
    }
    return this.#states.includes(this.seen.state) ? this.seen : null;
  }

  toString(): string {
    const filter = JSON.stringify(this.#filter);
    return this.seen === null ? filter : `${filter}, last seen as ${nameOf(this.seen)}`;
  }
}

/** The limits of a wait. @throws QueueError `invalid-input` */
export function waitLimits(options: WaitOptions, withinMs: number): Required<WaitOptions> {
  return {
    withinMs: optionalInteger(options.withinMs, '/withinMs', 0, LONGEST_MS) ?? withinMs,
    realMs: optionalInteger(options.realMs, '/realMs', 0, LONGEST_MS) ?? REAL_MS,
  };
}

/**
 * Looks again and again, and moves the clock in between where nothing is in hand.
 * @param look answers with something other than null, undefined, false or 0 once it is there
 * @throws TestTimeoutError
 */
export async function waitUntil<T>(
  queue: Queue,
  pace: Pace,
  what: () => string,
  look: () => T | Promise<T>,
  options: WaitOptions,
): Promise<T> {
  const { withinMs, realMs } = waitLimits(options, WAIT_WITHIN_MS);
  const latest = pace.clock.now + withinMs;
  const patience = new Patience(pace, realMs);
  for (;;) {
    await pace.settle();
    const found = await look();
    if (found) return found;
    const isInHand = queue.status().leased > 0;
    if (!isInHand && pace.clock.now < latest) {
      await pace.step(latest);
    } else if (!patience.isOver) {
      await patience.wait();
    } else {
      const left: TaskInfo[] = [];
      for await (const { topic } of allTopics(queue)) left.push(...(await unsettledOf(queue, topic)));
      const why = isInHand
        ? 'a task is in hand, and was not settled in the real time given (realMs); the clock stands still meanwhile. To let ' +
          'a lease run out, move the clock: await queue.advance(30_000)'
        : `it did not come about by ${timeOf(latest)} (withinMs: ${withinMs}). To wait for longer: { withinMs: ${2 * withinMs} }`;
      throw await timedOut(queue, `waitFor ${what()}: ${why}`, left);
    }
  }
}
