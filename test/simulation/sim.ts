#!/usr/bin/env node
/**
 * Runs the simulator. One seed is one simulation: the same seed does the same things in the same order, wherever and
 * however often it runs.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ERAS, type Era, PROFILES, type Profile } from './scenario.ts';
import { simulate } from './simulation.ts';
import { Summary, type SummaryNumbers } from './summary.ts';

const HELP = `Simulates servers, producers, workers and operators on a virtual clock, and checks the promises Q1 to Q9.

  npm run sim -- --seeds 2000             that many seeds, from 1 on
  npm run sim -- --seeds 500 --from 7000  the same, from 7000 on
  npm run sim -- --seed 42                one seed
  npm run sim -- --seed 42 --trace        one seed, with a line for everything that happens in it

  --profile NAME   only one kind of trouble: ${PROFILES.join(', ')}
  --era NAME       what seeds are drawn as, of those that are kept: ${ERAS.join(', ')} (now)
  --seconds N      stop after so many seconds of real time
  --jobs N         processes that share the seeds; as many as there are processors when absent
  --keep-going     don't stop at the first seed that breaks a promise
  --json           the summary as JSON, with what was broken by which seed

Ends with 1 where a promise was broken; the seed and what broke it are printed.`;

const { values: opt } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1000' },
    from: { type: 'string', default: '1' },
    seed: { type: 'string' },
    profile: { type: 'string' },
    /** Of seeds that are kept since they found something: as what they are drawn. */
    era: { type: 'string', default: 'now' },
    seconds: { type: 'string', default: '3600' },
    jobs: { type: 'string', default: String(availableParallelism()) },
    /** From one seed to the next: each process has a part of them. */
    step: { type: 'string', default: '1' },
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

function oneOf<T extends string>(name: string, text: string, all: readonly T[]): T {
  const found = all.find((one) => one === text);
  if (found === undefined) throw new Error(`--${name} ${text} is not one of ${all.join(', ')}`);
  return found;
}

async function main(): Promise<number> {
  // Thousands of errors are made in a seed, and few are looked at: with --trace they tell where they come from.
  if (!opt.trace) Error.stackTraceLimit = 0;
  if (opt.help) {
    console.log(HELP);
    return 0;
  }
  const profile = opt.profile === undefined ? undefined : oneOf('profile', opt.profile, PROFILES);
  const era = oneOf('era', opt.era, ERAS);
  const first = whole('seed', opt.seed ?? opt.from);
  const count = opt.seed === undefined ? whole('seeds', opt.seeds) : 1;
  const jobs = Math.min(whole('jobs', opt.jobs), count);
  const seconds = whole('seconds', opt.seconds);
  const summary =
    jobs > 1 ? await together(jobs, first, count, seconds) : await alone(first, count, seconds, era, profile);
  console.log(opt.json ? JSON.stringify(summary.numbers()) : summary.text());
  return summary.failed === 0 ? 0 : 1;
}

async function alone(
  first: number,
  count: number,
  seconds: number,
  era: Era,
  profile: Profile | undefined,
): Promise<Summary> {
  const end = performance.now() + seconds * 1_000;
  const step = whole('step', opt.step);
  const trace = opt.trace ? { trace: (line: string) => console.log(line) } : {};
  const summary = new Summary();
  for (let seed = first; seed < first + count && performance.now() < end; seed += step) {
    const report = await simulate(seed, { era, ...(profile === undefined ? {} : { profile }), ...trace });
    summary.add(report);
    if (report.violations.length === 0) continue;
    console.error(`seed ${seed} (${report.scenario.profile}) breaks what is promised:`);
    for (const violation of report.violations.slice(0, 10)) console.error(`  ${violation}`);
    if (!opt['keep-going']) break;
  }
  return summary;
}

/** Several processes, of which each takes every so manieth seed; where one finds something, the others end too. */
async function together(jobs: number, first: number, count: number, seconds: number): Promise<Summary> {
  const summary = new Summary();
  const children: ChildProcess[] = [];
  await Promise.all(
    Array.from({ length: jobs }, async (_, nth) => {
      const own = ['--from', String(first + nth), '--seeds', String(count - nth), '--seconds', String(seconds)];
      const shared = ['--step', String(jobs), '--jobs', '1', '--json', '--era', opt.era];
      const profile = opt.profile === undefined ? [] : ['--profile', opt.profile];
      const goOn = opt['keep-going'] ? ['--keep-going'] : [];
      const args = [...process.execArgv, fileURLToPath(import.meta.url), ...own, ...shared, ...profile, ...goOn];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      children.push(child);
      const out = (await child.stdout!.toArray()).join('');
      if (out === '') return;
      const numbers = JSON.parse(out) as SummaryNumbers;
      summary.merge(numbers);
      if (numbers.failed > 0 && !opt['keep-going']) for (const other of children) other.kill();
    }),
  );
  return summary;
}

process.exitCode = await main().catch((error: Error) => {
  console.error(error.message);
  return 2;
});
