#!/usr/bin/env node
/** Explores the protocol as production code decides on it, or with one of its decisions changed. */
import { parseArgs } from 'node:util';
import { PRODUCTION, VARIANTS } from './decisions.ts';
import { explore } from './explore.ts';
import { SCENARIOS } from './scenarios.ts';

const HELP = `Explores every interleaving of what producers, servers and workers do to a log, with lost answers, late
writes, and processes that stop anywhere, by the decisions of production code (src/core).

  npm run model                               all scenarios
  npm run model -- --scenario terms           one: ${Object.keys(SCENARIOS).join(', ')}
  npm run model -- --variants                 each wrong decision, which has to be found out
  npm run model -- --variant closes-open      one, with the steps that lead to what it breaks

  --doubts N   answers that get lost (1)
  --turns N    turns of a server (4)
  --works N    turns of a worker (2)
  --cap N      states of a scenario at the most (1000000)
  --finish N   from every Nth state of the tables it is tried whether a server alone can finish (50; 0: never)

Ends with 1 where something was broken, or a wrong decision was not found out.`;

const { values: opt } = parseArgs({
  options: {
    scenario: { type: 'string' },
    variant: { type: 'string' },
    variants: { type: 'boolean', default: false },
    doubts: { type: 'string', default: '1' },
    turns: { type: 'string', default: '4' },
    works: { type: 'string', default: '2' },
    cap: { type: 'string', default: '1000000' },
    finish: { type: 'string', default: '50' },
    help: { type: 'boolean', default: false },
  },
});

function whole(name: 'doubts' | 'turns' | 'works' | 'cap' | 'finish'): number {
  const text = opt[name];
  if (!/^\d{1,9}$/.test(text)) throw new Error(`--${name} ${text} is not a whole number; for example: --${name} 2`);
  return Number(text);
}

function scenarioOf(name: string) {
  const make = SCENARIOS[name];
  if (make === undefined) throw new Error(`--scenario ${name} is not one of ${Object.keys(SCENARIOS).join(', ')}`);
  return make({ doubts: whole('doubts'), turns: whole('turns'), works: whole('works') });
}

function one(name: string, variant: string | null, withPath: boolean): boolean {
  const began = performance.now();
  const by = variant === null ? PRODUCTION : { ...PRODUCTION, ...VARIANTS[variant]!.wrong };
  const shown = process.stderr.isTTY;
  const { states, depth, complete, finished, violation, path } = explore(scenarioOf(name), {
    by,
    cap: whole('cap'),
    finishEvery: whole('finish'),
    ...(shown
      ? {
          progress: (all, waiting, at) =>
            process.stderr.write(`\r${name}: ${all} states, ${waiting} waiting, depth ${at}   `),
        }
      : {}),
  });
  if (shown) process.stderr.write('\r');
  const seconds = ((performance.now() - began) / 1_000).toFixed(1);
  const outcome = violation ?? (complete ? 'all explored, nothing broken' : 'nothing broken up to the cap');
  console.log(
    `${(variant ?? name).padEnd(24)}${name.padEnd(10)}${String(states).padStart(9)} states  depth ${String(depth).padStart(3)}  ${String(finished).padStart(6)} finished${seconds.padStart(7)} s  ${outcome}`,
  );
  if (withPath) for (const step of path) console.log(`    ${step}`);
  return violation !== null;
}

function main(): number {
  if (opt.help) {
    console.log(HELP);
    return 0;
  }
  if (opt.variant !== undefined) {
    const variant = VARIANTS[opt.variant];
    if (variant === undefined)
      throw new Error(`--variant ${opt.variant} is not one of ${Object.keys(VARIANTS).join(', ')}`);
    return one(opt.scenario ?? variant.scenario, opt.variant, true) ? 0 : 1;
  }
  if (opt.variants) {
    const missed = Object.entries(VARIANTS).filter(([name, { scenario }]) => !one(scenario, name, false));
    console.log(
      `${Object.keys(VARIANTS).length - missed.length} of ${Object.keys(VARIANTS).length} wrong decisions found out`,
    );
    return missed.length === 0 ? 0 : 1;
  }
  const names = opt.scenario === undefined ? Object.keys(SCENARIOS) : [opt.scenario];
  return names.filter((name) => one(name, null, true)).length === 0 ? 0 : 1;
}

try {
  process.exitCode = main();
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 2;
}
