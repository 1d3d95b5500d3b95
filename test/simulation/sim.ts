#!/usr/bin/env node
/**
 * Runs the simulator. One seed is one simulation: the same seed does the same things in the same order, wherever and
 * however often it runs.
 */
import { parseArgs } from 'node:util';
import { PROFILES, type Profile } from './scenario.ts';
import { simulate } from './simulation.ts';
import { Summary } from './summary.ts';

const HELP = `Simulates servers, producers, workers and operators on a virtual clock, and checks the promises Q1 to Q9.

  npm run sim -- --seeds 2000             that many seeds, from 1 on
  npm run sim -- --seeds 500 --from 7000  the same, from 7000 on
  npm run sim -- --seed 42                one seed
  npm run sim -- --seed 42 --trace        one seed, with a line for everything that happens in it

  --profile NAME   only one kind of trouble: ${PROFILES.join(', ')}
  --seconds N      stop after so many seconds of real time
  --keep-going     don't stop at the first seed that breaks a promise
  --json           the summary as JSON

Ends with 1 where a promise was broken; the seed and what broke it are printed.`;

const { values: opt } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1000' },
    from: { type: 'string', default: '1' },
    seed: { type: 'string' },
    profile: { type: 'string' },
    seconds: { type: 'string', default: '3600' },
    trace: { type: 'boolean', default: false },
    'keep-going': { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function whole(name: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new Error(`--${name} ${text} is not a whole number; for example: --${name} 42`);
  return Number(text);
}

function profileOf(text: string | undefined): Profile | undefined {
  if (text === undefined || (PROFILES as readonly string[]).includes(text)) return text as Profile | undefined;
  throw new Error(`--profile ${text} is not one of ${PROFILES.join(', ')}`);
}

async function main(): Promise<number> {
  if (opt.help) {
    console.log(HELP);
    return 0;
  }
  const profile = profileOf(opt.profile);
  const first = whole('seed', opt.seed ?? opt.from);
  const count = opt.seed === undefined ? whole('seeds', opt.seeds) : 1;
  const end = performance.now() + whole('seconds', opt.seconds) * 1_000;
  const trace = opt.trace ? { trace: (line: string) => console.log(line) } : {};
  const summary = new Summary();
  for (let seed = first; seed < first + count && performance.now() < end; seed++) {
    const report = await simulate(seed, { ...(profile === undefined ? {} : { profile }), ...trace });
    summary.add(report);
    if (report.violations.length === 0) continue;
    console.error(`seed ${seed} (${report.scenario.profile}) breaks what is promised:`);
    for (const violation of report.violations.slice(0, 10)) console.error(`  ${violation}`);
    if (!opt['keep-going']) break;
  }
  console.log(opt.json ? JSON.stringify(summary.numbers()) : summary.text());
  return summary.failed === 0 ? 0 : 1;
}

process.exitCode = await main().catch((error: Error) => {
  console.error(error.message);
  return 2;
});
