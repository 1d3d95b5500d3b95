import { parseArgs } from 'node:util';
import { PROFILES, type Profile } from './scenario.ts';
import { type Report, simulate } from './simulation.ts';

const { values: opt } = parseArgs({
  options: {
    seeds: { type: 'string', default: '200' },
    from: { type: 'string', default: '1' },
    seed: { type: 'string' },
    profile: { type: 'string' },
    trace: { type: 'boolean', default: false },
    stop: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (opt.help) {
  console.log(`Runs the queue in a simulated world, on a virtual clock, with everything drawn from a seed.

  npm run sim -- --seeds 500            seeds 1 to 500
  npm run sim -- --from 501 --seeds 500 the next ones
  npm run sim -- --seed 118 --trace     one, exactly as it was, step by step
  --profile NAME                        one of ${PROFILES.join(', ')}; drawn from the seed otherwise
  --stop                                ends with the first seed that breaks a promise`);
  process.exit();
}
const profile = opt.profile as Profile | undefined;
if (profile !== undefined && !PROFILES.includes(profile)) throw new Error(`profiles: ${PROFILES.join(', ')}`);
const options = {
  ...(profile === undefined ? {} : { profile }),
  ...(opt.trace ? { trace: (line: string) => console.log(line) } : {}),
};
const first = Number(opt.seed ?? opt.from);
const count = opt.seed === undefined ? Number(opt.seeds) : 1;
const began = performance.now();
let calls = 0,
  steps = 0,
  storeCalls = 0,
  failed = 0,
  grants = 0,
  virtual = 0;
const kinds = new Map<string, number>();
for (let seed = first; seed < first + count; seed++) {
  const report: Report = await simulate(seed, options);
  calls += report.history.calls.length;
  steps += report.steps;
  storeCalls += report.storeCalls;
  virtual += report.lastedMs;
  for (const c of report.history.calls)
    if (c.kind === 'lease' && c.answer?.kind === 'ok') grants += c.answer.value.length;
  if (report.violations.length > 0) {
    failed++;
    console.log(`seed ${seed} (${report.scenario.profile}) ${report.fingerprint}`);
    for (const v of report.violations.slice(0, 6)) console.log(`   ${v}`);
    for (const v of report.violations) {
      const k = v
        .replace(/[0-9A-Z]{26}\S*/g, 'ID')
        .replace(/#?\d+/g, 'N')
        .slice(0, 70);
      kinds.set(k, (kinds.get(k) ?? 0) + 1);
    }
    if (opt.stop) break;
  }
}
const s = (performance.now() - began) / 1000;
console.log({
  seeds: count,
  failed,
  perMinute: Math.round((count / s) * 60),
  calls,
  steps,
  storeCalls,
  grants,
  virtualS: Math.round(virtual / 1000),
  s,
});
console.log([...kinds].sort((a, b) => b[1] - a[1]).slice(0, 25));
if (failed > 0) process.exitCode = 1;
