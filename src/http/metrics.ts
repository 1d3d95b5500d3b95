import { Counter, collectDefaultMetrics, Gauge, Histogram, type MetricValueWithName, Registry } from 'prom-client';
import type { CallMeasures, Distribution, Queue, QueueMeasures, QueueStatus } from '../queue/api.ts';
import type { Budgets, BudgetUsage, Usage } from './budgets.ts';
import { VERSION } from './version.ts';

/** What the metrics of a scrape are read from. */
interface Look {
  readonly status: QueueStatus;
  readonly measures: QueueMeasures;
  readonly ready: boolean;
  /** null: this server has none. */
  readonly budgets: BudgetUsage | null;
  /** null: nobody counts them. */
  readonly logLinesDropped: number | null;
}

/** A value, or one for each label's value. */
type Values = number | Iterable<readonly [label: string, value: number]>;
type Simple<V> = readonly [name: string, help: string, read: (look: Look) => V, label?: string];
type Distributions = Distribution | Iterable<readonly [label: string, distribution: Distribution]>;
type Classes = readonly [name: string, help: string, read: (look: Look) => Distributions, label?: string];

const bothShares = ({ budgets }: Look, read: (usage: Usage) => number): Values =>
  budgets === null
    ? []
    : [
        ['input', read(budgets.memory.input)],
        ['rest', read(budgets.memory.rest)],
      ];

const failures = (calls: ReadonlyMap<string, CallMeasures>): Values =>
  [...calls].map(([name, { failed }]) => [name, failed] as const);
const durations = (calls: ReadonlyMap<string, CallMeasures>): Distributions =>
  [...calls].map(([name, { seconds }]) => [name, seconds] as const);

/** Nothing: it is not known. */
const GAUGES: readonly Simple<Values | undefined>[] = [
  ['ebbmark_ready', 'Whether /readyz says that this server is ready: 1 or 0.', ({ ready }) => Number(ready)],
  [
    'ebbmark_topics_active',
    'Topics that have work or recently settled tasks in memory.',
    ({ status }) => status.activeTopics,
  ],
  ['ebbmark_servers', 'Servers that take part on the store, as this one sees it.', ({ status }) => status.servers],
  ['ebbmark_shards', 'Shards of topics that the store has.', ({ status }) => status.shards.of],
  ['ebbmark_shards_held', 'Shards of topics that this server schedules.', ({ status }) => status.shards.held],
  ['ebbmark_tasks_ready', 'Tasks that wait for a worker.', ({ status }) => status.ready],
  ['ebbmark_tasks_delayed', 'Tasks that are not due yet.', ({ status }) => status.delayed],
  ['ebbmark_tasks_leased', 'Tasks that a worker has.', ({ status }) => status.leased],
  ['ebbmark_tasks_dead', 'Dead letters.', ({ status }) => status.dead],
  [
    'ebbmark_oldest_ready_seconds',
    'How long the ready task that has waited longest has waited, at the most; 0 where none is ready.',
    ({ status }) => (status.oldestReadyMs ?? 0) / 1000,
  ],
  ['ebbmark_lease_calls_waiting', 'Lease calls that wait for a task.', ({ status }) => status.waiting],
  [
    'ebbmark_last_scan_timestamp_seconds',
    'When the completion scanner last finished a pass; 0 before the first.',
    ({ status }) => (status.lastScanAt ?? 0) / 1000,
  ],
  [
    'ebbmark_scanner_late_seconds',
    'For how long the pass of the completion scanner over some log has been due; 0 where none is.',
    ({ measures }) => measures.scannerLateSeconds,
  ],
  ['ebbmark_store_bytes', 'Size of the store file, what is free in it included.', ({ status }) => status.space?.bytes],
  [
    'ebbmark_store_free_bytes',
    'Free space in the store file, after what was deleted.',
    ({ status }) => status.space?.freeBytes,
  ],
  ['ebbmark_store_log_bytes', 'Size of the log beside the store file.', ({ status }) => status.space?.logBytes],
  [
    'ebbmark_store_limit_bytes',
    'How much of the store file may be in use before new tasks are refused.',
    ({ status }) => status.space?.limitBytes ?? undefined,
  ],
  ['ebbmark_connections', 'Connections that are open.', ({ budgets }) => budgets?.connections.now],
  ['ebbmark_connections_limit', 'Connections that may be open.', ({ budgets }) => budgets?.connections.limit],
  [
    'ebbmark_tasks_in_hand',
    'Tasks that count against the budget: enqueues not answered, leases, results awaited.',
    ({ budgets }) => budgets?.tasks.now,
  ],
  ['ebbmark_tasks_in_hand_limit', 'Tasks that may count against the budget.', ({ budgets }) => budgets?.tasks.limit],
  [
    'ebbmark_memory_budget_used_bytes',
    'Memory that is taken, by share of the budget: input of publishers, and the rest.',
    (look) => bothShares(look, ({ now }) => now),
    'share',
  ],
  [
    'ebbmark_memory_budget_limit_bytes',
    'Memory that there is, by share of the budget.',
    (look) => bothShares(look, ({ limit }) => limit),
    'share',
  ],
];

const COUNTERS: readonly Simple<Values>[] = [
  [
    'ebbmark_log_lines_dropped_total',
    'Lines of the log that found no room, since nobody read what was written before.',
    ({ logLinesDropped }) => logLinesDropped ?? [],
  ],
  ['ebbmark_tasks_enqueued_total', 'Tasks accepted.', ({ status }) => status.enqueued],
  [
    'ebbmark_tasks_deduplicated_total',
    'Tasks not enqueued since their message id was known.',
    ({ status }) => status.deduplicated,
  ],
  [
    'ebbmark_tasks_refused_total',
    'Tasks that found no room in their topic, or in the store.',
    ({ status }) => status.refused,
  ],
  ['ebbmark_tasks_delivered_total', 'Tasks leased, redeliveries included.', ({ status }) => status.delivered],
  ['ebbmark_tasks_redelivered_total', 'Tasks leased that had been leased before.', ({ status }) => status.redelivered],
  ['ebbmark_tasks_succeeded_total', 'Tasks acknowledged.', ({ status }) => status.succeeded],
  ['ebbmark_tasks_failed_total', 'Attempts that failed.', ({ status }) => status.failed],
  ['ebbmark_tasks_dead_lettered_total', 'Tasks that went to the dead letters.', ({ status }) => status.deadLettered],
  ['ebbmark_tasks_expired_total', 'Tasks that were not completed in time.', ({ status }) => status.expired],
  ['ebbmark_schedule_firings_total', 'Tasks that schedules have put into topics.', ({ status }) => status.firings],
  [
    'ebbmark_schedule_firings_missed_total',
    'Firings of schedules that were passed over.',
    ({ status }) => status.firingsMissed,
  ],
  [
    'ebbmark_outcomes_unknown_total',
    'Writes whose outcome was unknown at first: applied by a repetition, landed before it, refused, or still open.',
    ({ status }) => Object.entries(status.unknown),
    'resolved',
  ],
  [
    'ebbmark_store_errors_total',
    'Calls of the store that it could not carry out, by operation.',
    ({ measures }) => failures(measures.storeCalls),
    'operation',
  ],
  [
    'ebbmark_scanner_errors_total',
    'Passes of the completion scanner that failed, and are tried again.',
    ({ measures }) => measures.scannerPasses.failed,
  ],
  [
    'ebbmark_shard_lease_renewals_total',
    'Tries of this server to renew its hold on its shards, by outcome: ok or failed. None on an embedded store.',
    ({ measures }) => {
      const { seconds, failed } = measures.storeCalls.get('write_node') ?? { seconds: { count: 0 }, failed: 0 };
      return [
        ['ok', seconds.count - failed],
        ['failed', failed],
      ];
    },
    'outcome',
  ],
  [
    'ebbmark_peer_errors_total',
    'Calls of other servers that got no answer, by call.',
    ({ measures }) => failures(measures.peerCalls),
    'call',
  ],
  [
    'ebbmark_requests_refused_total',
    'Requests that were refused to stay within the budgets, by reason.',
    ({ budgets }) => Object.entries(budgets?.refused ?? {}),
    'reason',
  ],
];

const HISTOGRAMS: readonly Classes[] = [
  [
    'ebbmark_enqueue_duration_seconds',
    'Calls that put tasks in, until these are on disk.',
    ({ measures }) => measures.enqueue,
  ],
  [
    'ebbmark_lease_duration_seconds',
    'Calls that brought tasks, from when there was something to take.',
    ({ measures }) => measures.lease,
  ],
  ['ebbmark_settle_duration_seconds', 'Calls that settle, extend or save.', ({ measures }) => measures.settle],
  ['ebbmark_task_wait_seconds', 'How long tasks were ready before they were leased.', ({ measures }) => measures.wait],
  [
    'ebbmark_task_age_at_success_seconds',
    'How old tasks were when they were acknowledged, from their enqueue on.',
    ({ measures }) => measures.ageAtSuccess,
  ],
  [
    'ebbmark_scanner_pass_duration_seconds',
    'Passes of the completion scanner over a log.',
    ({ measures }) => measures.scannerPasses.seconds,
  ],
  [
    'ebbmark_store_call_duration_seconds',
    'Calls of the store, by operation.',
    ({ measures }) => durations(measures.storeCalls),
    'operation',
  ],
  [
    'ebbmark_store_batch_rows',
    'Rows that went into one write of the store, by operation: how many calls share one.',
    ({ measures }) => measures.batches,
    'operation',
  ],
  [
    'ebbmark_peer_call_duration_seconds',
    'Calls of other servers on the same store, by call; `wait` waits for tasks.',
    ({ measures }) => durations(measures.peerCalls),
    'call',
  ],
];

/** A long poll takes up to a minute. */
const REQUEST_SECONDS = [0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
/** How long a scrape waits to hear whether the server is ready: one that takes longer is not. */
const READY_MS = 2_000;

export interface Metrics {
  readonly contentType: string;
  /**
   * A request was answered.
   * @param route the template of its route, of which there is a fixed number; never its address
   * @param seconds from its arrival to the end of its answer
   */
  answered(method: string, route: string, status: number, seconds: number): void;
  /** All of them as they are now, in Prometheus' text format. */
  read(): Promise<string>;
}

export interface MetricsOptions {
  /** Adds those of the process; once a process. */
  readonly processMetrics?: boolean;
  readonly budgets?: Pick<Budgets, 'usage'> | undefined;
  /** How many lines of the log have found no room. */
  readonly logLinesDropped?: (() => number) | undefined;
}

/**
 * Prometheus metrics, read from what the queue counts when they are asked for. No label per topic: there are millions;
 * labels are names that stand in the code, or of routes.
 */
export function metricsOf(
  queue: Pick<Queue, 'status' | 'busiest' | 'measures' | 'readiness'>,
  { processMetrics = false, budgets, logLinesDropped }: MetricsOptions = {},
): Metrics {
  const registry = new Registry();
  const look = async (): Promise<Look> => ({
    status: queue.status(),
    measures: queue.measures(),
    ready: await withinMs(
      READY_MS,
      queue.readiness().then(({ ready }) => ready),
    ),
    budgets: budgets?.usage() ?? null,
    logLinesDropped: logLinesDropped?.() ?? null,
  });
  let now: Look;
  const registers = [registry];
  for (const [name, help, read, label] of GAUGES) {
    const gauge = new Gauge({
      name,
      help,
      labelNames: label === undefined ? [] : [label],
      registers,
      collect: () => {
        const values = read(now);
        gauge.reset();
        // Else it would be 0, and not unknown.
        if (values === undefined) gauge.remove();
        else each(values, label, (labels, value) => gauge.set(labels, value));
      },
    });
  }
  for (const [name, help, read, label] of COUNTERS) {
    const counter = new Counter({
      name,
      help,
      labelNames: label === undefined ? [] : [label],
      registers,
      collect: () => {
        counter.reset();
        each(read(now), label, (labels, value) => counter.inc(labels, value));
      },
    });
  }
  for (const [name, help, read, label] of HISTOGRAMS) new Counted(name, help, label, () => read(now), registry);
  new Gauge({
    name: 'ebbmark_build_info',
    help: 'Always 1; its label is the version.',
    labelNames: ['version'],
    registers,
  })
    .labels(VERSION)
    .set(1);
  const requests = new Histogram({
    name: 'ebbmark_http_request_duration_seconds',
    help: 'Requests, by method, template of their route (`none`: there is no such address) and class of their status.',
    labelNames: ['method', 'route', 'status'],
    buckets: REQUEST_SECONDS,
    registers,
  });
  // To find the series by its labels each time would take as long as all the rest.
  const answered = new Map<string, { observe(seconds: number): void }>();
  if (processMetrics) collectDefaultMetrics({ register: registry });
  return {
    contentType: registry.contentType,
    answered: (method, route, status, seconds) => {
      const labels = [method, route, `${Math.floor(status / 100)}xx`];
      const key = labels.join(' ');
      let series = answered.get(key);
      if (series === undefined) {
        series = requests.labels(...labels);
        answered.set(key, series);
      }
      series.observe(seconds);
    },
    read: async () => {
      // How long the oldest task has waited is known by a look at all topics. All else is there without the store, too.
      await queue.busiest().catch(() => []);
      // One look for all of a scrape: they belong together.
      now = await look();
      return registry.metrics();
    },
  };
}

function each(values: Values, label: string | undefined, tell: (labels: object, value: number) => void): void {
  if (typeof values === 'number') tell({}, values);
  else for (const [of, value] of values) tell({ [label!]: of }, value);
}

/** A histogram whose classes are counted elsewhere. */
class Counted extends Histogram {
  readonly #name: string;
  readonly #help: string;
  readonly #label: string | undefined;
  readonly #read: () => Distributions;

  constructor(name: string, help: string, label: string | undefined, read: () => Distributions, registry: Registry) {
    super({ name, help, labelNames: label === undefined ? [] : [label], registers: [registry] });
    this.#name = name;
    this.#help = help;
    this.#label = label;
    this.#read = read;
  }

  /** What the registry, and `get`, take a histogram's values from. */
  async getForPromString() {
    const read = this.#read();
    const all = 'counts' in read ? [['', read] as const] : [...read];
    return {
      name: this.#name,
      help: this.#help,
      type: 'histogram',
      aggregator: 'sum',
      values: all.flatMap(([of, distribution]) => this.#values(of, distribution)),
    };
  }

  #values(of: string, { bounds, counts, sum, count }: Distribution): MetricValueWithName<string>[] {
    const labels: Record<string, string | number> = this.#label === undefined ? {} : { [this.#label]: of };
    let below = 0;
    const classes = counts.map((some, at) => {
      below += some;
      return { metricName: `${this.#name}_bucket`, labels: { ...labels, le: bounds[at] ?? '+Inf' }, value: below };
    });
    return [
      ...classes,
      { metricName: `${this.#name}_sum`, labels, value: sum },
      { metricName: `${this.#name}_count`, labels, value: count },
    ];
  }
}

/** Whether a promise came true in time; a rejection is no. */
async function withinMs(ms: number, promise: Promise<boolean>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  return Promise.race([promise.catch(() => false), late]).finally(() => clearTimeout(timer));
}
