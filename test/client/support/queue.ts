/** Queues of both kinds for the client's tests, and clients of them that keep what went wrong. */
import { describe, onTestFinished } from 'vitest';
import {
  type AnyTopics,
  type Backend,
  Client,
  type ClientOptions,
  type TopicSchemas,
  type Trouble,
} from '../../../src/client/index.ts';
import { openQueue, type Queue, type TaskInfo } from '../../../src/index.ts';
import { eventually, startServer } from '../../http/support/server.ts';

export type Told = Trouble & { readonly error: unknown };

export interface ClientWorld {
  readonly queue: Queue;
  /** What clients were told of in the background. */
  readonly told: readonly Told[];
  connect<T extends TopicSchemas = AnyTopics>(options?: ClientOptions<T>): Client<T>;
}

export const KINDS = ['over HTTP', 'in process'] as const;
export type Kind = (typeof KINDS)[number];

/** The same tests for a client over a socket, and for one that has the queue in its own process. */
export const onBoth = (name: string, tests: (start: () => Promise<ClientWorld>) => void): void =>
  describe.each(KINDS)(`${name}, %s`, (kind) => tests(() => startWorld(kind)));

export async function startWorld(kind: Kind): Promise<ClientWorld> {
  const told: Told[] = [];
  const server = kind === 'over HTTP' ? await startServer() : null;
  const queue = server?.queue ?? (await openQueue({ store: 'sqlite::memory:' }));
  onTestFinished(() => (server === null ? queue.stop() : server.close()));
  return {
    queue,
    told,
    connect(options) {
      const client = new Client(server?.url ?? queue, {
        onError: (error, trouble) => told.push({ ...trouble, error }),
        ...options,
      });
      onTestFinished(() => client.close());
      return client;
    },
  };
}

/** A queue as clients call it, with some calls in the test's hand. */
export const tapped = (queue: Queue, calls: Partial<Backend>): Backend => ({
  enqueue: (topic, tasks, options) => queue.enqueue(topic, tasks, options),
  lease: (request) => queue.lease(request),
  settle: (request) => queue.settle(request),
  task: (topic, id, options) => queue.task(topic, id, options),
  ...calls,
});

/** A promise with its handles. */
export interface Gate<T = void> {
  readonly opened: Promise<T>;
  open(value: T): void;
}

export function gate<T = void>(): Gate<T> {
  let open: (value: T) => void = () => {};
  const opened = new Promise<T>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Waits until a task is in a state. */
export async function untilState(queue: Queue, topic: string, id: string, state: TaskInfo['state']): Promise<TaskInfo> {
  await eventually(async () => (await queue.task(topic, id)).state === state);
  return queue.task(topic, id);
}

/** How a promise stands, without waiting for it. */
export async function stands(promise: Promise<unknown>): Promise<'pending' | 'resolved' | 'rejected'> {
  let is: 'pending' | 'resolved' | 'rejected' = 'pending';
  promise.then(
    () => {
      is = 'resolved';
    },
    () => {
      is = 'rejected';
    },
  );
  await new Promise((resolve) => setImmediate(resolve));
  return is;
}
