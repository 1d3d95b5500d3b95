#!/usr/bin/env node
/** Applies each mutant to a copy of the tree, and looks whether the simulator catches it. */
import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from 'esbuild';
import { apply, misfits } from './apply.ts';
import { MUTANTS, type Mutant } from './mutants.ts';

const HELP = `Applies small wrong changes to copies of the code, one each, and runs the simulator until it catches them.

  npm run sim:mutants                        all of them
  npm run sim:mutants -- --only NAME,NAME    these
  npm run sim:mutants -- --seeds N           with so many seeds each, whatever the mutant says
  npm run sim:mutants -- --list              what there is

  --at-once N   so many at the same time (2)
  --seconds N   none takes longer than so many seconds of real time (240)
  --verbose     all that was broken, not only by which rules

Ends with 1 where one was not caught, with 2 where one cannot be applied.`;

const ROOT = resolve(import.meta.dirname, '../../..');
/** What a copy is made of. */
const COPIED = ['src', 'test/simulation', 'package.json', 'tsconfig.json'];

const { values: opt } = parseArgs({
  options: {
    only: { type: 'string' },
    seeds: { type: 'string' },
    seconds: { type: 'string', default: '240' },
    'at-once': { type: 'string', default: '2' },
    list: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

interface Broken {
  readonly seed: number;
  readonly profile: string;
  readonly violations: readonly string[];
}

interface Verdict {
  readonly mutant: Mutant;
  readonly seeds: number;
  readonly seconds: number;
  /** null: it survived. */
  readonly caught: Broken | null;
  /** Why nothing can be said. */
  readonly failure: string | null;
}

/** Runs something to its end, or to the end of its time. */
function run(
  command: string,
  args: readonly string[],
  cwd: string,
  seconds: number,
): Promise<{ readonly code: number | null; readonly out: string; readonly err: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    const end = setTimeout(() => child.kill('SIGKILL'), seconds * 1_000);
    let out = '';
    let err = '';
    child.stdout.on('data', (text: Buffer) => {
      out += text.toString();
    });
    child.stderr.on('data', (text: Buffer) => {
      err += text.toString();
    });
    child.on('error', reject);
    child.on('close', (code) => {
      clearTimeout(end);
      resolve({ code, out, err });
    });
  });
}

async function judge(mutant: Mutant, seconds: number): Promise<Verdict> {
  const began = performance.now();
  const seeds = opt.seeds === undefined ? mutant.seeds : whole('seeds', opt.seeds);
  const scratch = mkdtempSync(join(tmpdir(), 'ebbmark-mutant-'));
  try {
    for (const path of COPIED) cpSync(join(ROOT, path), join(scratch, path), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules'), join(scratch, 'node_modules'));
    apply(scratch, mutant);
    const profile = mutant.profile === undefined ? [] : ['--profile', mutant.profile];
    const era = mutant.era === undefined ? [] : ['--era', mutant.era];
    const program = join(scratch, 'sim.mjs');
    await build({
      entryPoints: [join(scratch, 'test/simulation/sim.ts')],
      outfile: program,
      bundle: true,
      platform: 'node',
      format: 'esm',
      packages: 'external',
      logLevel: 'warning',
    });
    const args = [program, '--json', '--jobs', '1', '--seeds', String(seeds), ...profile, ...era];
    const { code, out, err } = await run(process.execPath, args, scratch, seconds);
    const caught = code === 1 ? ((JSON.parse(out) as { broken: readonly Broken[] }).broken[0] ?? null) : null;
    const failure =
      code === 0 || code === 1 ? null : code === null ? `not over after ${seconds} s` : `ended with ${code}: ${err}`;
    return { mutant, seeds, seconds: (performance.now() - began) / 1_000, caught, failure };
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

/** The rules that were broken: what stands before the colon. */
const rulesOf = ({ violations }: Broken): string =>
  [...new Set(violations.map((text) => /^[\w ]+(?=:)/.exec(text)?.[0] ?? 'trouble'))].sort().join(', ');

function row({ mutant, seeds, seconds, caught, failure }: Verdict): string {
  const where = caught === null ? '–' : `${caught.seed} (${caught.profile})`;
  const by = caught === null ? (failure ?? 'SURVIVED') : rulesOf(caught);
  return `${mutant.name.padEnd(28)}${where.padEnd(20)}${String(seeds).padStart(6)}${seconds.toFixed(1).padStart(7)} s  ${by}`;
}

function whole(name: string, text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text))
    throw new Error(`--${name} ${text} is not a whole number; for example: --${name} 2`);
  return Number(text);
}

function chosen(): readonly Mutant[] {
  if (opt.only === undefined) return MUTANTS;
  return opt.only.split(',').map((name) => {
    const mutant = MUTANTS.find((one) => one.name === name);
    if (mutant === undefined) throw new Error(`there is no mutant ${name}; --list tells which there are`);
    return mutant;
  });
}

async function main(): Promise<number> {
  if (opt.help) {
    console.log(HELP);
    return 0;
  }
  const mutants = chosen();
  if (opt.list) {
    for (const { name, note } of mutants) console.log(`${name.padEnd(28)}${note}`);
    return 0;
  }
  const faults = misfits(ROOT, mutants);
  if (faults.length > 0) throw new Error([...faults, 'test/simulation/mutants/README.md says what to do'].join('\n'));
  const seconds = whole('seconds', opt.seconds);
  const began = performance.now();
  console.log(`${'mutant'.padEnd(28)}${'caught at seed'.padEnd(20)}${'within'.padStart(6)}${'took'.padStart(9)}  by`);
  const waiting = [...mutants];
  let survivors = 0;
  const work = async (): Promise<void> => {
    for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
      const verdict = await judge(mutant, seconds);
      if (verdict.caught === null) survivors++;
      console.log(row(verdict));
      if (opt.verbose) for (const text of verdict.caught?.violations ?? []) console.log(`    ${text}`);
    }
  };
  await Promise.all(Array.from({ length: whole('at-once', opt['at-once']) }, work));
  const took = ((performance.now() - began) / 1_000).toFixed(0);
  console.log(`${mutants.length - survivors} of ${mutants.length} caught in ${took} s`);
  return survivors === 0 ? 0 : 1;
}

process.exitCode = await main().catch((error: Error) => {
  console.error(error.message);
  return 2;
});
