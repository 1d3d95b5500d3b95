/** What the status of a server says of its waiting tasks. */
import { expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '../../src/queue/engine.ts';
import { LocalQueue } from '../../src/queue/queue.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { manualEnvironment } from '../support/manual-environment.ts';
import { ackAll, testQueue } from '../support/queue.ts';

test('how long the oldest ready task has waited, at the most', async () => {
  const { queue, env } = await testQueue();
  const oldest = () => queue.status().oldestReadyMs;
  expect(oldest()).toBeNull();
  await queue.enqueue('a', { payload: 1 });
  await env.advance(5_000);
  await queue.enqueue('b', { payload: 2 });
  await env.advance(1_000);
  expect(oldest()).toBe(6_000);
  await ackAll(queue, await queue.lease({ topics: ['a'] }));
  expect(oldest()).toBe(1_000);
  await ackAll(queue, await queue.lease());
  expect(oldest()).toBeNull();
  await queue.enqueue('a', { payload: 3 });
  expect(oldest()).toBe(0);
});

test('a retry waits from when it came back; dead letters do not wait', async () => {
  const { queue, env } = await testQueue();
  await queue.configure('t', { maxAttempts: 2 });
  await queue.enqueue('t', { payload: 1 });
  await env.advance(5_000);
  const [task] = await queue.lease();
  await queue.settle({ nack: [{ leaseId: task!.leaseId, delayMs: 0 }] });
  await env.advance(2_000);
  expect(queue.status().oldestReadyMs).toBe(2_000);
  const [again] = await queue.lease();
  await queue.settle({ nack: [{ leaseId: again!.leaseId }] });
  await env.advance(2_000);
  expect(queue.status()).toMatchObject({ dead: 1, oldestReadyMs: null });
});

test('is known after a restart', async () => {
  const env = manualEnvironment();
  const store = await openSqliteStore(':memory:', { now: env.now });
  const lasting = new Proxy(store, {
    get: (target, name) => {
      if (name === 'close') return async () => {};
      const member = Reflect.get(target, name) as unknown;
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
  const first = await LocalQueue.start(lasting, env, silentLogger);
  await first.enqueue('t', { payload: 1 });
  await env.advance(3_000);
  await first.enqueue('t', { payload: 2 });
  await first.stop();
  await env.advance(2_000);
  const second = await LocalQueue.start(store, env, silentLogger);
  expect(second.status().oldestReadyMs).toBe(5_000);
  await second.stop();
});

test('how many leases are held is counted as they come and go', async () => {
  const env = manualEnvironment();
  const store = await openSqliteStore(':memory:', { now: env.now });
  const queue = await LocalQueue.start(store, env, silentLogger);
  onTestFinished(() => queue.stop());
  const held = (): number => {
    expect(queue.leasesHeld).toBe(queue.status().leased);
    return queue.leasesHeld;
  };
  expect(held()).toBe(0);
  await queue.enqueue(
    't',
    Array.from({ length: 8 }, (_, n) => ({ payload: n, messageId: `m${n}` })),
  );
  await queue.configure('t', { maxAttempts: 1 });
  const tasks = await queue.lease({ max: 8, leaseMs: 10_000 });
  expect(held()).toBe(8);
  const [acked, nacked, released, dead, cancelled, extended] = tasks;
  await queue.settle({ ack: [{ leaseId: acked!.leaseId }] });
  expect(held()).toBe(7);
  await queue.settle({ release: [{ leaseId: released!.leaseId }] });
  expect(held()).toBe(6);
  await queue.settle({ nack: [{ leaseId: nacked!.leaseId, delayMs: 60_000 }] });
  expect(held()).toBe(5);
  await queue.settle({ nack: [{ leaseId: dead!.leaseId, dead: true }] });
  expect(held()).toBe(4);
  await queue.cancel('t', cancelled!.id);
  expect(held()).toBe(3);
  await queue.settle({ ack: [{ leaseId: acked!.leaseId }], extend: [{ leaseId: extended!.leaseId, leaseMs: 60_000 }] });
  expect(held()).toBe(3);
  await env.advance(15_000);
  // Two have lapsed.
  expect(held()).toBe(1);
  expect(await queue.lease({ max: 8 })).toHaveLength(1);
  expect(held()).toBe(2);
});
