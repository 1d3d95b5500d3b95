import { expect, test } from 'vitest';
import { HashSet, SeenBefore } from '../../src/audit/sketch.ts';

const names = (count: number, prefix: string): string[] =>
  Array.from({ length: count }, (_, nth) => `${prefix}/${nth}`);

test('a set of hashes has what was added, and nothing else', () => {
  const set = new HashSet();
  for (const name of names(50_000, 'in')) set.add(name);
  for (const name of names(50_000, 'in')) set.add(name);
  expect(names(50_000, 'in').every((name) => set.has(name))).toBe(true);
  expect(names(50_000, 'out').filter((name) => set.has(name))).toEqual([]);
});

test('what was seen before is never missed, and what was not is hardly ever taken for it', () => {
  const seen = new SeenBefore();
  expect(names(300_000, 'uid').filter((name) => seen.note(name))).toEqual([]);
  expect(names(300_000, 'uid').every((name) => seen.note(name))).toBe(true);
});
