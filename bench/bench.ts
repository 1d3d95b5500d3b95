/** `npm run bench`: see options.ts for what it takes, scenarios/ for what it measures. */
import { cpus, totalmem } from 'node:os';
import { readOptions, type ScenarioName } from './options.ts';
import { openPlace } from './place.ts';
import { http } from './scenarios/http.ts';
import { inProcess } from './scenarios/in-process.ts';
import { million } from './scenarios/million.ts';
import { asCsv, asJson, asTable, type Row } from './table.ts';

const SCENARIOS: Readonly<Record<ScenarioName, typeof inProcess>> = { 'in-process': inProcess, http, million };

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2));
  if (options === null) return;
  const place = openPlace(options.store);
  // What was begun is removed also where somebody loses patience.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      place.clear();
      process.exit(1);
    });
  }
  const rows: Row[] = [];
  try {
    for (const name of options.scenarios) rows.push(...(await SCENARIOS[name](place, options)));
  } finally {
    place.clear();
  }
  const about = {
    node: process.version,
    cpus: cpus().length,
    cpu: cpus()[0]?.model ?? 'unknown',
    memoryMb: Math.round(totalmem() / 1024 / 1024),
    store: options.store,
    rounds: options.rounds,
    quick: options.quick,
  };
  options.progress('');
  if (options.output === 'json') console.log(asJson(rows, about));
  else if (options.output === 'csv') console.log(asCsv(rows));
  else console.log(`${asTable(rows)}\n\nNode ${about.node}, ${about.cpus} × ${about.cpu}, ${about.rounds} rounds`);
  if (!options.quick && rows.some((row) => row.reached === false)) process.exitCode = 1;
}

main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});
