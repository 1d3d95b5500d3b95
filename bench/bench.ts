/** `npm run bench`: see options.ts for what it takes, scenarios/ for what it measures. */
import { cpus, loadavg, totalmem } from 'node:os';
import { type CassandraPlace, openCassandra } from './cassandra.ts';
import { type BenchOptions, readOptions, type ScenarioName } from './options.ts';
import type { Place } from './place.ts';
import { creep } from './scenarios/creep.ts';
import { delayed } from './scenarios/delayed.ts';
import { http } from './scenarios/http.ts';
import { inProcess } from './scenarios/in-process.ts';
import { manyTopics } from './scenarios/many-topics.ts';
import { million } from './scenarios/million.ts';
import { noisy } from './scenarios/noisy.ts';
import { onceUsed } from './scenarios/once-used.ts';
import { oneTopic } from './scenarios/one-topic.ts';
import { overload } from './scenarios/overload.ts';
import { politeness } from './scenarios/politeness.ts';
import { requestReply } from './scenarios/request-reply.ts';
import { servers } from './scenarios/servers.ts';
import { soak } from './scenarios/soak.ts';
import { stalled } from './scenarios/stalled.ts';
import { topics } from './scenarios/topics.ts';
import { topicsOfServers } from './scenarios/topics-of-servers.ts';
import { openSqlite, type SqlitePlace } from './sqlite.ts';
import { asCsv, asJson, asTable, type Row } from './table.ts';

type Scenario<P extends Place> = (place: P, options: BenchOptions) => Promise<readonly Row[]>;

const ON_SQLITE: Readonly<Partial<Record<ScenarioName, Scenario<SqlitePlace>>>> = {
  'in-process': inProcess,
  http,
  million,
  stalled,
  delayed,
  topics,
  'once-used': onceUsed,
  noisy,
  'request-reply': requestReply,
  overload,
  soak,
};
const ON_CASSANDRA: Readonly<Partial<Record<ScenarioName, Scenario<CassandraPlace>>>> = {
  http,
  'one-topic': oneTopic,
  'many-topics': manyTopics,
  creep,
  stalled,
  delayed,
  servers,
  topics: topicsOfServers,
  politeness,
};

async function measure<P extends Place>(
  place: P,
  scenarios: Readonly<Partial<Record<ScenarioName, Scenario<P>>>>,
  options: BenchOptions,
): Promise<readonly Row[]> {
  // What was begun is removed also where somebody loses patience.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void place.clear().finally(() => process.exit(1)));
  }
  const rows: Row[] = [];
  try {
    for (const name of options.scenarios) rows.push(...(await scenarios[name]!(place, options)));
  } finally {
    await place.clear();
  }
  return rows;
}

const load = (): string => loadavg()[0]!.toFixed(1);

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2));
  if (options === null) return;
  const loadBefore = load();
  const rows =
    options.kind === 'sqlite'
      ? await measure(openSqlite(), ON_SQLITE, options)
      : await measure(await openCassandra(options.store, options.progress), ON_CASSANDRA, options);
  const about = {
    node: process.version,
    cpus: cpus().length,
    cpu: cpus()[0]?.model ?? 'unknown',
    memoryMb: Math.round(totalmem() / 1024 / 1024),
    load: `${loadBefore} to ${load()}`,
    store: options.kind,
    rounds: options.rounds,
    quick: options.quick,
  };
  options.progress('');
  if (options.output === 'json') console.log(asJson(rows, about));
  else if (options.output === 'csv') {
    // Of soak the windows are there already.
    if (!options.scenarios.includes('soak')) console.log(asCsv(rows));
  } else {
    const machine = `Node ${about.node}, ${about.cpus} × ${about.cpu}, load ${about.load}`;
    console.log(`${asTable(rows)}\n\n${machine}, ${about.rounds} rounds`);
  }
  if (!options.quick && rows.some((row) => row.reached === false)) process.exitCode = 1;
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
