/** Waiting for a task or a condition: what moves the clock, and what holds it. */
import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import { TestTimeoutError } from '../../src/testing/index.ts';
import { Pace, Patience } from '../../src/testing/pace.ts';
import { VirtualClock } from '../../src/testing/virtual-clock.ts';
import { started, worker } from './support/testing.ts';

const BEGINNING = Date.UTC(2024, 0, 1);

/** Much less time than a look without a cause is away. */
async function turns(count: number): Promise<void> {
  for (let nth = 0; nth < count; nth++) await new Promise<void>((resolve) => setImmediate(resolve));
}

describe('a task', () => {
  test('that is there already moves nothing', async () => {
    const queue = await started();
    const { id } = await queue.enqueue('t', { payload: 'x' });
    for (const filter of [{ topic: 't' }, { topic: 't', id: id! }, { topic: 't', state: 'ready' } as const]) {
      expect(await queue.waitFor(filter)).toMatchObject({ id, payload: 'x', state: 'ready' });
    }
    expect(queue.now).toBe(BEGINNING);
  });

  test('comes when its delay is over, and no later', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 'x', messageId: 'one', delayMs: 600_000 });
    await queue.waitFor({ topic: 't', messageId: 'one', state: 'ready' });
    expect(queue.now).toBe(BEGINNING + 600_000);
  });

  test('that nobody has put in yet is waited for, in a topic that is not there', async () => {
    const queue = await started();
    queue.environment.timer(1_000, () => void queue.enqueue('t', { payload: 'x', messageId: 'one' }));
    expect(await queue.waitFor({ topic: 't', messageId: 'one' })).toMatchObject({ payload: 'x' });
    queue.environment.timer(1_000, () => void queue.enqueue('u', { payload: 'y' }));
    expect(await queue.waitFor({ topic: 'u' })).toMatchObject({ payload: 'y' });
  });

  test('goes through its attempts to the dead letters', async () => {
    const queue = await started({ settings: { t: { maxAttempts: 3 } } });
    worker(queue, 't', () => {
      throw new Error('no such address');
    });
    await queue.enqueue('t', { payload: 'x', messageId: 'one' });
    const task = await queue.waitFor({ topic: 't', messageId: 'one', state: ['done', 'dead'] });
    expect(task).toMatchObject({ state: 'dead', attempt: 3, reason: 'no such address' });
    expect(queue.now).toBeGreaterThan(BEGINNING + 2_000);
  });

  test('is looked for in all pages', async () => {
    const queue = await started();
    for (let nth = 0; nth < 3; nth++) {
      await queue.enqueue(
        't',
        Array.from({ length: 1_000 }, (_, at) => ({ payload: at })),
      );
    }
    expect(await queue.pending('t')).toHaveLength(3_000);
    const [task] = await queue.lease();
    await queue.settle({ ack: [{ leaseId: task!.leaseId }] });
    expect(await queue.waitFor({ topic: 't', state: 'done' })).toMatchObject({ id: task!.id });
  });

  test.each([
    [{ topic: 't', state: 'finished' }, /\/state: "finished" is not one of ready, delayed, .*; for example: "done"/],
    [
      { topic: 't', status: 'done' },
      /\/status: "status" is not a field of a filter \(topic, messageId, id, state\); for example/,
    ],
    [{ topic: 't', id: 'a', messageId: 'b' }, /\/id: "a" is not given together with messageId: one of the two/],
    [{ topic: 'a*' }, /topic-invalid/],
    [null, /\/task: null is not a filter or a function; for example/],
  ])('is refused: %j', async (filter, message) => {
    const queue = await started();
    await expect(queue.waitFor(filter as { topic: string })).rejects.toThrow(message);
  });

  test.each([{ withinMs: -1 }, { withinMs: 0.5 }, { realMs: -1 }])(
    'refuses limits that are none: %j',
    async (options) => {
      const queue = await started();
      await expect(queue.waitFor({ topic: 't' }, options)).rejects.toThrow(/is not an integer from 0/);
    },
  );
});

describe('a condition', () => {
  test('is asked again whenever something has happened, and its answer is handed on', async () => {
    const queue = await started();
    const sent: unknown[] = [];
    worker(queue, 't', ({ payload }) => void sent.push(payload));
    await queue.enqueue('t', [{ payload: 'a' }, { payload: 'b', delayMs: 60_000 }]);
    expect(await queue.waitFor(() => sent.length === 2 && sent)).toEqual(['a', 'b']);
    expect(queue.now).toBe(BEGINNING + 60_000);
  });

  test('may be asynchronous, and ask the queue', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1, delayMs: 1_000 });
    await queue.waitFor(async () => (await queue.topic('t')).counts.ready === 1);
    await expect(
      queue.waitFor(async () => (await queue.topic('t')).counts.dead, { withinMs: 10, realMs: 10 }),
    ).rejects.toBeInstanceOf(TestTimeoutError);
  });

  test('that comes about outside of the queue has real time, once the virtual one is over', async () => {
    const queue = await started();
    let text: string | null = null;
    void readFile(import.meta.filename, 'utf8').then((read) => {
      text = read;
    });
    expect(await queue.waitFor(() => text, { withinMs: 1 })).toContain('outside of the queue');
    expect(queue.now).toBe(BEGINNING + 1);
  });

  test('that throws ends the wait', async () => {
    const queue = await started();
    const condition = () => {
      throw new Error('of the condition');
    };
    await expect(queue.waitFor(condition)).rejects.toThrow('of the condition');
  });
});

describe('while a task is in hand', () => {
  test('the clock stands still, however long the real work takes', async () => {
    const queue = await started({ settings: { t: { leaseMs: 1_000 } } });
    worker(queue, 't', async () => {
      for (let nth = 0; nth < 50; nth++) await readFile(import.meta.filename);
    });
    await queue.enqueue('t', { payload: 1, messageId: 'one' });
    const task = await queue.waitFor({ topic: 't', messageId: 'one', state: 'done' });
    expect(task.attempt).toBe(1);
    expect(queue.now).toBe(BEGINNING);
  });

  test('and is not brought further, the wait ends and says what is in hand', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1, messageId: 'one' });
    await queue.lease();
    const error = await queue.waitFor({ topic: 't', messageId: 'one', state: 'done' }, { realMs: 20 }).catch((e) => e);
    expect(error).toBeInstanceOf(TestTimeoutError);
    expect(error.message).toMatch(
      /^waitFor \{"topic":"t","messageId":"one","state":"done"\}, last seen as t "one" \(.*\): leased/,
    );
    expect(error.message).toContain('a task is in hand, and was not settled in the real time given (realMs)');
    expect(error.message).toContain('await queue.advance(30_000)');
    expect(error.message).toContain('leased until 2024-01-01T00:00:30.000Z');
    expect(error.message).not.toContain('Enqueue tasks');
    expect(error.left).toMatchObject([{ messageId: 'one', state: 'leased' }]);
    expect(queue.now).toBe(BEGINNING);
  });

  test('each change of the queue gives it more time', async () => {
    const pace = new Pace(new VirtualClock(0, 1), () => true);
    const patience = new Patience(pace, 10);
    await patience.wait();
    const wait = patience.wait();
    pace.changed();
    await wait;
    await patience.wait();
    expect(patience.isOver).toBe(false);
    await patience.wait();
    expect(patience.isOver).toBe(true);
  });

  test('what it does is seen at once', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1 });
    const [task] = await queue.lease();
    let isOver = false;
    const wait = queue.waitFor({ topic: 't', state: 'done' }).then(() => {
      isOver = true;
    });
    await turns(50);
    await queue.settle({ ack: [{ leaseId: task!.leaseId }] });
    await turns(50);
    expect(isOver).toBe(true);
    await wait;
  });
});

describe('in vain', () => {
  test('says by when, how to wait for longer, what is left, and what is in its way', async () => {
    const queue = await started();
    await queue.enqueue('t', [{ payload: 1, messageId: 'one', delayMs: 7_200_000 }, { payload: 2 }]);
    await queue.pause('t');
    const error = await queue.waitFor({ topic: 't', state: 'done' }, { realMs: 20 }).catch((e) => e);
    expect(error).toBeInstanceOf(TestTimeoutError);
    expect(error.name).toBe('TestTimeoutError');
    const lines: string[] = error.message.split('\n');
    expect(lines[0]).toBe(
      'waitFor {"topic":"t","state":"done"}: it did not come about by 2024-01-01T01:00:00.000Z (withinMs: 3600000). To wait for longer: { withinMs: 7200000 }',
    );
    expect(lines[1]).toBe('2 tasks are not settled:');
    expect(lines[2]).toMatch(/^ {2}t \S+: ready, 0 of 5 attempts$/);
    expect(lines[3]).toMatch(/^ {2}t "one" \(\S+\): delayed, 0 of 5 attempts, due 2024-01-01T02:00:00.000Z$/);
    expect(lines[4]).toMatch(/^ {2}t: .*paused.* What would change it: ebbmark resume t$/);
    expect(error.left).toHaveLength(2);
    expect(queue.now).toBe(BEGINNING + 3_600_000);
  });

  test('where nothing is left, says so, and how the task was last seen', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1, messageId: 'one' });
    await queue.drain(() => null);
    const wait = queue.waitFor({ topic: 't', messageId: 'one', state: 'dead' }, { withinMs: 1_000, realMs: 10 });
    await expect(wait).rejects.toThrow(/last seen as t "one" \(\S+\): done, 1 of 5 attempts: it did not/);
    await expect(wait).rejects.toThrow(/\nNothing is left to be done in the queue\.$/);
  });

  test('names no more than twenty tasks', async () => {
    const queue = await started();
    await queue.enqueue(
      't',
      Array.from({ length: 25 }, (_, payload) => ({ payload })),
    );
    const wait = queue.waitFor({ topic: 'u' }, { withinMs: 1, realMs: 10 });
    await expect(wait).rejects.toThrow(
      /25 tasks are not settled:(\n {2}t \S+: ready, 0 of 5 attempts){20}\n {2}… and 5 more/,
    );
  });

  test('ends with the queue', async () => {
    const queue = await started();
    await queue.enqueue('t', { payload: 1 });
    await queue.lease();
    const wait = queue.waitFor({ topic: 't', state: 'done' });
    await queue.stop();
    await expect(wait).rejects.toMatchObject({ code: 'shutting-down' });
  });
});
