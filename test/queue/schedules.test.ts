/** Schedules: when they fire, that each firing is one task whatever happens, and what is refused. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { dueFirings, type Timetable } from '../../src/core/schedule.ts';
import type { Queue, ScheduleInput } from '../../src/queue/api.ts';
import { silentLogger } from '../../src/queue/engine.ts';
import { startQueue } from '../../src/queue/open.ts';
import { timetableOf } from '../../src/scheduler/cron.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { type Store, StoreUnavailableError } from '../../src/store/store.ts';
import { firedFor as firedForIn, seconds } from '../support/firings.ts';
import { type ManualEnvironment, manualEnvironment } from '../support/manual-environment.ts';
import { ackAll, testQueue } from '../support/queue.ts';
import { sharedStore } from '../support/shared-store.ts';

/** The clock of a test begins 20 s before a full hour, at 22:13:20 UTC. */
const START = 1_700_000_000_000;
const EVERY_SECOND = { topic: 't', pattern: '* * * * * *', payload: { n: 1 } };
const iso = (at: number): string => new Date(at).toISOString();
const at = (text: string): number => Date.parse(text);
const firedFor = (queue: Queue, topic = 't') => firedForIn(queue, topic);

async function tempFile(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-schedules-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return join(directory, 'queue.db');
}

describe('a schedule', () => {
  test('puts a task into its topic at each time of its pattern, in its time zone', async () => {
    const { queue, env } = await testQueue();
    const input: ScheduleInput = {
      topic: 'reports',
      pattern: '30 8 * * MON-FRI',
      timeZone: 'Europe/Berlin',
      payload: { kind: 'daily' },
      priority: 8,
      metadata: { traceparent: '00-1' },
      maxAttempts: 2,
      ttlMs: 7_200_000,
    };
    const made = await queue.setSchedule('nightly', input);
    // It is Tuesday; Berlin is an hour ahead.
    const times = ['2023-11-15T07:30:00.000Z', '2023-11-16T07:30:00.000Z', '2023-11-17T07:30:00.000Z'];
    expect(made).toMatchObject({ ...input, name: 'nightly', fired: 0, missed: 0, lastFiredFor: null, lastTask: null });
    expect(made.next.map(iso)).toEqual(times);
    await env.advance(at(times[0]!) - START - 1);
    expect(await queue.lease()).toEqual([]);
    await env.advance(1);
    const [task, ...others] = await queue.lease({ max: 10 });
    expect(others).toEqual([]);
    expect(task).toMatchObject({
      topic: 'reports',
      payload: { kind: 'daily' },
      priority: 8,
      metadata: { traceparent: '00-1', 'ebbmark-schedule': 'nightly', 'ebbmark-fired-for': times[0] },
      messageId: expect.stringMatching(new RegExp(`^schedule:nightly:[0-9A-Z]{26}:${at(times[0]!)}$`)),
    });
    expect(await queue.task('reports', task!.id)).toMatchObject({
      maxAttempts: 2,
      expiresAt: at(times[0]!) + 7_200_000,
    });
    const shown = await queue.schedule('nightly');
    expect(shown).toMatchObject({
      fired: 1,
      lastFiredFor: at(times[0]!),
      lastTask: task!.id,
      firedUpTo: at(times[0]!),
    });
    expect(shown.next.map(iso)).toEqual([times[1], times[2], '2023-11-20T07:30:00.000Z']);
    expect(shown.nextAt).toBe(at(times[1]!));
    expect(queue.status()).toMatchObject({ firings: 1, firingsMissed: 0 });
  });

  test('may have seconds, and bytes', async () => {
    const { queue, env } = await testQueue();
    await queue.setSchedule('tick', { ...EVERY_SECOND, pattern: '*/5 * * * * *', payload: new Uint8Array([1, 2]) });
    await env.advance(15_000);
    expect(await firedFor(queue)).toEqual([START + 5_000, START + 10_000, START + 15_000]);
    expect((await queue.lease())[0]?.payload).toEqual(new Uint8Array([1, 2]));
    expect((await queue.schedule('tick')).payload).toEqual(new Uint8Array([1, 2]));
  });

  test('set again as it is changes nothing', async () => {
    const { queue, env } = await testQueue();
    const made = await queue.setSchedule('tick', { ...EVERY_SECOND, payload: new Uint8Array([1, 2]) });
    await env.advance(1_500);
    const again = await queue.setSchedule('tick', { ...EVERY_SECOND, payload: new Uint8Array([1, 2]) });
    expect(again).toMatchObject({ createdAt: made.createdAt, updatedAt: made.updatedAt, fired: 1 });
    await env.advance(1_500);
    expect(await firedFor(queue)).toEqual(seconds(START, START + 3_000));
  });

  test('that is changed goes on from where it was', async () => {
    const { queue, env } = await testQueue();
    await queue.setSchedule('s', { ...EVERY_SECOND, pattern: '0 * * * *' });
    await env.advance(40 * 60_000);
    // 22:53:20; the hour before has not been full since it was made, and is not made up for by minutes.
    const changed = await queue.setSchedule('s', { ...EVERY_SECOND, pattern: '*/10 * * * *' });
    expect(changed).toMatchObject({ fired: 0, missed: 0, createdAt: START, updatedAt: env.now() });
    await env.advance(10 * 60_000);
    expect((await firedFor(queue)).map(iso)).toEqual(['2023-11-14T23:00:00.000Z']);
    // Another payload, another priority: the times are the same, and none is fired again.
    await queue.setSchedule('s', { ...EVERY_SECOND, pattern: '*/10 * * * *', payload: 'new', priority: 9 });
    await env.advance(7 * 60_000);
    expect(await queue.lease({ max: 5 })).toMatchObject([{ payload: 'new' }, { payload: { n: 1 } }]);
    expect(await queue.schedule('s')).toMatchObject({ fired: 2, missed: 0 });
  });

  test('that is changed fires what was due before as it was, and nothing twice', async () => {
    const { queue, env, failures } = await failingQueue();
    await queue.setSchedule('s', EVERY_SECOND);
    // Due, and not to be written now.
    failures.writeSchedule = 1;
    await env.advance(1_200);
    await queue.setSchedule('s', { ...EVERY_SECOND, topic: 'other' });
    await env.advance(2_000);
    expect(await firedFor(queue, 't')).toEqual([START + 1_000]);
    expect(await firedFor(queue, 'other')).toEqual([START + 2_000, START + 3_000]);
  });

  test('that is changed fires all that was due before, also where that is much', async () => {
    const { queue, env, failures } = await failingQueue();
    await queue.setSchedule('s', { ...EVERY_SECOND, catchUpMs: 600_000 });
    failures.writeSchedule = Number.POSITIVE_INFINITY;
    await env.advance(300_200);
    failures.writeSchedule = 0;
    await queue.setSchedule('s', { ...EVERY_SECOND, topic: 'other' });
    expect(await firedFor(queue, 't')).toEqual(seconds(START, START + 300_000));
    await env.advance(1_000);
    expect(await firedFor(queue, 'other')).toEqual([START + 301_000]);
  });

  test('that is deleted fires no more; what it has enqueued stays, and one made anew is another one', async () => {
    const { queue, env } = await testQueue();
    await queue.setSchedule('s', EVERY_SECOND);
    await env.advance(2_000);
    await queue.deleteSchedule('s');
    await env.advance(3_000);
    expect(await firedFor(queue)).toEqual([START + 1_000, START + 2_000]);
    await expect(queue.schedule('s')).rejects.toMatchObject({ code: 'schedule-not-found' });
    await expect(queue.deleteSchedule('s')).rejects.toMatchObject({ code: 'schedule-not-found' });
    expect(await queue.setSchedule('s', EVERY_SECOND)).toMatchObject({ fired: 0, firedUpTo: START + 5_000 });
    await env.advance(1_000);
    expect(await firedFor(queue)).toEqual([START + 1_000, START + 2_000, START + 6_000]);
  });

  test('puts its tasks into a topic that is paused', async () => {
    const { queue, env } = await testQueue();
    await queue.pause('t');
    await queue.setSchedule('s', EVERY_SECOND);
    await env.advance(2_000);
    expect((await queue.topic('t')).counts.ready).toBe(2);
  });

  test('of which a firing is refused says why, and goes on', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('t', { bands: [1, 101] });
    await queue.setSchedule('s', { ...EVERY_SECOND, priority: 500 });
    await env.advance(1_000);
    await queue.configure('t', { bands: null });
    await env.advance(1_000);
    const refused = await queue.schedule('s');
    expect(refused).toMatchObject({ fired: 1, firedUpTo: START + 2_000, lastFiredFor: START + 1_000 });
    expect(refused.refusal).toMatch(/priority.*500/);
    await queue.configure('t', { bands: [1, 101] });
    await env.advance(1_000);
    expect(await queue.schedule('s')).toMatchObject({ fired: 2, refusal: null });
  });

  test('beside many others of the same moment', async () => {
    const { queue, env } = await testQueue();
    const names = Array.from({ length: 300 }, (_, nth) => `s${nth}`);
    for (const name of names) await queue.setSchedule(name, { ...EVERY_SECOND, pattern: '0 23 * * *', payload: name });
    await env.advance(at('2023-11-14T23:00:00Z') - START + 500);
    const tasks = await queue.lease({ max: 1_000 });
    expect(new Set(tasks.map(({ payload }) => payload))).toEqual(new Set(names));
    expect(tasks).toHaveLength(300);
  });
});

describe('a list', () => {
  test('tells all of them, page by page, and goes on behind a name', async () => {
    const { env, server } = await sharedStore(8);
    const { queue } = await server();
    const names = Array.from({ length: 25 }, (_, nth) => `schedule ${nth} 🐌`);
    for (const name of names) await queue.setSchedule(name, { ...EVERY_SECOND, pattern: '0 0 * * *' });
    for (const limit of [1, 7, 25, 100]) {
      const found: string[] = [];
      for (let after: string | undefined; ; ) {
        const page = await queue.schedules({ limit, ...(after === undefined ? {} : { after }) });
        found.push(...page.schedules.map(({ name }) => name));
        if (page.after === undefined) break;
        expect(page.schedules).toHaveLength(limit);
        after = page.after;
      }
      expect([...found].sort()).toEqual([...names].sort());
    }
    const [first] = (await queue.schedules({ limit: 1 })).schedules;
    expect(first).toMatchObject({ topic: 't', pattern: '0 0 * * *', nextAt: at('2023-11-15T00:00:00Z'), fired: 0 });
    expect(first).not.toHaveProperty('payload');
    await expect(queue.schedules({ limit: 1_001 })).rejects.toMatchObject({ code: 'invalid-input' });
    await expect(queue.schedules({ after: 'a*' })).rejects.toMatchObject({ issues: [{ path: '/after' }] });
    await env.advance(0);
  });
});

describe('each firing is one task', () => {
  test('also where servers were stopped between them', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile() });
    await queue.setSchedule('s', EVERY_SECOND);
    await env.advance(2_400);
    const second = await restart();
    await env.advance(1_200);
    const third = await restart();
    await env.advance(2_400);
    expect(await firedFor(third)).toEqual(seconds(START, START + 6_000));
    expect(await third.schedule('s')).toMatchObject({ fired: 6, missed: 0 });
    await second.stop();
  });

  // A topic may forget message ids at once, or never: a firing's is kept all the same.
  test.each([0, 300, 86_400_000, null])(
    'also where the server dies between the enqueue and its note of it, and the task is done by then (window %s)',
    async (dedupWindowMs) => {
      const { queue, env, failures, restart } = await failingQueue();
      await queue.configure('t', { dedupWindowMs });
      await queue.setSchedule('s', EVERY_SECOND);
      failures.writeSchedule = Number.POSITIVE_INFINITY;
      await env.advance(1_010);
      const tasks = await queue.lease({ max: 10 });
      expect(tasks).toHaveLength(1);
      await ackAll(queue, tasks);
      await env.advance(1_000);
      failures.writeSchedule = 0;
      const again = await restart();
      await env.advance(990);
      expect(await firedFor(again)).toEqual(seconds(START, START + 3_000));
      expect(await again.schedule('s')).toMatchObject({ fired: 3, missed: 0, lastFiredFor: START + 3_000 });
    },
  );

  test('also long after it was done, and after the retention', async () => {
    const { queue, env, failures } = await failingQueue();
    await queue.configure('t', { dedupWindowMs: 0, retentionMs: 300_000 });
    await queue.setSchedule('s', { ...EVERY_SECOND, pattern: '0 23 * * *', catchUpMs: 86_400_000 });
    await env.advance(at('2023-11-14T22:59:59Z') - START);
    failures.writeSchedule = Number.POSITIVE_INFINITY;
    await env.advance(1_100);
    await ackAll(queue, await queue.lease());
    await env.advance(20 * 60_000);
    failures.writeSchedule = 0;
    await env.advance(20_000);
    expect(await queue.lease({ max: 10 })).toEqual([]);
    expect(await queue.schedule('s')).toMatchObject({ fired: 1, firedUpTo: at('2023-11-14T23:00:00Z') });
  });

  test('also where the store answers that it cannot say', async () => {
    const { queue, env, failures } = await failingQueue();
    await queue.setSchedule('s', EVERY_SECOND);
    failures.unknown = 3;
    await env.advance(4_000);
    expect(await firedFor(queue)).toEqual(seconds(START, START + 4_000));
    failures.unknown = 1;
    await soon(env, queue.setSchedule('s', { ...EVERY_SECOND, payload: 2 }));
    failures.unknown = 1;
    await soon(env, queue.setSchedule('another', { ...EVERY_SECOND, topic: 'another' }));
    failures.unknown = 1;
    await soon(env, queue.deleteSchedule('s'));
    await expect(queue.schedule('s')).rejects.toMatchObject({ code: 'schedule-not-found' });
    expect((await queue.schedules()).schedules.map(({ name }) => name)).toEqual(['another']);
  });

  test('also of one whose making nobody could say whether it was done', async () => {
    const { queue, env, failures } = await failingQueue();
    failures.lost = Number.POSITIVE_INFINITY;
    const making = queue.setSchedule('s', EVERY_SECOND).catch((error: unknown) => error);
    await env.advance(20_000);
    expect(await making).toMatchObject({ code: 'outcome-unknown' });
    failures.lost = 0;
    await env.advance(20_000);
    expect(await firedFor(queue)).toEqual(seconds(START, START + 40_000));
  });
});

describe('what goes on by itself', () => {
  test('tells of a store that is away once, not for each schedule and each try', async () => {
    const { queue, env, failures, warnings } = await failingQueue();
    for (const name of ['a', 'b', 'c']) await queue.setSchedule(name, { ...EVERY_SECOND, topic: name });
    for (const times of [1, 2]) {
      failures.writeSchedule = Number.POSITIVE_INFINITY;
      await env.advance(5_000);
      // What is overdue is not among its next times.
      const now = Math.floor(env.now() / 1_000) * 1_000;
      expect((await queue.schedule('a')).next).toEqual([now + 1_000, now + 2_000, now + 3_000]);
      failures.writeSchedule = 0;
      await env.advance(2_000);
      expect(warnings.filter((message) => message.startsWith('a schedule could not be fired'))).toHaveLength(times);
    }
    for (const name of ['a', 'b', 'c']) expect(await firedFor(queue, name)).toEqual(seconds(START, START + 14_000));
  });

  test('leaves one alone that cannot be read here, and fires the others', async () => {
    const { queue, env, store, warnings } = await failingQueue();
    const made = await queue.setSchedule('odd', EVERY_SECOND);
    await queue.setSchedule('even', { ...EVERY_SECOND, topic: 'even' });
    const row = (await store().readSchedule(0, 'odd'))!;
    // As a server with other data of time zones has written it.
    const state = { ...row, version: row.version + 1 };
    await store().writeSchedule(0, { name: 'odd', expect: row, state, definition: { ...row, timeZone: 'Mars/Base' } });
    await env.advance(30_000);
    expect(warnings).toEqual(['a schedule could not be fired; it is tried again']);
    expect(await firedFor(queue, 'even')).toEqual(seconds(START, START + 30_000));
    await expect(queue.schedule('odd')).rejects.toMatchObject({ code: 'invalid-input' });
    expect((await queue.schedules()).schedules.map(({ name }) => name)).toEqual(['even', 'odd']);
    await queue.deleteSchedule('odd');
    expect(made.fired).toBe(0);
  });

  test('looks no more at one that was deleted', async () => {
    const { queue, env, failures } = await failingQueue();
    await queue.setSchedule('s', EVERY_SECOND);
    await env.advance(1_500);
    await queue.deleteSchedule('s');
    failures.reads = 0;
    await env.advance(5_000);
    expect(failures.reads).toBe(0);
  });

  test('loads schedules again where they could not be loaded', async () => {
    const { queue, env, failures, restart, warnings } = await failingQueue();
    await queue.setSchedule('s', EVERY_SECOND);
    failures.load = 2;
    const again = await restart();
    await env.advance(3_000);
    expect(warnings).toEqual(Array(2).fill('schedules could not be loaded; it is tried again'));
    expect(await firedFor(again)).toEqual(seconds(START, START + 3_000));
  });

  test('loads more of them than one page holds', async () => {
    const { queue, env, restart, store } = await failingQueue();
    await queue.setSchedule('s0000', { ...EVERY_SECOND, pattern: '0 23 * * *' });
    const { payload, ...row } = (await store().readSchedule(0, 's0000'))!;
    for (let nth = 1; nth <= 1_100; nth++) {
      const name = `s${String(nth).padStart(4, '0')}`;
      await store().writeSchedule(0, { name, expect: null, state: row, definition: { ...row, payload } });
    }
    const again = await restart();
    await env.advance(at('2023-11-14T23:00:00Z') - START + 2_000);
    expect(again.status().firings).toBe(1_101);
  });
});

describe('firings that were missed', () => {
  test('are made up for, each of them, after a short time without a server', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile() });
    await queue.setSchedule('s', EVERY_SECOND);
    await env.advance(1_000);
    await queue.stop();
    await env.advance(50_000);
    const again = await restart();
    await env.advance(1_000);
    expect(await firedFor(again)).toEqual(seconds(START, START + 52_000));
    expect(again.status()).toMatchObject({ firings: 51, firingsMissed: 0 });
  });

  test('are counted after a long one, and the last is made up for', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile() });
    await queue.setSchedule('s', { ...EVERY_SECOND, pattern: '0 * * * *' });
    await queue.stop();
    await env.advance(3 * 86_400_000);
    const again = await restart();
    await env.advance(100);
    expect((await firedFor(again)).map(iso)).toEqual(['2023-11-17T22:00:00.000Z']);
    expect(await again.schedule('s')).toMatchObject({ fired: 1, missed: 71, firedUpTo: at('2023-11-17T22:00:00Z') });
    expect(again.status()).toMatchObject({ firings: 1, firingsMissed: 71 });
  });

  test('are made up for as far back as the schedule says', async () => {
    const { queue, env, restart } = await testQueue({ path: await tempFile() });
    await queue.setSchedule('s', { ...EVERY_SECOND, pattern: '0 * * * *', catchUpMs: 3 * 3_600_000 });
    await queue.setSchedule('last', { ...EVERY_SECOND, topic: 'last', pattern: '0 * * * *', catchUpMs: 0 });
    await queue.stop();
    await env.advance(86_400_000);
    const again = await restart();
    await env.advance(100);
    const hours = ['2023-11-15T20:00:00.000Z', '2023-11-15T21:00:00.000Z', '2023-11-15T22:00:00.000Z'];
    expect((await firedFor(again)).map(iso)).toEqual(hours);
    expect(await again.schedule('s')).toMatchObject({ fired: 3, missed: 21 });
    expect((await firedFor(again, 'last')).map(iso)).toEqual(hours.slice(2));
    expect(await again.schedule('last')).toMatchObject({ fired: 1, missed: 23 });
    await env.advance(3_600_000);
    expect(await again.schedule('last')).toMatchObject({ fired: 2, missed: 23 });
  });

  test('are counted no further than so many', () => {
    const everySecond = timetableOf('* * * * * *', 'UTC');
    const now = START + 10 * 86_400_000;
    const due = dueFirings({ firedUpTo: START, catchUpMs: 2_500 }, everySecond, now);
    expect(due).toEqual({ times: [now - 2_000, now - 1_000, now], missed: 100, nextAt: now + 1_000 });
  });

  test('are counted no further than so many where only the last is made up for', () => {
    const everyMinute = timetableOf('* * * * *', 'UTC');
    const now = START + 10 * 86_400_000;
    const last = now - 20_000;
    const due = dueFirings({ firedUpTo: START, catchUpMs: 1_000 }, everyMinute, now);
    expect(due).toEqual({ times: [last], missed: 99, nextAt: last + 60_000 });
  });

  test('that are many are enqueued in several rounds', () => {
    const times = Array.from({ length: 45 }, (_, nth) => nth + 1);
    const timetable: Timetable = {
      next: (after) => times.find((time) => time > after) ?? null,
      previous: (before) => times.findLast((time) => time < before) ?? null,
    };
    const found: number[] = [];
    for (let firedUpTo = 0; ; ) {
      const due = dueFirings({ firedUpTo, catchUpMs: 100 }, timetable, 100);
      if (due.times.length === 0) break;
      expect(due.times.length).toBeLessThanOrEqual(20);
      found.push(...due.times);
      firedUpTo = due.times.at(-1)!;
    }
    expect(found).toEqual(times);
  });
});

describe('several servers', () => {
  test('run a schedule once, whichever of them is asked', async () => {
    const { env, server } = await sharedStore(4);
    const [first, second] = [await server(), await server()];
    const names = Array.from({ length: 12 }, (_, nth) => `s${nth}`);
    for (const [nth, name] of names.entries()) {
      const { queue } = nth % 2 === 0 ? first : second;
      await queue.setSchedule(name, { ...EVERY_SECOND, topic: `t${nth}`, payload: new Uint8Array([nth, 255]) });
    }
    await env.advance(3_000);
    for (const [nth, name] of names.entries()) {
      const { queue } = nth % 2 === 0 ? second : first;
      expect(await firedFor(queue, `t${nth}`)).toHaveLength((await queue.schedule(name)).fired);
      expect(await queue.schedule(name)).toMatchObject({ missed: 0, payload: new Uint8Array([nth, 255]) });
      expect((await queue.schedule(name)).fired).toBeGreaterThanOrEqual(2);
    }
    expect(first.queue.status().firings).toBeGreaterThan(0);
    expect(second.queue.status().firings).toBeGreaterThan(0);
    for (const [nth, name] of names.entries()) await (nth % 2 === 0 ? second : first).queue.deleteSchedule(name);
    expect((await first.queue.schedules()).schedules).toEqual([]);
  });

  test('go on with the schedules of one that stops', async () => {
    const { env, server } = await sharedStore(4);
    const [first, second] = [await server(), await server()];
    const names = Array.from({ length: 8 }, (_, nth) => `s${nth}`);
    for (const name of names) await first.queue.setSchedule(name, { ...EVERY_SECOND, topic: name });
    const from = env.now();
    await env.advance(2_500);
    const stopped = second.queue.stop();
    await env.advance(3_000);
    await stopped;
    for (const name of names) {
      const times = await firedFor(first.queue, name);
      expect(times).toEqual(seconds(from, times.at(-1)!));
      expect(times.at(-1)).toBeGreaterThan(env.now() - 1_000);
    }
  });

  test('take over from one that stands still between the enqueue and its note of it, and that goes on late', async () => {
    const { env, server } = await sharedStore(1);
    const first = await server();
    const second = await server();
    const [holder, other] = first.queue.status().shards.held === 1 ? [first, second] : [second, first];
    await other.queue.configure('t', { dedupWindowMs: 0 });
    await other.queue.setSchedule('s', EVERY_SECOND);
    const from = env.now();
    await env.advance(1_500);
    // Carried out or not, it does not hear of it, and wakes up when others have long gone on.
    const release = holder.holdAnswers('writeSchedule');
    await env.advance(600);
    holder.pause();
    release();
    await env.advance(20_000);
    await ackAll(other.queue, await other.queue.lease({ topics: ['t'], max: 1_000 }));
    holder.resume();
    await env.advance(5_000);
    const times = await firedFor(other.queue);
    expect(times).toEqual(seconds(from, times.at(-1)!));
    expect(times.at(-1)).toBeGreaterThan(env.now() - 2_000);
  });
});

describe('when a pattern fires', () => {
  const times = (pattern: string, timeZone: string, from: string, count: number): string[] => {
    const timetable = timetableOf(pattern, timeZone);
    const found: string[] = [];
    for (let time: number | null = at(from); found.length < count; ) {
      time = timetable.next(time);
      if (time === null) break;
      found.push(iso(time).replace('.000Z', 'Z'));
    }
    return found;
  };

  test('a time that is left out in spring: right behind the gap', () => {
    expect(times('30 2 * * *', 'Europe/Berlin', '2025-03-29T12:00:00Z', 2)).toEqual([
      '2025-03-30T01:00:00Z',
      '2025-03-31T00:30:00Z',
    ]);
    expect(times('30 2,14 * * *', 'Europe/Berlin', '2025-03-30T00:00:00Z', 2)).toEqual([
      '2025-03-30T01:00:00Z',
      '2025-03-30T12:30:00Z',
    ]);
  });

  test('a time that comes twice in autumn: the first time', () => {
    expect(times('30 2 * * *', 'Europe/Berlin', '2025-10-25T12:00:00Z', 2)).toEqual([
      '2025-10-26T00:30:00Z',
      '2025-10-27T01:30:00Z',
    ]);
    expect(times('30 2,14 * * *', 'Europe/Berlin', '2025-10-25T20:00:00Z', 2)).toEqual([
      '2025-10-26T00:30:00Z',
      '2025-10-26T13:30:00Z',
    ]);
    expect(times('30 1 * * *', 'America/New_York', '2025-11-01T12:00:00Z', 2)).toEqual([
      '2025-11-02T05:30:00Z',
      '2025-11-03T06:30:00Z',
    ]);
  });

  test('with a wildcard or a step: whenever that is, both times too', () => {
    expect(times('*/30 * * * *', 'Europe/Berlin', '2025-10-25T23:45:00Z', 5)).toEqual([
      '2025-10-26T00:00:00Z',
      '2025-10-26T00:30:00Z',
      '2025-10-26T01:00:00Z',
      '2025-10-26T01:30:00Z',
      '2025-10-26T02:00:00Z',
    ]);
    expect(times('*/30 * * * *', 'Europe/Berlin', '2025-03-30T00:15:00Z', 3)).toEqual([
      '2025-03-30T00:30:00Z',
      '2025-03-30T01:00:00Z',
      '2025-03-30T01:30:00Z',
    ]);
  });

  test.each([
    ['@hourly', ['2025-01-01T01:00:00Z', '2025-01-01T02:00:00Z']],
    ['0 0 L * *', ['2025-01-31T00:00:00Z', '2025-02-28T00:00:00Z']],
    ['0 9 * * FRI#2', ['2025-01-10T09:00:00Z', '2025-02-14T09:00:00Z']],
    ['0 0 29 2 *', ['2028-02-29T00:00:00Z', '2032-02-29T00:00:00Z']],
    ['15,45 30 12 * JAN *', ['2025-01-01T12:30:15Z', '2025-01-01T12:30:45Z']],
  ])('%s', (pattern, expected) => {
    expect(times(pattern, 'UTC', '2025-01-01T00:00:00Z', 2)).toEqual(expected);
  });

  test('is told strictly behind a time, and strictly before one', () => {
    const { next, previous } = timetableOf('* * * * * *', 'UTC');
    expect([next(START - 1), next(START), next(START + 999)]).toEqual([START, START + 1_000, START + 1_000]);
    expect([previous(START), previous(START + 1)]).toEqual([START - 1_000, START]);
  });
});

describe('input that is refused', () => {
  const good: ScheduleInput = EVERY_SECOND;

  test.each([
    [
      'pattern',
      { pattern: '61 * * * *' },
      /"61 \* \* \* \*" is not a cron pattern of five fields.*61.*"30 8 \* \* MON-FRI"/,
    ],
    ['pattern', { pattern: '* * *' }, /"\* \* \*" is not a cron pattern/],
    ['pattern', { pattern: '' }, /"" is not a cron pattern/],
    ['pattern', { pattern: '0 0 0 1 1 * 2030' }, /is not a cron pattern/],
    ['pattern', { pattern: '2030-01-01T00:00:00' }, /it is a date/],
    ['pattern', { pattern: '0 0 30 2 *' }, /there is no such day/],
    ['pattern', { pattern: '@reboot' }, /is not a cron pattern/],
    ['pattern', { pattern: `${'1,'.repeat(200)}1 * * * *` }, /more than 256 characters/],
    ['pattern', { pattern: 5 }, /5 is not a cron pattern/],
    ['timeZone', { timeZone: 'Mars/Base' }, /"Mars\/Base" is not the IANA name of a time zone.*"Europe\/Berlin"/],
    ['timeZone', { timeZone: '+02:00' }, /"\+02:00" is not the IANA name/],
    ['timeZone', { timeZone: '' }, /"" is not the IANA name/],
    ['priority', { priority: 10 }, /10 is not/],
    ['ttlMs', { ttlMs: 0 }, /"0" is not an integer from 1/],
    ['maxAttempts', { maxAttempts: 0 }, /"0" is not an integer from 1 to 1000/],
    ['catchUpMs', { catchUpMs: -1 }, /"-1" is not an integer from 0 to 86400000/],
    ['catchUpMs', { catchUpMs: 86_400_001 }, /is not an integer/],
    ['metadata', { metadata: { a: 'x'.repeat(8_150) } }, /is not at most 8192 bytes as JSON/],
    ['metadata', { metadata: ['a'] }, /is not an object of strings/],
    ['metadata/ebbmark-schedule', { metadata: { 'ebbmark-schedule': 'x' } }, /is not a name that does not begin with/],
    ['payload', { payload: undefined }, /is not a JSON value/],
    ['messageId', { messageId: 'm' }, /"messageId" is not a field of a schedule \(topic, pattern/],
    ['runAt', { runAt: 1 }, /"runAt" is not a field of a schedule/],
  ])('%s (%#)', async (path, wrong, message) => {
    const { queue } = await testQueue();
    const call = queue.setSchedule('s', { ...good, ...wrong } as ScheduleInput);
    await expect(call).rejects.toMatchObject({ code: 'invalid-input', issues: [{ path: `/${path}` }] });
    await expect(call).rejects.toThrow(message);
    expect((await queue.schedules()).schedules).toEqual([]);
  });

  test('a payload that is too large, a topic that can be none, no object', async () => {
    const { queue } = await testQueue();
    const set = (input: unknown) => queue.setSchedule('s', input as ScheduleInput);
    await expect(set({ ...good, payload: 'x'.repeat(256 * 1024) })).rejects.toMatchObject({
      code: 'payload-too-large',
    });
    await expect(set({ ...good, topic: 'a*' })).rejects.toMatchObject({ code: 'topic-invalid' });
    await expect(set({ ...good, topic: undefined })).rejects.toMatchObject({ code: 'topic-invalid' });
    for (const none of [null, 'text', []]) await expect(set(none)).rejects.toMatchObject({ code: 'invalid-input' });
  });

  test.each(['', 'a*', '\u0001', 'x'.repeat(256), '..'])('a name (%#)', async (name) => {
    const { queue } = await testQueue();
    const refusal = {
      code: 'invalid-input',
      issues: [{ path: '/name', message: expect.stringContaining('"nightly-report"') }],
    };
    await expect(queue.setSchedule(name, good)).rejects.toMatchObject(refusal);
    await expect(queue.schedule(name)).rejects.toMatchObject(refusal);
    await expect(queue.deleteSchedule(name)).rejects.toMatchObject(refusal);
  });
});

interface Failures {
  /** So many writes of schedules are refused as if the store were out of reach. */
  writeSchedule: number;
  /** So many are carried out, and answered as unknown. */
  unknown: number;
  /** So many are answered as unknown, and carried out long after. */
  lost: number;
  /** So many times schedules cannot be loaded. */
  load: number;
  /** Counts how often a schedule was read. */
  reads: number;
}

/** A queue on a real store, of which writes of schedules fail as the test says. */
async function failingQueue(): Promise<{
  readonly queue: Queue;
  readonly env: ManualEnvironment;
  readonly failures: Failures;
  readonly warnings: readonly string[];
  /** What the queue works on just now. */
  store(): Store;
  restart(): Promise<Queue>;
}> {
  const env = manualEnvironment();
  const path = await tempFile();
  const failures: Failures = { writeSchedule: 0, unknown: 0, lost: 0, load: 0, reads: 0 };
  const warnings: string[] = [];
  const log = { ...silentLogger, warn: (_fields: object, message: string) => void warnings.push(message) };
  let store = await openSqliteStore(path, { now: env.now });
  const open = () => startQueue(failing(store, env, failures), { environment: env, log });
  let queue = await open();
  onTestFinished(() => queue.stop());
  return {
    queue,
    env,
    failures,
    warnings,
    store: () => store,
    async restart() {
      await queue.stop();
      store = await openSqliteStore(path, { now: env.now });
      queue = await open();
      return queue;
    },
  };
}

function failing(store: Store, env: ManualEnvironment, failures: Failures): Store {
  return new Proxy(store, {
    get(target, name) {
      const member = Reflect.get(target, name) as unknown;
      if (typeof member !== 'function') return member;
      if (name === 'readSchedule') failures.reads++;
      if (name === 'readSchedules' && failures.load-- > 0) {
        return () => Promise.reject(new StoreUnavailableError('as the test says'));
      }
      if (name !== 'writeSchedule') return member.bind(target) as unknown;
      return async (...args: Parameters<Store['writeSchedule']>) => {
        if (failures.writeSchedule-- > 0) throw new StoreUnavailableError('as the test says');
        if (failures.lost-- > 0) {
          env.timer(25_000, () => void target.writeSchedule(...args));
          return { kind: 'unknown' };
        }
        const outcome = await target.writeSchedule(...args);
        return failures.unknown-- > 0 ? { kind: 'unknown' } : outcome;
      };
    },
  });
}

/** Lets time pass until something is answered. */
async function soon<T>(env: ManualEnvironment, call: Promise<T>): Promise<T> {
  let isOver = false;
  const over = call.finally(() => {
    isOver = true;
  });
  while (!isOver) await env.advance(10);
  return over;
}
