/** Connections that break, servers that are slow or none, and calls that are made again. */
import { once } from 'node:events';
import http from 'node:http';
import type net from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { Connection } from '../../src/client/connection.ts';
import { Client, type ClientOptions, ConnectionError, type Trouble } from '../../src/client/index.ts';
import { openQueue } from '../../src/index.ts';
import { eventually, startServer, type TestServer } from '../http/support/server.ts';
import { type Passage, startProxy } from './support/proxy.ts';
import { gate, startWorld, tapped, untilState } from './support/queue.ts';

interface BreakableWorld {
  readonly server: TestServer;
  readonly proxy: Passage;
  readonly client: Client;
  readonly told: readonly (Trouble & { readonly error: unknown })[];
}

async function startBreakable(options: ClientOptions = {}): Promise<BreakableWorld> {
  const server = await startServer();
  const proxy = await startProxy(server.port);
  const told: (Trouble & { readonly error: unknown })[] = [];
  const client = new Client(proxy.url, { onError: (error, trouble) => told.push({ ...trouble, error }), ...options });
  onTestFinished(async () => {
    client.close();
    await proxy.close();
    await server.close();
  });
  return { server, proxy, client, told };
}

/** A server that answers every request as it is told. */
async function startAnswering(answer: http.RequestListener): Promise<string> {
  const server = http.createServer(answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as net.AddressInfo).port}`;
}

const connect = (url: string, options: ClientOptions = {}): Client => {
  const client = new Client(url, { onError: () => {}, ...options });
  onTestFinished(() => client.close());
  return client;
};

it('a publish whose answer is lost is there once', async () => {
  const { server, proxy, client, told } = await startBreakable();
  proxy.hold(true);
  const publisher = client.publisher();
  const published = Promise.all([1, 2, 3].map((n) => publisher.publish('mail', n)));
  await eventually(() => server.queue.status().ready === 3);
  proxy.hold(false);
  proxy.cut();
  const handles = await published;
  expect(handles.map(({ deduplicated }) => deduplicated)).toEqual([false, false, false]);
  expect(await server.lease('mail', { max: 9 })).toHaveLength(3);
  expect(told).toMatchObject([{ during: 'connection', error: { name: 'ConnectionError' } }]);
});

it('a settlement whose answer is lost counts once', async () => {
  const { server, proxy, client } = await startBreakable();
  await server.queue.configure('mail', { backoffMs: 0 });
  const publisher = client.publisher();
  const [done, failed, released] = await Promise.all(
    ['done', 'failed', 'released'].map((w) => publisher.publish(w, w)),
  );
  for (const [topic, end] of [
    ['done', 'success'],
    ['failed', 'fail'],
    ['released', 'release'],
  ] as const) {
    const iterator = client.subscriber(topic)[Symbol.asyncIterator]();
    const { value: task } = await iterator.next();
    proxy.hold(true);
    const settled = task[end]('because');
    await eventually(async () => (await server.queue.topic(topic)).counts.leased === 0);
    proxy.hold(false);
    proxy.cut();
    await settled;
  }
  expect(await server.queue.task('done', done!.id)).toMatchObject({ state: 'done', result: 'because' });
  expect((await server.queue.task('failed', failed!.id)).attempts).toMatchObject([{ reason: 'because' }]);
  expect(await server.queue.task('released', released!.id)).toMatchObject({ state: 'ready', attempt: 0 });
});

it('subscribers and waits for results go on where the connection was broken', async () => {
  const { proxy, client, server } = await startBreakable();
  const publisher = client.publisher();
  const handle = await publisher.publish('mail', 1);
  const result = handle.result();
  const go = gate();
  void client.subscriber('mail').run(async (task) => {
    await go.opened;
    return task.payload;
  });
  await untilState(server.queue, 'mail', handle.id, 'leased');
  proxy.cut();
  go.open();
  expect(await result).toBe(1);
  proxy.cut();
  expect(await (await publisher.publish('mail', 2)).result()).toBe(2);
});

it('a lease that ends while the server cannot be reached is lost by our own clock', async () => {
  const { proxy, client } = await startBreakable({ requestTimeoutMs: 200 });
  await client.publisher().publish('mail', 1);
  const lost = gate<unknown>();
  void client.subscriber('mail', { leaseMs: 600 }).run(async (task) => {
    proxy.hold(true);
    await new Promise<void>((resolve) => task.signal.addEventListener('abort', () => resolve()));
    lost.open(task.signal.reason);
  });
  expect(await lost.opened).toMatchObject({ code: 'lease-lost', detail: expect.stringContaining('it ran out') });
});

it('pauses are 100–200 ms at first, double, and begin anew after a success', async () => {
  const triedAt: number[] = [];
  let answers = 5;
  const queue = await openQueue({ store: 'sqlite::memory:' });
  onTestFinished(() => queue.stop());
  const url = await startAnswering((request, response) => {
    triedAt.push(performance.now());
    if (answers-- > 0) {
      request.socket.destroy();
      return;
    }
    answers = 2;
    response.writeHead(201, { 'content-type': 'application/json' });
    response.end('{"tasks": [{"id": "t", "deduplicated": false}]}');
  });
  const publisher = connect(url).publisher();
  await publisher.publish('mail', 1);
  const gaps = triedAt.slice(1).map((at, n) => at - triedAt[n]!);
  expect(gaps).toHaveLength(5);
  // A pause begins when the failure is seen, and timers are late rather than early.
  for (const [n, gap] of gaps.entries()) expect(gap).toBeGreaterThan(100 * 2 ** n - 5);
  expect(gaps[0]).toBeLessThan(400);
  triedAt.length = 0;
  await publisher.publish('mail', 2);
  expect(triedAt).toHaveLength(3);
  for (const [n, at] of triedAt.slice(1).entries()) expect(at - triedAt[n]!).toBeLessThan(400);
});

it('calls that fail together make one pause', async () => {
  const told: Trouble[] = [];
  const client = new Client('http://127.0.0.1:1', { retryMs: 1_000, onError: (_error, trouble) => told.push(trouble) });
  onTestFinished(() => client.close());
  const publisher = client.publisher();
  const outcomes = await Promise.allSettled(Array.from({ length: 100 }, (_, n) => publisher.publish(`topic-${n}`, n)));
  for (const outcome of outcomes)
    expect(outcome).toMatchObject({ status: 'rejected', reason: { name: 'ConnectionError' } });
  // 100–200, 200–400, 400–800 ms, and so on: within a second and a bit there are no more than five.
  expect(told.length).toBeLessThanOrEqual(5);
});

it('what began before a pause and fails behind it makes no other', async () => {
  let pauses = 0;
  const connection = new Connection(true, () => pauses++);
  onTestFinished(() => connection.close());
  const { signal } = new AbortController();
  /** Fails once it is told to, and then does not. */
  const failing = (when: Promise<void>): Promise<void> => {
    let hasFailed = false;
    const send = async (): Promise<void> => {
      await when;
      if (hasFailed) return;
      hasFailed = true;
      throw new ConnectionError('test', 'is gone');
    };
    return connection.call(send, { forMs: 60_000, signal });
  };
  const late = gate();
  const stragglers = [failing(late.opened), failing(late.opened)];
  await failing(Promise.resolve());
  late.open();
  await Promise.all(stragglers);
  expect(pauses).toBe(1);
});

it.each([
  ['busy', 503],
  ['not-holder', 503],
  ['store-unavailable', 503],
  ['outcome-unknown', 503],
  ['shutting-down', 503],
])('a server that says %s is asked again', async (code, status) => {
  let asked = 0;
  const url = await startAnswering((_request, response) => {
    if (++asked < 3) {
      response.writeHead(status, { 'content-type': 'application/problem+json' });
      response.end(JSON.stringify({ code, detail: 'not now' }));
      return;
    }
    response.writeHead(201, { 'content-type': 'application/json' });
    response.end('{"tasks": [{"id": "t", "deduplicated": false}]}');
  });
  expect(await connect(url).publisher().publish('mail', 1)).toMatchObject({ id: 't' });
  expect(asked).toBe(3);
});

it('a server that answers too late is given up, and asked again until that is enough', async () => {
  let asked = 0;
  const url = await startAnswering(() => {
    asked++;
  });
  const refused = connect(url, { requestTimeoutMs: 50, retryMs: 300 }).publisher().publish('mail', 1);
  await expect(refused).rejects.toThrow(ConnectionError);
  await expect(refused).rejects.toThrow(/gives no answer: no answer within 50 ms/);
  expect(asked).toBeGreaterThan(1);
});

it.each([
  [200, '<html>hello</html>'],
  [404, 'not here'],
  [502, '{"error": "bad gateway"}'],
])('what answers %i %j is not taken for a server', async (status, body) => {
  const url = await startAnswering((_request, response) => {
    response.writeHead(status);
    response.end(body);
  });
  await expect(connect(url, { retryMs: 0 }).publisher().publish('mail', 1)).rejects.toThrow(
    `answered ${status}, and not as Ebbmark does`,
  );
});

it('with onDuplicate again, a publish that may have been carried out is not made again', async () => {
  const { server, proxy, client } = await startBreakable();
  const publisher = client.publisher();
  proxy.hold(true);
  const published = publisher.publish('crawl', 1, { messageId: 'page', onDuplicate: 'again' });
  await eventually(() => server.queue.status().ready === 1);
  const [task] = await server.queue.lease({ topics: ['crawl'] });
  await server.queue.settle({ ack: [{ leaseId: task!.leaseId }] });
  proxy.hold(false);
  proxy.cut();
  await expect(published).rejects.toThrow(ConnectionError);
  expect(server.queue.status()).toMatchObject({ ready: 0, enqueued: 1 });
});

it('with onDuplicate again, a publish that was refused for the moment is made again', async () => {
  const { queue } = await startWorld('in process');
  let refusals = 2;
  const client = new Client(
    tapped(queue, {
      enqueue: (topic, tasks, options) =>
        refusals-- > 0
          ? Promise.reject(new ConnectionError('test', 'is not there', { mayHaveArrived: false }))
          : queue.enqueue(topic, tasks, options),
    }),
    { onError: () => {} },
  );
  expect(await client.publisher().publish('crawl', 1, { messageId: 'page', onDuplicate: 'again' })).toMatchObject({
    deduplicated: false,
  });
});

it('a connection that the server closed while it lay idle costs no pause', async () => {
  const { client, proxy, told } = await startBreakable();
  const publisher = client.publisher();
  for (let n = 0; n < 20; n++) {
    await publisher.publish('mail', n);
    proxy.cut();
  }
  await publisher.publish('mail', 'last');
  expect(told).toEqual([]);
});

it('connections are kept and used again', async () => {
  const { client, proxy } = await startBreakable();
  const publisher = client.publisher();
  for (let n = 0; n < 50; n++) await publisher.publish('mail', n);
  expect(proxy.connections()).toBe(1);
});

it('an address may have a path, and a name with a password', async () => {
  const seen = gate<http.IncomingMessage>();
  const url = await startAnswering((request, response) => {
    seen.open(request);
    response.writeHead(201, { 'content-type': 'application/json' });
    response.end('{"tasks": [{"id": "t", "deduplicated": false}]}');
  });
  await connect(`${url.replace('://', '://ada:p%20w@')}/queue/`)
    .publisher()
    .publish('mail', 1);
  const request = await seen.opened;
  expect(request.url).toBe('/queue/v1/topics/mail/tasks');
  expect(request.headers.authorization).toBe(`Basic ${Buffer.from('ada:p w').toString('base64')}`);
});
