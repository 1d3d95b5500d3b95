/** What the status of a server says of its waiting tasks. */
import { expect, test } from 'vitest';
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
