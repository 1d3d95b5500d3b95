/**
 * Nodes and servers that die or stand still under constant load, and what the clients saw of it. A short round, for each
 * change; `npm run faults:cassandra` takes longer and prints the table of docs/reliability.md.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jarsFault } from '../../support/cassandra/jars.ts';
import { CASSANDRA_SCENARIOS, type CassandraScenario, Rig, setupOf } from '../faults/support/cassandra-scenarios.ts';
import { asTable } from '../faults/support/report.ts';
import { faultOf, type Measure } from '../faults/support/scenario.ts';

const fault = await jarsFault();
if (fault !== null) console.warn(`Faults need nodes started from Maven's jars (${fault}); they are skipped.`);

const MEASURE: Measure = { tasksPerSecond: 40, tasksPerPhase: 120, pauseMs: 15_000, kills: 2 };
const START_MS = 600_000;

const setups = new Map<string, CassandraScenario[]>();
for (const scenario of CASSANDRA_SCENARIOS) {
  setups.set(setupOf(scenario), [...(setups.get(setupOf(scenario)) ?? []), scenario]);
}

describe.skipIf(fault !== null).each([...setups])('%s', (_setup, scenarios) => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start(scenarios[0]!);
  }, START_MS);
  afterAll(() => rig?.stop());

  it.each(scenarios.map((scenario) => [scenario.about, scenario] as const))('%s', async (_about, scenario) => {
    const result = await scenario.run(rig, MEASURE);
    console.log(asTable([result]));
    expect(faultOf(result)).toBeNull();
    expect(result.settled).toBe(result.acknowledged);
  });
});
