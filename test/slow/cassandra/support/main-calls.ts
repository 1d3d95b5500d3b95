/** What a queue is for, from end to end; the same over HTTP and in process. */
import { expect } from 'vitest';
import type { QueueCalls } from '../../../../src/client/http-queue.ts';

const acks = (tasks: readonly { readonly leaseId: string }[]) => tasks.map(({ leaseId }) => ({ leaseId }));

/** @param topic one of its own */
export async function mainCalls(queue: QueueCalls, topic: string): Promise<void> {
  const lease = (more: object = {}) => queue.lease({ topics: [topic], max: 10, waitMs: 5_000, ...more });

  // Priority, dedup, many at once.
  const put = await queue.enqueue(topic, [
    { payload: { n: 1 }, priority: 1, messageId: 'one' },
    { payload: { n: 2 }, priority: 8, metadata: { a: 'b' } },
    { payload: 'x'.repeat(20_000), priority: 5 },
    { payload: new Uint8Array([0, 255]), priority: 3 },
  ]);
  expect(put.map(({ deduplicated }) => deduplicated)).toEqual([false, false, false, false]);
  const [again] = await queue.enqueue(topic, [{ payload: 'other', messageId: 'one' }]);
  expect(again).toMatchObject({ id: put[0]!.id, deduplicated: true });
  const [first] = await lease({ max: 1, worker: 'me' });
  expect(first).toMatchObject({ id: put[1]!.id, payload: { n: 2 }, metadata: { a: 'b' }, attempt: 1 });
  const rest = await lease();
  expect(rest.map(({ id }) => id)).toEqual([put[2]!.id, put[3]!.id, put[0]!.id]);
  expect(rest.map(({ payload }) => payload)).toEqual(['x'.repeat(20_000), new Uint8Array([0, 255]), { n: 1 }]);

  // Settlement in all its forms.
  const token = first!.leaseId;
  const kept = await queue.settle({
    extend: [{ leaseId: token, leaseMs: 60_000 }],
    progress: [{ leaseId: token, position: { at: 7 } }],
  });
  expect([kept.extend![0]!.ok, kept.progress![0]!.ok]).toEqual([true, true]);
  const settled = await queue.settle({
    ack: [{ leaseId: rest[0]!.leaseId, result: { sent: true } }],
    nack: [
      { leaseId: token, delayMs: 0 },
      { leaseId: rest[1]!.leaseId, dead: true, reason: 'broken' },
    ],
    release: [{ leaseId: rest[2]!.leaseId }],
  });
  for (const list of [settled.ack, settled.nack, settled.release]) for (const item of list!) expect(item.ok).toBe(true);
  expect(await queue.task(topic, put[2]!.id!)).toMatchObject({ state: 'done', result: { sent: true } });
  expect(await queue.task(topic, put[3]!.id!)).toMatchObject({ state: 'dead' });
  const retried = [...(await lease({ max: 1 })), ...(await lease({ max: 1 }))];
  expect(retried.map(({ id, attempt }) => [id, attempt])).toEqual([
    [put[1]!.id, 2],
    [put[0]!.id, 1],
  ]);
  expect(retried[0]!.progress).toEqual({ at: 7 });
  expect((await queue.settle({ ack: acks(retried) })).ack!.map(({ ok }) => ok)).toEqual([true, true]);
  // A repeated ack of the same lease is answered alike; a lease that was lost is not.
  expect((await queue.settle({ ack: [{ leaseId: retried[1]!.leaseId }, { leaseId: token }] })).ack).toMatchObject([
    { ok: true },
    { ok: false, code: 'lease-lost' },
  ]);
  expect(await queue.redrive(topic)).toMatchObject({ redriven: 1 });
  const [redriven] = await lease();
  expect(redriven).toMatchObject({ id: put[3]!.id, attempt: 1 });
  await queue.settle({ ack: acks([redriven!]) });

  // Delays, changes, limits.
  const [soon, later] = await queue.enqueue(topic, [
    { payload: 'soon', delayMs: 600 },
    { payload: 'later', delayMs: 3_600_000 },
  ]);
  const [due] = await lease();
  expect(due).toMatchObject({ id: soon!.id, payload: 'soon' });
  await queue.settle({ ack: acks([due!]) });
  expect(await queue.cancel(topic, later!.id!)).toMatchObject({ state: 'cancelled' });
  await queue.configure(topic, { maxInFlight: 1 });
  await queue.enqueue(topic, [{ payload: 1 }, { payload: 2 }]);
  const limited = await lease();
  expect(limited).toHaveLength(1);
  expect(await lease({ waitMs: 0 })).toEqual([]);
  await queue.settle({ ack: acks(limited) });
  await queue.pause(topic);
  expect(await lease({ waitMs: 0 })).toEqual([]);
  await queue.resume(topic);
  const last = await lease();
  expect(last).toHaveLength(1);
  await queue.settle({ ack: acks(last) });
  expect((await queue.topic(topic)).counts).toEqual({ ready: 0, delayed: 0, leased: 0, dead: 0 });
  const { priorities } = await queue.scan(topic);
  for (const { nextId, scanCursor, completionCursor } of priorities.filter(({ priority }) => priority !== 'dead')) {
    expect([scanCursor, completionCursor]).toEqual([nextId, nextId]);
  }
  expect((await queue.topics({ prefix: topic })).topics.map((one) => one.topic)).toContain(topic);
}
