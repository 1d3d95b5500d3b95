/** Publishers: what is sent, what comes back, what is refused. */
import { describe, expect, it } from 'vitest';
import { Client, QueueError, ResultTimeoutError, TaskFailedError } from '../../src/client/index.ts';
import { gate, onBoth, stands, tapped } from './support/queue.ts';

onBoth('publishing', (start) => {
  it('carries payload, metadata and all options to the worker, and its result back', async () => {
    const { connect, queue } = await start();
    const publisher = connect().publisher();
    const metadata = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'naïve key': '☃' };
    const handle = await publisher.publish(
      'mail',
      { to: ['ada', 1, null, { deep: true }] },
      { priority: 9, messageId: 'welcome-ada', ttlMs: 60_000, maxAttempts: 2, metadata },
    );
    expect(handle).toMatchObject({ topic: 'mail', deduplicated: false });
    const [task] = await queue.lease({ topics: ['mail'] });
    expect(task).toMatchObject({
      id: handle.id,
      payload: { to: ['ada', 1, null, { deep: true }] },
      priority: 9,
      messageId: 'welcome-ada',
      metadata,
    });
    const result = handle.result({ timeoutMs: 10_000 });
    await queue.settle({ ack: [{ leaseId: task!.leaseId, result: { sent: [1, 'two'] } }] });
    expect(await result).toEqual({ sent: [1, 'two'] });
  });

  it('carries bytes', async () => {
    const { connect, queue } = await start();
    await connect()
      .publisher()
      .publish('bytes', new Uint8Array([0, 255, 7]));
    expect((await queue.lease({ topics: ['bytes'] }))[0]!.payload).toEqual(new Uint8Array([0, 255, 7]));
  });

  it('delays by delayMs and by runAt', async () => {
    const { connect, queue } = await start();
    const publisher = connect().publisher();
    const at = Date.now() + 3_600_000;
    const delayed = await publisher.publish('later', 1, { delayMs: 60_000 });
    const timed = await publisher.publish('later', 1, { runAt: at });
    expect(await queue.task('later', delayed.id)).toMatchObject({ state: 'delayed' });
    expect(await queue.task('later', timed.id)).toMatchObject({ state: 'delayed', dueAt: at });
  });

  it('tells of a message id that is known, and of none where there was none', async () => {
    const { connect } = await start();
    const publisher = connect().publisher();
    const first = await publisher.publish('mail', 1, { messageId: 'one' });
    const again = await publisher.publish('mail', 1, { messageId: 'one' });
    expect(again).toMatchObject({ id: first.id, deduplicated: true });
    const [a, b] = await Promise.all([publisher.publish('mail', 2), publisher.publish('mail', 2)]);
    expect(a).toMatchObject({ deduplicated: false });
    expect(a.id).not.toBe(b.id);
  });

  it('makes one call of what is published together', async () => {
    const { queue } = await start();
    const calls: number[] = [];
    const publisher = new Client(
      tapped(queue, {
        enqueue: (topic, tasks, options) => {
          calls.push(tasks.length);
          return queue.enqueue(topic, tasks, options);
        },
      }),
    ).publisher();
    const handles = await Promise.all(Array.from({ length: 500 }, (_, n) => publisher.publish('many', n)));
    expect(new Set(handles.map(({ id }) => id)).size).toBe(500);
    expect(calls.reduce((sum, count) => sum + count)).toBe(500);
    expect(calls.length).toBeLessThanOrEqual(4);
    expect(Math.max(...calls)).toBeLessThanOrEqual(200);
    const tasks = await queue.lease({ topics: ['many'], max: 1_000 });
    expect(tasks.map(({ payload }) => payload)).toEqual(Array.from({ length: 500 }, (_, n) => n));
  });

  it('refuses what is wrong with one, and takes what comes with it', async () => {
    const { connect, queue } = await start();
    const publisher = connect().publisher();
    const outcomes = await Promise.allSettled([
      publisher.publish('mail', 'good'),
      publisher.publish('mail', 'x'.repeat(300_000)),
      publisher.publish('mail', 'odd', { priority: 77 }),
      publisher.publish('mail', 'odder', { delayMs: -1 }),
      publisher.publish('mail', 'good too'),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'rejected',
      'rejected',
      'fulfilled',
    ]);
    expect(outcomes[1]).toMatchObject({ reason: { code: 'payload-too-large' } });
    expect(outcomes[2]).toMatchObject({ reason: { code: 'invalid-input', detail: expect.stringContaining('77') } });
    expect(outcomes[3]).toMatchObject({ reason: { code: 'invalid-input' } });
    expect((await queue.lease({ topics: ['mail'], max: 9 })).map(({ payload }) => payload)).toEqual([
      'good',
      'good too',
    ]);
  });

  it('names the value, the rule and an example of what is refused here', async () => {
    const { connect } = await start();
    const publisher = connect().publisher();
    const cyclic: Record<string, unknown> = {};
    cyclic.self = cyclic;
    const refusals: readonly (readonly [Promise<unknown>, RegExp])[] = [
      [publisher.publish('a\nb', 1), /"a\\nb" is not free of control characters; for example/],
      [publisher.publish('mail*', 1), /"mail\*" is not the name of one topic; for example/],
      // @ts-expect-error a payload has JSON text
      [publisher.publish('mail', () => 1), /\/payload: .* is not a JSON value; for example/],
      // @ts-expect-error as above
      [publisher.publish('mail', 10n), /is not a JSON value .*; for example/],
      // @ts-expect-error as above
      [publisher.publish('mail', cyclic), /is not a JSON value .*; for example/],
      // @ts-expect-error there is no such option
      [publisher.publish('mail', 1, { prioirty: 9 }), /"prioirty" is not a field of what is published .*; for example/],
      // @ts-expect-error metadata is strings
      [publisher.publish('mail', 1, { metadata: { n: 1 } }), /metadata/],
    ];
    for (const [refused, message] of refusals) {
      await expect(refused).rejects.toThrow(message);
      await expect(refused).rejects.toBeInstanceOf(QueueError);
    }
  });
});

onBoth('results', (start) => {
  it('are null where the worker brought none', async () => {
    const { connect, queue } = await start();
    const handle = await connect().publisher().publish('mail', 1);
    const [task] = await queue.lease({ topics: ['mail'] });
    await queue.settle({ ack: [{ leaseId: task!.leaseId }] });
    expect(await handle.result()).toBeNull();
  });

  it('of a task that failed are its reason', async () => {
    const { connect, queue } = await start();
    const handle = await connect().publisher().publish('mail', 1);
    const result = handle.result();
    const [task] = await queue.lease({ topics: ['mail'] });
    await queue.settle({ nack: [{ leaseId: task!.leaseId, dead: true, reason: 'no such address' }] });
    await expect(result).rejects.toThrow(TaskFailedError);
    await expect(result).rejects.toMatchObject({ state: 'dead', reason: 'no such address', attempt: 1 });
  });

  it('of a task that was cancelled say so', async () => {
    const { connect, queue } = await start();
    const handle = await connect().publisher().publish('mail', 1);
    const result = handle.result();
    await queue.cancel('mail', handle.id, 'not wanted');
    await expect(result).rejects.toMatchObject({ name: 'TaskFailedError', state: 'cancelled', reason: 'not wanted' });
  });

  it('time out, and the task goes on', async () => {
    const { connect, queue } = await start();
    const handle = await connect().publisher().publish('mail', 1);
    await expect(handle.result({ timeoutMs: 20 })).rejects.toThrow(ResultTimeoutError);
    const late = handle.result({ timeoutMs: 10_000 });
    const [task] = await queue.lease({ topics: ['mail'] });
    await queue.settle({ ack: [{ leaseId: task!.leaseId, result: 'late' }] });
    expect(await late).toBe('late');
  });

  it('are no longer waited for once the caller says so', async () => {
    const { connect } = await start();
    const handle = await connect().publisher().publish('mail', 1);
    const stop = new AbortController();
    const result = handle.result({ signal: stop.signal });
    expect(await stands(result)).toBe('pending');
    stop.abort(new Error('no need'));
    await expect(result).rejects.toThrow('no need');
  });

  it('refuse a time that is none', async () => {
    const { connect } = await start();
    const handle = await connect().publisher().publish('mail', 1);
    await expect(handle.result({ timeoutMs: -1 })).rejects.toThrow(
      /timeoutMs: "-1" is not an integer from 0 .*; for example: 1000/,
    );
  });

  it('of many are waited for at once', async () => {
    const { connect } = await start();
    const client = connect();
    const begun = gate();
    void client.subscriber('echo').run(
      async (task) => {
        await begun.opened;
        return task.payload;
      },
      { concurrency: 50 },
    );
    const publisher = client.publisher();
    const handles = await Promise.all(Array.from({ length: 200 }, (_, n) => publisher.publish('echo', n)));
    const results = handles.map((handle) => handle.result({ timeoutMs: 20_000 }));
    begun.open();
    expect(await Promise.all(results)).toEqual(Array.from({ length: 200 }, (_, n) => n));
  });
});

describe('a client', () => {
  it.each([['localhost:8080'], ['ftp://localhost'], [''], ['not an address']])(
    'refuses %j as an address',
    (address) => {
      expect(() => new Client(address)).toThrow(
        /is not the address of a server .*; for example: "http:\/\/127\.0\.0\.1:8080"/,
      );
    },
  );

  it('refuses what is no queue, and times that are none', () => {
    // @ts-expect-error not a queue
    expect(() => new Client({})).toThrow(/is not an address or an open queue; for example/);
    expect(() => new Client('http://127.0.0.1:1', { requestTimeoutMs: 0 })).toThrow(
      /requestTimeoutMs: "0" is not an integer/,
    );
    expect(() => new Client('http://127.0.0.1:1', { retryMs: 1.5 })).toThrow(/retryMs: "1.5" is not an integer/);
  });
});
