/** Quotas of what may wait in a topic, and of what an embedded store may hold. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { entryBytes } from '../../src/core/entry.ts';
import { DEAD_TIER, isSlotTopic } from '../../src/core/log.ts';
import type { EnqueueResult, Queue, TaskInput } from '../../src/queue/api.ts';
import { startQueue } from '../../src/queue/open.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import type { Store } from '../../src/store/store.ts';
import { manualEnvironment } from '../support/manual-environment.ts';
import { ackAll, testQueue } from '../support/queue.ts';
import { sharedStore } from '../support/shared-store.ts';

const some = (count: number, task: Partial<TaskInput> = {}): TaskInput[] =>
  Array.from({ length: count }, (_, nth) => ({ payload: nth, ...task }));
const codes = (results: readonly EnqueueResult[]) => results.map((result) => (result.id === null ? result.code : 'in'));
/** What a task with this payload takes, as a quota counts it. */
const sizeOf = (payload: string): number => 120 + JSON.stringify(payload).length;

describe('a quota of tasks', () => {
  test('lets in as many as may wait, ready and delayed, and refuses the others one by one', async () => {
    const { queue } = await testQueue();
    await queue.configure('t', { maxWaiting: 3 });
    const first = await queue.enqueue('t', [{ payload: 1 }, { payload: 2, delayMs: 60_000 }]);
    expect(codes(first)).toEqual(['in', 'in']);
    const more = await queue.enqueue('t', some(3));
    expect(codes(more)).toEqual(['in', 'topic-full', 'topic-full']);
    expect(more[1]).toMatchObject({ detail: '3 tasks wait in the topic, which may hold 3 (maxWaiting)' });
    await expect(queue.enqueue('t', { payload: 9 })).rejects.toMatchObject({ code: 'topic-full' });
    expect(codes(await queue.enqueue('another', some(5)))).toEqual(Array(5).fill('in'));
    expect(queue.status()).toMatchObject({ enqueued: 8, refused: 3 });
  });

  test('what is leased does not wait; what comes back is never refused', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('t', { maxWaiting: 2, backoffMs: 1_000, maxBackoffMs: 1_000 });
    await queue.enqueue('t', some(2));
    const leased = await queue.lease({ max: 2, leaseMs: 5_000 });
    expect(codes(await queue.enqueue('t', some(3)))).toEqual(['in', 'in', 'topic-full']);
    // One comes back at once, the other when its lease is over: four wait where two may.
    await queue.settle({ nack: [{ leaseId: leased[0]!.leaseId }] });
    await env.advance(10_000);
    expect((await queue.topic('t')).counts).toMatchObject({ ready: 4, delayed: 0, leased: 0 });
    expect(codes(await queue.enqueue('t', some(1)))).toEqual(['topic-full']);
    await ackAll(queue, await queue.lease({ max: 3 }));
    expect(codes(await queue.enqueue('t', some(2)))).toEqual(['in', 'topic-full']);
  });

  test('many calls at once get what there is room for, and no more', async () => {
    const { queue } = await testQueue();
    await queue.configure('t', { maxWaiting: 100 });
    const results = await Promise.all(Array.from({ length: 60 }, () => queue.enqueue('t', some(3))));
    expect(results.flatMap(codes).filter((code) => code === 'in')).toHaveLength(100);
    expect((await queue.topic('t')).counts.ready).toBe(100);
  });

  test('a known message id, or idempotency key, gets its task also where the topic is full', async () => {
    const { queue } = await testQueue();
    await queue.configure('t', { maxWaiting: 2 });
    const named = await queue.enqueue('t', { payload: 1, messageId: 'a' });
    const keyed = await queue.enqueue('t', [{ payload: 2 }], { idempotencyKey: 'k' });
    expect(await queue.enqueue('t', { payload: 1, messageId: 'a' })).toEqual({ ...named, deduplicated: true });
    expect(await queue.enqueue('t', [{ payload: 2 }], { idempotencyKey: 'k' })).toEqual([
      { ...keyed[0], deduplicated: true },
    ]);
    const mixed = await queue.enqueue('t', [
      { payload: 1, messageId: 'b' },
      { payload: 1, messageId: 'a' },
      { payload: 1, messageId: 'b' },
    ]);
    expect(codes(mixed)).toEqual(['topic-full', 'in', 'topic-full']);
    // Whoever has its task in may change it.
    await queue.enqueue('t', { payload: 'new', messageId: 'a', onDuplicate: 'replace' });
    expect((await queue.taskByMessageId('t', 'a')).payload).toBe('new');
    expect((await queue.topic('t')).counts.ready).toBe(2);
  });

  test('may be set, raised and removed at any time', async () => {
    const { queue, env } = await testQueue();
    const ids = (await queue.enqueue('t', some(5))).map(({ id }) => id!);
    await queue.configure('t', { maxWaiting: 4 });
    expect(codes(await queue.enqueue('t', some(1)))).toEqual(['topic-full']);
    await queue.cancel('t', ids[4]!);
    await queue.cancel('t', ids[3]!);
    expect(codes(await queue.enqueue('t', some(2)))).toEqual(['in', 'topic-full']);
    await queue.configure('t', { maxWaiting: 6 });
    expect(codes(await queue.enqueue('t', some(3)))).toEqual(['in', 'in', 'topic-full']);
    const purged = queue.purge('t');
    await env.advance(5);
    await purged;
    expect(codes(await queue.enqueue('t', some(7)))).toEqual([...Array(6).fill('in'), 'topic-full']);
    await queue.configure('t', { maxWaiting: null });
    expect(codes(await queue.enqueue('t', some(9)))).toEqual(Array(9).fill('in'));
  });

  test.each([
    ['maxWaiting', 0, '"0" is not an integer from 1 to 1000000000; for example: 1000'],
    ['maxWaiting', 1.5, '"1.5" is not an integer from 1 to 1000000000; for example: 1000'],
    ['maxWaitingBytes', '1g', '"1g" is not an integer from 1 to 9007199254740991; for example: 1000'],
  ])('refuses %s %s', async (name, value, message) => {
    const { queue } = await testQueue();
    await expect(queue.configure('t', { [name]: value } as object)).rejects.toMatchObject({
      code: 'invalid-input',
      issues: [{ path: `/${name}`, message }],
    });
  });

  test('a schedule passes over what finds no room, and goes on at its next time', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('t', { maxWaiting: 1 });
    await queue.enqueue('t', { payload: 'first' });
    await queue.setSchedule('every-minute', { topic: 't', pattern: '* * * * *', payload: 'tick' });
    await env.advance(150_000);
    expect(await queue.schedule('every-minute')).toMatchObject({
      fired: 0,
      refusal: '1 tasks wait in the topic, which may hold 1 (maxWaiting)',
    });
    // One try a time, not more.
    const { refused } = queue.status();
    expect(refused).toBeGreaterThanOrEqual(2);
    expect(refused).toBeLessThanOrEqual(3);
    await ackAll(queue, await queue.lease());
    await env.advance(60_000);
    expect(await queue.schedule('every-minute')).toMatchObject({ fired: 1, refusal: null });
    await ackAll(queue, await queue.lease());
  });
});

test('what waits is counted to one after a restart, however much it is', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-quotas-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const it = await testQueue({ path: join(directory, 'queue.db') });
  await it.queue.configure('t', { maxWaiting: 11_000, maxWaitingBytes: 10_000_000 });
  const ids: string[] = [];
  for (let nth = 0; nth < 11; nth++) ids.push(...(await it.queue.enqueue('t', some(1_000))).map(({ id }) => id!));
  for (const nth of [10, 5_000, 10_990]) await it.queue.cancel('t', ids[nth]!);
  const queue = await it.restart();
  expect((await queue.topic('t')).counts.ready).toBe(10_997);
  expect(codes(await queue.enqueue('t', some(4)))).toEqual(['in', 'in', 'in', 'topic-full']);
});

describe('a quota of bytes', () => {
  test('counts payloads, ready and delayed, and lets in what still fits', async () => {
    const { queue, env } = await testQueue();
    const large = 'x'.repeat(1_000);
    await queue.configure('t', { maxWaitingBytes: 2 * sizeOf(large) + sizeOf('s') });
    const results = await queue.enqueue('t', [
      { payload: large },
      { payload: large, delayMs: 1_000 },
      { payload: large },
      { payload: 's' },
      { payload: 's' },
    ]);
    expect(codes(results)).toEqual(['in', 'in', 'topic-full', 'in', 'topic-full']);
    await ackAll(queue, await queue.lease({ max: 1 }));
    expect(codes(await queue.enqueue('t', [{ payload: large }, { payload: 's' }]))).toEqual(['in', 'topic-full']);
    await env.advance(2_000);
    expect((await queue.topic('t')).counts).toMatchObject({ ready: 3, delayed: 0 });
    expect(codes(await queue.enqueue('t', some(1)))).toEqual(['topic-full']);
    await ackAll(queue, await queue.lease({ max: 3 }));
    expect(codes(await queue.enqueue('t', [{ payload: large }, { payload: large }, { payload: 's' }]))).toEqual([
      'in',
      'in',
      'in',
    ]);
  });

  test('a task that is larger than all of it is told so', async () => {
    const { queue } = await testQueue();
    await queue.configure('t', { maxWaitingBytes: 500 });
    const [result] = await queue.enqueue('t', [{ payload: 'x'.repeat(500) }]);
    expect(result).toMatchObject({ id: null, code: 'payload-too-large' });
  });

  test.each(['ready', 'delayed'] as const)('is set while tasks are %s', async (state) => {
    const { queue, lease } = await testQueue({ segmentSize: 10 });
    const delay = state === 'delayed' ? { delayMs: 60_000 } : {};
    for (let nth = 0; nth < 25; nth++) await queue.enqueue('t', { payload: 'x'.repeat(nth), ...delay });
    if (state === 'ready') await ackAll(queue, await lease({ max: 13 }));
    const waiting = Array.from({ length: 25 }, (_, nth) => 'x'.repeat(nth)).slice(state === 'ready' ? 13 : 0);
    const bytes = waiting.reduce((sum, payload) => sum + sizeOf(payload), 0);
    await queue.configure('t', { maxWaitingBytes: bytes + sizeOf('y') });
    expect(codes(await queue.enqueue('t', [{ payload: 'yy' }, { payload: 'y' }, { payload: '' }]))).toEqual([
      'topic-full',
      'in',
      'topic-full',
    ]);
  });
});

describe('several servers', () => {
  test('one that does not schedule the topic asks the one that does', async () => {
    const { env, server } = await sharedStore(1);
    const holder = await server();
    const other = await server();
    const [scheduling, asking] = holder.queue.status().shards.held === 1 ? [holder, other] : [other, holder];
    await scheduling.queue.configure('t', { maxWaiting: 5, maxWaitingBytes: 1_000_000 });
    await scheduling.queue.enqueue('t', some(3));
    await scheduling.queue.enqueue('t', some(1, { delayMs: 60_000 }));
    expect(codes(await asking.queue.enqueue('t', some(3)))).toEqual(['in', 'topic-full', 'topic-full']);
    await env.advance(10);
    expect(codes(await scheduling.queue.enqueue('t', some(1)))).toEqual(['topic-full']);
    expect((await asking.queue.topic('t')).counts).toMatchObject({ ready: 4, delayed: 1 });
    await ackAll(asking.queue, await asking.queue.lease({ max: 2 }));
    await env.advance(10);
    expect(codes(await asking.queue.enqueue('t', some(3)))).toEqual(['in', 'in', 'topic-full']);
  });

  test('calls at once at all of them go beyond it by no more than the others have under way', async () => {
    const { env, server } = await sharedStore(1);
    const servers = [await server(), await server(), await server()];
    await servers[0]!.queue.configure('t', { maxWaiting: 20 });
    for (const { queue } of servers) await queue.enqueue('t', some(1));
    await env.advance(6_000);
    const calls = servers.flatMap(({ queue }) => Array.from({ length: 4 }, () => queue.enqueue('t', some(4))));
    const results = Promise.all(calls);
    await env.advance(2_000);
    const taken = (await results).flatMap(codes).filter((code) => code === 'in').length;
    expect(taken).toBeGreaterThanOrEqual(17);
    // 16 tasks are under way at each of two others.
    expect(taken).toBeLessThanOrEqual(17 + 2 * 16);
    const { ready } = (await servers[0]!.queue.topic('t')).counts;
    expect(ready).toBe(taken + 3);
    for (const { queue } of servers) expect(codes(await queue.enqueue('t', some(1)))).toEqual(['topic-full']);
  });

  test('where nobody answers, tasks are let in; who takes the shard over knows what waits', async () => {
    const { env, server } = await sharedStore(1);
    const first = await server();
    await first.queue.configure('t', { maxWaiting: 3 });
    await first.queue.enqueue('t', [...some(1), ...some(1, { delayMs: 3_600_000 })]);
    const second = await server();
    await env.advance(1_000);
    const [scheduling, asking] = first.queue.status().shards.held === 1 ? [first, second] : [second, first];
    scheduling.pause();
    const late = asking.queue.enqueue('t', some(2));
    await env.advance(2_000);
    expect(codes(await late)).toEqual(['in', 'in']);
    await env.advance(15_000);
    expect(asking.queue.status().shards.held).toBe(1);
    expect((await asking.queue.topic('t')).counts).toMatchObject({ ready: 3, delayed: 1 });
    expect(codes(await asking.queue.enqueue('t', some(1)))).toEqual(['topic-full']);
    scheduling.resume();
    await env.advance(5_000);
  });
});

describe('a store that may hold only so much', () => {
  test('takes nothing new when it is full, and goes on with what it has', async () => {
    const env = manualEnvironment();
    const store = await openSqliteStore(':memory:', { now: env.now, maxBytes: 1024 * 1024 });
    const queue = await startQueue(store, { environment: env });
    onTestFinished(() => queue.stop());
    await queue.enqueue('t', { payload: 1, messageId: 'known' });
    const payload = 'x'.repeat(50_000);
    const taken = [];
    for (let result = codes(await queue.enqueue('t', [{ payload }]))[0]; result === 'in'; ) {
      taken.push(result);
      result = codes(await queue.enqueue('t', [{ payload }]))[0]!;
    }
    expect(taken.length).toBeGreaterThan(10);
    expect(taken.length).toBeLessThan(25);
    expect(codes(await queue.enqueue('other', [{ payload: 1 }]))).toEqual(['store-full']);
    await expect(queue.enqueue('t', { payload: 1 })).rejects.toMatchObject({ code: 'store-full' });
    expect(await queue.enqueue('t', { payload: 1, messageId: 'known' })).toMatchObject({ deduplicated: true });
    // Leases, retries, results and settings go on; what was done is deleted after its retention, and makes room.
    await queue.configure('t', { retentionMs: 300_000 });
    const [back, ...tasks] = await queue.lease({ max: 100 });
    expect(tasks).toHaveLength(taken.length);
    await queue.settle({ nack: [{ leaseId: back!.leaseId, delayMs: 0 }] });
    const answers = await ackAll(queue, [...tasks, ...(await queue.lease())]);
    expect(answers.ack.every(({ ok }) => ok)).toBe(true);
    await env.advance(700_000);
    expect(codes(await queue.enqueue('t', [{ payload }]))).toEqual(['in']);
  });
});

// ── the counts against the store ────────────────────────────────────────────────────────────────────────────────

type Step =
  | {
      readonly do: 'enqueue';
      readonly count: number;
      readonly size: number;
      readonly delay: number;
      readonly ttl: number;
    }
  | { readonly do: 'publish'; readonly id: number; readonly how: 'keep' | 'again' | 'replace' }
  | { readonly do: 'lease'; readonly max: number }
  | { readonly do: 'ack' | 'nack' | 'release' | 'bury' | 'retry'; readonly count: number }
  | { readonly do: 'cancel' | 'reschedule'; readonly nth: number }
  | { readonly do: 'advance'; readonly ms: number }
  | { readonly do: 'purge' | 'redrive' | 'restart' | 'quota' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('enqueue' as const),
      count: fc.integer({ min: 1, max: 8 }),
      size: fc.integer({ min: 0, max: 300 }),
      delay: fc.constantFrom(0, 0, 300, 5_000, 60_000),
      ttl: fc.constantFrom(0, 0, 70_000),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('publish' as const),
      id: fc.integer({ min: 0, max: 3 }),
      how: fc.constantFrom('keep' as const, 'again' as const, 'replace' as const),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('lease' as const), max: fc.integer({ min: 1, max: 6 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom('ack' as const, 'nack' as const, 'release' as const, 'bury' as const, 'retry' as const),
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('cancel' as const, 'reschedule' as const),
      nth: fc.integer({ min: 0, max: 30 }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('advance' as const), ms: fc.constantFrom(10, 400, 6_000, 40_000, 80_000) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constantFrom('purge' as const, 'redrive' as const, 'restart' as const, 'quota' as const),
    }),
  },
);

const TOPIC = 't';
/** So long a task may still be counted that has expired. */
const EXPIRE_WITHIN_MS = 2_500;

/** What waits in the topic as its rows say, whatever anybody has counted. */
async function scanOf(store: Store, purgedAt: number | null, now: number) {
  const waiting = { tasks: 0, expiring: 0, bytes: 0 };
  for (let after: string | null = null; ; ) {
    const page = await store.scanSegments(after, 100);
    for (const { topic, tier, segment } of page.rows) {
      if (tier === DEAD_TIER && !isSlotTopic(topic)) continue;
      const size = store.meta.segmentSize;
      const log = { topic, tier };
      const header = await store.readSegment(log, segment);
      const range = { log, from: segment * size, to: (segment + 1) * size, limit: size };
      for (const entry of await store.readEntries(range)) {
        const isOurs = isSlotTopic(topic) ? entry.target === TOPIC : topic === TOPIC;
        if (!isOurs) continue;
        const isPurged = purgedAt !== null && entry.enqueuedAt <= purgedAt;
        const waits = entry.status === 'ready' && !isPurged;
        if (waits && (entry.expiresAt ?? Number.POSITIVE_INFINITY) > now) waiting.tasks++;
        else if (waits && entry.expiresAt! > now - EXPIRE_WITHIN_MS) waiting.expiring++;
        // Of a log of tasks, all that stands from the scan cursor on counts; of a slot, what waits.
        if (isSlotTopic(topic) ? waits : entry.id >= (header?.scan ?? 0)) waiting.bytes += entryBytes(entry);
      }
    }
    if (page.next === null) return waiting;
    after = page.next;
  }
}

/** What the queue has counted, as it would tell another server. */
const countedBy = async (queue: Queue) =>
  (
    (await (queue as unknown as { peers: { answer(method: string, body: object): Promise<unknown> } }).peers.answer(
      'call',
      {
        method: 'waiting',
        topic: TOPIC,
        args: [],
      },
    )) as { value: { tasks: number; bytes: number } }
  ).value;

test('what is counted is what a scan of the store finds, whatever happens', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), fc.boolean(), async (steps, fromTheStart) => {
      const env = manualEnvironment();
      const file = await openSqliteStore(':memory:', { now: env.now, meta: { segmentSize: 7 } });
      const lasting = new Proxy(file, {
        get(target, name) {
          if (name === 'close') return async () => {};
          const member = Reflect.get(target, name) as unknown;
          return typeof member === 'function' ? member.bind(target) : member;
        },
      });
      let queue = await startQueue(lasting, { environment: env });
      const quota = { maxWaiting: 12, maxWaitingBytes: 4_000 };
      await queue.configure(TOPIC, { maxAttempts: 2, backoffMs: 500, maxBackoffMs: 30_000, leaseMs: 30_000 });
      if (fromTheStart) await queue.configure(TOPIC, quota);
      const ids: string[] = [];
      let leased: string[] = [];
      const settled = (count: number) => leased.splice(0, count).map((leaseId) => ({ leaseId }));
      const carryOut = async (one: Step): Promise<void> => {
        switch (one.do) {
          case 'enqueue': {
            const task: TaskInput = {
              payload: 'x'.repeat(one.size),
              ...(one.delay > 0 ? { delayMs: one.delay } : {}),
              ...(one.ttl > 0 ? { ttlMs: one.ttl } : {}),
            };
            const before = await countedBy(queue);
            const results = await queue.enqueue(TOPIC, Array<TaskInput>(one.count).fill(task));
            const taken = results.filter(({ id }) => id !== null).length;
            const { settings } = await queue.topic(TOPIC);
            if (settings.maxWaiting !== null) {
              expect(taken).toBeLessThanOrEqual(Math.max(0, settings.maxWaiting - before.tasks));
            }
            for (const { id } of results) if (id !== null) ids.push(id);
            return;
          }
          case 'publish': {
            const results = await queue.enqueue(TOPIC, [
              { payload: `p${one.id}`, messageId: `m${one.id}`, onDuplicate: one.how },
            ]);
            for (const { id } of results) if (id !== null) ids.push(id);
            return;
          }
          case 'lease':
            leased.push(...(await queue.lease({ topics: [TOPIC], max: one.max })).map(({ leaseId }) => leaseId));
            return;
          case 'ack':
            await queue.settle({ ack: settled(one.count) });
            return;
          case 'nack':
            await queue.settle({ nack: settled(one.count).map((item) => ({ ...item, delayMs: 0 })) });
            return;
          case 'retry':
            await queue.settle({ nack: settled(one.count).map((item) => ({ ...item, delayMs: 4_000 })) });
            return;
          case 'bury':
            await queue.settle({ nack: settled(one.count).map((item) => ({ ...item, dead: true })) });
            return;
          case 'release':
            await queue.settle({ release: settled(one.count) });
            return;
          case 'cancel':
            if (ids.length > 0) await queue.cancel(TOPIC, ids[one.nth % ids.length]!).catch(() => {});
            return;
          case 'reschedule':
            if (ids.length > 0) {
              await queue.reschedule(TOPIC, ids[one.nth % ids.length]!, { priority: one.nth % 10 }).catch(() => {});
            }
            return;
          case 'advance':
            await env.advance(one.ms);
            return;
          case 'purge': {
            const purged = queue.purge(TOPIC);
            await env.advance(5);
            await purged.catch(() => {});
            return;
          }
          case 'redrive':
            await queue.redrive(TOPIC);
            return;
          case 'restart':
            await queue.stop();
            queue = await startQueue(lasting, { environment: env });
            leased = [];
            return;
          case 'quota':
            await queue.configure(TOPIC, quota);
            return;
        }
      };
      try {
        for (const one of steps) {
          await carryOut(one);
          // What is swept, counted in the background, or moved at its time is done then.
          await env.advance(2_000);
          const { settings, counts } = await queue.topic(TOPIC);
          const found = await scanOf(file, settings.purgedAt, env.now());
          const counted = await countedBy(queue);
          expect(counted.tasks, one.do).toBe(counts.ready + counts.delayed);
          // The totals that are kept are those of all topics.
          expect(queue.status(), one.do).toMatchObject(counts);
          expect(counted.tasks, one.do).toBeGreaterThanOrEqual(found.tasks);
          expect(counted.tasks, one.do).toBeLessThanOrEqual(found.tasks + found.expiring);
          if (settings.maxWaitingBytes !== null) expect(counted.bytes, one.do).toBe(found.bytes);
        }
      } finally {
        await queue.stop();
        await file.close();
      }
    }),
    { numRuns: 80 },
  );
});
