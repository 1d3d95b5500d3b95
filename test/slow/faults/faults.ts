/**
 * Faults on real processes, with clients that record their history: `npm run faults -- --help` tells more. Ends with the
 * table of docs/reliability.md, and with 1 where a promise was not kept.
 */
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { jarsFault } from '../../support/cassandra/jars.ts';
import { CASSANDRA_SCENARIOS, type CassandraScenario, Rig, setupOf } from './support/cassandra-scenarios.ts';
import { asTable, faultsIn } from './support/report.ts';
import type { Measure, Result, Scenario } from './support/scenario.ts';
import { SQLITE_SCENARIOS } from './support/sqlite-scenarios.ts';

const SHORT: Measure = { tasksPerSecond: 60, tasksPerPhase: 200, pauseMs: 20_000, kills: 3 };
const LONG: Measure = { tasksPerSecond: 60, tasksPerPhase: 600, pauseMs: 40_000, kills: 20 };
const LIMIT_S = { short: 1_800, long: 7_200 } as const;

const listOf = (scenarios: readonly Scenario[]): string =>
  scenarios.map(({ name, about }) => `  ${name.padEnd(24)} ${about}`).join('\n');

const HELP = `Usage: npm run faults -- [options]

Runs servers, workers and the database as processes, loads them from clients that write down what they send and are told,
lets something go wrong, and checks what the clients saw: nothing lost, no phantom, nothing settled twice, and no error but
those after which the API says to try again. Without options, a short round of all.

  --short, --long    a round of minutes (the default), or of one to two hours: 20 kills, pauses of 40 s
  --store NAME       sqlite or cassandra; both when absent
  --only NAME        one of the names below; several with commas
  --rate N           tasks put in per second
  --phase N          tasks acknowledged before, during and after each fault
  --pause S          how long a node or a server is paused, in seconds
  --kills N          how often a server or a worker is killed
  --limit S          begin nothing more after so many seconds (${LIMIT_S.short}, or ${LIMIT_S.long} with --long)
  --json             print JSON instead of a table

On SQLite:
${listOf(SQLITE_SCENARIOS)}

On Cassandra (Java 17 and Maven; up to three nodes of 512 MB):
${listOf(CASSANDRA_SCENARIOS)}
`;

const { values } = parseArgs({
  options: {
    short: { type: 'boolean', default: false },
    long: { type: 'boolean', default: false },
    store: { type: 'string' },
    only: { type: 'string' },
    rate: { type: 'string' },
    phase: { type: 'string' },
    pause: { type: 'string' },
    kills: { type: 'string' },
    limit: { type: 'string' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function refuse(text: string): never {
  console.error(text);
  process.exit(2);
}

function positive(name: 'rate' | 'phase' | 'pause' | 'kills' | 'limit', otherwise: number): number {
  if (values[name] === undefined) return otherwise;
  const value = Number(values[name]);
  if (Number.isFinite(value) && value > 0) return value;
  return refuse(`--${name}: ${JSON.stringify(values[name])} is not a positive number; for example: 60`);
}

function measureOf(): Measure {
  const base = values.long ? LONG : SHORT;
  return {
    tasksPerSecond: positive('rate', base.tasksPerSecond),
    tasksPerPhase: positive('phase', base.tasksPerPhase),
    pauseMs: positive('pause', base.pauseMs / 1_000) * 1_000,
    kills: positive('kills', base.kills),
  };
}

/** Whether a scenario was asked for. */
function wanted(store: 'sqlite' | 'cassandra'): (scenario: Scenario) => boolean {
  const { only } = values;
  if (values.store !== undefined && !['sqlite', 'cassandra'].includes(values.store))
    refuse(`--store: ${JSON.stringify(values.store)} is neither sqlite nor cassandra`);
  const names = only?.split(',');
  const known = [...SQLITE_SCENARIOS, ...CASSANDRA_SCENARIOS].map(({ name }) => name);
  const unknown = names?.find((name) => !known.includes(name));
  if (unknown !== undefined) refuse(`--only: ${JSON.stringify(unknown)} is none of ${known.join(', ')}`);
  return ({ name }) => (values.store ?? store) === store && (names?.includes(name) ?? true);
}

interface Outcome {
  readonly results: Result[];
  /** Scenarios that did not come to an end, and why. */
  readonly failures: string[];
}

async function attempt(outcome: Outcome, { about }: Scenario, run: () => Promise<Result>): Promise<void> {
  try {
    const result = await run();
    outcome.results.push(result);
    console.error(JSON.stringify(result));
  } catch (error) {
    const failure = `${about}: ${(error as Error).message}`;
    outcome.failures.push(failure);
    console.error(failure);
  }
}

/** Scenarios that need the same nodes and servers, one after the other on the same. */
function bySetup(scenarios: readonly CassandraScenario[]): readonly (readonly CassandraScenario[])[] {
  const groups = new Map<string, CassandraScenario[]>();
  for (const scenario of scenarios) {
    const setup = setupOf(scenario);
    groups.set(setup, [...(groups.get(setup) ?? []), scenario]);
  }
  return [...groups.values()];
}

async function runAll(measure: Measure): Promise<Outcome> {
  const outcome: Outcome = { results: [], failures: [] };
  const deadline = performance.now() + positive('limit', values.long ? LIMIT_S.long : LIMIT_S.short) * 1_000;
  const isTime = (): boolean => performance.now() < deadline;
  for (const scenario of SQLITE_SCENARIOS.filter(wanted('sqlite'))) {
    if (isTime()) await attempt(outcome, scenario, () => scenario.run(measure));
  }
  const onCassandra = CASSANDRA_SCENARIOS.filter(wanted('cassandra'));
  const fault = onCassandra.length === 0 ? null : await jarsFault();
  if (fault !== null) console.error(`Nodes are started from Maven's jars, with Java 17 and Maven: ${fault}. Left out.`);
  for (const group of fault === null ? bySetup(onCassandra) : []) {
    if (!isTime()) break;
    const rig = await Rig.start(group[0]!);
    try {
      for (const scenario of group) if (isTime()) await attempt(outcome, scenario, () => scenario.run(rig, measure));
    } finally {
      await rig.stop();
    }
  }
  return outcome;
}

if (values.help) {
  console.log(HELP);
} else {
  const { results, failures } = await runAll(measureOf());
  console.log(values.json ? JSON.stringify(results, null, 2) : `${cpus().length} cores\n\n${asTable(results)}`);
  const bad = [...failures, ...faultsIn(results)];
  for (const one of bad) console.error(`NOT KEPT: ${one}`);
  process.exit(bad.length > 0 || results.length === 0 ? 1 : 0);
}
