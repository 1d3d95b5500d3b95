import { QueueError } from '../core/errors.ts';
import type { BusyTopic, Queue, QueueStatus } from '../queue/api.ts';
import type { BudgetUsage } from './budgets.ts';
import { columns, count, duration, safeText, size } from './text.ts';
import { VERSION } from './version.ts';

/** What the status page shows. */
export interface Status {
  readonly version: string;
  readonly uptimeMs: number;
  readonly queue: QueueStatus;
  /** The busiest topics. */
  readonly topics: readonly BusyTopic[];
  /** Absent where nothing is budgeted: in a process that serves nobody. */
  readonly budgets?: BudgetUsage;
  /** Lines of the log that found no room; absent where none is kept. */
  readonly logLinesDropped?: number;
}

/** What of a status is not the queue's. */
export type ServerStatus = Pick<Status, 'budgets' | 'logLinesDropped'>;

/** Asks the queue. Costs it a look at all topics: cache what comes back. */
export async function readStatus(queue: Pick<Queue, 'status' | 'busiest'>, server: ServerStatus = {}): Promise<Status> {
  const topics = await busiestOf(queue);
  const status = queue.status();
  return { version: VERSION, uptimeMs: Math.max(0, Date.now() - status.startedAt), queue: status, topics, ...server };
}

/** None where the store is not reached: the page is needed then, too. */
async function busiestOf(queue: Pick<Queue, 'busiest'>): Promise<readonly BusyTopic[]> {
  try {
    return await queue.busiest();
  } catch (error) {
    if (error instanceof QueueError && (error.code === 'store-unavailable' || error.code === 'shutting-down'))
      return [];
    throw error;
  }
}

/** The status as a page of plain text for people. */
export function statusText(status: Status): string {
  const { version, uptimeMs, queue, topics } = status;
  const scanned = queue.lastScanAt === null ? 'not yet' : `${duration(Date.now() - queue.lastScanAt)} ago`;
  const now = columns(
    ['now', '', 'since the start', ''],
    [
      ['ready', queue.ready, 'published', queue.enqueued],
      ['delayed', queue.delayed, 'deduplicated', queue.deduplicated],
      ['leased', queue.leased, 'delivered', queue.delivered],
      ['dead', queue.dead, 'redelivered', queue.redelivered],
      ['waiting calls', queue.waiting, 'succeeded', queue.succeeded],
      ['active topics', queue.activeTopics, 'failed', queue.failed],
      ['shards held', `${queue.shards.held} of ${queue.shards.of}`, 'dead-lettered', queue.deadLettered],
      ['servers', queue.servers, 'expired', queue.expired],
      [
        'oldest ready',
        queue.oldestReadyMs === null ? '–' : duration(queue.oldestReadyMs),
        'unknown at first',
        Object.values(queue.unknown).reduce((sum, some) => sum + some, 0),
      ],
      ['', '', 'refused, no room', queue.refused],
      ['', '', 'fired by schedules', queue.firings],
    ],
  );
  const busiest = columns(
    ['topic', 'queued', 'bytes', 'in flight', 'subscribers', 'idle', 'dead', ''],
    topics.map(({ topic, counts, waitingBytes, subscribers, idle, paused }) => [
      safeText(topic),
      counts.ready + counts.delayed,
      waitingBytes,
      counts.leased,
      subscribers,
      idle,
      counts.dead,
      paused ? 'paused' : '',
    ]),
  );
  const server = serverText(status);
  const space = queue.space === null ? '' : ` (${size(queue.space.bytes)}, of it ${size(queue.space.freeBytes)} free)`;
  return [
    `Ebbmark ${version}, up ${duration(uptimeMs)}, store ${safeText(queue.store)}${space}, last scan ${scanned}`,
    ...(server === '' ? [] : [server]),
    now,
    topics.length === 0 ? 'No topic is active.\n' : `${busiest}\n`,
  ].join('\n\n');
}

function serverText({ budgets, logLinesDropped }: Status): string {
  const facts: (readonly [string, string])[] = [];
  if (budgets !== undefined) {
    const { connections, tasks, memory, refused } = budgets;
    const bytes = (some: number): string => `${size(some)} (${count(some)})`;
    facts.push(
      ['connections', `${count(connections.now)} of ${count(connections.limit)}`],
      ['tasks', `${count(tasks.now)} of ${count(tasks.limit)}`],
      ['memory, input', `${bytes(memory.input.now)} of ${bytes(memory.input.limit)}`],
      ['memory, rest', `${bytes(memory.rest.now)} of ${bytes(memory.rest.limit)}`],
    );
    const reasons = Object.entries(refused)
      .filter(([, times]) => times > 0)
      .map(([reason, times]) => `${reason} ${count(times)}`);
    const all = Object.values(refused).reduce((sum, times) => sum + times, 0);
    facts.push(['requests refused', reasons.length === 0 ? '0' : `${count(all)} (${reasons.join(', ')})`]);
  }
  if (logLinesDropped !== undefined) facts.push(['log lines dropped', count(logLinesDropped)]);
  return facts.map(([name, value]) => `${name.padEnd(17)}  ${value}`).join('\n');
}

/** How long a status is shown again instead of asking the queue anew, in milliseconds. */
const CACHE_MS = 1_000;
const AT_ONCE = 8;
const ANSWER_WITHIN_MS = 2_000;

/** Answers who asks for the status: a few at once, in time, and without asking the queue each time. */
export class StatusDesk {
  readonly #read: () => Promise<Status>;
  #asking = 0;
  #last: Promise<Status> | null = null;
  #readAt = Number.NEGATIVE_INFINITY;

  constructor(read: () => Promise<Status>) {
    this.#read = read;
  }

  /**
   * Lets one more ask.
   * @returns what to call when its answer was sent, or it has gone
   * @throws QueueError `busy`
   */
  enter(): () => void {
    if (this.#asking >= AT_ONCE) throw new QueueError('busy', `The status is answered to ${AT_ONCE} requests at once`);
    this.#asking++;
    let left = false;
    return () => {
      if (!left) this.#asking--;
      left = true;
    };
  }

  /** @throws QueueError `busy` where it takes too long */
  read(): Promise<Status> {
    return new Promise((resolve, reject) => {
      const late = new QueueError('busy', `The status could not be put together within ${ANSWER_WITHIN_MS} ms`);
      const timer = setTimeout(() => reject(late), ANSWER_WITHIN_MS);
      this.#cached()
        .then(resolve, reject)
        .finally(() => clearTimeout(timer));
    });
  }

  /** Asks at most once in so many milliseconds, and not again while an answer is still to come. */
  #cached(): Promise<Status> {
    const now = performance.now();
    if (this.#last === null || now - this.#readAt >= CACHE_MS) {
      const reading = this.#read();
      this.#last = reading;
      this.#readAt = Number.POSITIVE_INFINITY;
      reading.then(
        () => {
          this.#readAt = now;
        },
        // A failure is not kept.
        () => {
          this.#last = null;
        },
      );
    }
    return this.#last;
  }
}
