/** Who is served how often: topics by weight, tiers by share. */
import { describe, expect, test } from 'vitest';
import type { LeasedTask, Queue } from '../../src/queue/api.ts';
import { ackAll, testQueue } from '../support/queue.ts';

const many = (count: number, priority?: number) =>
  Array.from({ length: count }, (_, payload) => ({ payload, ...(priority === undefined ? {} : { priority }) }));

async function drawn(queue: Queue, leases: number, max = 1): Promise<readonly LeasedTask[]> {
  const tasks: LeasedTask[] = [];
  for (let nth = 0; nth < leases; nth++) {
    const some = await queue.lease({ max });
    tasks.push(...some);
    await ackAll(queue, some);
  }
  return tasks;
}

function countsOf<K>(tasks: readonly LeasedTask[], key: (task: LeasedTask) => K): ReadonlyMap<K, number> {
  const counts = new Map<K, number>();
  for (const task of tasks) counts.set(key(task), (counts.get(key(task)) ?? 0) + 1);
  return counts;
}

describe('weight', () => {
  test.each([
    ['one at a time', 1, {}],
    ['many at once', 12, {}],
    ['one at a time, where limits count', 1, { maxInFlight: 50 }],
  ])('gives a topic as many turns in a round: %s', async (_, max, limits) => {
    const { queue } = await testQueue();
    const weights = { a: 1, b: 3, c: 2 };
    for (const [topic, weight] of Object.entries(weights)) {
      await queue.configure(topic, { weight, ...limits });
      await queue.enqueue(topic, many(100));
    }
    const counts = countsOf(await drawn(queue, 60 / max, max), ({ topic }) => topic);
    expect(Object.fromEntries(counts)).toEqual({ a: 10, b: 30, c: 20 });
  });

  test('of a topic that has nothing left keeps nobody waiting', async () => {
    const { queue } = await testQueue();
    await queue.configure('heavy', { weight: 1_000 });
    await queue.enqueue('heavy', many(2));
    await queue.enqueue('light', many(2));
    expect((await drawn(queue, 4)).map(({ topic }) => topic)).toEqual(['heavy', 'heavy', 'light', 'light']);
  });

  test('a named lease counts as a turn, too', async () => {
    const { queue } = await testQueue();
    await queue.enqueue('a', many(3));
    await queue.enqueue('b', many(3));
    await queue.lease({ topics: ['a'] });
    expect((await queue.lease())[0]!.topic).toBe('b');
  });
});

describe('tierShare', () => {
  test('lets no tier starve', async () => {
    const { queue } = await testQueue();
    await queue.configure('t', { tierShare: 20 });
    for (const priority of [9, 5, 0]) await queue.enqueue('t', many(200, priority));
    const counts = countsOf(await drawn(queue, 100), ({ priority }) => priority);
    expect(counts.get(9)).toBe(80);
    expect(counts.get(5)! + counts.get(0)!).toBe(20);
    expect(Math.abs(counts.get(5)! - counts.get(0)!)).toBeLessThanOrEqual(1);
  });

  test('is off by default', async () => {
    const { queue } = await testQueue();
    for (const priority of [9, 0]) await queue.enqueue('t', many(50, priority));
    expect(new Set((await drawn(queue, 50)).map(({ priority }) => priority))).toEqual(new Set([9]));
  });

  test('keeps to the tiers that a lease asks for', async () => {
    const { queue } = await testQueue();
    await queue.configure('t', { tierShare: 50 });
    for (const priority of [9, 5, 0]) await queue.enqueue('t', many(20, priority));
    for (let nth = 0; nth < 10; nth++) {
      const [task] = await queue.lease({ priorities: [9, 5] });
      expect([9, 5]).toContain(task!.priority);
    }
  });
});
