/** It is the queue: every call is answered as anywhere else; and what makes it fit for tests. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Queue } from '../../src/queue/api.ts';
import { startQueue } from '../../src/queue/open.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import type { TestQueueOptions } from '../../src/testing/index.ts';
import { VirtualClock } from '../../src/testing/virtual-clock.ts';
import { payloads, started } from './support/testing.ts';

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

/** Calls everything that a queue can do; moves nothing but by `advance`. */
async function tour(queue: Queue, advance: (ms: number) => Promise<void>): Promise<readonly unknown[]> {
  const told: unknown[] = [];
  const tell = (value: unknown) => told.push(value);
  const inputs = [
    { payload: { n: 1 }, messageId: 'a', priority: 9, metadata: { m: '1' } },
    { payload: new Uint8Array([1, 2]), messageId: 'b', delayMs: 1_000, ttlMs: 60_000 },
  ];
  tell(await queue.enqueue('t', inputs));
  tell(await queue.enqueue('t', { payload: 3 }, { idempotencyKey: 'k' }));
  tell(await queue.enqueue('t', { payload: 3 }, { idempotencyKey: 'k' }));
  const leased = await queue.lease({ topics: ['t'], max: 5, leaseMs: 10_000, worker: 'w' });
  tell(leased);
  const [first, second] = leased.map(({ leaseId }) => ({ leaseId }));
  tell(await queue.settle({ extend: [{ ...first!, leaseMs: 20_000 }], progress: [{ ...second!, position: 7 }] }));
  tell(await queue.why('t'));
  tell(await queue.settle({ ack: [{ ...first!, result: 'r' }], nack: [{ ...second!, reason: 'no', dead: true }] }));
  tell(await queue.taskByMessageId('t', 'a'));
  tell(await queue.tasks('t', { state: 'dead' }));
  tell(await queue.redrive('t'));
  const id = (await queue.taskByMessageId('t', 'b')).id;
  tell(await queue.reschedule('t', id, { delayMs: 5_000 }));
  const waits = queue.task('t', id, { waitMs: 30_000 });
  const drained = queue.drained('t', { timeoutMs: 60_000 });
  await advance(6_000);
  tell(await queue.lease({ max: 5 }));
  tell(await queue.cancel('t', id, 'not needed'));
  tell(await waits);
  tell(await queue.pause('t'));
  tell(await queue.resume('t'));
  tell(await queue.configure('t', { leaseMs: 7_000 }));
  tell(await queue.topic('t'));
  tell(await queue.topics({ prefix: 't' }));
  await advance(70_000);
  tell(await drained);
  const schedule = { topic: 't', pattern: '*/5 * * * *', timeZone: 'UTC', payload: { kind: 'tick' } };
  tell(await queue.setSchedule('tick', schedule));
  await advance(600_000);
  tell(await queue.schedule('tick'));
  tell(await queue.schedules());
  tell(await queue.tasks('t', { state: 'ready' }));
  await queue.deleteSchedule('tick');
  await expect(queue.schedule('tick')).rejects.toMatchObject({ code: 'schedule-not-found' });
  const purged = queue.purge('t');
  await advance(1);
  await purged;
  tell(await queue.scan('t'));
  tell(await queue.cursors('t'));
  tell(await queue.readiness());
  const { store: _store, lastScanAt: _lastScanAt, ...status } = queue.status();
  tell(status);
  await queue.stop();
  await expect(queue.lease()).rejects.toMatchObject({ code: 'shutting-down' });
  tell(await queue.readiness());
  return told;
}

test('answers every call as the queue on SQLite does, under the same clock and seed', async () => {
  const queue = await started({ seed: 5 });
  const here = await tour(queue, (ms) => queue.advance(ms));
  const clock = new VirtualClock(Date.UTC(2024, 0, 1), 5);
  const store = await openSqliteStore(':memory:', { now: () => clock.now });
  const there = await startQueue(store, { environment: clock.environment });
  // A group commit takes some turns.
  const settle = async () => {
    for (let turn = 0; turn < 60; turn++) await clock.turn();
  };
  const onSqlite = await tour(there, async (ms) => {
    await settle();
    await clock.goTo(clock.now + ms, settle);
  });
  expect(here).toHaveLength(29);
  expect(here).toEqual(onSqlite);
});

describe('ids', () => {
  const idsOf = async (options?: TestQueueOptions) => {
    const queue = await started(options);
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2, messageId: 'm' }]);
    const tasks = await queue.lease({ max: 2 });
    await queue.settle({ nack: tasks.map(({ leaseId }) => ({ leaseId })) });
    const { tookMs } = await queue.drain(() => null);
    return { ids: tasks.map(({ id, leaseId }) => [id, leaseId]), tookMs };
  };

  test('and jitter are the same each time', async () => {
    expect(await idsOf()).toEqual(await idsOf());
    expect(await idsOf({ seed: 7 })).toEqual(await idsOf({ seed: 7 }));
  });

  test('are others by another seed', async () => {
    expect(await idsOf({ seed: 7 })).not.toEqual(await idsOf({ seed: 8 }));
  });

  test('never look like an option of a command', () => {
    const { environment } = new VirtualClock(0, 1);
    const tokens = Array.from({ length: 2_000 }, () => environment.token());
    expect(tokens.filter((token) => !/^[A-Za-z0-9_][A-Za-z0-9_-]{21}$/.test(token))).toEqual([]);
    expect(new Set(tokens).size).toBe(2_000);
  });
});

test('many stand side by side, each with its own tasks and its own clock', async () => {
  const queues = await Promise.all(Array.from({ length: 20 }, (_, seed) => started({ seed })));
  await Promise.all(queues.map((queue, nth) => queue.enqueue('t', { payload: nth, delayMs: nth * 1_000 })));
  await Promise.all(queues.map((queue, nth) => queue.advance(nth * 1_000)));
  const got = await Promise.all(queues.map((queue) => queue.lease({ max: 5 })));
  expect(got.map(payloads)).toEqual(queues.map((_, nth) => [nth]));
});

test('a purge ends what was put in before it, and nothing that comes after', async () => {
  const queue = await started();
  await queue.enqueue('t', [{ payload: 'old' }, { payload: 'old', delayMs: 1_000 }]);
  await queue.purge('t');
  await queue.enqueue('t', { payload: 'new' });
  expect(payloads(await queue.pending())).toEqual(['new']);
  expect(queue.now).toBe(Date.UTC(2024, 0, 1) + 1);
});

test('what waits, tasks in hand first, in a topic or in all', async () => {
  const queue = await started();
  await queue.enqueue('t', [
    { payload: 'delayed', delayMs: 1_000 },
    { payload: 'ready' },
    { payload: 'hand', priority: 9 },
  ]);
  await queue.enqueue('u', { payload: 'other' });
  await queue.lease({ topics: ['t'] });
  expect((await queue.pending('t')).map(({ payload, state }) => [payload, state])).toEqual([
    ['hand', 'leased'],
    ['ready', 'ready'],
    ['delayed', 'delayed'],
  ]);
  expect(payloads(await queue.pending())).toEqual(['hand', 'ready', 'delayed', 'other']);
  expect(await queue.pending('nothing')).toEqual([]);
});

test('all topics are looked at, also where there are more than one page of them', async () => {
  const queue = await started();
  for (let nth = 0; nth < 1_200; nth++) await queue.enqueue(`t${nth}`, { payload: nth });
  expect(await queue.pending()).toHaveLength(1_200);
  expect(await queue.drain(() => null)).toMatchObject({ succeeded: 1_200 });
});

test('a process that forgets to stop it ends all the same, whatever waits', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-testing-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  await writeFile(
    join(directory, 'program.mts'),
    `import { TestQueue } from ${JSON.stringify(join(root, 'src/testing/index.ts'))};
     const queue = await TestQueue.start();
     await queue.enqueue('t', [{ payload: 1, delayMs: 60_000 }, { payload: 2 }]);
     await queue.lease();
     void queue.lease({ waitMs: 60_000 });
     void queue.drained('t');
     console.log(process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout' || kind === 'Immediate'));`,
  );
  const { stdout } = await run(join(root, 'node_modules/.bin/tsx'), ['program.mts'], {
    cwd: directory,
    timeout: 20_000,
  });
  expect(stdout).toBe('[]\n');
});
