/** A process of its own: the server on one store, with a route beside the real ones that only validates. */
import { setTimeout as wait } from 'node:timers/promises';
import type { BudgetLimits } from '../src/http/budgets.ts';
import type { LocalQueue } from '../src/queue/queue.ts';
import type { Store } from '../src/store/store.ts';
import { answerOrders } from './child.ts';
import { tasksOf } from './payload.ts';
import { built } from './place.ts';
import { StatementWatch } from './statements.ts';

export type ServerOrder =
  /** On a port of its choice when none is given; with each call of its store so much slower, where that is given. */
  | {
      readonly kind: 'open';
      readonly store: string;
      readonly port?: number;
      readonly budgets?: Partial<BudgetLimits>;
      readonly storeDelayMs?: number;
    }
  /** Enqueues so many tasks, not over HTTP. */
  | { readonly kind: 'fill'; readonly topic: string; readonly tasks: number }
  /** Only reports. */
  | { readonly kind: 'look' }
  | { readonly kind: 'stop' };

export interface ServerReport {
  /** Where the server listens, for example `http://127.0.0.1:43210`. */
  readonly origin: string;
  /** Statements that went through Cassandra's driver so far. */
  readonly statements: number;
  /** Memory that the process has, in MB. */
  readonly residentMb: number;
}

const watch = new StatementWatch();
let origin = '';
let queue: LocalQueue | null = null;
let stopServer: (() => Promise<void>) | null = null;

type Open = ServerOrder & { readonly kind: 'open' };

async function open({ store, port = 0, budgets = {}, storeDelayMs = 0 }: Open): Promise<void> {
  const { createServer } = await built<typeof import('../src/http/server.ts')>('http/server.js');
  const contract = await built<typeof import('../src/http/contract/tasks.ts')>('http/contract/tasks.js');
  const { TopicParams } = await built<typeof import('../src/http/contract/topics.ts')>('http/contract/topics.js');
  const { openLocalQueue, openStore, startQueue } = await built<typeof import('../src/queue/open.ts')>('queue/open.js');
  const opened =
    storeDelayMs === 0
      ? await openLocalQueue({ store })
      : await startQueue(delayed(await openStore({ store }), storeDelayMs));
  queue = opened;
  const leasesHeld = () => opened.leasesHeld;
  const server = await createServer(opened, { peers: opened.peers, budgets, leasesHeld });
  server.app.post(
    '/empty/:topic/tasks',
    {
      schema: {
        params: TopicParams,
        headers: contract.EnqueueHeaders,
        body: contract.EnqueueBody,
        response: { 201: contract.EnqueueAnswer },
      },
      config: { access: 'open' },
    },
    async (request, reply) => {
      reply.code(201);
      // An answer as long as the real one.
      return {
        tasks: request.body.tasks.map(() => ({ id: '01ARZ3NDEKTSV4RRFFQ69G5FAV-5-1000000', deduplicated: false })),
      };
    },
  );
  stopServer = () => server.stop();
  origin = await server.listen('127.0.0.1', port);
  await opened.reachableAt(origin);
}

/** A store each of whose calls takes so much longer, as if it were far away. */
function delayed(store: Store, ms: number): Store {
  return new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return (...args: readonly unknown[]): unknown => {
        const answer: unknown = value.apply(target, args);
        return answer instanceof Promise ? answer.finally(() => wait(ms)) : answer;
      };
    },
  });
}

async function fill(topic: string, tasks: number): Promise<void> {
  const batch = tasksOf(200);
  for (let left = tasks; left > 0; left -= batch.length) await queue?.enqueue(topic, batch.slice(0, left));
}

answerOrders<ServerOrder, ServerReport>(async (order) => {
  if (order.kind === 'open') await open(order);
  else if (order.kind === 'fill') await fill(order.topic, order.tasks);
  else if (order.kind === 'stop') {
    await stopServer?.();
    await queue?.stop();
  }
  return { origin, statements: watch.count, residentMb: Math.round(process.memoryUsage.rss() / 1024 ** 2) };
});
