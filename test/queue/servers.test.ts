/** Several servers on one store: each hands out the tasks of its shards, and passes calls on to the others. */
import { describe, expect, test, vi } from 'vitest';
import { parseLeaseToken } from '../../src/core/lease-token.ts';
import { commitPatch, pendingEntry, verdictPatch } from '../../src/core/move.ts';
import { PeerUnreachableError } from '../../src/queue/peers.ts';
import { type Server, sharedStore } from '../support/shared-store.ts';

const leaseIds = (tasks: readonly { readonly leaseId: string }[]) => tasks.map(({ leaseId }) => ({ leaseId }));
const held = (server: Server): number => server.queue.status().shards.held;
const tasks = (count: number) => Array.from({ length: count }, (_, nth) => ({ payload: nth }));
const topics = Array.from({ length: 12 }, (_, nth) => `t${nth}`);

describe('shards', () => {
  test('are spread evenly as servers come, and go', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    expect(held(first)).toBe(8);
    const second = await server();
    expect([held(first), held(second)]).toEqual([4, 4]);
    const third = await server();
    expect([first, second, third].map(held).sort()).toEqual([2, 3, 3]);
    const stopped = second.queue.stop();
    await env.advance(100);
    expect(held(first) + held(third)).toBe(8);
    await stopped;
  });

  test('go to the others within fifteen seconds when a server dies', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    for (const topic of topics) await first.queue.enqueue(topic, { payload: topic });
    await env.advance(10);
    const leased = await second.queue.lease({ max: 100, leaseMs: 3_000 });
    expect(leased).toHaveLength(topics.length);
    await env.advance(1_000);
    first.pause();
    await env.advance(15_000);
    expect(held(second)).toBe(8);
    const again = await second.queue.lease({ max: 100 });
    expect(again.map(({ attempt }) => attempt)).toEqual(topics.map(() => 2));
    first.resume();
    await env.advance(5_000);
    expect([held(first), held(second)]).toEqual([4, 4]);
  });

  test('a server that was paused past its time can claim nothing when it wakes up', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    await first.queue.enqueue('t', tasks(10));
    await first.queue.lease();
    const second = await server();
    const holder = (await first.queue.peers.answer('census', { topics: ['t'] })).ready.some((count) => count > 0)
      ? first
      : second;
    const other = holder === first ? second : first;
    holder.pause();
    const late = holder.queue.lease({ topics: ['t'], max: 5 }).catch(() => []);
    await env.advance(15_000);
    expect(await other.queue.lease({ topics: ['t'], max: 2 })).toHaveLength(2);
    holder.resume();
    await env.advance(3_000);
    expect((await late).length + (await other.queue.lease({ topics: ['t'], max: 20 })).length).toBe(7);
    const { inFlight } = (await other.queue.cursors('t')).priorities[0]!;
    expect(inFlight).toBe(10);
  });

  test('a claim of a time that is over, answered late, takes nothing from the time that has begun', async () => {
    const { env, server } = await sharedStore(1);
    const first = await server();
    await first.queue.enqueue(
      't',
      Array.from({ length: 5 }, (_, payload) => ({ payload })),
    );
    const answer = first.holdAnswers('change');
    const leasing = first.queue.lease({ max: 1, leaseMs: 3_600_000 });
    await env.advance(10);
    const second = await server();
    first.pause();
    await env.advance(20_000);
    expect(second.queue.status().shards.held).toBe(1);
    first.resume();
    await env.advance(2_000);
    const stopped = second.queue.stop();
    await env.advance(15_000);
    await stopped;
    await env.advance(15_000);
    expect(first.queue.status().shards.held).toBe(1);
    answer();
    await env.advance(10);
    const late = await leasing;
    expect(await first.queue.lease({ max: 10 })).toHaveLength(5 - late.length);
  });

  test('are not taken from a living server by one that learns late that it lives', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    const release = second.holdAnswers('readNodes');
    await env.advance(12_000);
    release();
    await env.advance(10);
    expect([held(first), held(second)]).toEqual([4, 4]);
    await env.advance(3_000);
    expect([held(first), held(second)]).toEqual([4, 4]);
  });

  test('are held by a process that listens nowhere only while it leases', async () => {
    const { env, server } = await sharedStore();
    const alone = await server('alone');
    await alone.queue.enqueue('t', { payload: 1 });
    expect(held(alone)).toBe(0);
    expect(await alone.queue.lease()).toHaveLength(1);
    expect(held(alone)).toBe(8);
    const first = await server();
    // Nobody can tell it of the other: it sees that by itself.
    await env.advance(2_500);
    expect([held(alone), held(first)]).toEqual([4, 4]);
    await env.advance(15_000);
    expect([held(alone), held(first)]).toEqual([0, 8]);
    await alone.queue.enqueue('t', { payload: 2 });
    await env.advance(10);
    // It asks for one topic, which others may be asked for as well: it passes the call on.
    expect(await alone.queue.lease({ topics: ['t'] })).toHaveLength(1);
    expect(held(alone)).toBe(0);
  });
});

describe('two servers', () => {
  test('lease from each other, in turn; tasks are enqueued and settled at any', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    for (const topic of topics) {
      await second.queue.enqueue(topic, [{ payload: 1 }, { payload: 2, messageId: 'm' }]);
    }
    await env.advance(10);
    const got = await first.queue.lease({ max: 100 });
    expect(got).toHaveLength(24);
    expect(new Set(got.map(({ topic }) => topic)).size).toBe(12);
    const settled = await second.queue.settle({ ack: leaseIds(got) });
    expect(settled.ack.every((item) => item.ok)).toBe(true);
    await env.advance(2_000);
    for (const topic of topics) {
      for (const { queue } of [first, second]) {
        expect((await queue.topic(topic)).counts).toEqual({ ready: 0, delayed: 0, leased: 0, dead: 0 });
        expect(await queue.enqueue(topic, { payload: 3, messageId: 'm' })).toMatchObject({ deduplicated: true });
        expect((await queue.taskByMessageId(topic, 'm')).state).toBe('done');
      }
    }
    expect((await first.queue.topics()).topics.map(({ topic }) => topic)).toEqual([...topics].sort());
  });

  test('no server is drained before the others', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    await server();
    for (const topic of topics) await first.queue.enqueue(topic, tasks(10));
    await env.advance(10);
    const seen = new Map<string, number>();
    for (let nth = 0; nth < 60; nth++) {
      for (const { topic } of await first.queue.lease()) seen.set(topic, (seen.get(topic) ?? 0) + 1);
    }
    expect([...seen.values()].reduce((sum, count) => sum + count, 0)).toBe(60);
    expect(Math.min(...topics.map((topic) => seen.get(topic) ?? 0))).toBeGreaterThanOrEqual(3);
  });

  test('tiers come first over all servers on request', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    await server();
    for (const [nth, topic] of topics.entries()) {
      await first.queue.enqueue(
        topic,
        [9, 5, nth % 10].map((priority) => ({ payload: priority, priority })),
      );
    }
    await env.advance(10);
    const priorities = (await first.queue.lease({ max: 36, order: 'priority' })).map(({ priority }) => priority);
    expect(priorities).toHaveLength(36);
    expect(priorities).toEqual([...priorities].sort((a, b) => b - a));
  });

  test.each(['first', 'second'])('an enqueue at either wakes a long poll at the %s at once', async (where) => {
    const { env, server } = await sharedStore();
    const servers = { first: await server(), second: await server() };
    const waiter = servers[where as 'first' | 'second'];
    for (const topic of topics) {
      for (const { queue } of Object.values(servers)) {
        const waiting = waiter.queue.lease({ waitMs: 20_000 });
        await env.advance(300);
        await queue.enqueue(topic, { payload: 1 });
        await env.advance(50);
        expect((await waiting).map((task) => task.topic)).toEqual([topic]);
      }
    }
  });

  test('a long poll goes on over a change of holder', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const waiting = first.queue.lease({ topics: topics, waitMs: 20_000, max: 1 });
    const second = await server();
    await env.advance(100);
    const third = await server();
    await env.advance(100);
    const topic = topics[7]!;
    await third.queue.enqueue(topic, { payload: 1 });
    await env.advance(1_000);
    expect((await waiting).map((task) => task.topic)).toEqual([topic]);
    expect(held(first) + held(second) + held(third)).toBe(8);
  });

  test('what one is told of by nobody it finds on the bell', async () => {
    const { env, server } = await sharedStore(1);
    const first = await server();
    const second = await server();
    const [holder, other] = held(first) === 1 ? [first, second] : [second, first];
    const waiting = holder.queue.lease({ waitMs: 20_000 });
    await env.advance(1_000);
    const { answer } = holder.queue.peers;
    expect(answer).toBeTypeOf('function');
    // The holder answers no other server for a moment, but reaches the store.
    const refuses = new Error('out of reach');
    Object.defineProperty(holder.queue, 'peers', {
      value: { answer: () => Promise.reject(new PeerUnreachableError(refuses.message)), knows: () => true, id: '' },
    });
    await other.queue.enqueue('t', { payload: 1 });
    await env.advance(1_000);
    expect(await waiting).toHaveLength(1);
  });

  test('who has no room for what another one asks costs that one nothing of its own', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    second.beBusy(true);
    // It is told by the bell.
    for (const topic of topics) await first.queue.enqueue(topic, { payload: topic });
    await env.advance(2_000);
    expect((await second.queue.peers.answer('census', {})).ready).toContain(1);
    const leased = await first.queue.lease({ max: 100 });
    expect(leased.length).toBeGreaterThan(0);
    expect(leased.length).toBeLessThan(topics.length);
    expect(await first.queue.lease({ max: 100, order: 'priority' })).toEqual([]);
    second.beBusy(false);
    await env.advance(1_000);
    expect(await first.queue.lease({ max: 100 })).toHaveLength(topics.length - leased.length);
  });

  test('take turns to put tasks into a topic, and learn of them without a read', async () => {
    const { env, store, server } = await sharedStore(1);
    const servers = [await server(), await server()];
    const [holder, other] = held(servers[0]!) === 1 ? servers : servers.toReversed();
    for (const { queue } of servers) await queue.enqueue('t', { payload: 0 });
    await env.advance(10);
    const append = vi.spyOn(store, 'append');
    const reads = [vi.spyOn(store, 'readSegment'), vi.spyOn(store, 'readHeads'), vi.spyOn(store, 'recordActivity')];
    const rounds = Array.from({ length: 20 }, async () => {
      await Promise.all(servers.map(({ queue }) => queue.enqueue('t', tasks(5))));
    });
    await Promise.all(rounds);
    for (const { value } of append.mock.settledResults) expect(value).toEqual({ kind: 'applied' });
    expect((await other!.queue.topic('t')).counts.ready).toBe(202);
    expect(await holder!.queue.lease({ max: 300 })).toHaveLength(202);
    expect(reads.map(({ mock }) => mock.calls.length)).toEqual([0, 0, 0]);
  });

  test('a turn that nobody uses holds others up for a moment only', async () => {
    const { env, server } = await sharedStore(1);
    const servers = [await server(), await server()];
    const [holder, other] = held(servers[0]!) === 1 ? servers : servers.toReversed();
    await other!.queue.enqueue('t', { payload: 0 });
    const [task] = await holder!.queue.lease();
    const { tier } = parseLeaseToken(task!.leaseId)!.place;
    const { end } = await holder!.queue.peers.answer('turn', { topic: 't', tier });
    expect(end).toMatchObject({ segment: 0, next: 1 });
    const late = servers.map(({ queue }) => queue.enqueue('t', { payload: 1 }));
    await env.advance(1_000);
    await Promise.all(late);
    await env.advance(10);
    expect(await holder!.queue.lease({ max: 10 })).toHaveLength(2);
  });

  test('a holder is told of what was put there however long that took', async () => {
    const { env, server } = await sharedStore(1);
    const servers = [await server(), await server()];
    const [holder, other] = held(servers[0]!) === 1 ? servers : servers.toReversed();
    await holder!.queue.enqueue('t', { payload: 0 });
    expect(await holder!.queue.lease()).toHaveLength(1);
    // Longer than what is known of a topic is kept by a server that has put nothing into it yet.
    const release = other!.holdAnswers('readMessages');
    const enqueued = other!.queue.enqueue('t', { payload: 1, messageId: 'm' });
    await env.advance(40_000);
    release();
    await enqueued;
    await env.advance(10);
    expect(await holder!.queue.lease({ max: 9 })).toHaveLength(2);
  });

  test('who asks for a turn, and goes, holds up no stop', async () => {
    const { env, server } = await sharedStore(1);
    const servers = [await server(), await server()];
    const [holder] = held(servers[0]!) === 1 ? servers : servers.toReversed();
    const gone = new AbortController();
    const turns = [1, 2].map(() => holder!.queue.peers.answer('turn', { topic: 't', tier: 5 }, gone.signal));
    await env.advance(1);
    gone.abort();
    await env.advance(1_000);
    expect(await Promise.all(turns)).toEqual([{ end: expect.any(Object) as object, period: 1 }, {}]);
  });

  test('tasks expire at the holder while they wait, wherever they came from', async () => {
    const { env, server } = await sharedStore();
    const servers = [await server(), await server()];
    for (const topic of topics) await servers[0]!.queue.enqueue(topic, { payload: 1, ttlMs: 2_000 });
    await env.advance(5_000);
    for (const topic of topics) expect((await servers[1]!.queue.topic(topic)).counts.ready).toBe(0);
  });

  test('delayed tasks and retries come up in time wherever they came from', async () => {
    const { env, server } = await sharedStore();
    const servers = [await server(), await server()];
    for (const { queue } of servers)
      for (const topic of topics) await queue.enqueue(topic, { payload: 1, delayMs: 5_000 });
    await env.advance(4_900);
    expect(await servers[0]!.queue.lease()).toEqual([]);
    await env.advance(1_100);
    const got = await servers[0]!.queue.lease({ max: 100 });
    expect(got).toHaveLength(24);
    const half = got.slice(0, 12);
    await servers[0]!.queue.settle({ nack: half.map(({ leaseId }) => ({ leaseId, delayMs: 2_000 })) });
    await servers[1]!.queue.settle({ nack: leaseIds(got.slice(12)).map((one) => ({ ...one, delayMs: 2_000 })) });
    await env.advance(1_900);
    expect(await servers[1]!.queue.lease()).toEqual([]);
    await env.advance(1_100);
    const again = await servers[1]!.queue.lease({ max: 100 });
    expect(again.map(({ attempt }) => attempt)).toEqual(Array.from({ length: 24 }, () => 2));
  });

  test.each(['before', 'after'])('a release is finished for a server that died %s the task was ready', async (when) => {
    const { env, store, server } = await sharedStore();
    const holder = await server();
    const other = await server('alone');
    await holder.queue.enqueue('t', { payload: 1 });
    const [task] = await holder.queue.lease({ leaseMs: 60_000 });
    const { leaseId, place } = parseLeaseToken(task!.leaseId)!;
    const log = { topic: 't', tier: place.tier };
    const [origin] = await store.readEntries({ log, from: 0, to: 1, limit: 1, serial: true });
    const entries = [pendingEntry(origin!, place, { placedAt: env.now() })];
    await store.append({ log, segment: 0, expectNext: 1, firstId: 1, entries, bytes: 1_000, seal: false });
    const committed = commitPatch({ ...log, id: 1 }, env.now(), null, true);
    await store.change({ log, segment: 0, changes: [{ id: 0, expect: { leaseId }, set: committed }] });
    if (when === 'after') {
      const ready = { id: 1, expect: { uid: origin!.uid, version: 1 }, set: verdictPatch('mark-ready', env.now()) };
      await store.change({ log, segment: 0, changes: [ready] });
    }
    const again = await other.queue.settle({ release: [{ leaseId: task!.leaseId }] });
    expect(again.release).toEqual([{ leaseId: task!.leaseId, ok: true }]);
    await env.advance(10);
    expect((await holder.queue.topic('t')).counts).toMatchObject({ ready: 1, leased: 0 });
    expect((await holder.queue.lease()).map(({ id, attempt }) => [id, attempt])).toEqual([[task!.id, 1]]);
  });

  test('settings are acknowledged once the holder has them', async () => {
    const { env, server } = await sharedStore();
    const servers = [await server(), await server()];
    for (const topic of topics) await servers[0]!.queue.enqueue(topic, tasks(3));
    await env.advance(10);
    for (const [nth, topic] of topics.entries()) await servers[nth % 2]!.queue.configure(topic, { maxInFlight: 1 });
    const got = await servers[0]!.queue.lease({ max: 100 });
    expect(got.map(({ topic }) => topic).sort()).toEqual([...topics].sort());
    await servers[1]!.queue.settle({ ack: leaseIds(got) });
    await env.advance(50);
    expect(await servers[1]!.queue.lease({ max: 100 })).toHaveLength(12);
    for (const topic of topics) await servers[1]!.queue.pause(topic);
    expect(await servers[0]!.queue.lease({ max: 100 })).toEqual([]);
  });

  test('a delayed task that had its turn before its row was written is not called a duplicate of the next one', async () => {
    const { env, server } = await sharedStore(1);
    const holder = await server();
    const other = await server();
    await holder.queue.configure('t', { dedupWindowMs: 0 });
    await env.advance(10);
    const release = other.holdCalls('writeMessages');
    const slow = other.queue.enqueue('t', { payload: 'first', messageId: 'm', delayMs: 100 });
    await env.advance(1_000);
    const first = await holder.queue.lease();
    expect(first).toMatchObject([{ payload: 'first' }]);
    await holder.queue.settle({ ack: leaseIds(first) });
    // Its slot is cleared away, and its message id is another task's.
    await env.advance(120_000);
    const next = await holder.queue.enqueue('t', { payload: 'next', messageId: 'm' });
    expect(next).toMatchObject({ deduplicated: false });
    release();
    await env.advance(1_000);
    expect(await slow).toEqual({ id: first[0]!.id, deduplicated: false });
    expect(await holder.queue.lease()).toMatchObject([{ id: next.id, payload: 'next' }]);
  });

  test('a purge takes off what it found, but for what was leased before it was in force', async () => {
    const { env, server } = await sharedStore(1);
    const { queue, holdCalls } = await server();
    await server();
    await queue.enqueue('t', tasks(10));
    const release = holdCalls('writeTopic');
    const purged = queue.purge('t');
    expect(await queue.lease({ max: 6 })).toHaveLength(6);
    await env.advance(5);
    await queue.enqueue('t', tasks(3));
    release();
    await env.advance(5);
    expect(queue.status().ready).toBe(3);
    await env.advance(2_000);
    await purged;
    expect(queue.status().ready).toBe(3);
    expect(await queue.lease({ max: 20 })).toHaveLength(3);
  });

  test('a message id is taken over from a dead letter that was redriven, and done, meanwhile', async () => {
    const { env, server } = await sharedStore(1);
    const holder = await server();
    const other = await server();
    const before = await holder.queue.enqueue('t', { payload: 'before', messageId: 'm', priority: 9 });
    await holder.queue.settle({ nack: leaseIds(await holder.queue.lease()).map((one) => ({ ...one, dead: true })) });
    await env.advance(10);
    const release = other.holdCalls('writeMessages');
    const slow = other.queue.enqueue('t', { payload: 'new', messageId: 'm', priority: 0, onDuplicate: 'again' });
    await env.advance(100);
    expect(await holder.queue.redrive('t')).toMatchObject({ redriven: 1 });
    await env.advance(10);
    const again = await holder.queue.lease({ max: 1 });
    expect(again).toMatchObject([{ id: before.id }]);
    await holder.queue.settle({ ack: leaseIds(again) });
    release();
    await env.advance(1_000);
    const now = await slow;
    expect(now).toMatchObject({ deduplicated: false });
    expect(await holder.queue.enqueue('t', { payload: 'late', messageId: 'm' })).toEqual({
      ...now,
      deduplicated: true,
    });
    expect(await holder.queue.lease({ max: 5 })).toMatchObject([{ id: now.id, payload: 'new' }]);
  });

  test('the holder hears of tasks that were put in with one that was on its way, and did not arrive', async () => {
    const { env, server } = await sharedStore(1);
    const holder = await server();
    const other = await server();
    await holder.queue.configure('t', { backoffMs: 0 });
    await holder.queue.enqueue('t', { payload: 'leased' });
    const leased = leaseIds(await holder.queue.lease());
    await env.advance(10);
    // What is appended while another append is under way goes in one batch behind it.
    const append = other.holdCalls('append');
    const first = other.queue.enqueue('t', { payload: 'first' });
    await env.advance(10);
    const moved = other.queue.settle({ nack: leased });
    await env.advance(10);
    const second = other.queue.enqueue('t', { payload: 'second' });
    const change = other.holdCalls('change');
    append();
    await env.advance(10);
    await holder.queue.settle({ ack: leased });
    change();
    await env.advance(10);
    expect((await moved).nack).toMatchObject([{ ok: false }]);
    await Promise.all([first, second]);
    const tasks = await holder.queue.lease({ max: 10 });
    expect(tasks.map(({ payload }) => payload).sort()).toEqual(['first', 'second']);
  });
});
