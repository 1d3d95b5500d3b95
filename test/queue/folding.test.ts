/** Topics that only wait are folded, and nobody can tell: they are told of, leased from, and put into as ever. */
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { TopicBook } from '../../src/queue/topics.ts';
import { TICK_MS, Uptime } from '../../src/queue/uptime.ts';
import { checkLease } from '../../src/queue/validate.ts';
import { ReadyRing } from '../../src/scheduler/ready-ring.ts';
import { MemoryStore } from '../../src/store/memory/store.ts';
import { Tables } from '../../src/store/memory/tables.ts';
import { EMBEDDED_META } from '../../src/store/store.ts';
import { TestQueue } from '../../src/testing/index.ts';
import { entry } from '../conformance/harness.ts';
import { manualEnvironment } from '../support/manual-environment.ts';
import { sharedStore } from '../support/shared-store.ts';

/** Longer than who looked a topic up may be busy with it, and until topics are looked through the next time. */
const REST_MS = 90_000;

/** Names of those that were folded, and unfolded, since. */
let folded: string[];
let unfolded: string[];
beforeEach(() => {
  folded = [];
  unfolded = [];
  const { fold, unfold } = TopicBook.prototype;
  vi.spyOn(TopicBook.prototype, 'fold').mockImplementation(function (this: TopicBook, topic) {
    const one = fold.call(this, topic);
    if (one !== null) folded.push(one.name);
    return one;
  });
  vi.spyOn(TopicBook.prototype, 'unfold').mockImplementation(function (this: TopicBook, one) {
    unfolded.push(one.name);
    return unfold.call(this, one);
  });
  return () => vi.restoreAllMocks();
});

async function started(): Promise<TestQueue> {
  const queue = await TestQueue.start();
  onTestFinished(() => queue.stop());
  return queue;
}

const tasks = (count: number) => Array.from({ length: count }, (_, payload) => ({ payload }));
const leaseIds = (tasks: readonly { readonly leaseId: string }[]) => tasks.map(({ leaseId }) => ({ leaseId }));
const payloads = (tasks: readonly { readonly payload: unknown }[]) => tasks.map(({ payload }) => payload);

describe('a topic that only waits', () => {
  test('is told of as before, without being unfolded', async () => {
    const queue = await started();
    for (let nth = 0; nth < 30; nth++) await queue.enqueue(`t${nth}`, [{ payload: nth }, { payload: nth }]);
    const before = [queue.status(), await queue.topics()];
    await queue.advance(REST_MS);
    expect(folded).toHaveLength(30);
    const later = [queue.status(), await queue.topics()];
    const withoutTimes = (told: unknown) => JSON.parse(JSON.stringify(told).replace(/"oldestReadyMs":\d+/g, '""'));
    const told = ({ ready, activeTopics, delayed, leased }: ReturnType<TestQueue['status']>) => [
      ready,
      activeTopics,
      delayed,
      leased,
    ];
    expect(told(later[0] as never)).toEqual(told(before[0] as never));
    expect(withoutTimes(later[1])).toEqual(withoutTimes(before[1]));
    expect(queue.status().oldestReadyMs).toBeGreaterThanOrEqual(REST_MS);
    expect(unfolded).toEqual([]);
    expect((await queue.topic('t7')).counts).toMatchObject({ ready: 2 });
    expect((await queue.cursors('t7')).priorities).toMatchObject([{ nextId: 2, scanCursor: 0, ready: 2 }]);
    expect(unfolded).toEqual(['t7']);
  });

  test('has its turn when it would have had it, and its tasks once', async () => {
    const queue = await started();
    for (let nth = 0; nth < 40; nth++) await queue.enqueue(`t${nth}`, { payload: nth, priority: nth % 3 });
    await queue.advance(REST_MS);
    expect(folded).toHaveLength(40);
    const first = await queue.lease({ max: 10 });
    expect(payloads(first)).toEqual(Array.from({ length: 10 }, (_, nth) => nth));
    // A lease unfolds those that it takes from.
    expect(unfolded).toHaveLength(10);
    await queue.settle({ ack: leaseIds(first) });
    const named = await queue.lease({ topics: ['t3*'], max: 20 });
    expect(payloads(named)).toEqual(Array.from({ length: 10 }, (_, nth) => 30 + nth));
    const highest = await queue.lease({ order: 'priority', max: 3 });
    expect(highest.map(({ priority }) => priority)).toEqual([2, 2, 2]);
    await queue.settle({ ack: leaseIds([...named, ...highest]) });
    const rest = await queue.lease({ max: 100 });
    expect(rest).toHaveLength(17);
    await queue.settle({ ack: leaseIds(rest) });
    expect(await queue.lease()).toEqual([]);
    expect(queue.status()).toMatchObject({ ready: 0, leased: 0 });
  });

  test('is one also where a lease names it twice', async () => {
    const queue = await started();
    await queue.enqueue('t', tasks(6));
    await queue.advance(REST_MS);
    const leased = await queue.lease({ topics: ['t', 't', 't*'], max: 4 });
    expect(payloads(leased)).toEqual([0, 1, 2, 3]);
    expect(unfolded).toEqual(['t']);
    await queue.settle({ ack: leaseIds(leased) });
    expect(queue.status()).toMatchObject({ ready: 2, leased: 0 });
    expect(payloads(await queue.lease({ max: 9 }))).toEqual([4, 5]);
  });

  test('is not folded within the minute behind a look', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 0 });
    await queue.advance(40_000);
    expect((await queue.topic('t')).counts).toMatchObject({ ready: 1 });
    await queue.advance(55_000);
    expect(folded).toEqual([]);
    await queue.advance(40_000);
    expect(folded).toEqual(['t']);
  });

  test('takes what is put into it, at once or from a time slot', async () => {
    const queue = await started();
    await queue.enqueue('t', [{ payload: 0 }, { payload: 'late', delayMs: 3 * REST_MS }]);
    await queue.advance(REST_MS);
    expect(folded).toEqual(['t']);
    expect((await queue.topics()).topics[0]!.counts).toMatchObject({ ready: 1, delayed: 1 });
    expect(unfolded).toEqual([]);
    await queue.enqueue('t', { payload: 1 });
    await queue.advance(REST_MS);
    expect(folded).toEqual(['t', 't']);
    await queue.advance(2 * REST_MS);
    expect((await queue.topics()).topics[0]!.counts).toMatchObject({ ready: 3, delayed: 0 });
    expect(payloads(await queue.lease({ max: 5 }))).toEqual([0, 1, 'late']);
  });

  test('keeps its settings and its limits', async () => {
    const queue = await started();
    await queue.configure('t', { maxInFlight: 2, minIntervalMs: 900_000, retentionMs: 300_000 });
    await queue.enqueue('t', tasks(6));
    const first = await queue.lease({ max: 1 });
    await queue.settle({ ack: leaseIds(first) });
    // What was settled is trimmed by then; but its gate is shut, and so it does not wait for its turn.
    await queue.advance(600_000);
    expect(folded).toEqual([]);
    await queue.advance(420_000);
    expect(folded).toEqual(['t']);
    expect(payloads(await queue.lease({ max: 5 }))).toEqual([1]);
    expect(await queue.lease()).toEqual([]);
    await queue.configure('t', { maxInFlight: null, minIntervalMs: null });
    expect(payloads(await queue.lease({ max: 5 }))).toEqual([2, 3, 4, 5]);
  });

  test.each([
    ['limited', { minIntervalMs: 1_000 }],
    ['not limited', {}],
  ])('remembers when it was leased from, %s', async (_, limits) => {
    const queue = await started();
    await queue.configure('t', { retentionMs: 300_000, ...limits });
    await queue.enqueue('t', tasks(3));
    await queue.settle({ ack: leaseIds(await queue.lease()) });
    await queue.advance(420_000);
    expect(folded).toEqual(['t']);
    await queue.configure('t', { minIntervalMs: 3_600_000 });
    expect(await queue.lease()).toEqual([]);
    await queue.advance(3_600_000 - 420_000);
    expect(payloads(await queue.lease())).toEqual([1]);
  });

  test.each([
    [
      'a task of it is leased',
      async (queue: TestQueue) => void (await queue.lease({ topics: ['t'], leaseMs: 600_000 })),
    ],
    ['it is paused', async (queue: TestQueue) => void (await queue.configure('t', { paused: true }))],
    ['a task of it expires', (queue: TestQueue) => queue.enqueue('t', { payload: 0, ttlMs: 600_000 })],
    ['it has a quota of bytes', (queue: TestQueue) => queue.configure('t', { maxWaitingBytes: 10_000 })],
    ['it has another tier', (queue: TestQueue) => queue.enqueue('t', { payload: 0, priority: 9 })],
  ])('is not folded where %s', async (_, make) => {
    const queue = await started();
    await queue.enqueue('t', [{ payload: 0 }, { payload: 1 }]);
    await queue.enqueue('other', { payload: 2 });
    await make(queue);
    await queue.advance(REST_MS);
    expect(folded).toEqual(['other']);
  });

  test('is not folded while somebody waits for it to be drained', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 0 });
    const drained = queue.drained('t', { timeoutMs: 10 * REST_MS });
    await queue.advance(REST_MS);
    expect(folded).toEqual([]);
    await queue.settle({ ack: leaseIds(await queue.lease()) });
    expect(await drained).toBe(true);
  });

  test('is recorded in the next period of the activity index', async () => {
    const { env, server } = await sharedStore(1);
    const first = await server();
    await first.queue.enqueue('t', { payload: 0 });
    await env.advance(REST_MS);
    expect(folded).toEqual(['t']);
    // A period takes an hour and a quarter at the most.
    await env.advance(5_400_000);
    expect(unfolded).toEqual([]);
    const stopped = first.queue.stop();
    await env.advance(2_000);
    await stopped;
    const second = await server();
    await env.advance(100);
    expect(payloads(await second.queue.lease())).toEqual([0]);
  });

  /** A server that holds all shards, and has folded sixteen topics. */
  async function withFolded() {
    const { env, server } = await sharedStore();
    const first = await server();
    const names = Array.from({ length: 16 }, (_, nth) => `t${nth}`);
    for (const name of names) await first.queue.enqueue(name, { payload: name });
    await env.advance(REST_MS);
    expect(folded).toHaveLength(16);
    return { env, server, first, names };
  }

  test('goes with its shard, and takes what another server puts into it', async () => {
    const { env, server, first, names } = await withFolded();
    const second = await server();
    expect(second.queue.status().shards.held).toBe(4);
    for (const name of names) await second.queue.enqueue(name, { payload: name });
    await env.advance(1_000);
    const got: unknown[] = [];
    for (const { queue } of [first, second]) {
      const leased = queue.lease({ max: 100 });
      await env.advance(10);
      got.push(...payloads(await leased));
    }
    expect(got.sort()).toEqual([...names, ...names].sort());
  });

  test('comes back with its shard', async () => {
    const { env, server, first, names } = await withFolded();
    const second = await server();
    await env.advance(REST_MS);
    const stopped = second.queue.stop();
    await env.advance(2_000);
    await stopped;
    for (const name of names) await first.queue.enqueue(name, { payload: name });
    await env.advance(1_000);
    expect(payloads(await first.queue.lease({ max: 100 })).sort()).toEqual([...names, ...names].sort());
    expect(await first.queue.lease({ max: 100 })).toEqual([]);
  });
});

describe('in memory', () => {
  async function book(names: readonly string[]) {
    const env = manualEnvironment();
    const made = new TopicBook(new MemoryStore(new Tables(EMBEDDED_META, env.now)), env);
    const { tenure } = made.begin(0, 1);
    tenure.isLoaded = true;
    for (const topic of names) await (await made.log({ topic, tier: 5 })).append([entry(0)]);
    for (let ticks = 0; ticks < 6; ticks++) {
      await env.advance(TICK_MS);
      made.uptime.tick();
    }
    return { made, tenure };
  }

  test('whoever goes through all topics meets each once, also where some are folded and unfolded meanwhile', async () => {
    const names = ['a', 'b', 'c', 'd'];
    const { made, tenure } = await book(names);
    const [a, , c] = [...made.topicsOf(tenure)];
    expect(made.fold(c!)).not.toBeNull();
    const met: string[] = [];
    for (const { name } of made.held()) {
      met.push(name);
      if (name !== 'b') continue;
      expect(made.fold(a!)).not.toBeNull();
      made.peek('c');
    }
    expect(met).toEqual(names);
    expect([...made.topicsOf(tenure)].map(({ name }) => name).sort()).toEqual(['b', 'c', 'd']);
    expect(made.totals()).toMatchObject({ topics: 4, ready: 4 });
  });

  test('what is told late of a topic that was folded since leaves the one in its place alone', async () => {
    const { made, tenure } = await book(['a']);
    const ring = new ReadyRing(manualEnvironment(), (one) => made.unfold(one));
    made.onUnfolded = (one, topic) => ring.replace(one, topic);
    const [stale] = [...made.topicsOf(tenure)];
    ring.offer(stale!);
    ring.replace(stale!, made.fold(stale!)!);
    const [pick] = ring.pick(checkLease({}), 1, new Map());
    expect(pick!.topic).not.toBe(stale);
    pick!.log.countReady(-1);
    ring.claimed(pick!.topic);
    ring.claimed(stale!);
    expect(ring.readyFor(checkLease({}))).toBe(0);
    pick!.log.countReady(1);
    ring.offer(pick!.topic);
    expect(ring.pick(checkLease({}), 1, new Map())[0]!.topic).toBe(pick!.topic);
  });
});

test('what stood still is not taken for long ago', () => {
  let now = 0;
  const uptime = new Uptime(() => now);
  now = 10_000;
  expect(uptime.now()).toBe(10_000);
  uptime.tick();
  now = 500_000;
  expect(uptime.now()).toBe(40_000);
  uptime.tick();
  now += 15_000;
  expect(uptime.now()).toBe(55_000);
});
