/** Subscribers: handlers, iterations, and the leases under which they work. */
import { expect, it } from 'vitest';
import { Client, QueueError, RetryAfterError, type Task, UnrecoverableError } from '../../src/client/index.ts';
import type { SettleRequest } from '../../src/index.ts';
import { eventually } from '../http/support/server.ts';
import { gate, onBoth, startWorld, tapped, untilState } from './support/queue.ts';

/** Short, so that extensions come soon. */
const LEASE_MS = 400;

onBoth('a handler', (start) => {
  it('gets the task, and acks with what it returns', async () => {
    const { connect, queue } = await start();
    const { id } = await connect()
      .publisher()
      .publish('mail', { n: 2 }, { priority: 7, metadata: { a: 'b' } });
    const seen = gate<Task>();
    void connect()
      .subscriber('mail')
      .run((task) => {
        seen.open(task);
        return { doubled: 4 };
      });
    expect(await seen.opened).toMatchObject({
      topic: 'mail',
      id,
      messageId: null,
      payload: { n: 2 },
      priority: 7,
      metadata: { a: 'b' },
      attempt: 1,
      progress: null,
    });
    expect(await untilState(queue, 'mail', id, 'done')).toMatchObject({ result: { doubled: 4 } });
  });

  it('that fails has its task again, with the reason kept, until the attempts are used up', async () => {
    const { connect, queue, told } = await start();
    await queue.configure('mail', { backoffMs: 0, maxAttempts: 3 });
    const { id } = await connect().publisher().publish('mail', 1);
    const attempts: number[] = [];
    void connect()
      .subscriber('mail')
      .run(async (task) => {
        attempts.push(task.attempt);
        throw new Error(`no luck ${task.attempt}`);
      });
    const dead = await untilState(queue, 'mail', id, 'dead');
    expect(attempts).toEqual([1, 2, 3]);
    expect(dead.attempts.map(({ reason }) => reason)).toEqual(['no luck 1', 'no luck 2', 'no luck 3']);
    expect(told.map(({ during, topic, id }) => ({ during, topic, id }))).toEqual(
      Array(3).fill({ during: 'handler', topic: 'mail', id }),
    );
  });

  it('sends to the dead letters by an UnrecoverableError, and delays by a RetryAfterError', async () => {
    const { connect, queue } = await start();
    const publisher = connect().publisher();
    const hopeless = await publisher.publish('mail', 'hopeless');
    const busy = await publisher.publish('mail', 'busy');
    void connect()
      .subscriber('mail')
      .run((task) => {
        throw task.payload === 'hopeless' ? new UnrecoverableError('no such user') : new RetryAfterError(3_600_000);
      });
    expect(await untilState(queue, 'mail', hopeless.id, 'dead')).toMatchObject({ attempt: 1, reason: 'no such user' });
    const delayed = await untilState(queue, 'mail', busy.id, 'delayed');
    expect(delayed.attempts[0]).toMatchObject({ outcome: 'nack', reason: 'to be tried again in 3600000 ms' });
    expect(Math.abs(delayed.dueAt! - delayed.attempts[0]!.endedAt! - 3_600_000)).toBeLessThan(1_000);
  });

  it('that is slow holds up no other, and no more than `concurrency` run', async () => {
    const { connect, queue } = await start();
    const publisher = connect().publisher();
    await publisher.publish('work', 'slow', { priority: 9 });
    await Promise.all(Array.from({ length: 30 }, (_, n) => publisher.publish('work', n)));
    const release = gate();
    const allBusy = gate();
    const done: unknown[] = [];
    let running = 0;
    let most = 0;
    void connect()
      .subscriber('work')
      .run(
        async (task) => {
          most = Math.max(most, ++running);
          if (running === 3) allBusy.open();
          await allBusy.opened;
          if (task.payload === 'slow') await release.opened;
          done.push(task.payload);
          running--;
        },
        { concurrency: 3 },
      );
    await eventually(() => done.length === 30);
    expect(done).not.toContain('slow');
    expect(most).toBe(3);
    release.open();
    await eventually(async () => (await queue.topic('work')).counts.leased === 0);
    expect(done).toContain('slow');
  });

  it('works on topics by name and by prefix, in several runs of one client', async () => {
    const { connect } = await start();
    const client = connect();
    const publisher = client.publisher();
    void client.subscriber(['a', 'b/*']).run((task) => `first ${task.topic}`);
    void client.subscriber('c').run((task) => `second ${task.topic}`);
    const handles = await Promise.all(['a', 'b/1', 'b/2', 'c'].map((topic) => publisher.publish(topic, 1)));
    expect(await Promise.all(handles.map((handle) => handle.result()))).toEqual([
      'first a',
      'first b/1',
      'first b/2',
      'second c',
    ]);
  });

  it('has its lease extended for as long as it runs', async () => {
    const { connect, queue } = await start();
    const { id } = await connect().publisher().publish('mail', 1);
    const ends: number[] = [];
    void connect()
      .subscriber('mail', { leaseMs: LEASE_MS })
      .run(async () => {
        await eventually(async () => {
          const { leaseUntil } = await queue.task('mail', id);
          if (leaseUntil !== ends.at(-1)) ends.push(leaseUntil!);
          return ends.length === 5;
        });
        return 'done under one lease';
      });
    expect(await untilState(queue, 'mail', id, 'done')).toMatchObject({ attempt: 1, result: 'done under one lease' });
  });

  it('has its signal aborted when the lease is lost, and its answer refused', async () => {
    const { connect, queue, told } = await start();
    const { id } = await connect().publisher().publish('mail', 1);
    const reason = gate<unknown>();
    void connect()
      .subscriber('mail', { leaseMs: LEASE_MS })
      .run(async (task) => {
        const aborted = new Promise<void>((resolve) => task.signal.addEventListener('abort', () => resolve()));
        await queue.cancel('mail', id, 'not wanted');
        await aborted;
        reason.open(task.signal.reason);
        return 'too late';
      });
    expect(await reason.opened).toMatchObject({ code: 'lease-lost' });
    await eventually(() => told.length > 0);
    expect(told).toMatchObject([{ during: 'settle', id, error: { code: 'lease-lost' } }]);
    expect(await queue.task('mail', id)).toMatchObject({ state: 'cancelled', result: null });
  });

  it('whose topic limits how long it runs is called off then', async () => {
    const { connect, queue } = await start();
    await queue.configure('mail', { maxRunMs: 3 * LEASE_MS, maxAttempts: 1 });
    await connect().publisher().publish('mail', 1);
    const ranMs = gate<number>();
    void connect()
      .subscriber('mail', { leaseMs: LEASE_MS })
      .run(async (task) => {
        const begunAt = performance.now();
        await new Promise<void>((resolve) => task.signal.addEventListener('abort', () => resolve()));
        ranMs.open(performance.now() - begunAt);
      });
    const ms = await ranMs.opened;
    expect(ms).toBeGreaterThan(2 * LEASE_MS);
    expect(ms).toBeLessThan(5 * LEASE_MS);
  });

  it('whose result is too large, or none, fails its task for good', async () => {
    const { connect, queue } = await start();
    await queue.configure('mail', { backoffMs: 0 });
    const publisher = connect().publisher();
    const large = await publisher.publish('mail', 'large');
    const odd = await publisher.publish('mail', 'odd');
    const huge = await publisher.publish('mail', 'huge');
    let runs = 0;
    void connect()
      .subscriber('mail')
      .run((task) => {
        runs++;
        if (task.payload === 'huge') return 'x'.repeat(9 * 1024 * 1024);
        return task.payload === 'large' ? 'x'.repeat(300_000) : () => 'a function';
      });
    expect(await untilState(queue, 'mail', large.id, 'dead')).toMatchObject({
      attempt: 1,
      reason: expect.stringContaining('result-too-large: /result: 300002 bytes'),
    });
    expect((await untilState(queue, 'mail', odd.id, 'dead')).reason).toMatch(/\/result: .* is not a JSON value/);
    expect((await untilState(queue, 'mail', huge.id, 'dead')).reason).toMatch(/-too-large/);
    expect(runs).toBe(3);
    await expect(large.result()).rejects.toThrow(/is dead: result-too-large/);
  });

  it('may settle its task by itself, once', async () => {
    const { connect, queue } = await start();
    const { id } = await connect().publisher().publish('mail', 1);
    const second = gate<unknown>();
    void connect()
      .subscriber('mail')
      .run(async (task) => {
        await task.success('mine');
        second.open(await task.fail('no').catch((error: unknown) => error));
        return 'not this';
      });
    expect(await second.opened).toMatchObject({ code: 'task-settled' });
    expect(await untilState(queue, 'mail', id, 'done')).toMatchObject({ result: 'mine' });
  });

  it('may give its task back, and the attempt does not count', async () => {
    const { connect, queue } = await start();
    const { id } = await connect().publisher().publish('mail', 1);
    const attempts: number[] = [];
    void connect()
      .subscriber('mail')
      .run(async (task) => {
        attempts.push(task.attempt);
        if (attempts.length < 3) await task.release();
      });
    await untilState(queue, 'mail', id, 'done');
    expect(attempts).toEqual([1, 1, 1]);
  });

  it('need not wait for anything it asks for: what fails unheard ends no process', async () => {
    const { connect, queue } = await start();
    const client = connect();
    const { id } = await client.publisher().publish('mail', 1);
    const over = gate();
    void client.subscriber('mail').run(async (task) => {
      await queue.cancel('mail', id);
      void task.saveProgress('nobody waits for this');
      void task.success('nor for this');
      void client.publisher().publish('mail', 'x'.repeat(300_000));
      over.open();
    });
    await over.opened;
    await client.drain();
  });
});

onBoth('an iteration', (start) => {
  it('hands out tasks, to be settled one by one', async () => {
    const { connect, queue } = await start();
    await queue.configure('mail', { backoffMs: 0 });
    const publisher = connect().publisher();
    const handles = await Promise.all(['good', 'bad', 'dead'].map((word) => publisher.publish('mail', word)));
    const subscriber = connect().subscriber('mail');
    const seen: string[] = [];
    for await (const task of subscriber) {
      seen.push(`${task.payload} ${task.attempt} ${task.id === handles[seen.length % 3]!.id}`);
      if (task.payload === 'good') await task.success({ of: task.id });
      else if (task.payload === 'dead') await task.fail(new UnrecoverableError('never'));
      else if (task.attempt === 1) await task.fail('not yet');
      else {
        await task.success('at last');
        break;
      }
    }
    expect(seen).toEqual(['good 1 true', 'bad 1 true', 'dead 1 true', 'bad 2 false']);
    expect(await handles[0]!.result()).toEqual({ of: handles[0]!.id });
    expect(await handles[1]!.result()).toBe('at last');
    await expect(handles[2]!.result()).rejects.toThrow(/never/);
  });

  it('keeps a position for the next attempt', async () => {
    const { connect, queue } = await start();
    await queue.configure('mail', { backoffMs: 0 });
    await connect().publisher().publish('mail', 1);
    const positions: unknown[] = [];
    for await (const task of connect().subscriber('mail')) {
      positions.push(task.progress);
      if (task.attempt === 2) {
        await task.success();
        break;
      }
      await expect(task.saveProgress('x'.repeat(70_000))).rejects.toMatchObject({ code: 'payload-too-large' });
      await task.saveProgress({ page: 7 });
      await task.fail('later');
    }
    expect(positions).toEqual([null, { page: 7 }]);
  });

  it('lets the worker bring something smaller where the result is too large', async () => {
    const { connect } = await start();
    const handle = await connect().publisher().publish('mail', 1);
    for await (const task of connect().subscriber('mail')) {
      await expect(task.success('x'.repeat(300_000))).rejects.toMatchObject({ code: 'result-too-large' });
      await task.success('small');
      break;
    }
    expect(await handle.result()).toBe('small');
  });

  it('that is left gives back what was leased ahead, and fails the task in hand', async () => {
    const { connect, queue } = await start();
    await queue.configure('mail', { backoffMs: 0 });
    const publisher = connect().publisher();
    const handles = await Promise.all([1, 2, 3].map((n) => publisher.publish('mail', n)));
    const subscriber = connect().subscriber('mail', { prefetch: 2 });
    await expect(async () => {
      for await (const task of subscriber) {
        await eventually(async () => (await queue.topic('mail')).counts.leased === 3);
        throw new Error(`stop at ${task.payload}`);
      }
    }).rejects.toThrow('stop at 1');
    await eventually(async () => (await queue.topic('mail')).counts.ready === 3);
    const tasks = await queue.lease({ topics: ['mail'], max: 9 });
    expect(tasks.map(({ id, attempt }) => `${id} ${attempt}`).sort()).toEqual(
      handles.map(({ id }, n) => `${id} ${n === 0 ? 2 : 1}`).sort(),
    );
  });

  it('serves several next() at once, and ends those that wait when it is left', async () => {
    const { connect } = await start();
    const client = connect();
    const iterator = client.subscriber('mail')[Symbol.asyncIterator]();
    const waiting = [iterator.next(), iterator.next(), iterator.next()];
    await client.publisher().publish('mail', 'one');
    const first = await Promise.race(waiting);
    expect(first).toMatchObject({ done: false, value: { payload: 'one' } });
    await (first.value as Task).success();
    await iterator.return!();
    expect((await Promise.all(waiting)).map(({ done }) => done).sort()).toEqual([false, true, true]);
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
  });
});

onBoth('a subscriber', (start) => {
  it('refuses what makes no sense, and says what would', async () => {
    const { connect } = await start();
    const client = connect();
    expect(() => client.subscriber([])).toThrow(/is not at least one topic; for example/);
    expect(() => client.subscriber('a*b')).toThrow(/"a\*b" is not free of '\*'.*; for example/);
    expect(() => client.subscriber('a', { leaseMs: 5 })).toThrow(/leaseMs: "5" is not an integer from 100/);
    expect(() => client.subscriber('a', { prefetch: -1 })).toThrow(/prefetch: "-1" is not an integer from 0 to 1000/);
    expect(() => client.subscriber('a', { waitMs: 70_000 })).toThrow(/waitMs: "70000" is not an integer/);
    // @ts-expect-error no function
    expect(() => client.subscriber('a').run('work')).toThrow(/"work" is not a function; for example/);
    expect(() => client.subscriber('a').run(() => 1, { concurrency: 0 })).toThrow(/concurrency: "0" is not an integer/);
    expect(() => new RetryAfterError(-1)).toThrow(/ms: "-1" is not an integer/);
  });

  it('tells who runs it where the queue refuses to lease', async () => {
    const { connect } = await start();
    const run = connect()
      .subscriber('a', { priorities: [77] })
      .run(() => {});
    await expect(run).rejects.toThrow(QueueError);
    await expect(run).rejects.toThrow(/77/);
  });

  it('goes on where the program that is told of trouble fails itself', async () => {
    const { connect, queue } = await start();
    await queue.configure('mail', { backoffMs: 0 });
    const client = connect({
      onError: () => {
        throw new Error('the log is full');
      },
    });
    const handle = await client.publisher().publish('mail', 1);
    const warned = new Promise<Error>((resolve) => process.once('warning', resolve));
    void client.subscriber('mail').run((task) => {
      if (task.attempt === 1) throw new Error('once');
      return 'well';
    });
    expect(await handle.result()).toBe('well');
    expect((await warned).message).toContain('the log is full');
  });
});

it('no extension is sent, and none counts, once a task is being settled', async () => {
  const { queue } = await startWorld('in process');
  const asked: string[] = [];
  const extension = gate();
  const held = gate();
  const settled = gate();
  const client = new Client(
    tapped(queue, {
      settle: async (request: SettleRequest) => {
        for (const kind of ['extend', 'ack'] as const) if (request[kind]?.length) asked.push(kind);
        if (!request.extend?.length) {
          const answer = await queue.settle(request);
          settled.open();
          return answer;
        }
        extension.open();
        // Its answer comes behind that of the ack, and is a refusal.
        await held.opened;
        return queue.settle(request);
      },
    }),
  );
  const seen = gate<AbortSignal>();
  const handle = await client.publisher().publish('mail', 1);
  void client.subscriber('mail', { leaseMs: LEASE_MS }).run(async (task) => {
    seen.open(task.signal);
    await extension.opened;
    return 'done';
  });
  const signal = await seen.opened;
  await settled.opened;
  held.open();
  expect(await handle.result()).toBe('done');
  await client.drain();
  expect(asked).toEqual(['extend', 'ack']);
  expect(signal.aborted).toBe(false);
});

it('a lease is extended a request time-out and a second before its end', async () => {
  const { queue } = await startWorld('in process');
  const extended = gate<number>();
  const client = new Client(
    tapped(queue, {
      settle: (request: SettleRequest) => {
        if (request.extend?.length) extended.open(performance.now());
        return queue.settle(request);
      },
    }),
    { requestTimeoutMs: 500 },
  );
  const begun = gate<number>();
  await client.publisher().publish('mail', 1);
  void client.subscriber('mail', { leaseMs: 4_000 }).run(async () => {
    begun.open(performance.now());
    await extended.opened;
  });
  const after = (await extended.opened) - (await begun.opened);
  expect(after).toBeGreaterThan(2_400);
  expect(after).toBeLessThan(3_500);
  await client.drain();
});

it('a queue that answers before its time, and with nothing, is not asked without a pause', async () => {
  const { queue } = await startWorld('in process');
  const asked = { lease: 0, task: 0 };
  const enough = gate();
  const client = new Client(
    tapped(queue, {
      lease: async () => {
        asked.lease++;
        return [];
      },
      task: async (topic, id) => {
        if (++asked.task === 4) enough.open();
        return queue.task(topic, id);
      },
    }),
  );
  const handle = await client.publisher().publish('mail', 1);
  void client.subscriber('mail').run(() => {});
  const askedAt = performance.now();
  void handle.result();
  await enough.opened;
  // Three pauses of 100 ms at least.
  expect(performance.now() - askedAt).toBeGreaterThan(290);
  expect(asked.lease).toBeLessThanOrEqual(10);
  client.close();
});
