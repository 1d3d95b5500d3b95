/** What JavaScript lets through and the types do not: it is refused in process as over HTTP. */
import { expect, test } from 'vitest';
import { Client } from '../../src/client/index.ts';
import { openQueue } from '../../src/index.ts';
import type { LeaseRequest, SettleRequest } from '../../src/queue/api.ts';
import { testQueue } from '../support/queue.ts';

// As a program without types would.
const untyped = <T>(value: unknown): T => value as T;

test.each<[input: unknown, message: RegExp]>([
  [{ topic: ['a'] }, /\/topic: "topic" is not a field of a lease request \(topics, max, .*\); for example: \{"topics"/],
  [{ topics: 'a' }, /\/topics: "a" is not an array; for example: \["mail\.example\.org"/],
  [{ topics: ['a'], leasems: 1 }, /\/leasems: "leasems" is not a field/],
  ['a', /"a" is not a lease request; for example/],
])('lease %j', async (input, message) => {
  const { queue } = await testQueue();
  await queue.enqueue('other', { payload: 1 });
  await expect(queue.lease(untyped<LeaseRequest>(input))).rejects.toThrow(message);
});

test.each<[input: unknown, message: RegExp]>([
  [{ ack: ['xx'] }, /\/ack\/0: "xx" is not an object with a lease id; for example: \{"leaseId"/],
  [{ ack: [{ leaseId: 'x', results: 1 }] }, /\/ack\/0\/results: "results" is not a field of what settles \(ack\)/],
  [{ acks: [] }, /\/acks: "acks" is not a field of a settle request \(ack, nack, extend, progress, release\)/],
  [{ nack: 'x' }, /\/nack: "x" is not an array; for example: \[\{"leaseId"/],
])('settle %j', async (input, message) => {
  const { queue } = await testQueue();
  await expect(queue.settle(untyped<SettleRequest>(input))).rejects.toThrow(message);
});

test.each<[input: unknown, message: RegExp]>([
  [undefined, /undefined is not an object that says where the store is; for example: \{"store"/],
  [{ store: 'sqlite::memory:', foo: 1 }, /options\/foo: "foo" is not a field of what opens a queue \(store, /],
])('openQueue %j', async (input, message) => {
  await expect(openQueue(untyped(input))).rejects.toThrow(message);
});

test('options of a client, of its subscribers and of its waits', async () => {
  const { queue } = await testQueue();
  expect(() => new Client(queue, untyped<object>({ retryMS: 5 }))).toThrow(
    /"retryMS" is not a field of a client's options/,
  );
  expect(() => new Client('http://127.0.0.1:1/?a=1')).toThrow(/without a query\); for example/);
  const client = new Client(queue);
  expect(() => client.subscriber('t', untyped({ lease: 1 }))).toThrow(
    /"lease" is not a field of a subscriber's options/,
  );
  const subscriber = client.subscriber('t');
  expect(() => subscriber.run(() => null, untyped({ concurency: 2 }))).toThrow(/"concurency" is not a field/);
  const handle = await client.publisher().publish('t', 1);
  await expect(handle.result(untyped({ timeout: 100 }))).rejects.toThrow(/"timeout" is not a field of a wait/);
  await client.close();
});
