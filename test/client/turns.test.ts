import { expect, test } from 'vitest';
import { Turns } from '../../src/client/turns.ts';
import { deferred } from '../../src/queue/deferred.ts';

const never = new AbortController().signal;

test('as many at a time as there may be, in the order in which they came; short ones where there are many', async () => {
  const turns = new Turns(4, 20_000);
  const begun: (readonly [number, number])[] = [];
  const ends = Array.from({ length: 7 }, () => deferred());
  const all = ends.map(({ promise }, nth) =>
    turns.take(never, (ms) => {
      begun.push([nth, ms]);
      return promise;
    }),
  );
  await Promise.resolve();
  expect(begun).toEqual([
    [0, 20_000],
    [1, 20_000],
    [2, 1_000],
    [3, 1_000],
  ]);
  for (const nth of [2, 0, 1]) {
    ends[nth]!.resolve();
    await all[nth];
    await Promise.resolve();
  }
  expect(begun.slice(4).map(([nth]) => nth)).toEqual([4, 5, 6]);
  for (const { resolve } of ends) resolve();
  await Promise.all(all);
});

test('who is called off waits for no turn, and takes none', async () => {
  const turns = new Turns(1, 20_000);
  const first = deferred();
  const held = turns.take(never, () => first.promise);
  const gone = new AbortController();
  const second = turns.take(gone.signal, async () => 'second');
  const third = turns.take(never, async () => 'third');
  gone.abort(new Error('called off'));
  await expect(second).rejects.toThrow('called off');
  await expect(turns.take(gone.signal, async () => 'late')).rejects.toThrow('called off');
  first.resolve();
  await held;
  expect(await third).toBe('third');
});

test('a wait that fails lets the next one in', async () => {
  const turns = new Turns(1, 20_000);
  await expect(turns.take(never, () => Promise.reject(new Error('lost')))).rejects.toThrow('lost');
  expect(await turns.take(never, async () => 'next')).toBe('next');
});
