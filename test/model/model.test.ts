/** The protocol by production decisions, gone through exhaustively within small bounds; `npm run model` has larger ones. */
import { describe, expect, test } from 'vitest';
import { PRODUCTION, VARIANTS } from './decisions.ts';
import { explore } from './explore.ts';
import { SCENARIOS } from './scenarios.ts';

const NAMES = Object.keys(SCENARIOS);
const CAP = 120_000;

describe('nothing breaks', () => {
  test.each(NAMES)('%s: no answer lost, all explored', (name) => {
    const scenario = SCENARIOS[name]!({ doubts: 0, turns: 2, works: 1 });
    const { violation, complete, path } = explore(scenario, { cap: 1_000_000, finishEvery: 10 });
    expect(violation, path.join('\n')).toBeNull();
    expect(complete).toBe(true);
  });

  test.each(NAMES)('%s: an answer is lost, or a write is late', (name) => {
    const scenario = SCENARIOS[name]!({ doubts: 1, turns: 3, works: 1 });
    const { violation, states, complete, finished, path } = explore(scenario, { cap: CAP, finishEvery: 20 });
    expect(violation, path.join('\n')).toBeNull();
    expect(complete || states >= CAP).toBe(true);
    expect(finished).toBeGreaterThan(0);
  });
});

describe('wrong decisions are found out', () => {
  test.each(Object.entries(VARIANTS))('%s', (_, { scenario, wrong }) => {
    const bounds = { doubts: 1, turns: 3, works: 1 };
    const options = { by: { ...PRODUCTION, ...wrong }, cap: 300_000, finishEvery: 50 };
    const { violation, path } = explore(SCENARIOS[scenario]!(bounds), options);
    expect(violation).toMatch(/^(Q[1-9]|liveness): /);
    expect(path.length).toBeGreaterThan(0);
  });
});
