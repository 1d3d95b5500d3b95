/**
 * A process of its own that calls, or answers: tasks through the client, whose results the callers wait for, and beside
 * them plain requests of HTTP to the same handler.
 */
import fastify from 'fastify';
import { Pool } from 'undici';
import type { Client } from '../src/client/index.ts';
import { answerOrders } from './child.ts';
import { PAYLOAD } from './payload.ts';
import { built, openBuiltQueue } from './place.ts';
import { type Percentiles, Times, together } from './rounds.ts';

export type RequestReplyOrder =
  /** Becomes a client of a server, by its address, or of a queue of its own on a store. */
  | { readonly kind: 'connect'; readonly queue: { readonly origin: string } | { readonly store: string } }
  /** Answers tasks, so many at a time. */
  | { readonly kind: 'answer'; readonly concurrency: number }
  /** Answers plain requests, with the same handler. */
  | { readonly kind: 'listen' }
  /** So many callers, each with one task at a time, for so long. */
  | { readonly kind: 'request'; readonly callers: number; readonly durationMs: number }
  /** The same by plain requests, to a process that listens. */
  | { readonly kind: 'post'; readonly origin: string; readonly callers: number; readonly durationMs: number };

export interface RequestReplyReport extends Percentiles {
  /** Round trips a second. */
  readonly perSecond: number;
  /** Where it listens to plain requests. */
  readonly origin: string;
}

interface Message {
  readonly payload: unknown;
}

const TOPIC = 'request-reply';
const PATH = '/reply';
/** Who is not answered by then never will be. */
const PATIENCE_MS = 30_000;
let client: Client | null = null;
let origin = '';

const theClient = (): Client => {
  if (client === null) throw new Error('no queue is connected');
  return client;
};

const answer = ({ payload }: Message): unknown => payload;

async function connect(queue: (RequestReplyOrder & { kind: 'connect' })['queue']): Promise<void> {
  const { Client } = await built<typeof import('../src/client/index.ts')>('client/index.js');
  client = new Client('origin' in queue ? queue.origin : await openBuiltQueue(queue.store));
}

async function listen(): Promise<void> {
  const app = fastify();
  app.post<{ Body: Message }>(PATH, async (request) => ({ result: answer(request.body) }));
  origin = await app.listen({ host: '127.0.0.1', port: 0 });
}

/** Each caller waits for the answer before it calls again. */
async function roundTrips(
  callers: number,
  durationMs: number,
  call: () => Promise<unknown>,
): Promise<Percentiles & { readonly perSecond: number }> {
  const times = new Times();
  const start = performance.now();
  await together(callers, async () => {
    for (let at = start; at - start < durationMs; ) {
      const result = await call();
      if (result !== PAYLOAD) throw new Error(`a call was answered with ${JSON.stringify(result)}`);
      const now = performance.now();
      times.add(now - at);
      at = now;
    }
  });
  return { perSecond: (times.count * 1000) / (performance.now() - start), ...times.percentiles() };
}

function request({ callers, durationMs }: RequestReplyOrder & { kind: 'request' }) {
  const publisher = theClient().publisher();
  return roundTrips(callers, durationMs, async () => {
    const handle = await publisher.publish(TOPIC, PAYLOAD);
    return handle.result({ timeoutMs: PATIENCE_MS });
  });
}

async function post({ origin: to, callers, durationMs }: RequestReplyOrder & { kind: 'post' }) {
  const pool = new Pool(to, { connections: callers });
  const body = JSON.stringify({ payload: PAYLOAD } satisfies Message);
  try {
    return await roundTrips(callers, durationMs, async () => {
      const headers = { 'content-type': 'application/json' };
      const response = await pool.request({ path: PATH, method: 'POST', headers, body });
      return ((await response.body.json()) as { readonly result: unknown }).result;
    });
  } finally {
    await pool.close();
  }
}

answerOrders<RequestReplyOrder, RequestReplyReport>(async (order) => {
  let measured = { perSecond: Number.NaN, ...new Times().percentiles() };
  if (order.kind === 'connect') await connect(order.queue);
  else if (order.kind === 'answer') {
    void theClient().subscriber(TOPIC).run(answer, { concurrency: order.concurrency });
  } else if (order.kind === 'listen') await listen();
  else if (order.kind === 'request') measured = await request(order);
  else measured = await post(order);
  return { ...measured, origin };
});
