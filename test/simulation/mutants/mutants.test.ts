import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { misfits } from './apply.ts';
import { MUTANTS } from './mutants.ts';

test('every mutant still fits the code', () => {
  expect(misfits(resolve(import.meta.dirname, '../../..'), MUTANTS)).toEqual([]);
});

test('names are unique', () => {
  expect(new Set(MUTANTS.map(({ name }) => name)).size).toBe(MUTANTS.length);
});

test('one that fits no more, or in two places, is told of', () => {
  const root = resolve(import.meta.dirname, '../../..');
  const mutant = (find: string) => ({
    name: 'wrong',
    note: '',
    seeds: 1,
    edits: [{ file: 'src/core/move.ts', find, replace: '' }],
  });
  expect(misfits(root, [mutant('no such words')])).toEqual([
    'wrong: src/core/move.ts has 0 places like: no such words',
  ]);
  expect(misfits(root, [mutant('return')])[0]).toMatch(/has \d+ places like/);
});
