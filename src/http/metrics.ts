import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { Queue, QueueStatus } from '../queue/api.ts';

type Numbers = { [K in keyof QueueStatus]: QueueStatus[K] extends number ? K : never }[keyof QueueStatus];
type Entry = readonly [name: string, help: string, field: Numbers];

const GAUGES: readonly Entry[] = [
  ['ebbmark_topics_active', 'Topics that have work or recently settled tasks in memory.', 'activeTopics'],
  ['ebbmark_servers', 'Servers that take part on the store, as this one sees it.', 'servers'],
  ['ebbmark_tasks_ready', 'Tasks that wait for a worker.', 'ready'],
  ['ebbmark_tasks_delayed', 'Tasks that are not due yet.', 'delayed'],
  ['ebbmark_tasks_leased', 'Tasks that a worker has.', 'leased'],
  ['ebbmark_tasks_dead', 'Dead letters.', 'dead'],
  ['ebbmark_lease_calls_waiting', 'Lease calls that wait for a task.', 'waiting'],
];

const COUNTERS: readonly Entry[] = [
  ['ebbmark_tasks_enqueued_total', 'Tasks accepted.', 'enqueued'],
  ['ebbmark_tasks_deduplicated_total', 'Tasks not enqueued since their message id was known.', 'deduplicated'],
  ['ebbmark_tasks_delivered_total', 'Tasks leased, redeliveries included.', 'delivered'],
  ['ebbmark_tasks_redelivered_total', 'Tasks leased that had been leased before.', 'redelivered'],
  ['ebbmark_tasks_succeeded_total', 'Tasks acknowledged.', 'succeeded'],
  ['ebbmark_tasks_failed_total', 'Attempts that failed.', 'failed'],
  ['ebbmark_tasks_dead_lettered_total', 'Tasks that went to the dead letters.', 'deadLettered'],
  ['ebbmark_tasks_expired_total', 'Tasks that were not completed in time.', 'expired'],
  ['ebbmark_schedule_firings_total', 'Tasks that schedules have put into topics.', 'firings'],
  ['ebbmark_schedule_firings_missed_total', 'Firings of schedules that were passed over.', 'firingsMissed'],
];

/** Of an embedded store alone. */
const SPACE = [
  ['ebbmark_store_bytes', 'Size of the store file.', 'bytes'],
  ['ebbmark_store_free_bytes', 'Free space in the store file, after what was deleted.', 'freeBytes'],
  ['ebbmark_store_log_bytes', 'Size of the log beside the store file.', 'logBytes'],
] as const;

export interface Metrics {
  readonly contentType: string;
  /** All of them as they are now, in Prometheus' text format. */
  read(): Promise<string>;
}

/**
 * Prometheus metrics, read from the queue's status when they are asked for. No label per topic: there are millions.
 * @param processMetrics adds those of the process; once a process
 */
export function metricsOf(queue: Pick<Queue, 'status'>, processMetrics: boolean): Metrics {
  const registry = new Registry();
  let now = queue.status();
  for (const [name, help, field] of GAUGES) {
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(now[field]);
      },
    });
  }
  for (const [name, help, field] of COUNTERS) {
    new Counter({
      name,
      help,
      registers: [registry],
      collect() {
        this.reset();
        this.inc(now[field]);
      },
    });
  }
  new Counter({
    name: 'ebbmark_outcomes_unknown_total',
    help: 'Writes whose outcome was unknown at first: applied by a repetition, landed before it, refused, or still open.',
    labelNames: ['resolved'],
    registers: [registry],
    collect() {
      this.reset();
      for (const [resolved, count] of Object.entries(now.unknown)) this.inc({ resolved }, count);
    },
  });
  new Gauge({
    name: 'ebbmark_shards_held',
    help: 'Shards of topics that this server schedules.',
    registers: [registry],
    collect() {
      this.set(now.shards.held);
    },
  });
  new Gauge({
    name: 'ebbmark_oldest_ready_seconds',
    help: 'How long the ready task that has waited longest has waited, at the most; 0 where none is ready.',
    registers: [registry],
    collect() {
      this.set((now.oldestReadyMs ?? 0) / 1000);
    },
  });
  new Gauge({
    name: 'ebbmark_last_scan_timestamp_seconds',
    help: 'When the completion scanner last finished a pass; 0 before the first.',
    registers: [registry],
    collect() {
      this.set((now.lastScanAt ?? 0) / 1000);
    },
  });
  for (const [name, help, field] of SPACE) {
    if (now.space === null) break;
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(now.space?.[field] ?? 0);
      },
    });
  }
  if (processMetrics) collectDefaultMetrics({ register: registry });
  return {
    contentType: registry.contentType,
    read: () => {
      // One look for all of a scrape: they belong together, and each costs a walk over the topics.
      now = queue.status();
      return registry.metrics();
    },
  };
}
