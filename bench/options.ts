import { parseArgs } from 'node:util';

export const SCENARIOS = ['in-process', 'http', 'million'] as const;
export type ScenarioName = (typeof SCENARIOS)[number];

export interface BenchOptions {
  /** `sqlite`, or another store's address. */
  readonly store: string;
  readonly scenarios: readonly ScenarioName[];
  readonly output: 'table' | 'json' | 'csv';
  readonly quick: boolean;
  /** Rounds that count; one more warms up. */
  readonly rounds: number;
  /** Told on stderr what is going on, so that stdout holds the figures alone. */
  readonly progress: (text: string) => void;
}

const HELP = `Usage: npm run bench -- [options]

Measures enqueue, drain (lease and ack) and enqueue-to-lease latency, with payloads of 200 bytes, beside floors taken
in turns with them in the same run, and the memory that a million queued tasks take.

Options:
  --scenario NAME  only this one; may be repeated: ${SCENARIOS.join(', ')}
  --store STORE    where the tasks go (default: sqlite, in a folder of its own that is removed afterwards)
  --quick          fewer rounds and tasks: says whether it runs, not how fast
  --rounds N       rounds that count, after one that warms up (default: 7; with --quick 3)
  --json           print JSON, to compare runs by a program
  --csv            print CSV
  --help           this text

Floors:
  insert           the same rows, written by better-sqlite3 in transactions of 200 into the same table,
                   WAL and synchronous=FULL
  empty route      a POST route on the same server that validates the same body and does nothing, loaded the same way

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
  const rounds = Number(values.rounds ?? (values.quick ? 3 : 7));
  if (!Number.isInteger(rounds) || rounds < 1 || rounds > 100) {
    throw new Error(`--rounds: "${values.rounds}" is not a whole number from 1 to 100; for example: --rounds 5`);
  }
  return {
    store: values.store,
    scenarios: (values.scenario ?? SCENARIOS).map(checkScenario),
    output: values.json ? 'json' : values.csv ? 'csv' : 'table',
    quick: values.quick,
    rounds,
    progress: showProgress,
  };
}

function checkScenario(name: string): ScenarioName {
  const known = SCENARIOS.find((scenario) => scenario === name);
  if (known === undefined) {
    throw new Error(`--scenario: "${name}" is not one of ${SCENARIOS.join(', ')}; for example: --scenario http`);
  }
  return known;
}

/** On a terminal one line that is written over; elsewhere a line each. */
function showProgress(text: string): void {
  process.stderr.write(process.stderr.isTTY ? `\r\u001b[K${text}` : `${text}\n`);
}
