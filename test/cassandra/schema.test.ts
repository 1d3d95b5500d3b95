import { expect, it } from 'vitest';
import { besideOf, files } from '../../src/store/cassandra/migrate.ts';

it('each file of the schema says which programs may work beside it', () => {
  const numbered = files().filter(({ number }) => number > 0);
  expect(numbered.map(({ number }) => number)).toEqual(numbered.map((_, at) => at + 1));
  for (const step of numbered) {
    const beside = besideOf(step);
    expect(beside, step.name).toBeGreaterThanOrEqual(1);
    expect(beside, step.name).toBeLessThanOrEqual(step.number);
  }
  // Known of those that are there, so that one that is misspelt does not shut everybody out unseen.
  expect(besideOf(numbered[0]!)).toBe(1);
  expect(besideOf(numbered[1]!)).toBe(1);
});
