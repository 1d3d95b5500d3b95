/**
 * Faults on real processes: a short round of those on SQLite. `npm run faults` runs them longer, and those on Cassandra,
 * and prints the table of docs/reliability.md.
 */
import { describe, expect, it } from 'vitest';
import { asTable } from './support/report.ts';
import { faultOf, type Measure } from './support/scenario.ts';
import { SQLITE_SCENARIOS } from './support/sqlite-scenarios.ts';

const MEASURE: Measure = { tasksPerSecond: 120, tasksPerPhase: 80, pauseMs: 0, kills: 2 };

// At the same time: most of it is waiting for leases that lapse, and for processes that start.
describe.concurrent('on SQLite', () => {
  it.each(SQLITE_SCENARIOS.map((scenario) => [scenario.about, scenario] as const))('%s', async (_about, scenario) => {
    const result = await scenario.run(MEASURE);
    console.log(asTable([result]));
    expect(faultOf(result)).toBeNull();
    expect(result.settled).toBe(result.acknowledged);
  });
});
