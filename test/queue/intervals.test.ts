/** The least time between two leases of a topic, over all that a server may have forgotten or never knew. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { ackAll, testQueue } from '../support/queue.ts';
import { sharedStore } from '../support/shared-store.ts';

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;

test.each([1, 3])('counts from a lease before it was set, at weight %i', async (weight) => {
  const { queue, env } = await testQueue();
  await queue.configure('a', { weight });
  await queue.enqueue('a', [{ payload: 1 }, { payload: 2 }]);
  expect(await queue.lease()).toHaveLength(1);
  await queue.configure('a', { minIntervalMs: 60_000 });
  expect(await queue.lease()).toHaveLength(0);
  await env.advance(60_000);
  expect(await queue.lease()).toHaveLength(1);
});

test.each([0, 1, 3, 6])('holds over a restart after %i h, when what was leased is long gone', async (hours) => {
  const folder = await mkdtemp(join(tmpdir(), 'ebbmark-interval-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const it = await testQueue({ path: join(folder, 'tasks.db') });
  await it.queue.configure('a', { minIntervalMs: DAY_MS });
  await it.queue.enqueue('a', [{ payload: 1, priority: 9 }]);
  await ackAll(it.queue, await it.queue.lease());
  for (let tenMinutes = 0; tenMinutes < 6 * hours; tenMinutes++) await it.env.advance(HOUR_MS / 6);
  await it.restart();
  // Into another log than that of the lease, and into one that was never leased from.
  await it.queue.enqueue('a', [{ payload: 2, priority: 1 }]);
  await it.queue.configure('b', { minIntervalMs: DAY_MS });
  await it.queue.enqueue('b', [{ payload: 3 }]);
  expect((await it.queue.lease({ max: 2 })).map(({ topic }) => topic)).toEqual(['b']);
  await it.env.advance(DAY_MS);
  expect(await it.queue.lease({ topics: ['a'] })).toHaveLength(1);
});

test('holds over a take-over by another server', async () => {
  const { env, server } = await sharedStore(1);
  const first = await server();
  await first.queue.configure('a', { minIntervalMs: DAY_MS });
  await first.queue.enqueue('a', [{ payload: 1 }]);
  await ackAll(first.queue, await first.queue.lease());
  for (let tenMinutes = 0; tenMinutes < 24; tenMinutes++) await env.advance(HOUR_MS / 6);
  const second = await server();
  const stopped = first.queue.stop();
  await env.advance(15_000);
  await stopped;
  await env.advance(15_000);
  await second.queue.enqueue('a', [{ payload: 2 }]);
  await env.advance(1_000);
  expect(await second.queue.lease()).toHaveLength(0);
});

test.each([
  ['cooldownMs', { cooldownMs: 1_000 }],
  ['minIntervalMs', { minIntervalMs: 1_000 }],
  ['rate', { rate: { tasks: 1, perMs: 1_000, burst: 1 } }],
])('%s is as long where the clock is corrected on the way', async (_limit, patch) => {
  const { queue, env } = await testQueue();
  await queue.configure('a', patch);
  await queue.enqueue('a', [{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
  await env.advance(1_000);
  for (const correction of [400, -400]) {
    await ackAll(queue, await queue.lease());
    env.correct(correction);
    await env.advance(999);
    expect(await queue.lease()).toHaveLength(0);
    await env.advance(1);
  }
  expect(await queue.lease()).toHaveLength(1);
});
