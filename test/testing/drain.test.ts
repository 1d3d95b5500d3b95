/** Working a queue off. */
import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import type { LeasedTask } from '../../src/queue/api.ts';
import { TestTimeoutError } from '../../src/testing/index.ts';
import { payloads, started, worker } from './support/testing.ts';

const BEGINNING = Date.UTC(2024, 0, 1);
const NOTHING = { delivered: 0, succeeded: 0, failed: 0, deadLettered: 0, expired: 0, tookMs: 0, errors: [] };

describe('with a handler', () => {
  test('an empty queue is drained at once', async () => {
    const queue = await started();
    expect(await queue.drain(() => null)).toEqual(NOTHING);
    expect(await queue.drain()).toEqual(NOTHING);
  });

  test('each task is worked on, the highest priority first, and has the result', async () => {
    const queue = await started();
    await queue.enqueue('t', [
      { payload: 'low', priority: 1 },
      { payload: 'high', priority: 9, messageId: 'h' },
    ]);
    const seen: unknown[] = [];
    const report = await queue.drain(async ({ payload }) => {
      seen.push(payload);
      return { said: payload };
    });
    expect(seen).toEqual(['high', 'low']);
    expect(report).toEqual({ ...NOTHING, delivered: 2, succeeded: 2 });
    expect(await queue.taskByMessageId('t', 'h')).toMatchObject({ state: 'done', result: { said: 'high' } });
    expect(queue.now).toBe(BEGINNING);
  });

  test('what a handler throws is the reason of the nack, until the attempts run out', async () => {
    const queue = await started({ settings: { t: { maxAttempts: 3 } } });
    await queue.enqueue('t', [{ payload: 'bad', messageId: 'bad' }, { payload: 'good' }]);
    const boom = new Error('no such address');
    const report = await queue.drain(({ payload, attempt }) => {
      if (payload === 'bad') throw attempt === 2 ? 'a text' : boom;
    });
    expect(report).toMatchObject({
      delivered: 4,
      succeeded: 1,
      failed: 3,
      deadLettered: 1,
      errors: [boom, 'a text', boom],
    });
    expect(report.tookMs).toBe(queue.now - BEGINNING);
    expect(report.tookMs).toBeGreaterThan(1_500);
    const task = await queue.taskByMessageId('t', 'bad');
    expect(task).toMatchObject({ state: 'dead', reason: 'no such address' });
    expect(task.attempts.map(({ reason }) => reason)).toEqual(['no such address', 'a text', 'no such address']);
  });

  test('delays, and what handlers put in, are worked off as well', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 3, delayMs: 86_400_000 });
    const seen: unknown[] = [];
    const report = await queue.drain(async ({ payload }) => {
      seen.push([payload, queue.now - BEGINNING]);
      if ((payload as number) > 1) await queue.enqueue('u', { payload: (payload as number) - 1, delayMs: 1_000 });
    });
    expect(seen).toEqual([
      [3, 86_400_000],
      [2, 86_401_000],
      [1, 86_402_000],
    ]);
    expect(report).toMatchObject({ succeeded: 3, tookMs: 86_402_000 });
  });

  test('limits are waited out', async () => {
    const queue = await started({ settings: { t: { minIntervalMs: 10_000 } } });
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
    const at: number[] = [];
    await queue.drain(() => void at.push(queue.now));
    expect([at[1]! - at[0]!, at[2]! - at[1]!]).toEqual([10_000, 10_000]);
  });

  test('one at a time, or as many as it is told', async () => {
    const queue = await started();
    const most = async (concurrency?: number) => {
      await queue.enqueue(
        't',
        Array.from({ length: 10 }, (_, payload) => ({ payload })),
      );
      let running = 0;
      let peak = 0;
      const handler = async () => {
        peak = Math.max(peak, ++running);
        await readFile(import.meta.filename);
        running--;
      };
      const report = await queue.drain(handler, concurrency === undefined ? {} : { concurrency });
      expect(report.succeeded).toBe(10);
      return peak;
    };
    expect(await most()).toBe(1);
    expect(await most(4)).toBe(4);
  });

  test('the clock stands still while it works, so that its lease lasts', async () => {
    const queue = await started({ settings: { t: { leaseMs: 100 } } });
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2, delayMs: 50 }]);
    const report = await queue.drain(async () => {
      for (let nth = 0; nth < 50; nth++) await readFile(import.meta.filename);
    });
    expect(report).toMatchObject({ delivered: 2, succeeded: 2, tookMs: 50 });
  });

  test('a handler moves the clock itself where it is to be slow: its lease is lost, and another one has the task', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1, messageId: 'one' });
    const report = await queue.drain(async ({ attempt }) => {
      if (attempt === 1) await queue.advance(45_000);
      return attempt;
    });
    expect(report).toMatchObject({ delivered: 2, succeeded: 1, failed: 1 });
    expect(await queue.taskByMessageId('t', 'one')).toMatchObject({ result: 2, attempt: 2 });
  });

  test('a handler that has lost its lease is waited for all the same', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1 });
    const ended: number[] = [];
    const report = await queue.drain(
      async ({ attempt }) => {
        if (attempt === 1) {
          await queue.advance(45_000);
          for (let nth = 0; nth < 100; nth++) await readFile(import.meta.filename);
        }
        ended.push(attempt);
      },
      { concurrency: 2 },
    );
    expect(ended).toEqual([2, 1]);
    expect(report).toMatchObject({ succeeded: 1, failed: 1 });
  });

  test('only the topics that are asked for', async () => {
    const queue = await started();
    for (const topic of ['mail', 'mail.eu', 'sms', 'img.a', 'img.b']) await queue.enqueue(topic, { payload: topic });
    const seen: LeasedTask[] = [];
    await queue.drain((task) => void seen.push(task), { topics: ['mail', 'img.*'] });
    expect(payloads(seen).sort()).toEqual(['img.a', 'img.b', 'mail']);
    expect(payloads(await queue.pending()).sort()).toEqual(['mail.eu', 'sms']);
  });

  test('a result that is none ends the drain', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1 });
    await expect(queue.drain(() => 'x'.repeat(300_000))).rejects.toThrow(
      /what the handler returned for t \S+: \/result: 300002 bytes is not at most 262144 bytes; for example/,
    );
    await queue.advance(40_000);
    await expect(queue.drain(() => 1n)).rejects.toThrow(/\/result: .*BigInt.* is not a JSON value/);
  });

  test.each([
    [{ concurrency: 0 }, /\/concurrency: "0" is not an integer from 1 to 1000/],
    [{ topics: ['a b*c'] }, /topic-invalid/],
    [{ withinMs: -1 }, /\/withinMs: "-1" is not an integer from 0/],
  ])('refuses %j', async (options, message) => {
    const queue = await started();
    await expect(queue.drain(() => null, options)).rejects.toThrow(message);
  });
});

describe('without a handler', () => {
  test('waits for those who work already', async () => {
    const queue = await started();
    const seen: unknown[] = [];
    worker(queue, 't', async ({ payload, attempt }) => {
      await readFile(import.meta.filename);
      if (payload === 'b' && attempt === 1) throw new Error('once');
      seen.push(payload);
    });
    await queue.enqueue('t', [{ payload: 'a' }, { payload: 'b' }, { payload: 'c', delayMs: 3_600_000 }]);
    const report = await queue.drain();
    // The worker has leased the first one before the drain began.
    expect(report).toMatchObject({ delivered: 3, succeeded: 3, failed: 1, errors: [] });
    expect(seen).toEqual(['a', 'b', 'c']);
  });

  test('a lease that nobody settles is not run over', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1 });
    await queue.lease();
    const drained = queue.drain(null, { realMs: 20 });
    await expect(drained).rejects.toThrow(
      /^drain: somebody is at work on a task.*await queue\.advance\(30_000\)\n1 task is not settled:\n {2}t \S+: leased/,
    );
    await expect(drained).rejects.toBeInstanceOf(TestTimeoutError);
    expect(queue.now).toBe(BEGINNING);
  });

  test('says that nobody works, and how somebody would', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1 });
    await expect(queue.drain(null, { realMs: 20 })).rejects.toThrow(
      /^drain: no lease call waits for what is ready\. Give drain a handler, or start a worker before: await queue\.drain\(async \(task\) => …\)\n1 task is not settled/,
    );
  });
});

describe('where it does not come to an end', () => {
  test('says what is left, what is in its way, and how to go on for longer', async () => {
    const queue = await started();
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2, delayMs: 8 * 86_400_000, messageId: 'late' }]);
    await queue.enqueue('u', { payload: 3 });
    await queue.pause('t');
    const error = await queue.drain(() => null, { realMs: 10 }).catch((e) => e);
    expect(error).toBeInstanceOf(TestTimeoutError);
    const lines: string[] = error.message.split('\n');
    expect(lines[0]).toBe(
      'drain: it was not empty by 2024-01-08T00:00:00.000Z (withinMs: 604800000). To go on for longer: await queue.drain(handler, { withinMs: 1209600000 })',
    );
    expect(lines.slice(1)).toEqual([
      '2 tasks are not settled:',
      expect.stringMatching(/^ {2}t \S+: ready, 0 of 5 attempts$/),
      expect.stringMatching(/^ {2}t "late" \(\S+\): delayed, 0 of 5 attempts, due 2024-01-09T00:00:00.000Z$/),
      expect.stringMatching(/^ {2}t: .*paused.* What would change it: ebbmark resume t$/),
    ]);
    expect(error.left).toMatchObject([{ state: 'ready' }, { state: 'delayed' }]);
    await queue.resume('t');
    expect(await queue.drain(() => null)).toMatchObject({ succeeded: 2 });
  });

  test('a handler that keeps putting tasks in ends by the clock', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1 });
    const again = async () => {
      await queue.enqueue('t', { payload: 1, delayMs: 1_000 });
    };
    await expect(queue.drain(again, { withinMs: 60_000, realMs: 10 })).rejects.toThrow(
      /not empty by 2024-01-01T00:01:00/,
    );
  });

  test('a handler that never comes back is told of', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1 });
    await expect(queue.drain(() => new Promise(() => {}), { realMs: 20 })).rejects.toThrow(
      /somebody is at work on a task/,
    );
  });
});

test('is quick: thousands of tasks a second', async () => {
  const queue = await started();
  const began = process.cpuUsage();
  for (let nth = 0; nth < 10; nth++) {
    await queue.enqueue(
      't',
      Array.from({ length: 1_000 }, (_, payload) => ({ payload })),
    );
  }
  const { succeeded } = await queue.drain(({ payload }) => payload);
  expect(succeeded).toBe(10_000);
  // Some 15,000 a second; of the processor's time, which does not depend on what runs beside it.
  const { user, system } = process.cpuUsage(began);
  expect((user + system) / 1_000).toBeLessThan(5_000);
});
