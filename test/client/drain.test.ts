/** The two phases of an end, and cutting short. */
import { expect, it } from 'vitest';
import {
  Client,
  ClientClosedError,
  ClientDrainingError,
  ConnectionError,
  DrainInHandlerError,
  type Task,
} from '../../src/client/index.ts';
import { eventually, startServer } from '../http/support/server.ts';
import { gate, onBoth, stands, startWorld, tapped, untilState } from './support/queue.ts';

onBoth('startDraining', (start) => {
  it('refuses new publishes and leases at once and for good, of all that the client has', async () => {
    const { connect } = await start();
    const client = connect();
    const publisher = client.publisher();
    const subscriber = client.subscriber('mail');
    expect([client.draining, publisher.draining, subscriber.draining]).toEqual([false, false, false]);
    client.startDraining();
    expect([client.draining, publisher.draining, subscriber.draining]).toEqual([true, true, true]);
    for (const refused of [
      publisher.publish('mail', 1),
      subscriber.run(() => {}),
      subscriber[Symbol.asyncIterator]().next(),
      client.publisher().publish('mail', 1),
      client.subscriber('mail').run(() => {}),
    ]) {
      await expect(refused).rejects.toThrow(ClientDrainingError);
    }
    await client.drain();
    expect([client.draining, publisher.draining, subscriber.draining]).toEqual([true, true, true]);
  });

  it('lets what waits for a result go on, and begin', async () => {
    const { connect, queue } = await start();
    const client = connect();
    const handle = await client.publisher().publish('mail', 1);
    const before = handle.result();
    client.startDraining();
    const after = handle.result();
    const drained = client.drain();
    const [task] = await queue.lease({ topics: ['mail'] });
    expect(await stands(drained)).toBe('pending');
    await queue.settle({ ack: [{ leaseId: task!.leaseId, result: 'r' }] });
    expect(await Promise.all([before, after])).toEqual(['r', 'r']);
    await drained;
    await expect(handle.result()).rejects.toThrow(ClientClosedError);
  });

  it('ends a lease that waits, run and iteration with it, and takes no task along', async () => {
    const { connect, queue } = await start();
    const client = connect();
    const run = client.subscriber('mail', { waitMs: 60_000 }).run(() => {}, { concurrency: 5 });
    const next = client.subscriber('mail', { waitMs: 60_000 })[Symbol.asyncIterator]().next();
    await eventually(() => queue.status().waiting === 2);
    const startedAt = performance.now();
    client.startDraining();
    await run;
    expect(await next).toEqual({ done: true, value: undefined });
    await client.drain();
    expect(performance.now() - startedAt).toBeLessThan(3_000);
    await eventually(() => queue.status().waiting === 0);
    await queue.enqueue('mail', { payload: 1 });
    expect(await queue.lease({ topics: ['mail'] })).toHaveLength(1);
  });

  it('hands out what was leased ahead, as long as nobody drains', async () => {
    const { connect, queue } = await start();
    const client = connect();
    const publisher = client.publisher();
    await Promise.all([1, 2, 3].map((n) => publisher.publish('mail', n)));
    const subscriber = client.subscriber('mail', { prefetch: 2 });
    const seen: unknown[] = [];
    for await (const task of subscriber) {
      if (seen.length === 0) {
        await eventually(async () => (await queue.topic('mail')).counts.leased === 3);
        subscriber.startDraining();
      }
      seen.push(task.payload);
      await task.success();
    }
    expect(seen).toEqual([1, 2, 3]);
  });
});

onBoth('drain', (start) => {
  it('waits for handlers and their settlements; every call gives the same promise', async () => {
    const { connect, queue } = await start();
    const client = connect();
    const { id } = await client.publisher().publish('mail', 1);
    const begun = gate();
    const release = gate();
    const run = client.subscriber('mail').run(async () => {
      begun.open();
      await release.opened;
      return 'finished';
    });
    await begun.opened;
    const drained = client.drain();
    expect(client.drain()).toBe(drained);
    expect(await stands(drained)).toBe('pending');
    release.open();
    await drained;
    await run;
    expect(client.drain()).toBe(drained);
    expect(await queue.task('mail', id)).toMatchObject({ state: 'done', result: 'finished', attempt: 1 });
  });

  it('gives back what is leased and not begun, without counting an attempt', async () => {
    const { connect, queue } = await start();
    const client = connect();
    const publisher = client.publisher();
    await Promise.all(Array.from({ length: 5 }, (_, n) => publisher.publish('mail', n)));
    const release = gate();
    void client.subscriber('mail', { prefetch: 4 }).run(() => release.opened);
    await eventually(async () => (await queue.topic('mail')).counts.leased === 5);
    const drained = client.drain();
    await eventually(async () => (await queue.topic('mail')).counts.ready === 4);
    expect(await stands(drained)).toBe('pending');
    release.open();
    await drained;
    const tasks = await queue.lease({ topics: ['mail'], max: 9 });
    expect(tasks.map(({ payload, attempt }) => `${payload} ${attempt}`).sort()).toEqual(['1 1', '2 1', '3 1', '4 1']);
  });

  it('waits until whoever iterates has settled the task in hand', async () => {
    const { connect } = await start();
    const client = connect();
    await client.publisher().publish('mail', 1);
    const subscriber = client.subscriber('mail');
    const iterator = subscriber[Symbol.asyncIterator]();
    const { value: task } = await iterator.next();
    const drained = subscriber.drain();
    expect(await stands(drained)).toBe('pending');
    expect(await iterator.next()).toEqual({ done: true, value: undefined });
    await (task as Task).success();
    await drained;
    await expect((task as Task).success()).rejects.toMatchObject({ code: 'task-settled' });
  });

  it('of a publisher or a subscriber leaves the rest of the client as it is', async () => {
    const { connect } = await start();
    const client = connect();
    const [leaving, staying] = [client.publisher(), client.publisher()];
    const subscriber = client.subscriber('mail');
    const other = client.subscriber('mail');
    await Promise.all([leaving.drain(), subscriber.drain()]);
    expect([client.draining, staying.draining, other.draining]).toEqual([false, false, false]);
    void other.run((task) => task.payload);
    expect(await (await staying.publish('mail', 'still here')).result()).toBe('still here');
    await expect(leaving.publish('mail', 1)).rejects.toThrow(ClientClosedError);
  });

  it('awaited inside a handler is refused, and has begun', async () => {
    const { connect } = await start();
    const client = connect();
    const publisher = client.publisher();
    const subscriber = client.subscriber('mail');
    const refusals = gate<unknown[]>();
    void subscriber.run(async () => {
      const own = subscriber.drain().catch((error: unknown) => error);
      const whole = client.drain().catch((error: unknown) => error);
      // Nested, as a library would.
      const nested = new Promise((resolve) => setImmediate(resolve)).then(() => client.drain());
      refusals.open([await own, await whole, await nested.catch((error: unknown) => error), publisher.draining]);
    });
    await publisher.publish('mail', 1);
    const [own, whole, nested, draining] = await refusals.opened;
    for (const refusal of [own, whole, nested]) expect(refusal).toBeInstanceOf(DrainInHandlerError);
    expect(draining).toBe(true);
    await client.drain();
  });

  it('of another subscriber, or of a publisher, may be awaited inside a handler', async () => {
    const { connect } = await start();
    const client = connect();
    const publisher = client.publisher();
    const other = client.subscriber('other');
    void other.run(() => {});
    void client.subscriber('mail').run(async () => {
      await other.drain();
      await publisher.drain();
      return 'both drained';
    });
    const handle = await client.publisher().publish('mail', 1);
    expect(await handle.result()).toBe('both drained');
  });

  it('may be awaited by what a handler started, once the handler is over', async () => {
    const { connect } = await start();
    const client = connect();
    const drained = gate<unknown>();
    const over = gate();
    const run = client.subscriber('mail').run(() => {
      void over.opened.then(async () => drained.open(await client.drain().catch((error: unknown) => error)));
    });
    const handle = await client.publisher().publish('mail', 1);
    await handle.result();
    over.open();
    expect(await drained.opened).toBeUndefined();
    await run;
  });
});

onBoth('close', (start) => {
  it('cuts short what is under way', async () => {
    const { connect, queue } = await start();
    const client = connect();
    const publisher = client.publisher();
    const handle = await publisher.publish('mail', 1);
    const result = handle.result();
    const signal = gate<AbortSignal>();
    const run = client.subscriber('mail').run((task) => {
      signal.open(task.signal);
      return new Promise(() => {});
    });
    const aborted = await signal.opened;
    const drained = client.drain();
    client.close();
    client.close();
    await expect(drained).rejects.toThrow(ClientClosedError);
    await expect(result).rejects.toThrow(ClientClosedError);
    await run;
    expect(aborted.reason).toBeInstanceOf(ClientClosedError);
    await expect(publisher.publish('mail', 2)).rejects.toThrow(ClientClosedError);
    await expect(client.publisher().publish('mail', 2)).rejects.toThrow(ClientClosedError);
    expect(client.drain()).toBe(drained);
    // Its lease goes on: it comes back when that ends.
    expect(await queue.task('mail', handle.id)).toMatchObject({ state: 'leased' });
  });

  it('before any drain makes that reject', async () => {
    const { connect } = await start();
    const client = connect();
    const publisher = client.publisher();
    client.close();
    await expect(client.drain()).rejects.toThrow(ClientClosedError);
    await expect(publisher.drain()).rejects.toThrow(ClientClosedError);
  });
});

/** A client whose lease answers are held back until `answer` is opened. */
async function withHeldLeases() {
  const { queue } = await startWorld('in process');
  const asked = gate();
  const answer = gate();
  const client = new Client(
    tapped(queue, {
      lease: async ({ signal: _signal, ...request } = {}) => {
        const tasks = await queue.lease(request);
        asked.open();
        await answer.opened;
        return tasks;
      },
    }),
  );
  return { queue, client, asked, answer };
}

it('a lease answer that races with startDraining is handed out, and drain waits for it', async () => {
  const { queue, client, asked, answer } = await withHeldLeases();
  const handle = await client.publisher().publish('mail', 1);
  const begun = gate();
  const release = gate();
  const run = client.subscriber('mail').run(async () => {
    begun.open();
    await release.opened;
  });
  await asked.opened;
  client.startDraining();
  const drained = client.drain();
  answer.open();
  await begun.opened;
  expect(await stands(drained)).toBe('pending');
  release.open();
  await Promise.all([drained, run]);
  expect(await queue.task('mail', handle.id)).toMatchObject({ state: 'done', attempt: 1 });
});

it('what a lease brings that nobody waits for any more is given back, also behind close', async () => {
  const { queue, client, asked, answer } = await withHeldLeases();
  const { id } = await client.publisher().publish('mail', 1);
  void client.subscriber('mail').run(() => {});
  await asked.opened;
  client.close();
  answer.open();
  expect(await untilState(queue, 'mail', id, 'ready')).toMatchObject({ attempt: 0 });
});

it('a drain that loses its connection rejects, and closes', async () => {
  const server = await startServer();
  const client = new Client(server.url, { onError: () => {} });
  const handle = await client.publisher().publish('mail', 1);
  const signal = gate<AbortSignal>();
  const run = client.subscriber('mail').run((task) => {
    signal.open(task.signal);
    return new Promise(() => {});
  });
  const result = handle.result();
  const aborted = await signal.opened;
  const drained = client.drain();
  expect(await stands(drained)).toBe('pending');
  await server.close();
  await expect(drained).rejects.toThrow(ConnectionError);
  await expect(result).rejects.toThrow(ConnectionError);
  await run;
  expect(aborted.aborted).toBe(true);
  await expect(client.publisher().publish('mail', 2)).rejects.toThrow(ClientClosedError);
});

it('a drain with nothing in hand needs no connection', async () => {
  const client = new Client('http://127.0.0.1:1', { onError: () => {} });
  client.publisher();
  client.subscriber('mail');
  await client.drain();
});

it('close ends back-off at once', async () => {
  const thirdPause = gate();
  let pauses = 0;
  const client = new Client('http://127.0.0.1:1', { onError: () => ++pauses === 3 && thirdPause.open() });
  const refused = client.publisher().publish('mail', 1);
  const run = client.subscriber('mail').run(() => {});
  // Of 400 ms at least.
  await thirdPause.opened;
  const closedAt = performance.now();
  client.close();
  await expect(refused).rejects.toThrow(ClientClosedError);
  await run;
  expect(performance.now() - closedAt).toBeLessThan(50);
});

it('a queue in this process that is stopped ends runs and waits', async () => {
  const { queue, connect } = await startWorld('in process');
  const client = connect();
  const handle = await client.publisher().publish('other', 1);
  const run = client.subscriber('mail').run(() => {});
  const result = handle.result();
  await eventually(() => queue.status().waiting === 1);
  const stoppedAt = performance.now();
  await queue.stop();
  await expect(run).rejects.toMatchObject({ code: 'shutting-down' });
  await expect(result).rejects.toMatchObject({ code: 'shutting-down' });
  expect(performance.now() - stoppedAt).toBeLessThan(5_000);
});
