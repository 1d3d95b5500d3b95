/** The virtual clock: what falls due, in which order, and what is not waited for. */
import { readFile } from 'node:fs/promises';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { QueueError } from '../../src/core/errors.ts';
import { payloads, started, worker } from './support/testing.ts';

describe('where it begins', () => {
  test('is the first of January 2024, and stays until it is moved', async () => {
    const queue = await started();
    expect(new Date(queue.now).toISOString()).toBe('2024-01-01T00:00:00.000Z');
    await queue.enqueue('t', { payload: 1 });
    await queue.lease();
    expect(queue.now).toBe(Date.UTC(2024, 0, 1));
  });

  test.each([new Date('2031-05-06T07:08:09.010Z'), Date.UTC(2031, 4, 6, 7, 8, 9, 10)])('is %s', async (now) => {
    const queue = await started({ now });
    const { id } = await queue.enqueue('t', { payload: 1 });
    expect((await queue.task('t', id!)).enqueuedAt).toBe(Date.UTC(2031, 4, 6, 7, 8, 9, 10));
  });

  test.each<[object, RegExp]>([
    [{ now: new Date('soon') }, /\/now: "Invalid Date" is not a Date or milliseconds.*for example: new Date\(/],
    [{ now: -1 }, /\/now: "-1" is not/],
    [{ now: 1.5 }, /\/now: "1.5" is not/],
    [{ seed: -1 }, /\/seed: "-1" is not an integer from 0 to 4294967295; for example/],
    [{ sede: 1 }, /\/sede: "sede" is not a field of what starts a test queue \(now, settings, seed\); for example/],
    [{ settings: { mail: { maxAttempts: 0 } } }, /\/maxAttempts: "0" is not an integer from 1 to 1000/],
    [{ settings: { 'a*': {} } }, /"a\*" is not free of '\*'/],
  ])('is refused: %j', async (options, message) => {
    await expect(started(options)).rejects.toThrow(message);
    await expect(started(options)).rejects.toBeInstanceOf(QueueError);
  });

  test('settings are those given', async () => {
    const queue = await started({ settings: { mail: { maxAttempts: 2 }, sms: { leaseMs: 5_000 } } });
    expect((await queue.topic('mail')).settings).toMatchObject({ maxAttempts: 2, leaseMs: 30_000 });
    expect((await queue.topic('sms')).settings).toMatchObject({ maxAttempts: 5, leaseMs: 5_000 });
  });
});

describe('advance', () => {
  test('a delayed task is there at its time, not before', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 'x', delayMs: 90_000 });
    await queue.advance(89_999);
    expect(await queue.lease()).toEqual([]);
    await queue.advance(1);
    expect(payloads(await queue.lease())).toEqual(['x']);
  });

  test('a lease that runs out comes back, with the next attempt', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 'x' });
    const [first] = await queue.lease({ leaseMs: 10_000 });
    await queue.advance(9_999);
    expect(await queue.lease()).toEqual([]);
    await queue.advance(2_001);
    const [second] = await queue.lease();
    expect(second).toMatchObject({ payload: 'x', attempt: 2 });
    const late = await queue.settle({ ack: [{ leaseId: first!.leaseId }] });
    expect(late.ack[0]).toMatchObject({ ok: false, code: 'lease-lost' });
  });

  test('a lease call waits for work, or for its time, and for no other', async () => {
    const queue = await started();
    let tasks: readonly unknown[] | null = null;
    const call = queue.lease({ waitMs: 30_000 }).then((got) => {
      tasks = got;
    });
    await queue.advance(29_999);
    expect(tasks).toBeNull();
    await queue.advance(1);
    expect(tasks).toEqual([]);
    await call;
    const next = queue.lease({ waitMs: 30_000 });
    await queue.enqueue('t', { payload: 'x' });
    expect(payloads(await next)).toEqual(['x']);
  });

  test('what falls due runs at its time, in order, and what follows from it before the next', async () => {
    const queue = await started();
    const { timer } = queue.environment;
    const told: string[] = [];
    const tell = (what: string) => told.push(`${queue.now - Date.UTC(2024, 0, 1)} ${what}`);
    timer(200, () => tell('b'));
    timer(100, async () => {
      tell('a');
      timer(100, () => tell('c'));
      timer(0, () => tell('a, at once'));
      await null;
      tell('a, later');
      const { id } = await queue.enqueue('t', { payload: 1 });
      tell((await queue.task('t', id!)).state);
    });
    timer(199.5, () => tell('d'));
    timer(201, () => tell('too late'));
    await queue.advance(200);
    expect(told).toEqual(['100 a', '100 a, later', '100 ready', '100 a, at once', '200 b', '200 d', '200 c']);
  });

  test('what was called off does not run, and moves nothing', async () => {
    const queue = await started();
    const { timer } = queue.environment;
    const told: string[] = [];
    for (const ms of [0, 10]) timer(ms, () => told.push(`${ms} called off`))();
    timer(100, () => told.push('100'));
    await queue.advance(50);
    expect(told).toEqual([]);
    expect(queue.now).toBe(Date.UTC(2024, 0, 1) + 50);
    await queue.advance(50);
    expect(told).toEqual(['100']);
  });

  test('runs what is due now, and moves nothing, by 0', async () => {
    const queue = await started();
    const { timer } = queue.environment;
    let isRun = false;
    timer(0, () => {
      timer(0, () => {
        timer(0, () => {
          isRun = true;
        });
      });
    });
    await queue.advance(0);
    expect(isRun).toBe(true);
    expect(queue.now).toBe(Date.UTC(2024, 0, 1));
  });

  test('calls follow each other, also those made while one runs', async () => {
    const queue = await started();
    const seen: number[] = [];
    queue.environment.timer(50, () => void queue.advance(1_000).then(() => seen.push(queue.now)));
    await Promise.all([queue.advance(100), queue.advance(100)]);
    await queue.advance(0);
    expect(seen).toEqual([Date.UTC(2024, 0, 1) + 1_200]);
  });

  test('to a time that is over when its turn comes does not go back', async () => {
    const queue = await started();
    await Promise.all([queue.advance(1_000), queue.advanceTo(queue.now + 500)]);
    expect(queue.now).toBe(Date.UTC(2024, 0, 1) + 1_000);
  });

  test('goes on after one that failed', async () => {
    const queue = await started();
    queue.environment.timer(10, () => {
      throw new Error('of a timer');
    });
    await expect(queue.advance(20)).rejects.toThrow('of a timer');
    await queue.advance(20);
    expect(queue.now).toBe(Date.UTC(2024, 0, 1) + 30);
  });

  test('goes to a time', async () => {
    const queue = await started();
    await queue.advanceTo(new Date('2024-01-01T06:00:00Z'));
    await queue.advanceTo(queue.now);
    await queue.advanceTo(queue.now + 1);
    expect(new Date(queue.now).toISOString()).toBe('2024-01-01T06:00:00.001Z');
  });

  test('refuses what is no time to go to', async () => {
    const queue = await started();
    await queue.advance(10_000);
    await expect(queue.advance(-1)).rejects.toThrow(/\/ms: "-1" is not an integer from 0/);
    await expect(queue.advance(0.5)).rejects.toThrow(/\/ms: "0.5" is not/);
    await expect(queue.advanceTo(new Date('2024-01-01T00:00:09Z'))).rejects.toThrow(
      /\/time: "2024-01-01T00:00:09.000Z" is not a Date or milliseconds since 1970 from 2024-01-01T00:00:10.000Z on \(a clock does not go back\); for example: new Date\('2024-01-01T00:01:10.000Z'\)/,
    );
    expect(queue.now).toBe(Date.UTC(2024, 0, 1) + 10_000);
  });

  test('lets a worker go on that takes some turns of the event loop', async () => {
    const queue = await started();
    const done: unknown[] = [];
    worker(queue, 't', async ({ payload }) => {
      for (let turn = 0; turn < 5; turn++) await new Promise<void>((resolve) => setImmediate(resolve));
      done.push(payload);
    });
    await queue.enqueue('t', [
      { payload: 'a', delayMs: 1_000 },
      { payload: 'b', delayMs: 2_000 },
    ]);
    await queue.advance(2_000);
    expect(done).toEqual(['a', 'b']);
    expect(await queue.pending()).toEqual([]);
  });

  test('passes over real work, as time passes over a process that is paused', async () => {
    const queue = await started();
    const lengths: number[] = [];
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    worker(queue, 't', async () => {
      const { length } = await readFile(import.meta.filename);
      if (lengths.push(length) === 1) await released;
    });
    await queue.enqueue('t', { payload: 1, messageId: 'one' });
    await queue.waitFor(() => lengths.length === 1);
    await queue.advance(40_000);
    release();
    const task = await queue.waitFor({ topic: 't', messageId: 'one', state: 'done' });
    expect(task.attempts.map(({ outcome }) => outcome)).toEqual(['lapsed', 'done']);
  });
});

describe('fake timers', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  test('of a test’s own do not hold the queue up', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'Date', 'performance'] });
    const queue = await started();
    await queue.enqueue('t', { payload: 1, delayMs: 5_000 });
    await queue.advance(5_000);
    await expect(queue.waitFor({ topic: 'u' }, { withinMs: 1_000, realMs: 5 })).rejects.toThrow(/did not come about/);
    expect(await queue.drain(() => null)).toMatchObject({ succeeded: 1 });
  });
});
