/** Delayed tasks: slots near and far, when they are moved, and what a start knows of them. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Queue } from '../../src/queue/api.ts';
import { startQueue } from '../../src/queue/open.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import type { Store } from '../../src/store/store.ts';
import { manualEnvironment } from '../support/manual-environment.ts';
import { ackAll, testQueue } from '../support/queue.ts';

/** A far slot is as wide as 360 of these, and emptied 12 of them before its time. */
const SLOT_MS = 100;
const FAR_MS = 360 * SLOT_MS;
const TICK_MS = 25;

async function tempFile(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-delays-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return join(directory, 'queue.db');
}

const idOf = (result: { readonly id: string | null }): string => result.id!;
const payloads = (tasks: readonly { readonly payload: unknown }[]) => tasks.map(({ payload }) => payload);

describe('near slots', () => {
  test('a task comes within a tick of its time, whatever the width of the slot', async () => {
    const { queue, env } = await testQueue();
    for (const delayMs of [40, 3_500, 9_999, 31_234]) {
      await queue.enqueue('t', { payload: delayMs, delayMs });
      await env.advance(delayMs - 1);
      expect(await queue.lease()).toEqual([]);
      await env.advance(1 + TICK_MS);
      const tasks = await queue.lease();
      expect(payloads(tasks)).toEqual([delayMs]);
      await ackAll(queue, tasks);
    }
  });

  test('what is due together comes together, in the order of enqueueing', async () => {
    const { queue, env } = await testQueue({ segmentSize: 500 });
    const runAt = env.now() + 12_345;
    for (let nth = 0; nth < 6; nth++) {
      const tasks = Array.from({ length: 500 }, (_, at) => ({ payload: nth * 500 + at, runAt }));
      await queue.enqueue(`t${nth % 3}`, tasks);
    }
    expect((await queue.topic('t1')).counts.delayed).toBe(1_000);
    await env.advance(12_344);
    expect(queue.status().ready).toBe(0);
    await env.advance(500);
    expect(queue.status()).toMatchObject({ ready: 3_000, delayed: 0 });
    const tasks = await queue.lease({ topics: ['t1'], max: 1_000 });
    expect(payloads(tasks)).toEqual(payloads(tasks).sort((a, b) => (a as number) - (b as number)));
    expect(tasks.length).toBe(1_000);
  });

  test('what is put into a slot whose time runs is taken up at once', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('t', { payload: 'late', delayMs: 6_000 });
    await env.advance(3_000);
    await queue.enqueue('t', { payload: 'soon', delayMs: 100 });
    await env.advance(100 + TICK_MS);
    expect(payloads(await queue.lease({ max: 5 }))).toEqual(['soon']);
    await env.advance(3_000);
    expect(payloads(await queue.lease({ max: 5 }))).toEqual(['late']);
  });

  test('a rescheduled and a cancelled task do not come at their old time', async () => {
    const { queue, env } = await testQueue();
    const [a, b] = (
      await queue.enqueue('t', [
        { payload: 'a', delayMs: 2_000 },
        { payload: 'b', delayMs: 2_000 },
      ])
    ).map(idOf);
    await env.advance(1_990);
    await queue.reschedule('t', a!, { delayMs: 4_000 });
    await queue.cancel('t', b!);
    expect((await queue.topic('t')).counts.delayed).toBe(1);
    await env.advance(3_900);
    expect(await queue.lease({ max: 5 })).toEqual([]);
    await env.advance(200);
    expect(payloads(await queue.lease({ max: 5 }))).toEqual(['a']);
    expect((await queue.topic('t')).counts).toMatchObject({ ready: 0, delayed: 0 });
  });
});

describe('far slots', () => {
  test('a task goes on to a near slot, comes in time, and keeps its id', async () => {
    const { queue, env } = await testQueue({ slotMs: SLOT_MS });
    const delayMs = 2 * FAR_MS + 77;
    const id = idOf(await queue.enqueue('t', { payload: 1, delayMs }));
    const dueAt = env.now() + delayMs;
    expect(id).toMatch(/^\w{26}\.l\d+\.0$/);
    // Whatever the far slot's place in time, at the latest now it was emptied.
    await env.advance(delayMs - 1_000);
    expect(await queue.task('t', id)).toMatchObject({ id, state: 'delayed', dueAt });
    expect((await queue.tasks('t', { state: 'delayed' })).tasks).toMatchObject([{ id }]);
    expect((await queue.topic('t')).counts.delayed).toBe(1);
    await env.advance(999);
    expect(await queue.lease()).toEqual([]);
    await env.advance(1 + TICK_MS);
    expect(await queue.lease()).toMatchObject([{ id, payload: 1 }]);
    expect((await queue.topic('t')).counts).toMatchObject({ ready: 0, delayed: 0, leased: 1 });
  });

  test('many tasks of several topics come in time, some of them purged or expired', async () => {
    const { queue, env } = await testQueue({ slotMs: SLOT_MS, segmentSize: 50 });
    const from = FAR_MS * 2;
    for (const topic of ['a', 'b', 'gone']) {
      const tasks = Array.from({ length: 300 }, (_, nth) => ({ payload: nth, delayMs: from + nth * 100 }));
      await queue.enqueue(topic, tasks);
    }
    const last = from + 300 * 100;
    const purge = queue.purge('gone');
    await env.advance(1);
    await purge;
    await env.advance(from + 15_000 - 2);
    expect((await queue.topic('a')).counts).toMatchObject({ ready: 150, delayed: 150 });
    await env.advance(last - from);
    expect(payloads(await queue.lease({ topics: ['b'], max: 500 }))).toEqual(Array.from({ length: 300 }, (_, n) => n));
    expect((await queue.topic('a')).counts).toMatchObject({ ready: 300, delayed: 0 });
    expect((await queue.topic('gone')).counts).toMatchObject({ ready: 0, delayed: 0 });
  });

  test('can be cancelled and rescheduled, also to a nearer time', async () => {
    const { queue, env } = await testQueue({ slotMs: SLOT_MS });
    const [a, b] = (
      await queue.enqueue('t', [
        { payload: 'a', delayMs: 3 * FAR_MS },
        { payload: 'b', delayMs: 3 * FAR_MS },
      ])
    ).map(idOf);
    expect(await queue.cancel('t', a!)).toMatchObject({ id: a, state: 'cancelled' });
    expect(await queue.reschedule('t', b!, { delayMs: 1_000 })).toMatchObject({ id: b, state: 'delayed' });
    await env.advance(1_000 + TICK_MS);
    expect(await queue.lease({ max: 5 })).toMatchObject([{ id: b }]);
  });
});

describe('a start', () => {
  test('counts what is delayed, and lists, cancels and reschedules it', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile(), slotMs: SLOT_MS, segmentSize: 10 });
    const delays = [1_000, 5_000, FAR_MS, 3 * FAR_MS, 9 * FAR_MS];
    const ids = (
      await queue.enqueue(
        't',
        delays.flatMap((delayMs) => Array.from({ length: 25 }, () => ({ payload: delayMs, delayMs }))),
      )
    ).map(idOf);
    const again = await restart();
    // At once, before anything was counted.
    await again.cancel('t', ids[60]!);
    await again.reschedule('t', ids[124]!, { delayMs: 2_000 });
    expect((await again.tasks('t', { state: 'delayed', limit: 1_000 })).tasks.length).toBe(124);
    await env.advance(500);
    expect((await again.topic('t')).counts).toMatchObject({ ready: 0, delayed: 124 });
    await env.advance(5_500);
    expect((await again.topic('t')).counts).toMatchObject({ ready: 51, delayed: 73 });
  });

  test('long after they were due, all come at once', async () => {
    const path = await tempFile();
    const env = manualEnvironment();
    const open = () => openSqliteStore(path, { now: env.now, meta: { slotMs: SLOT_MS } });
    const before = await startQueue(await open(), { environment: env });
    const tasks = Array.from({ length: 400 }, (_, nth) => ({ payload: nth, delayMs: 1_000 + nth * 300 }));
    await before.enqueue('t', tasks);
    await before.stop();
    await env.advance(86_400_000);
    const queue = await startQueue(await open(), { environment: env });
    onTestFinished(() => queue.stop());
    await env.advance(1_000);
    expect((await queue.lease({ max: 1_000 })).length).toBe(400);
  });

  test('is carried over to the next period of the index', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile() });
    await queue.enqueue('t', { payload: 1, delayMs: 3 * 3_600_000 });
    await restart();
    await env.advance(3_700_000);
    const again = await restart();
    await env.advance(100);
    expect((await again.topic('t')).counts).toMatchObject({ delayed: 1 });
  }, 30_000);

  test('no topic is called drained before all that is delayed was counted', async () => {
    const path = await tempFile();
    const env = manualEnvironment();
    const open = () => openSqliteStore(path, { now: env.now, meta: { slotMs: SLOT_MS } });
    const before = await startQueue(await open(), { environment: env });
    await before.enqueue('empty', { payload: 1 });
    await ackAll(before, await before.lease());
    await before.enqueue('full', { payload: 1, delayMs: 5 * FAR_MS });
    await before.stop();

    const { store, release } = withoutHeads(await open());
    const queue: Queue = await startQueue(store, { environment: env });
    onTestFinished(() => queue.stop());
    await env.advance(10);
    expect(await soon(queue.drained('empty', { timeoutMs: 10 }), () => env.advance(20))).toBe(false);
    const drained = queue.drained('empty');
    release();
    await env.advance(10);
    expect(await drained).toBe(true);
    expect(await soon(queue.drained('full', { timeoutMs: 100 }), () => env.advance(100))).toBe(false);
  });
});

/** A store that answers for the heads of time slots only once it may. */
function withoutHeads(store: Store): { readonly store: Store; release(): void } {
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const held = new Proxy(store, {
    get(target, name) {
      const member = Reflect.get(target, name) as unknown;
      if (typeof member !== 'function') return member;
      if (name !== 'readHeads') return member.bind(target) as unknown;
      return async (range: Parameters<Store['readHeads']>[0]) => {
        if (range.log.topic.startsWith('\u0001')) await released;
        return target.readHeads(range);
      };
    },
  });
  return { store: held, release };
}

async function soon<T>(promise: Promise<T>, wait: () => Promise<void>): Promise<T> {
  await wait();
  return promise;
}
