/**
 * Runs the faults of faults.test.ts for as long as is asked for, and prints what came out as the table of
 * docs/reliability.md. `npm run faults:cassandra -- --help` tells more.
 */
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { jarsFault } from '../../support/cassandra/jars.ts';
import {
  holderKilled,
  type Measure,
  oneKilled,
  onePaused,
  onlyKilled,
  type Result,
  Rig,
  twoKilled,
} from './support/scenarios.ts';

const HELP = `Usage: npm run faults:cassandra -- [options]

Starts three Cassandra nodes (Java 17, 512 MB of heap each) and two servers, loads them from two client processes, lets
nodes die and be paused, and checks what the clients saw: lost, phantom, settled twice. Then the same with one node that
holds the only copy.

  --rate N       tasks put in per second (default 60)
  --phase N      tasks acknowledged before, during and after each fault (default 600)
  --pause S      how long a node is paused, in seconds (default 30)
  --rounds N     how often each fault happens (default 1)
  --limit S      give up after so many seconds (default 1200)
  --json         print JSON instead of a table
`;

const { values } = parseArgs({
  options: {
    rate: { type: 'string', default: '60' },
    phase: { type: 'string', default: '600' },
    pause: { type: 'string', default: '30' },
    rounds: { type: 'string', default: '1' },
    limit: { type: 'string', default: '1200' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});

function positive(name: 'rate' | 'phase' | 'pause' | 'rounds' | 'limit'): number {
  const value = Number(values[name]);
  if (Number.isFinite(value) && value > 0) return value;
  console.error(`--${name}: ${JSON.stringify(values[name])} is not a positive number; for example: 60`);
  process.exit(2);
}

async function run(): Promise<readonly Result[]> {
  const measure: Measure = {
    tasksPerSecond: positive('rate'),
    tasksPerPhase: positive('phase'),
    pauseMs: positive('pause') * 1_000,
  };
  const rounds = positive('rounds');
  const deadline = performance.now() + positive('limit') * 1_000;
  const results: Result[] = [];
  for (const [nodes, scenarios] of [
    [3, [oneKilled, onePaused, twoKilled, holderKilled]],
    [1, [onlyKilled]],
  ] as const) {
    const rig = await Rig.start(nodes);
    try {
      for (let round = 0; round < rounds; round++) {
        for (const scenario of scenarios) {
          if (performance.now() > deadline) return results;
          const result = await scenario(rig, measure);
          results.push(result);
          console.error(JSON.stringify(result));
        }
      }
    } finally {
      await rig.stop();
    }
  }
  return results;
}

function table(results: readonly Result[]): string {
  const rows = results.map((result) => {
    const { wereThere, wereNot } = result.doubtful;
    const { applied, landed, refused, open } = result.unknown;
    const refusals = Object.entries(result.refusals).map(([code, count]) => `${count} ${code}`);
    return [
      result.scenario,
      `${result.seconds} s`,
      result.acknowledged,
      result.lost,
      result.phantom,
      result.settledTwice,
      `${applied} applied again, ${landed} had landed, ${refused} came second, ${open} left open`,
      `${wereThere} were there, ${wereNot} were not`,
      refusals.join(', ') || 'none',
    ];
  });
  const heads = [
    'what happened',
    'took',
    'acknowledged',
    'lost',
    'phantom',
    'settled twice',
    'unknown outcomes in the servers',
    'tasks of doubtful enqueues, at the retry',
    'calls refused',
  ];
  return [heads, heads.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

if (values.help) {
  console.log(HELP);
} else {
  const fault = await jarsFault();
  if (fault !== null) {
    console.error(`Three nodes are started from Maven's jars, with Java 17 and Maven: ${fault}.`);
    process.exit(1);
  }
  const results = await run();
  console.log(values.json ? JSON.stringify(results, null, 2) : `${cpus().length} cores\n\n${table(results)}`);
  const isBad = results.some(({ lost, phantom, settledTwice }) => lost + phantom + settledTwice > 0);
  process.exitCode = isBad ? 1 : 0;
}
