import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { EnqueueResult } from '../../src/queue/api.ts';
import { startQueue } from '../../src/queue/open.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { manualEnvironment } from '../support/manual-environment.ts';
import { ackAll, testQueue } from '../support/queue.ts';

const idOf = (result: EnqueueResult): string => {
  if (result.id === null) throw new Error(result.detail);
  return result.id;
};

async function tempFile(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-queue-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  return join(directory, 'queue.db');
}

test('the id of a delayed task is one of its own topic alone, though all topics wait together', async () => {
  const { queue } = await testQueue();
  const id = idOf(await queue.enqueue('mine', { payload: 1, delayMs: 5_000 }));
  expect(await queue.task('mine', id)).toMatchObject({ topic: 'mine', state: 'delayed' });
  const calls = [queue.task('other', id), queue.cancel('other', id), queue.reschedule('other', id, { priority: 1 })];
  for (const call of calls) await expect(call).rejects.toMatchObject({ code: 'task-not-found' });
  expect(await queue.redrive('other', { ids: [id] })).toMatchObject({
    redriven: 0,
    refused: [{ code: 'task-not-found' }],
  });
  expect(await queue.task('mine', id)).toMatchObject({ state: 'delayed', priority: 5 });
});

describe('enqueue and lease', () => {
  test('hands a task out as it was put in', async () => {
    const { queue } = await testQueue();
    const metadata = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', ключ: 'значение' };
    const payload = { url: 'https://example.org/', depth: 3, nested: [null, true, 'ü'] };
    const id = idOf(await queue.enqueue('web', { payload, metadata, priority: 7, messageId: 'm-1' }));
    const [task] = await queue.lease({ worker: 'w-1' });
    expect(task).toMatchObject({
      topic: 'web',
      id,
      messageId: 'm-1',
      payload,
      metadata,
      priority: 7,
      attempt: 1,
      progress: null,
    });
  });

  test('takes bytes and gives them back', async () => {
    const { queue } = await testQueue();
    const payload = new Uint8Array([0, 1, 254, 255]);
    await queue.enqueue('bytes', { payload });
    const [task] = await queue.lease();
    expect(task!.payload).toEqual(payload);
  });

  test('serves the highest priority of a topic first, in order within it', async () => {
    const { queue } = await testQueue();
    await queue.enqueue(
      'p',
      [3, 9, 0, 9, 5].map((priority, nth) => ({ payload: nth, priority })),
    );
    const tasks = await queue.lease({ max: 10 });
    expect(tasks.map((task) => task.payload)).toEqual([1, 3, 4, 0, 2]);
  });

  test('maps wider priorities onto tiers by bands', async () => {
    const { queue } = await testQueue();
    await queue.configure('p', { bands: [1, 101, 1001] });
    await queue.enqueue(
      'p',
      [5, 5000, 100, 101].map((priority) => ({ payload: priority, priority })),
    );
    const tasks = await queue.lease({ max: 10 });
    expect(tasks.map((task) => task.payload)).toEqual([5000, 101, 5, 100]);
    expect(tasks.map((task) => task.priority)).toEqual([5000, 101, 5, 100]);
    await expect(queue.enqueue('p', { payload: 0, priority: 0 })).rejects.toMatchObject({ code: 'invalid-input' });
  });

  test('goes round the topics', async () => {
    const { queue } = await testQueue();
    for (const topic of ['a', 'b', 'c'])
      await queue.enqueue(
        topic,
        Array.from({ length: 5 }, () => ({ payload: topic })),
      );
    const seen: string[] = [];
    for (let nth = 0; nth < 6; nth++) seen.push((await queue.lease())[0]!.topic);
    expect(new Set(seen.slice(0, 3))).toEqual(new Set(['a', 'b', 'c']));
    expect(new Set(seen.slice(3))).toEqual(new Set(['a', 'b', 'c']));
    expect((await queue.lease({ max: 6 })).map((task) => task.topic).sort()).toEqual(['a', 'a', 'b', 'b', 'c', 'c']);
  });

  test('takes tiers first across topics when asked to', async () => {
    const { queue } = await testQueue();
    await queue.enqueue('a', [{ payload: 'a1', priority: 1 }]);
    await queue.enqueue('b', [
      { payload: 'b9', priority: 9 },
      { payload: 'b8', priority: 8 },
    ]);
    const tasks = await queue.lease({ max: 2, order: 'priority' });
    expect(tasks.map((task) => task.payload).sort()).toEqual(['b8', 'b9']);
  });

  test('leases by name, by prefix, by tier, and no more than asked of a topic', async () => {
    const { queue } = await testQueue();
    for (const topic of ['eu-1', 'eu-2', 'us-1']) {
      await queue.enqueue(
        topic,
        [1, 2, 3].map((nth) => ({ payload: nth, priority: nth })),
      );
    }
    expect((await queue.lease({ topics: ['us-1'], max: 1 })).map((task) => task.topic)).toEqual(['us-1']);
    const europe = await queue.lease({ topics: ['eu-*'], max: 10, maxPerTopic: 1 });
    expect(europe.map((task) => task.topic).sort()).toEqual(['eu-1', 'eu-2']);
    const low = await queue.lease({ priorities: [1], max: 10 });
    expect(low.map((task) => task.payload)).toEqual([1, 1, 1]);
  });

  test('a long poll wakes when a task arrives, and ends when its time is over', async () => {
    const { queue, env } = await testQueue();
    const woken = queue.lease({ topics: ['later'], waitMs: 10_000 });
    const ended = queue.lease({ topics: ['never'], waitMs: 1_000 });
    await env.advance(500);
    await queue.enqueue('later', { payload: 1 });
    expect((await woken).length).toBe(1);
    await env.advance(500);
    expect(await ended).toEqual([]);
  });

  test('a call whose caller went away while it waited takes nothing', async () => {
    const { queue, env } = await testQueue();
    const gone = new AbortController();
    const call = queue.lease({ waitMs: 10_000, signal: gone.signal });
    await env.advance(10);
    gone.abort();
    expect(await call).toEqual([]);
    await queue.enqueue('t', { payload: 1 });
    expect((await queue.lease()).length).toBe(1);
  });

  test('spreads tasks over buckets that are leased in turn', async () => {
    const { queue } = await testQueue();
    await queue.configure('spread', { buckets: 3 });
    await queue.enqueue(
      'spread',
      Array.from({ length: 6 }, (_, nth) => ({ payload: nth })),
    );
    const cursors = await queue.cursors('spread');
    expect(cursors.priorities.map(({ ready }) => ready)).toEqual([2, 2, 2]);
    expect((await queue.lease({ max: 6 })).length).toBe(6);
  });

  test('fills segment after segment, and seals rather than cut a call in two', async () => {
    const { queue } = await testQueue({ segmentSize: 7 });
    for (let nth = 0; nth < 10; nth++)
      await queue.enqueue(
        's',
        Array.from({ length: 5 }, (_, at) => ({ payload: nth * 5 + at })),
      );
    const payloads: unknown[] = [];
    for (let tasks = await queue.lease({ max: 4 }); tasks.length > 0; tasks = await queue.lease({ max: 4 })) {
      payloads.push(...tasks.map((task) => task.payload));
      await ackAll(queue, tasks);
    }
    expect(payloads).toEqual(Array.from({ length: 50 }, (_, nth) => nth));
  });

  test('refuses one task of a call and takes the others', async () => {
    const { queue } = await testQueue();
    const results = await queue.enqueue('mixed', [
      { payload: 1 },
      { payload: 2, priority: 11 },
      { payload: 'x'.repeat(300_000) },
    ]);
    expect(results[0]).toMatchObject({ deduplicated: false, id: expect.any(String) });
    expect(results[1]).toMatchObject({
      id: null,
      code: 'invalid-input',
      detail: expect.stringContaining('11 is not from 0 to 9'),
    });
    expect(results[2]).toMatchObject({ id: null, code: 'payload-too-large' });
    expect((await queue.lease({ max: 10 })).length).toBe(1);
  });
});

describe('answers and turns', () => {
  test('buckets are leased in turn, one by one as well', async () => {
    const { queue } = await testQueue();
    await queue.configure('spread', { buckets: 3 });
    await queue.enqueue(
      'spread',
      Array.from({ length: 30 }, (_, nth) => ({ payload: nth % 3 })),
    );
    const seen: unknown[] = [];
    for (let nth = 0; nth < 9; nth++) seen.push((await queue.lease())[0]!.payload);
    expect([0, 1, 2].map((bucket) => seen.filter((payload) => payload === bucket).length)).toEqual([3, 3, 3]);
  });

  test('an answer is bounded in bytes, of a lease and of a listing', async () => {
    const { queue } = await testQueue();
    for (const topic of ['a', 'b', 'c']) {
      for (let nth = 0; nth < 10; nth++)
        await queue.enqueue(
          topic,
          Array.from({ length: 3 }, () => ({ payload: 'x'.repeat(250_000) })),
        );
    }
    const leased = await queue.lease({ max: 1000 });
    expect(leased.length).toBeGreaterThan(5);
    expect(leased.length).toBeLessThan(25);
    const { tasks, after } = await queue.tasks('a', { limit: 1000 });
    expect(tasks.length).toBeLessThan(25);
    expect(after).toBeDefined();
  });
});

describe('delays and times to live', () => {
  test('a task that nobody leases ends with its time to live', async () => {
    const { queue, env } = await testQueue();
    const task = { payload: 1, ttlMs: 5_000, messageId: 'x' };
    const id = idOf(await queue.enqueue('x', task));
    await queue.enqueue('x', [{ payload: 2, ttlMs: 60_000 }, { payload: 3 }]);
    await env.advance(7_000);
    expect((await queue.topic('x')).counts.ready).toBe(2);
    expect((await queue.task('x', id)).state).toBe('expired');
    expect(await queue.enqueue('x', { ...task, onDuplicate: 'again' })).toMatchObject({ deduplicated: false });
    await env.advance(70_000);
    expect((await queue.topic('x')).counts.ready).toBe(1);
    expect(queue.status().expired).toBe(3);
    await expect(queue.enqueue('x', { payload: 1, ttlMs: 1_000, delayMs: 2_000 })).rejects.toMatchObject({
      code: 'invalid-input',
    });
  });

  test('a delayed task that was cancelled can be looked at for the retention', async () => {
    const { queue, env } = await testQueue();
    const id = idOf(await queue.enqueue('d', { payload: 1, delayMs: 5_000 }));
    await queue.cancel('d', id, 'no');
    await env.advance(1_800_000);
    expect(await queue.task('d', id)).toMatchObject({ state: 'cancelled', reason: 'no' });
    await env.advance(2_000_000);
    await expect(queue.task('d', id)).rejects.toMatchObject({ code: 'task-not-found' });
  });

  test('a delayed task comes at its time, not before, and keeps its id', async () => {
    const { queue, env } = await testQueue();
    const id = idOf(await queue.enqueue('d', { payload: 1, delayMs: 60_000 }));
    expect(await queue.task('d', id)).toMatchObject({ state: 'delayed', dueAt: env.now() + 60_000 });
    await env.advance(59_999);
    expect(await queue.lease()).toEqual([]);
    await env.advance(1_000);
    const [task] = await queue.lease();
    expect(task!.id).toBe(id);
    await ackAll(queue, [task!]);
    expect((await queue.task('d', id)).state).toBe('done');
  });

  test('delayed tasks come up after a restart', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile() });
    await queue.enqueue('d', [
      { payload: 1, delayMs: 60_000 },
      { payload: 2, runAt: env.now() + 1_000_000 },
    ]);
    const again = await restart();
    expect((await again.topic('d')).counts).toMatchObject({ ready: 0, delayed: 2 });
    await env.advance(61_000);
    expect((await again.lease({ max: 5 })).map((task) => task.payload)).toEqual([1]);
    await env.advance(1_000_000);
    expect((await again.lease({ max: 5 })).map((task) => task.payload)).toContain(2);
  });

  test('a task past its time to live is not handed out', async () => {
    const { queue, env } = await testQueue();
    const id = idOf(await queue.enqueue('x', { payload: 1, ttlMs: 1_000 }));
    await queue.enqueue('x', { payload: 2 });
    await env.advance(1_000);
    expect((await queue.task('x', id)).state).toBe('expired');
    expect((await queue.lease({ max: 5 })).map((task) => task.payload)).toEqual([2]);
    expect(await queue.task('x', id)).toMatchObject({ state: 'expired', reason: 'time to live over' });
  });
});

describe('settling', () => {
  test('ack with a result; a repeated ack is good, another settlement is not', async () => {
    const { queue } = await testQueue();
    const id = idOf(await queue.enqueue('s', { payload: 1 }));
    const [task] = await queue.lease();
    const { leaseId } = task!;
    expect((await queue.settle({ ack: [{ leaseId, result: { ok: [1] } }] })).ack).toEqual([{ leaseId, ok: true }]);
    expect((await queue.settle({ ack: [{ leaseId }] })).ack[0]!.ok).toBe(true);
    expect((await queue.settle({ nack: [{ leaseId }] })).nack[0]).toMatchObject({ ok: false, code: 'lease-lost' });
    expect((await queue.settle({ extend: [{ leaseId, leaseMs: 1_000 }] })).extend[0]).toMatchObject({
      code: 'lease-lost',
    });
    expect(await queue.task('s', id)).toMatchObject({ state: 'done', result: { ok: [1] }, attempt: 1 });
  });

  test('a lost lease settles nothing', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('s', { payload: 1 });
    const [stale] = await queue.lease({ leaseMs: 1_000 });
    await env.advance(3_000);
    const [fresh] = await queue.lease();
    expect(fresh!.attempt).toBe(2);
    const { leaseId } = stale!;
    const refused = await queue.settle({
      ack: [{ leaseId }],
      nack: [{ leaseId }],
      extend: [{ leaseId, leaseMs: 1_000 }],
      progress: [{ leaseId, position: 1 }],
      release: [{ leaseId }],
    });
    expect(refused.ack[0]).toMatchObject({ ok: false, code: 'lease-lost' });
    expect(refused.extend[0]).toMatchObject({ ok: false, code: 'lease-lost' });
    expect(refused.progress[0]).toMatchObject({ ok: false, code: 'lease-lost' });
    expect((await ackAll(queue, [fresh!])).ack[0]!.ok).toBe(true);
  });

  test('a late ack is good as long as nobody has moved the task', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('s', { payload: 1 });
    const [task] = await queue.lease({ leaseMs: 1_000 });
    await env.advance(1_050);
    expect((await ackAll(queue, [task!])).ack[0]!.ok).toBe(true);
    await env.advance(10_000);
    expect(await queue.lease()).toEqual([]);
  });

  test('a stalled task is back within its lease time and two seconds', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('s', { payload: 1 });
    await queue.lease({ leaseMs: 5_000 });
    await env.advance(4_999);
    expect(await queue.lease()).toEqual([]);
    await env.advance(2_001);
    expect((await queue.lease())[0]).toMatchObject({ attempt: 2 });
  });

  test('nack waits for the backoff, or as long as it says, and counts an attempt', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('n', { backoffMs: 10_000, maxBackoffMs: 60_000 });
    const id = idOf(await queue.enqueue('n', { payload: 1 }));
    const [first] = await queue.lease();
    await queue.settle({ nack: [{ leaseId: first!.leaseId, reason: 'no luck' }] });
    await env.advance(4_999);
    expect(await queue.lease()).toEqual([]);
    await env.advance(5_501);
    const [second] = await queue.lease();
    expect(second).toMatchObject({ id, attempt: 2 });
    await queue.settle({ nack: [{ leaseId: second!.leaseId, delayMs: 0 }] });
    expect((await queue.lease())[0]).toMatchObject({ id, attempt: 3 });
    const info = await queue.task('n', id);
    expect(info.attempts.map(({ attempt, outcome, reason }) => [attempt, outcome, reason])).toEqual([
      [1, 'nack', 'no luck'],
      [2, 'nack', null],
      [3, null, null],
    ]);
  });

  test.each(['nack', 'release', 'ack'] as const)(
    '%s goes together with progress and extend in one call',
    async (end) => {
      const { queue } = await testQueue();
      const id = idOf(await queue.enqueue('s', { payload: 1 }));
      const [task] = await queue.lease();
      const { leaseId } = task!;
      const settled = await queue.settle({
        progress: [{ leaseId, position: 17 }],
        extend: [{ leaseId, leaseMs: 60_000 }],
        [end]: [{ leaseId, ...(end === 'nack' ? { delayMs: 0 } : {}) }],
      });
      expect([settled.progress[0]!.ok, settled.extend[0]!.ok, settled[end][0]!.ok]).toEqual([true, true, true]);
      expect((await queue.task('s', id)).progress).toBe(17);
    },
  );

  test('a nack beside extensions of the same lease is not refused', async () => {
    const { queue } = await testQueue();
    await queue.enqueue('s', { payload: 1 });
    const [task] = await queue.lease();
    const { leaseId } = task!;
    const calls = Array.from({ length: 5 }, (_, nth) => queue.settle({ extend: [{ leaseId, leaseMs: 60_000 + nth }] }));
    const nacked = await queue.settle({ nack: [{ leaseId, dead: true }] });
    await Promise.all(calls);
    expect(nacked.nack[0]!.ok).toBe(true);
    expect((await queue.topic('s')).counts).toMatchObject({ leased: 0, dead: 1 });
  });

  test('release gives a task back without counting', async () => {
    const { queue } = await testQueue();
    await queue.enqueue('r', { payload: 1 });
    const [first] = await queue.lease();
    await queue.settle({ release: [{ leaseId: first!.leaseId }] });
    expect((await queue.lease())[0]).toMatchObject({ attempt: 1 });
  });

  test('progress goes along to the next attempt', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('p', { payload: 1 });
    const [first] = await queue.lease({ leaseMs: 1_000 });
    await queue.settle({ progress: [{ leaseId: first!.leaseId, position: { offset: 42 } }] });
    await env.advance(3_000);
    expect((await queue.lease())[0]).toMatchObject({ attempt: 2, progress: { offset: 42 } });
  });

  test('an extended lease lasts; maxRunMs bounds it', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('e', { maxRunMs: 10_000 });
    await queue.enqueue('e', { payload: 1 });
    const [task] = await queue.lease({ leaseMs: 2_000 });
    const { leaseId } = task!;
    for (let nth = 0; nth < 4; nth++) {
      await env.advance(1_500);
      const { extend } = await queue.settle({ extend: [{ leaseId, leaseMs: 4_000 }] });
      expect(extend[0]).toMatchObject({
        ok: true,
        leaseUntil: Math.min(env.now() + 4_000, task!.leaseUntil - 2_000 + 10_000),
      });
    }
    await env.advance(3_900);
    expect((await queue.settle({ extend: [{ leaseId, leaseMs: 4_000 }] })).extend[0]).toMatchObject({ ok: true });
    await env.advance(100);
    expect((await queue.settle({ extend: [{ leaseId, leaseMs: 4_000 }] })).extend[0]).toMatchObject({
      code: 'run-limit',
    });
    await env.advance(2_000);
    expect((await queue.lease())[0]).toMatchObject({ attempt: 2 });
  });

  test('a task extended for ever holds up neither others nor their recovery', async () => {
    const { queue, env } = await testQueue({ segmentSize: 50 });
    await queue.enqueue('busy', { payload: 'slow' });
    const [slow] = await queue.lease({ leaseMs: 10_000 });
    await queue.enqueue(
      'busy',
      Array.from({ length: 500 }, (_, nth) => ({ payload: nth })),
    );
    const dead = await queue.lease({ max: 100, leaseMs: 3_000 });
    const done = await queue.lease({ max: 400 });
    await ackAll(queue, done);
    for (let nth = 0; nth < 5; nth++) {
      await env.advance(1_000);
      await queue.settle({ extend: [{ leaseId: slow!.leaseId, leaseMs: 10_000 }] });
    }
    const back = await queue.lease({ max: 200 });
    expect(back.length).toBe(dead.length);
    expect(back.every((task) => task.attempt === 2)).toBe(true);
    await ackAll(queue, back);
    const [held] = (await queue.cursors('busy')).priorities;
    expect(held).toMatchObject({ completionCursor: 0, heldBy: { entry: 0, task: slow!.id } });
    // Segments around it go after the retention all the same.
    await queue.configure('busy', { retentionMs: 300_000 });
    for (let nth = 0; nth < 45; nth++) {
      await env.advance(9_000);
      await queue.settle({ extend: [{ leaseId: slow!.leaseId, leaseMs: 20_000 }] });
    }
    expect((await queue.tasks('busy', { state: 'done', limit: 1000 })).tasks.length).toBeLessThan(150);
    expect((await ackAll(queue, [slow!])).ack[0]!.ok).toBe(true);
  });

  test('a result that is too large is refused and the lease kept', async () => {
    const { queue } = await testQueue();
    await queue.enqueue('big', { payload: 1 });
    const [task] = await queue.lease();
    const { leaseId } = task!;
    expect((await queue.settle({ ack: [{ leaseId, result: 'x'.repeat(300_000) }] })).ack[0]).toMatchObject({
      code: 'result-too-large',
    });
    expect((await queue.settle({ ack: [{ leaseId }] })).ack[0]!.ok).toBe(true);
  });

  test('tokens that were never given out are refused, item by item', async () => {
    const { queue } = await testQueue();
    await queue.enqueue('t', { payload: 1 });
    const [task] = await queue.lease();
    const forged = `${'A'.repeat(22)}.5.0.t`;
    const { ack } = await queue.settle({
      ack: [{ leaseId: 'nonsense' }, { leaseId: forged }, { leaseId: task!.leaseId }],
    });
    expect(ack.map((item) => (item.ok ? 'ok' : item.code))).toEqual(['lease-invalid', 'lease-lost', 'ok']);
  });
});

describe('dead letters', () => {
  test('after its attempts a task is dead, can be listed, and redriven', async () => {
    const { queue } = await testQueue();
    await queue.configure('d', { maxAttempts: 2, backoffMs: 0 });
    const id = idOf(await queue.enqueue('d', { payload: 1 }));
    for (let nth = 0; nth < 2; nth++) {
      const [task] = await queue.lease();
      await queue.settle({ nack: [{ leaseId: task!.leaseId, reason: `try ${nth}` }] });
    }
    expect(await queue.lease()).toEqual([]);
    expect((await queue.topic('d')).counts).toEqual({ ready: 0, delayed: 0, leased: 0, dead: 1 });
    const { tasks } = await queue.tasks('d', { state: 'dead' });
    expect(tasks).toMatchObject([{ id, state: 'dead', reason: 'try 1', attempt: 2 }]);
    expect(await queue.redrive('d')).toEqual({ redriven: 1, refused: [] });
    const [again] = await queue.lease();
    expect(again).toMatchObject({ id, attempt: 1 });
    expect((await queue.topic('d')).counts).toEqual({ ready: 0, delayed: 0, leased: 1, dead: 0 });
  });

  test('redrive of some, and refusal where another task owns the id', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('d', { maxAttempts: 1, dedupWindowMs: 1_000 });
    const ids: string[] = [];
    for (const messageId of ['a', 'b', 'c']) ids.push(idOf(await queue.enqueue('d', { payload: 1, messageId })));
    await queue.settle({ nack: (await queue.lease({ max: 3 })).map(({ leaseId }) => ({ leaseId })) });
    await env.advance(2_000);
    await queue.enqueue('d', { payload: 2, messageId: 'b' });
    expect(await queue.redrive('d', { ids: [ids[0]!] })).toEqual({ redriven: 1, refused: [] });
    expect(await queue.redrive('d')).toMatchObject({ redriven: 1, refused: [{ code: 'task-replaced' }] });
  });

  test('dead letters expire after their own retention', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('d', { maxAttempts: 1, deadRetentionMs: 300_000 });
    await queue.enqueue('d', { payload: 1 });
    await queue.settle({ nack: [{ leaseId: (await queue.lease())[0]!.leaseId }] });
    await env.advance(299_000);
    expect((await queue.topic('d')).counts.dead).toBe(1);
    await env.advance(3_000);
    expect((await queue.topic('d')).counts.dead).toBe(0);
  });
});

describe('message ids', () => {
  test('a known id answers with its task, also in one call, also when calls race', async () => {
    const { queue } = await testQueue();
    const first = await queue.enqueue('m', { payload: 1, messageId: 'x' });
    expect(await queue.enqueue('m', { payload: 2, messageId: 'x' })).toEqual({ id: idOf(first), deduplicated: true });
    const racing = await Promise.all(
      Array.from({ length: 20 }, () =>
        queue.enqueue('m', [
          { payload: 1, messageId: 'y' },
          { payload: 2, messageId: 'z' },
        ]),
      ),
    );
    for (const nth of [0, 1]) {
      expect(new Set(racing.map((results) => results[nth]!.id)).size).toBe(1);
      expect(racing.filter((results) => !results[nth]!.deduplicated).length).toBe(1);
    }
    expect((await queue.lease({ max: 100 })).length).toBe(3);
    expect((await queue.topic('m')).counts).toMatchObject({ ready: 0, leased: 3 });
  });

  test('the window counts from the settlement', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('m', { dedupWindowMs: 60_000 });
    const id = idOf(await queue.enqueue('m', { payload: 1, messageId: 'x' }));
    await env.advance(120_000);
    expect(await queue.enqueue('m', { payload: 1, messageId: 'x' })).toEqual({ id, deduplicated: true });
    await ackAll(queue, await queue.lease());
    await env.advance(59_000);
    expect(await queue.enqueue('m', { payload: 1, messageId: 'x' })).toEqual({ id, deduplicated: true });
    await env.advance(2_000);
    const again = await queue.enqueue('m', { payload: 1, messageId: 'x' });
    expect(again.deduplicated).toBe(false);
    expect(idOf(again)).not.toBe(id);
    expect((await queue.lease()).length).toBe(1);
  });

  test('again makes a new task once the old one is settled', async () => {
    const { queue } = await testQueue();
    const task = { payload: 1, messageId: 'x', onDuplicate: 'again' } as const;
    const id = idOf(await queue.enqueue('m', task));
    expect(await queue.enqueue('m', task)).toEqual({ id, deduplicated: true });
    await ackAll(queue, await queue.lease());
    expect(await queue.enqueue('m', task)).toMatchObject({ deduplicated: false });
    const [leased] = await queue.lease();
    expect(leased!.id).not.toBe(id);
    expect((await ackAll(queue, [leased!])).ack[0]!.ok).toBe(true);
  });

  test('replace changes payload and priority of a waiting task, also of a delayed one', async () => {
    const { queue, env } = await testQueue();
    const id = idOf(await queue.enqueue('m', { payload: 'old', messageId: 'x', priority: 1 }));
    await queue.enqueue('m', { payload: 'other', priority: 5 });
    expect(await queue.enqueue('m', { payload: 'new', messageId: 'x', priority: 9, onDuplicate: 'replace' })).toEqual({
      id,
      deduplicated: true,
    });
    const [first] = await queue.lease();
    expect(first).toMatchObject({ id, payload: 'new', priority: 9 });
    await queue.enqueue('m', { payload: 'old', messageId: 'd', delayMs: 60_000 });
    await queue.enqueue('m', { payload: 'new', messageId: 'd', onDuplicate: 'replace' });
    await env.advance(61_000);
    expect((await queue.lease({ max: 5 })).map((task) => task.payload)).toEqual(expect.arrayContaining(['new']));
  });

  test('an idempotency key makes a repeated call safe', async () => {
    const { queue } = await testQueue();
    const call = () => queue.enqueue('k', [{ payload: 1 }, { payload: 2 }], { idempotencyKey: 'call-17' });
    const first = await call();
    expect((await call()).map(({ id, deduplicated }) => [id, deduplicated])).toEqual(first.map(({ id }) => [id, true]));
    expect((await queue.lease({ max: 10 })).length).toBe(2);
  });

  test('finds a task by its message id', async () => {
    const { queue } = await testQueue();
    const id = idOf(await queue.enqueue('m', { payload: 1, messageId: 'https://example.org/ü?a=1#b' }));
    expect((await queue.taskByMessageId('m', 'https://example.org/ü?a=1#b')).id).toBe(id);
    await expect(queue.taskByMessageId('m', 'other')).rejects.toMatchObject({ code: 'task-not-found' });
  });
});

describe('looking and changing from outside', () => {
  test('cancel of a ready, a delayed and a leased task', async () => {
    const { queue } = await testQueue();
    const [leased, ready, delayed] = (
      await queue.enqueue('c', [{ payload: 1 }, { payload: 2 }, { payload: 3, delayMs: 60_000 }])
    ).map(idOf);
    const [task] = await queue.lease();
    expect(await queue.cancel('c', ready!, 'not needed')).toMatchObject({ state: 'cancelled', reason: 'not needed' });
    expect(await queue.cancel('c', delayed!)).toMatchObject({ state: 'cancelled' });
    expect(await queue.cancel('c', leased!)).toMatchObject({ state: 'cancelled' });
    expect((await ackAll(queue, [task!])).ack[0]).toMatchObject({ ok: false, code: 'lease-lost' });
    await expect(queue.cancel('c', leased!)).rejects.toMatchObject({ code: 'task-settled' });
    expect((await queue.topic('c')).counts).toEqual({ ready: 0, delayed: 0, leased: 0, dead: 0 });
    expect(await queue.lease()).toEqual([]);
  });

  test('reschedule changes priority and due time of a waiting task', async () => {
    const { queue, env } = await testQueue();
    const [a, b] = (await queue.enqueue('r', [{ payload: 'a' }, { payload: 'b', delayMs: 600_000 }])).map(idOf);
    await queue.enqueue('r', { payload: 'c', priority: 8 });
    expect(await queue.reschedule('r', a!, { priority: 9 })).toMatchObject({ id: a, priority: 9, state: 'ready' });
    expect(await queue.reschedule('r', b!, { delayMs: 0 })).toMatchObject({ id: b, state: 'ready' });
    const [first] = await queue.lease();
    expect(first).toMatchObject({ id: a });
    await expect(queue.reschedule('r', a!, { priority: 1 })).rejects.toMatchObject({ code: 'task-leased' });
    expect(await queue.reschedule('r', b!, { delayMs: 5_000 })).toMatchObject({ state: 'delayed' });
    await env.advance(6_000);
    expect((await queue.lease({ max: 5 })).map((task) => task.id)).toContain(b);
  });

  test('waits for a result', async () => {
    const { queue, env } = await testQueue();
    const id = idOf(await queue.enqueue('w', { payload: 1 }));
    const waiting = queue.task('w', id, { waitMs: 30_000 });
    const early = queue.task('w', id, { waitMs: 1_000 });
    await env.advance(1_000);
    expect((await early).state).toBe('ready');
    const [task] = await queue.lease();
    await queue.settle({ ack: [{ leaseId: task!.leaseId, result: 'fine' }] });
    expect(await waiting).toMatchObject({ state: 'done', result: 'fine' });
  });

  test('waits no longer than asked while the store’s clock stands still', async () => {
    const env = manualEnvironment();
    const at = env.now();
    // So it does for an hour where the machine's is set back by one.
    const store = await openSqliteStore(':memory:', { now: () => at });
    const queue = await startQueue(store, { environment: env });
    onTestFinished(() => queue.stop());
    const id = idOf(await queue.enqueue('w', { payload: 1, priority: 1 }));
    const waits = [
      queue.lease({ topics: ['nothing'], waitMs: 1_000 }),
      queue.task('w', id, { waitMs: 1_000 }),
      queue.drained('w', { timeoutMs: 1_000 }),
    ];
    await env.advance(1_000);
    expect(await Promise.all(waits)).toMatchObject([[], { state: 'ready' }, false]);
  });

  test('lists tasks by state, page by page', async () => {
    const { queue } = await testQueue({ segmentSize: 10 });
    await queue.enqueue(
      'l',
      Array.from({ length: 30 }, (_, nth) => ({ payload: nth, priority: nth % 3 })),
    );
    await ackAll(queue, await queue.lease({ max: 8 }));
    await queue.lease({ max: 5 });
    await queue.enqueue('l', { payload: 'later', delayMs: 9_000 });
    const count = async (state: 'ready' | 'leased' | 'done' | 'delayed') => {
      const ids: string[] = [];
      for (let after: string | undefined; ; ) {
        const page = await queue.tasks('l', { state, limit: 4, ...(after === undefined ? {} : { after }) });
        ids.push(...page.tasks.map((task) => task.id));
        if (page.after === undefined) break;
        after = page.after;
      }
      expect(new Set(ids).size).toBe(ids.length);
      return ids.length;
    };
    expect([await count('ready'), await count('leased'), await count('done'), await count('delayed')]).toEqual([
      17, 5, 8, 1,
    ]);
    expect((await queue.tasks('l', { limit: 1000 })).tasks.length).toBe(31);
  });

  test('a topic that was never used is not there, and looking at it leaves nothing', async () => {
    const { queue } = await testQueue();
    await expect(queue.topic('nothing')).rejects.toMatchObject({ code: 'topic-not-found' });
    expect((await queue.topics()).topics).toEqual([]);
  });
});

describe('topics', () => {
  test('pause, resume', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('t', { payload: 1 });
    await queue.pause('t');
    const waiting = queue.lease({ waitMs: 10_000 });
    await env.advance(1_000);
    expect(await queue.lease()).toEqual([]);
    await queue.resume('t');
    expect((await waiting).length).toBe(1);
  });

  test('purge ends what waits, lets leased tasks finish, and does not retry them', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2 }, { payload: 3 }, { payload: 4, delayMs: 1_000 }]);
    const [acked, nacked] = await queue.lease({ max: 2 });
    const purge = queue.purge('t');
    await env.advance(1);
    await purge;
    await queue.enqueue('t', { payload: 'new' });
    expect((await ackAll(queue, [acked!])).ack[0]!.ok).toBe(true);
    expect((await queue.settle({ nack: [{ leaseId: nacked!.leaseId, delayMs: 0 }] })).nack[0]!.ok).toBe(true);
    await env.advance(2_000);
    expect((await queue.lease({ max: 10 })).map((task) => task.payload)).toEqual(['new']);
    expect((await queue.topic('t')).counts).toEqual({ ready: 0, delayed: 0, leased: 1, dead: 0 });
  });

  test('a purge leaves counts as they are then, delayed and dead ones included, and frees their ids', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile() });
    await queue.configure('t', { maxAttempts: 1 });
    await queue.enqueue('t', { payload: 'dead' });
    await queue.settle({ nack: [{ leaseId: (await queue.lease())[0]!.leaseId }] });
    const tasks = Array.from({ length: 500 }, (_, nth) => ({ payload: nth, messageId: `m${nth}` }));
    const [first] = await queue.enqueue('t', tasks);
    await queue.enqueue('t', { payload: 'later', delayMs: 3_600_000 });
    const purge = queue.purge('t');
    await env.advance(1);
    await purge;
    expect((await queue.topic('t')).counts).toEqual({ ready: 0, delayed: 0, leased: 0, dead: 0 });
    expect(await queue.drained('t', { timeoutMs: 0 })).toBe(true);
    await expect(queue.cancel('t', first!.id!)).rejects.toMatchObject({ code: 'task-settled' });
    expect(await queue.enqueue('t', { payload: 'new', messageId: 'm0', onDuplicate: 'again' })).toMatchObject({
      deduplicated: false,
    });
    expect((await queue.lease({ max: 5 })).map((task) => task.payload)).toEqual(['new']);
    expect(await queue.redrive('t')).toMatchObject({ redriven: 0 });
    const again = await restart();
    expect((await again.topic('t')).counts).toEqual({ ready: 0, delayed: 0, leased: 1, dead: 0 });
  });

  test('a purge of more than is counted at a start is seen after one', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile() });
    for (let nth = 0; nth < 13; nth++)
      await queue.enqueue(
        't',
        Array.from({ length: 1_000 }, () => ({ payload: 1 })),
      );
    const purge = queue.purge('t');
    await Promise.resolve();
    await env.advance(1);
    await purge;
    const again = await restart();
    await env.advance(10_000);
    expect((await again.topic('t')).counts).toEqual({ ready: 0, delayed: 0, leased: 0, dead: 0 });
    await expect(again.purge('never')).rejects.toMatchObject({ code: 'topic-not-found' });
  });

  test('looking at topics leaves nothing in memory', async () => {
    const { queue, env } = await testQueue();
    for (let nth = 0; nth < 50; nth++) {
      await queue.tasks(`t${nth}`);
      await queue.cursors(`t${nth}`);
    }
    await env.advance(120_000);
    expect(queue.status().activeTopics).toBe(0);
  });

  test('drained resolves when nothing waits, is delayed or leased', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2, delayMs: 1_000 }]);
    const drained = queue.drained('t');
    expect(await Promise.race([queue.drained('t', { timeoutMs: 0 }), env.advance(1).then(() => 'still')])).not.toBe(
      true,
    );
    await ackAll(queue, await queue.lease());
    await env.advance(2_000);
    await ackAll(queue, await queue.lease());
    expect(await drained).toBe(true);
  });

  test('retention trims what is settled', async () => {
    const { queue, env } = await testQueue({ segmentSize: 10 });
    await queue.configure('t', { retentionMs: 300_000 });
    const ids = (
      await queue.enqueue(
        't',
        Array.from({ length: 25 }, (_, nth) => ({ payload: nth })),
      )
    ).map(idOf);
    await ackAll(queue, await queue.lease({ max: 25 }));
    await env.advance(290_000);
    expect((await queue.task('t', ids[0]!)).state).toBe('done');
    await env.advance(60_000);
    await expect(queue.task('t', ids[0]!)).rejects.toMatchObject({ code: 'task-not-found' });
    expect(await queue.cursors('t')).toMatchObject({
      priorities: [{ nextId: 25, scanCursor: 25, completionCursor: 25, trimmed: 25, segments: 0 }],
    });
    expect(queue.status().activeTopics).toBeLessThanOrEqual(1);
  });

  test('retention trims what is settled around a task that takes long, which the cursors name', async () => {
    const { queue, env } = await testQueue({ segmentSize: 10 });
    await queue.configure('t', { retentionMs: 300_000 });
    await queue.enqueue(
      't',
      Array.from({ length: 45 }, (_, nth) => ({ payload: nth })),
    );
    const [slow, ...others] = await queue.lease({ max: 45, leaseMs: 3_600_000 });
    await ackAll(queue, others);
    await env.advance(1_000);
    expect((await queue.cursors('t')).priorities).toMatchObject([{ segments: 5, heldBy: { task: slow!.id } }]);
    await env.advance(360_000);
    expect((await queue.cursors('t')).priorities).toMatchObject([
      // The first one, in which the slow task stands, and the last one, which is not full.
      { scanCursor: 45, completionCursor: 0, trimmed: 0, segments: 2, heldBy: { entry: 0, task: slow!.id } },
    ]);
    await ackAll(queue, [slow!]);
  });

  test('limits: in flight, interval, cooldown, rate, block', async () => {
    const { queue, env } = await testQueue();
    const fill = (topic: string) =>
      queue.enqueue(
        topic,
        Array.from({ length: 10 }, (_, nth) => ({ payload: nth })),
      );
    for (const topic of ['flight', 'interval', 'cooldown', 'rate', 'block']) await fill(topic);
    const leased = async (topic: string) => (await queue.lease({ topics: [topic], max: 10 })).length;

    await queue.configure('flight', { maxInFlight: 2 });
    const two = await queue.lease({ topics: ['flight'], max: 10 });
    expect([two.length, await leased('flight')]).toEqual([2, 0]);
    await ackAll(queue, two.slice(1));
    expect(await leased('flight')).toBe(1);

    await queue.configure('interval', { minIntervalMs: 1_000 });
    expect([await leased('interval'), await leased('interval')]).toEqual([1, 0]);
    await env.advance(1_000);
    expect(await leased('interval')).toBe(1);

    await queue.configure('cooldown', { maxInFlight: 1, cooldownMs: 1_000 });
    await env.advance(1_000);
    await ackAll(queue, await queue.lease({ topics: ['cooldown'], max: 10 }));
    expect(await leased('cooldown')).toBe(0);
    const waiting = queue.lease({ topics: ['cooldown'], waitMs: 5_000 });
    await env.advance(1_000);
    expect((await waiting).length).toBe(1);

    await queue.configure('rate', { rate: { tasks: 2, perMs: 1_000, burst: 3 } });
    await env.advance(10_000);
    expect([await leased('rate'), await leased('rate')]).toEqual([3, 0]);
    await env.advance(500);
    expect(await leased('rate')).toBe(1);

    await queue.configure('block', { blockedUntil: env.now() + 5_000 });
    expect(await leased('block')).toBe(0);
    await env.advance(5_000);
    expect(await leased('block')).toBe(10);
  });

  test('everything is there after a restart', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile(), segmentSize: 10 });
    await queue.configure('t', { maxInFlight: 30 });
    await queue.enqueue(
      't',
      Array.from({ length: 40 }, (_, nth) => ({ payload: nth, messageId: `m${nth}` })),
    );
    await ackAll(queue, await queue.lease({ max: 15 }));
    const held = await queue.lease({ max: 10 });
    const before = await queue.cursors('t');
    const again = await restart();
    expect((await again.topic('t')).counts).toEqual({ ready: 15, delayed: 0, leased: 10, dead: 0 });
    const after = await again.cursors('t');
    expect(after.priorities[0]).toMatchObject({
      nextId: before.priorities[0]!.nextId,
      scanCursor: before.priorities[0]!.scanCursor,
    });
    expect((await ackAll(again, held)).ack.every((item) => item.ok)).toBe(true);
    expect(await again.enqueue('t', { payload: 1, messageId: 'm3' })).toMatchObject({ deduplicated: true });
    await env.advance(1_000);
    expect((await again.lease({ max: 100 })).length).toBe(15);
  });
});
