import { parseArgs } from 'node:util';
import { LEASE_TASKS } from '../src/core/bounds.ts';

export type StoreKind = 'sqlite' | 'cassandra';

/** Each scenario, and the stores it measures. */
const SCENARIOS = {
  'in-process': ['sqlite'],
  http: ['sqlite', 'cassandra'],
  million: ['sqlite'],
  stalled: ['sqlite', 'cassandra'],
  delayed: ['sqlite', 'cassandra'],
  topics: ['sqlite', 'cassandra'],
  'once-used': ['sqlite'],
  noisy: ['sqlite'],
  'request-reply': ['sqlite'],
  overload: ['sqlite'],
  soak: ['sqlite'],
  'one-topic': ['cassandra'],
  'many-topics': ['cassandra'],
  creep: ['cassandra'],
  servers: ['cassandra'],
  politeness: ['cassandra'],
} as const satisfies Readonly<Record<string, readonly StoreKind[]>>;
export type ScenarioName = keyof typeof SCENARIOS;
const NAMES = Object.keys(SCENARIOS) as readonly ScenarioName[];

/** What is measured where none is named: what takes minutes at the most. */
const BY_DEFAULT: Readonly<Record<StoreKind, readonly ScenarioName[]>> = {
  sqlite: ['in-process', 'http', 'million'],
  cassandra: ['one-topic', 'many-topics'],
};
const ROUNDS: Readonly<Record<StoreKind, number>> = { sqlite: 7, cassandra: 5 };

/** What the scenario `soak` does. */
export interface SoakOptions {
  readonly seconds: number;
  /** How long a window is; a whole number of them are measured. */
  readonly windowSeconds: number;
  /** Tasks a second that are published, whatever the answers take; null: each publisher waits for its answer. */
  readonly rate: number | null;
  readonly publishers: number;
  /** Tasks that are worked on at the same time. */
  readonly workers: number;
  /** Whether the server is killed, and started again, halfway. */
  readonly disturb: boolean;
}

export interface BenchOptions {
  /** `sqlite`, `cassandra`, or the address of a cluster that is up. */
  readonly store: string;
  readonly kind: StoreKind;
  readonly scenarios: readonly ScenarioName[];
  readonly output: 'table' | 'json' | 'csv';
  readonly quick: boolean;
  /** Rounds that count; one more warms up. */
  readonly rounds: number;
  /** Tasks of the scenarios `creep` and `delayed`. */
  readonly tasks: number;
  readonly soak: SoakOptions;
  /** Told on stderr what is going on, so that stdout holds the figures alone. */
  readonly progress: (text: string) => void;
}

/** What takes longer. */
const named = (kind: StoreKind): string =>
  NAMES.filter(
    (name) => (SCENARIOS[name] as readonly StoreKind[]).includes(kind) && !BY_DEFAULT[kind].includes(name),
  ).join(', ');

const HELP = `Usage: npm run bench -- [options]

Measures enqueue, drain (lease and ack) and enqueue-to-lease latency, with payloads of 200 bytes, beside floors taken
in turns with them in the same run.

Options:
  --store STORE    where the tasks go. sqlite (the default): in a folder of its own that is removed afterwards.
                   cassandra: one node that is started for it and stopped afterwards (Docker, or Java 17 and Maven).
                   cassandra://HOST[,HOST…][:PORT][?dc=…&replication=…]: nodes that are up, in a keyspace of its own
                   that is dropped afterwards
  --scenario NAME  only this one; may be repeated.
                   on SQLite:    ${BY_DEFAULT.sqlite.join(', ')}; only where named: ${named('sqlite')}
                   on Cassandra: ${BY_DEFAULT.cassandra.join(', ')}; only where named: ${named('cassandra')}
  --tasks N        tasks of the scenarios creep and delayed (default: 1000000; with --quick 200000)
  --quick          fewer rounds and tasks: says whether it runs, not how fast
  --rounds N       rounds that count, after one that warms up (default: ${ROUNDS.sqlite}, on Cassandra ${ROUNDS.cassandra}; with --quick 3)
  --seconds N      of soak: how long is measured, after 2 s that warm up (default: 60; with --quick 10)
  --window N       of soak: seconds of a window (default: 5; with --quick 1)
  --publishers N   of soak: callers that each publish a task and wait for its result, again and again (default: 8)
  --rate N         of soak: so many tasks published a second instead, 1,000 under way at the most; times count from
                   when each was due
  --workers N      of soak: tasks that are worked on at the same time (default: 8)
  --disturb        of soak: kill -9 the server halfway, and start it again
  --json           print JSON, to compare runs by a program
  --csv            print CSV; with --scenario soak alone, a line a window as soon as it is over (see below)
  --help           this text

Floors:
  insert           the same rows, written by better-sqlite3 in transactions of 200 into the same table,
                   WAL and synchronous=FULL
  empty route      a POST route on the same server that validates the same body and does nothing, loaded the same way
  plain HTTP       the same handler behind a route of its own, in the process of the subscriber, by as many callers
  F1               the same task as a plain INSERT of one row, prepared, by 128 callers, over the same driver
  F2               the same as a conditional INSERT (IF NOT EXISTS)

Windows of soak, as CSV:
  time, second     when the window began, and how long after the first one
  rate, p50, p99   round trips from publish to result that ended in it: how many a second, and milliseconds
  errors           calls of publishers that failed, the sum of the next five. Each counts, also where the client makes
                   it again and nobody but it notices
  connection_lost, unavailable, broker_busy, timeouts, other
                   no server was reached, or the connection broke; the server had no store, was no holder, was shutting
                   down or unsure; it had too much under way; no answer in time; anything else
  pull_errors, completion_errors
                   calls of workers that failed, of whatever kind: to lease tasks, and to settle or extend them, with
                   what such a call refused
What happens while it warms up, or ends, counts nowhere. The command fails where a task is not settled in the end.

The folder is made in TMPDIR. Where another program keeps the disk busy, floor and queue wait for it alike and their
ratio flatters; in a folder that is kept in memory (TMPDIR=/dev/shm) only the processor counts.

The ratio is the median of the rounds' ratios. The command fails when a target with a floor is missed; with --quick
it does not.`;

/** @returns null where only help was asked for. */
export function readOptions(args: readonly string[]): BenchOptions | null {
  const { values } = parseArgs({
    args: [...args],
    options: {
      scenario: { type: 'string', multiple: true },
      store: { type: 'string', default: 'sqlite' },
      tasks: { type: 'string' },
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      window: { type: 'string' },
      publishers: { type: 'string' },
      rate: { type: 'string' },
      workers: { type: 'string' },
      disturb: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      csv: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(HELP);
    return null;
  }
  const kind = kindOf(values.store);
  const scenarios = (values.scenario ?? BY_DEFAULT[kind]).map((name) => checkScenario(name, kind));
  const output = values.json ? 'json' : values.csv ? 'csv' : 'table';
  if (scenarios.includes('soak')) {
    if (output === 'csv' && scenarios.length > 1) {
      throw new Error(
        `--csv: "${scenarios.join(', ')}" can't share one table, since soak has a line a window; for example: --scenario soak --csv`,
      );
    }
  } else {
    const stray = (['seconds', 'window', 'publishers', 'rate', 'workers', 'disturb'] as const).find(
      (name) => values[name] !== undefined && values[name] !== false,
    );
    if (stray !== undefined) {
      throw new Error(`--${stray}: is for soak, not for ${scenarios.join(', ')}; for example: --scenario soak --csv`);
    }
  }
  return {
    store: values.store,
    kind,
    scenarios,
    output,
    quick: values.quick,
    rounds: wholeNumber('rounds', values.rounds, values.quick ? 3 : ROUNDS[kind], 1, 100),
    tasks: wholeNumber('tasks', values.tasks, values.quick ? 200_000 : 1_000_000, 50_000, 100_000_000),
    soak: soakOptions(values),
    progress: showProgress,
  };
}

type SoakValues = Readonly<Partial<Record<'seconds' | 'window' | 'publishers' | 'rate' | 'workers', string>>> & {
  readonly quick: boolean;
  readonly disturb: boolean;
};

function soakOptions({ quick, disturb, rate, ...values }: SoakValues): SoakOptions {
  const seconds = wholeNumber('seconds', values.seconds, quick ? 10 : 60, 1, 30 * 86_400);
  const windowSeconds = wholeNumber('window', values.window, quick ? 1 : 5, 1, 3_600);
  if (seconds % windowSeconds !== 0) {
    throw new Error(
      `--window: "${windowSeconds}" does not divide the ${seconds} seconds that are measured; for example: --seconds 60 --window 5`,
    );
  }
  if (rate !== undefined && values.publishers !== undefined) {
    throw new Error(`--rate: "${rate}" goes without --publishers, who wait for answers; for example: --rate 100`);
  }
  return {
    seconds,
    windowSeconds,
    rate: rate === undefined ? null : wholeNumber('rate', rate, 100, 1, 100_000),
    publishers: wholeNumber('publishers', values.publishers, 8, 1, 1_000),
    workers: wholeNumber('workers', values.workers, 8, 1, LEASE_TASKS),
    disturb,
  };
}

function kindOf(store: string): StoreKind {
  if (store === 'sqlite') return 'sqlite';
  if (store === 'cassandra' || store.startsWith('cassandra://')) return 'cassandra';
  throw new Error(
    `--store: "${store}" is not a store that the bench knows; for example: sqlite, cassandra, cassandra://127.0.0.1:9042`,
  );
}

function checkScenario(name: string, kind: StoreKind): ScenarioName {
  const known = NAMES.find((scenario) => scenario === name);
  const fitting = NAMES.filter((scenario) => (SCENARIOS[scenario] as readonly StoreKind[]).includes(kind));
  if (known === undefined || !fitting.includes(known)) {
    throw new Error(`--scenario: "${name}" is not one of ${fitting.join(', ')}; for example: --scenario http`);
  }
  return known;
}

function wholeNumber(name: string, text: string | undefined, otherwise: number, least: number, most: number): number {
  const value = text === undefined ? otherwise : Number(text);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new Error(
    `--${name}: "${text}" is not a whole number from ${least} to ${most}; for example: --${name} ${otherwise}`,
  );
}

/** On a terminal one line that is written over; elsewhere a line each. */
function showProgress(text: string): void {
  process.stderr.write(process.stderr.isTTY ? `\r\u001b[K${text}` : `${text}\n`);
}
