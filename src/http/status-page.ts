import { QueueError } from '../core/errors.ts';
import type { Queue, QueueStatus, TopicSummary } from '../queue/api.ts';
import { columns, duration, safeText, size } from './text.ts';
import { VERSION } from './version.ts';

/** What the status page shows. */
export interface Status {
  readonly version: string;
  readonly uptimeMs: number;
  readonly queue: QueueStatus;
  /** The busiest of the topics looked at. */
  readonly topics: readonly TopicSummary[];
}

/** Topics that are looked at for the page, and those of them that it shows. */
const LOOKED_AT = 200;
const SHOWN = 20;

/** Asks the queue. Costs it a look at some topics: cache what comes back. */
export async function readStatus(queue: Pick<Queue, 'status' | 'topics'>): Promise<Status> {
  const status = queue.status();
  const topics = await topicsOf(queue);
  const busy = ({ counts }: TopicSummary): number => counts.leased + counts.ready + counts.delayed;
  return {
    version: VERSION,
    uptimeMs: Math.max(0, Date.now() - status.startedAt),
    queue: status,
    topics: [...topics].sort((a, b) => busy(b) - busy(a)).slice(0, SHOWN),
  };
}

/** None where another server knows them, or the store is not reached: the page is needed then, too. */
async function topicsOf(queue: Pick<Queue, 'topics'>): Promise<readonly TopicSummary[]> {
  try {
    return (await queue.topics({ limit: LOOKED_AT })).topics;
  } catch (error) {
    if (error instanceof QueueError && (error.code === 'not-holder' || error.code === 'store-unavailable')) return [];
    throw error;
  }
}

/** The status as a page of plain text for people. */
export function statusText({ version, uptimeMs, queue, topics }: Status): string {
  const scanned = queue.lastScanAt === null ? 'not yet' : `${duration(Date.now() - queue.lastScanAt)} ago`;
  const now = columns(
    ['now', '', 'since the start', ''],
    [
      ['ready', queue.ready, 'enqueued', queue.enqueued],
      ['delayed', queue.delayed, 'deduplicated', queue.deduplicated],
      ['leased', queue.leased, 'delivered', queue.delivered],
      ['dead', queue.dead, 'redelivered', queue.redelivered],
      ['waiting calls', queue.waiting, 'succeeded', queue.succeeded],
      ['active topics', queue.activeTopics, 'failed', queue.failed],
      ['shards held', `${queue.shards.held} of ${queue.shards.of}`, 'dead-lettered', queue.deadLettered],
      ['servers', queue.servers, 'expired', queue.expired],
      ['', '', 'fired by schedules', queue.firings],
      [
        'oldest ready',
        queue.oldestReadyMs === null ? '–' : duration(queue.oldestReadyMs),
        'unknown at first',
        Object.values(queue.unknown).reduce((sum, count) => sum + count, 0),
      ],
    ],
  );
  const busiest = columns(
    ['topic', 'ready', 'delayed', 'leased', 'dead', ''],
    topics.map(({ topic, counts, paused }) => [
      safeText(topic),
      counts.ready,
      counts.delayed,
      counts.leased,
      counts.dead,
      paused ? 'paused' : '',
    ]),
  );
  const space = queue.space === null ? '' : ` (${size(queue.space.bytes)}, of it ${size(queue.space.freeBytes)} free)`;
  return [
    `Ebbmark ${version}, up ${duration(uptimeMs)}, store ${safeText(queue.store)}${space}, last scan ${scanned}`,
    now,
    topics.length === 0 ? 'No topic is active.\n' : `${busiest}\n`,
  ].join('\n\n');
}
