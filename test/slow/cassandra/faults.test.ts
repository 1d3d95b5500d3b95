/**
 * Nodes that die or stand still under constant load, and what the clients saw of it. A short round, for each change;
 * `npm run faults:cassandra` takes longer and prints the table of docs/reliability.md.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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

const fault = await jarsFault();
if (fault !== null) console.warn(`Faults need nodes started from Maven's jars (${fault}); they are skipped.`);

const MEASURE: Measure = { tasksPerSecond: 40, tasksPerPhase: 120, pauseMs: 10_000 };
const START_MS = 300_000;

function expectKept(result: Result): void {
  console.log(JSON.stringify(result));
  const { lost, phantom, settledTwice } = result;
  expect({ lost, phantom, settledTwice }).toEqual({ lost: 0, phantom: 0, settledTwice: 0 });
  expect(result.settled).toBe(result.acknowledged);
  // No doubt is answered with a fault of the program.
  expect(Object.keys(result.refusals)).not.toContain('internal');
}

describe.skipIf(fault !== null)('three nodes, three copies', () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start(3);
  }, START_MS);
  afterAll(() => rig?.stop());

  it('one is killed, and comes back', async () => expectKept(await oneKilled(rig, MEASURE)));

  it('one is paused', async () => expectKept(await onePaused(rig, MEASURE)));

  it('two are killed: refused with 503, and it goes on when they are back', async () => {
    const result = await twoKilled(rig, MEASURE);
    expectKept(result);
    expect(result.refusals['store-unavailable']).toBeGreaterThanOrEqual(20);
  });

  it('the server that hands out tasks is killed', async () => expectKept(await holderKilled(rig, MEASURE)));
});

describe.skipIf(fault !== null)('one node, one copy, a commit log that is synced in groups', () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.start(1);
  }, START_MS);
  afterAll(() => rig?.stop());

  it('is killed under load, and loses nothing', async () => expectKept(await onlyKilled(rig, MEASURE)));
});
