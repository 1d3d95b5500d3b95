import { describe, expect, test } from 'vitest';
import { PROFILES, type Profile } from './scenario.ts';
import { simulate } from './simulation.ts';

/** Seeds that broke a promise once, and what each found. Most of what they did then has changed since: they stay anyway. */
const REGRESSIONS: readonly (readonly [seed: number, profile: Profile, found: string])[] = [
  [60, 'calm', 'what was acknowledged since the scanner looked at it was moved, and delivered again'],
  [118, 'calm', 'two rounds of a log moved the scan cursor by the same stretch, past entries nobody had seen'],
  [27, 'calm', 'dead letters that arrived during a pass were passed by it'],
  [20, 'slow', 'a time slot was forgotten while a task was put into it'],
  [12, 'slow', 'a nack by who had lost the lease was answered ok'],
  [11, 'crashes', 'a claim carried out unnoticed left tasks leased for ever, and the cursor passed them'],
  [5, 'unknown', 'fewer tasks counted as ready than were there, and the last ones waited for ever'],
  [67, 'unknown', 'a late append found the headers of its time slot gone, and its task was delivered twice'],
  [83, 'unknown', 'a pass failed over an entry that was settled while it was read'],
  [28, 'zombies', 'a look at the tail that was older than an append set it back'],
  [105, 'zombies', 'a segment that another server had sealed was sealed once more, at its end'],
  [29, 'hours', 'what was enqueued while the server had lost its lease was found only at the next start'],
  [14, 'pauses', 'the row of a delayed task that moved early named its old place, and its id was given away'],
  [188, 'clocks', 'the same, where row and move were written at the same time'],
  [90, 'clocks', 'a task that moved on while it was looked for was taken for done'],
  [237, 'unknown', 'an enqueue that took long was answered with a later task of its id'],
  [72, 'unknown', 'a claim in doubt was taken for carried out, and its log was stuck for good'],
  [142, 'unavailable', 'an enqueue that replaced a task said that nothing was written'],
  [3, 'calm', 'a large lease kept what it had got already from others'],
  [193, 'slow', 'entries that were void stood at the cursor behind a count that was too high'],
  [215, 'unavailable', 'a task that died before its row was written was called a later one of its id'],
  [27, 'slow', 'a rate was exceeded, because leases were accounted for out of order'],
  [4, 'hours', 'a task was given back twice, and the second time was answered before limits knew of the first'],
  [219, 'crashes', 'dead letters that a predecessor readied late were not counted'],
  [125, 'unknown', 'a task that was purged on its way stood at the cursor for ever'],
  [6, 'slow', 'a move was carried out into a time slot that was not recorded yet, where a crash would have lost it'],
  [34, 'crashes', 'a row was written as live after its settlement had found it missing, and stayed so'],
  [921, 'crashes', 'the same, where the row was that of the task to be superseded'],
  [21, 'crashes', 'the row of a redriven task was set back to dead'],
  [532, 'hours', 'the row of a task that had ended, and been forgotten, was written as live again'],
  [311, 'unknown', 'the row write of a redrive was carried out late, when the task had ended'],
  [95_380, 'zombies', 'that a task had left was heard, where it had gone to was not, and who moved it died'],
  [200_285, 'unknown', 'the row of a delayed task that was due before its row was written named its old place'],
  [301_808, 'unavailable', 'a message id was given away while a claim of its purged task was under way'],
  [320_067, 'unknown', 'a living server was taken for dead by a look that was answered late'],
  [320_754, 'all', 'two servers moved a task to the same id, and one took the append of the other for its own'],
  [330_501, 'calm', 'entries that another server marked ready were not counted'],
  [331_917, 'all', 'the last lease in flight ended when its topic had been offered already, which then stood still'],
  [50_156, 'all', 'nothing: the auditor took the order of two leases from clocks that differ'],
  [3_412, 'all', 'nothing: the same of the attempts of a task'],
  [1_796, 'unavailable', 'a way that its row still pointed to was deleted, since the task had ended where it led'],
  [100_558, 'unavailable', 'what could not be marked as arrived counted nowhere, and its topic was called drained'],
];

/** The same, since there are schedules and work in bulk. */
const LATER_REGRESSIONS: typeof REGRESSIONS = [
  [2_828, 'clocks', 'a topic with an interval stood still for as long as its clock had been set back'],
  [264, 'all', 'dead letters were counted wrong for good once the store was away while they were counted'],
];

/** The same, since there are more tasks in fewer logs. */
const LATEST_REGRESSIONS: typeof REGRESSIONS = [
  [
    7_275,
    'unknown',
    'an enqueue took over a message id whose task had been redriven meanwhile, and was a duplicate by then',
  ],
];

/** The same, since most calls are of more tasks. */
const NEWEST_REGRESSIONS: typeof REGRESSIONS = [
  [
    3_809,
    'unknown',
    'a delayed task that was purged before its row was written was called a duplicate of the next one',
  ],
  [4_518, 'unknown', 'a message id was refused to whom it was free for, and then written for the duplicate'],
  [3_861, 'unknown', 'a purge took off what had been leased before it was in force, and its topic was called drained'],
];

describe('the promises hold', () => {
  test.each(PROFILES)('%s', { timeout: 120_000 }, async (profile) => {
    for (let seed = 1_000; seed < 1_020; seed++) {
      const { violations } = await simulate(seed, { profile });
      expect(violations, `npm run sim -- --seed ${seed} --profile ${profile} --trace`).toEqual([]);
    }
  });
});

describe.each([
  ['single', REGRESSIONS],
  ['bulk', LATER_REGRESSIONS],
  ['many', LATEST_REGRESSIONS],
  ['batches', NEWEST_REGRESSIONS],
] as const)('what broke them, seeds of the era %s', (era, regressions) => {
  test.each(regressions)('seed %i (%s): %s', { timeout: 60_000 }, async (seed, profile) => {
    const { violations } = await simulate(seed, { profile, era });
    expect(violations, `npm run sim -- --seed ${seed} --profile ${profile} --era ${era} --trace`).toEqual([]);
  });
});

test('a seed does the same whenever it runs', async () => {
  const [first, second] = [await simulate(4_711, { profile: 'all' }), await simulate(4_711, { profile: 'all' })];
  expect(second.fingerprint).toBe(first.fingerprint);
  expect(second.steps).toBe(first.steps);
  expect((await simulate(4_712, { profile: 'all' })).fingerprint).not.toBe(first.fingerprint);
});

test('the trace tells what happens', async () => {
  const lines: string[] = [];
  await simulate(1, { profile: 'crashes', trace: (line) => lines.push(line) });
  for (const part of ['enqueue', 'lease', 'settle', 'append', 'change', 'gone']) {
    expect(
      lines.some((line) => line.includes(part)),
      part,
    ).toBe(true);
  }
});
