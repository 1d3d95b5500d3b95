import { parseArgs } from 'node:util';

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
  --json           print JSON, to compare runs by a program
  --csv            print CSV
  --help           this text

Floors:
  insert           the same rows, written by better-sqlite3 in transactions of 200 into the same table,
                   WAL and synchronous=FULL
  empty route      a POST route on the same server that validates the same body and does nothing, loaded the same way
  F1               the same task as a plain INSERT of one row, prepared, by 128 callers, over the same driver
  F2               the same as a conditional INSERT (IF NOT EXISTS)

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
  return {
    store: values.store,
    kind,
    scenarios: (values.scenario ?? BY_DEFAULT[kind]).map((name) => checkScenario(name, kind)),
    output: values.json ? 'json' : values.csv ? 'csv' : 'table',
    quick: values.quick,
    rounds: wholeNumber('rounds', values.rounds, values.quick ? 3 : ROUNDS[kind], 1, 100),
    tasks: wholeNumber('tasks', values.tasks, values.quick ? 200_000 : 1_000_000, 50_000, 100_000_000),
    progress: showProgress,
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
