/**
 * The load generator: a process of its own, so that it shares no event loop with what it measures. It is told over
 * IPC what to do and answers with what it saw; floor and subject get exactly the same.
 */
import autocannon from 'autocannon';
import { Client } from 'undici';
import { answerOrders } from './child.ts';
import { type Percentiles, Times } from './rounds.ts';

export type LoadOrder =
  /** Posts the same body over and over. */
  | { kind: 'post'; origin: string; path: string; body: string; connections: number; durationMs: number }
  /** Leases up to `batch`, acknowledges them, and so on, so many times on each connection. */
  | { kind: 'drain'; origin: string; topic: string; batch: number; connections: number; leasesEach: number }
  /** One after the other: posts a body, and waits until a waiting lease has brought all its tasks. */
  | { kind: 'hand-over'; origin: string; topic: string; batch: number; body: string; samples: number }
  /** One after the other: posts a body and waits for the answer. */
  | { kind: 'round-trip'; origin: string; path: string; body: string; samples: number };

export interface LoadReport extends Percentiles {
  /** Requests, or with `drain` tasks, a second. */
  readonly perSecond: number;
}

const JSON_HEADERS = { 'content-type': 'application/json' };

async function cannonade(
  options: Omit<autocannon.Options, 'url'> & { readonly url: string },
  tasks?: () => number,
): Promise<LoadReport> {
  const times = new Times();
  let responses = 0;
  let refused = 0;
  let first = 0;
  let last = 0;
  const result = await new Promise<autocannon.Result>((resolve, reject) => {
    const instance = autocannon(
      { ...options, headers: JSON_HEADERS, method: 'POST', sampleInt: 50, skipAggregateResult: true },
      (error: unknown, outcome) => (error ? reject(error) : resolve(outcome)),
    );
    instance.on('response', (_client, statusCode, _bytes, responseTime) => {
      last = performance.now();
      // Time counts from the first answer on, when the connections stand.
      if (first === 0) first = last;
      else responses++;
      if (statusCode >= 300) refused++;
      times.add(responseTime);
    });
  });
  const failed = refused + result.errors + result.timeouts;
  if (failed > 0) throw new Error(`${failed} requests to ${options.url} were not answered well`);
  return { perSecond: (tasks?.() ?? responses) / ((last - first) / 1000), ...times.percentiles() };
}

const post = ({ origin, path, body, connections, durationMs }: LoadOrder & { kind: 'post' }): Promise<LoadReport> =>
  cannonade({ url: origin + path, body, connections, duration: durationMs / 1000 });

interface DrainContext {
  settlement?: string;
}

async function drain(order: LoadOrder & { kind: 'drain' }): Promise<LoadReport> {
  const { origin, topic, batch, connections, leasesEach } = order;
  const expected = connections * leasesEach * batch;
  let leased = 0;
  let acknowledged = 0;
  const lease: autocannon.Request = {
    path: '/v1/leases',
    body: JSON.stringify({ topics: [topic], max: batch, leaseMs: 60_000 }),
    onResponse: (_status, body, context) => {
      const { tasks } = JSON.parse(body) as { tasks: readonly { leaseId: string }[] };
      leased += tasks.length;
      (context as DrainContext).settlement = JSON.stringify({ ack: tasks.map(({ leaseId }) => ({ leaseId })) });
    },
  };
  const settle: autocannon.Request = {
    path: '/v1/leases/settle',
    setupRequest: (request, context) => ({ ...request, body: (context as DrainContext).settlement ?? '{"ack":[]}' }),
    onResponse: (_status, body) => {
      const { ack } = JSON.parse(body) as { ack: readonly { ok: boolean }[] };
      for (const item of ack) if (item.ok) acknowledged++;
    },
  };
  const report = await cannonade(
    { url: origin, requests: [lease, settle], connections, amount: 2 * connections * leasesEach },
    () => acknowledged,
  );
  if (acknowledged < leased || leased < 0.9 * expected) {
    throw new Error(`drain of ${topic}: of ${expected} tasks ${leased} leased, ${acknowledged} acknowledged`);
  }
  return report;
}

async function postOnce(client: Client, path: string, body: string): Promise<unknown> {
  const answer = await client.request({ path, method: 'POST', headers: JSON_HEADERS, body });
  const text = await answer.body.text();
  if (answer.statusCode >= 300) throw new Error(`POST ${path}: ${answer.statusCode} ${text}`);
  return JSON.parse(text);
}

async function oneByOne(samples: number, once: () => Promise<number>): Promise<LoadReport> {
  const times = new Times();
  const start = performance.now();
  for (let i = 0; i < samples; i++) times.add(await once());
  return { perSecond: (samples * 1000) / (performance.now() - start), ...times.percentiles() };
}

async function handOver(order: LoadOrder & { kind: 'hand-over' }): Promise<LoadReport> {
  const { origin, topic, batch, body, samples } = order;
  const producer = new Client(origin);
  const consumer = new Client(origin);
  const leaseBody = JSON.stringify({ topics: [topic], max: batch, leaseMs: 60_000, waitMs: 10_000 });
  const lease = async () =>
    (await postOnce(consumer, '/v1/leases', leaseBody)) as { tasks: readonly { leaseId: string }[] };
  try {
    return await oneByOne(samples, async () => {
      let waiting = lease();
      // The lease has to be waiting when the task arrives; one round trip behind it on the same server makes sure.
      await producer.request({ path: '/healthz', method: 'GET' }).then((answer) => answer.body.dump());
      const start = performance.now();
      const enqueued = postOnce(producer, `/v1/topics/${topic}/tasks`, body);
      const leaseIds: string[] = [];
      for (;;) {
        for (const { leaseId } of (await waiting).tasks) leaseIds.push(leaseId);
        if (leaseIds.length >= batch) break;
        waiting = lease();
      }
      const took = performance.now() - start;
      await enqueued;
      await postOnce(producer, '/v1/leases/settle', JSON.stringify({ ack: leaseIds.map((leaseId) => ({ leaseId })) }));
      return took;
    });
  } finally {
    await Promise.all([producer.close(), consumer.close()]);
  }
}

async function roundTrip({ origin, path, body, samples }: LoadOrder & { kind: 'round-trip' }): Promise<LoadReport> {
  const client = new Client(origin);
  try {
    return await oneByOne(samples, async () => {
      const start = performance.now();
      await postOnce(client, path, body);
      return performance.now() - start;
    });
  } finally {
    await client.close();
  }
}

function carryOut(order: LoadOrder): Promise<LoadReport> {
  if (order.kind === 'post') return post(order);
  if (order.kind === 'drain') return drain(order);
  if (order.kind === 'hand-over') return handOver(order);
  return roundTrip(order);
}

answerOrders(carryOut);
