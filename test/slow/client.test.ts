/** The client between real processes, which are killed, stopped and restarted. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, it, onTestFinished } from 'vitest';
import { Client, type ClientOptions } from '../../src/client/index.ts';
import { type Running, start } from '../cli/support/run.ts';
import { startProxy } from '../client/support/proxy.ts';
import { eventually } from '../http/support/server.ts';
import type { WorkerEvent, WorkerOptions } from './support/client-worker.ts';

interface Server {
  readonly url: string;
  readonly port: number;
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Starts it again, on the same port and file. */
  restart(): Promise<void>;
  redelivered(): Promise<number>;
}

async function startServer(): Promise<Server> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-client-'));
  let running: Running;
  let port = 0;
  const launch = async (): Promise<void> => {
    running = start(['serve', '--store', `sqlite:${join(directory, 'q.db')}`, '--listen', `127.0.0.1:${port}`]);
    const [, found] = await running.until(/http:\/\/127\.0\.0\.1:(\d+)/);
    port = Number(found);
  };
  const kill = async (signal: NodeJS.Signals = 'SIGKILL'): Promise<void> => {
    running.child.kill(signal);
    await running.ended;
  };
  await launch();
  onTestFinished(async () => {
    await kill();
    await rm(directory, { recursive: true });
  });
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    port,
    kill,
    restart: launch,
    async redelivered() {
      const response = await fetch(`${url}/status`, { headers: { accept: 'application/json' } });
      return ((await response.json()) as { queue: { redelivered: number } }).queue.redelivered;
    },
  };
}

interface Worker {
  readonly child: ChildProcess;
  readonly events: readonly WorkerEvent[];
  /** Resolves with the first event of a kind. */
  until<K extends WorkerEvent['kind']>(kind: K): Promise<WorkerEvent & { readonly kind: K }>;
  readonly ended: Promise<readonly [number | null, NodeJS.Signals | null]>;
}

function startWorker(url: string, topic: string, options: WorkerOptions): Worker {
  const args = ['--import', 'tsx', 'test/slow/support/client-worker.ts', url, topic, JSON.stringify(options)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>;
  const events: WorkerEvent[] = [];
  const looks = new Set<() => void>();
  createInterface({ input: child.stdout }).on('line', (line) => {
    events.push(JSON.parse(line) as WorkerEvent);
    for (const look of [...looks]) look();
  });
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return {
    child,
    events,
    ended,
    until: <K extends WorkerEvent['kind']>(kind: K) =>
      new Promise<WorkerEvent & { readonly kind: K }>((resolve, reject) => {
        const look = (): void => {
          const found = events.find((event): event is WorkerEvent & { readonly kind: K } => event.kind === kind);
          if (found === undefined) return;
          looks.delete(look);
          resolve(found);
        };
        looks.add(look);
        void ended.then(() => reject(new Error(`ended before ${kind}: ${JSON.stringify(events)}`)));
        look();
      }),
  };
}

function connect(url: string, options: ClientOptions = {}): Client {
  const client = new Client(url, { onError: () => {}, ...options });
  onTestFinished(() => client.close());
  return client;
}

it('a task whose worker is killed is delivered again, as attempt 2', async () => {
  const server = await startServer();
  const handle = await connect(server.url).publisher().publish('mail', { n: 1 });
  const first = startWorker(server.url, 'mail', { leaseMs: 2_000, workMs: 3_600_000 });
  expect(await first.until('took')).toMatchObject({ id: handle.id, attempt: 1 });
  first.child.kill('SIGKILL');
  await first.ended;
  const second = startWorker(server.url, 'mail', { leaseMs: 2_000, workMs: 10 });
  expect(await second.until('took')).toMatchObject({ id: handle.id, attempt: 2, payload: { n: 1 } });
  expect(await handle.result({ timeoutMs: 60_000 })).toBe(`attempt 2 of ${second.child.pid}`);
});

it.each(['SIGKILL', 'SIGTERM'] as const)(
  '1,000 waits each resolve, over a restart of the server by %s',
  async (signal) => {
    const server = await startServer();
    const client = connect(server.url);
    const publisher = client.publisher();
    const handles = await Promise.all(Array.from({ length: 1_000 }, (_, n) => publisher.publish('echo', n)));
    const results = handles.map((handle) => handle.result());
    let done = 0;
    void client.subscriber('echo').run(
      async (task) => {
        // The server goes when half are done.
        if (++done === 500) await server.kill(signal).then(() => server.restart());
        return task.payload;
      },
      { concurrency: 20 },
    );
    expect(await Promise.all(results)).toEqual(Array.from({ length: 1_000 }, (_, n) => n));
  },
);

it('workers that drain under load leave nothing that is delivered again', async () => {
  const server = await startServer();
  const client = connect(server.url);
  const publisher = client.publisher();
  const count = 4_000;
  const handles = Promise.all(Array.from({ length: count }, (_, n) => publisher.publish('work', n)));
  const taken: (readonly [unknown, number])[] = [];
  for (let round = 0; round < 4; round++) {
    const worker = startWorker(server.url, 'work', { concurrency: 20, prefetch: 20, workMs: 3 });
    const isLast = round === 3;
    if (isLast) await Promise.all((await handles).map((handle) => handle.result()));
    else await eventually(() => worker.events.length >= 300);
    worker.child.kill('SIGTERM');
    await worker.until('drained');
    expect(await worker.ended).toEqual([0, null]);
    for (const event of worker.events) {
      expect(event).toEqual(expect.objectContaining({ kind: expect.stringMatching(/^(?:took|drained)$/) }));
      if (event.kind === 'took') taken.push([event.payload, event.attempt]);
    }
  }
  expect(taken.map(([payload]) => payload).sort((a, b) => Number(a) - Number(b))).toEqual(
    Array.from({ length: count }, (_, n) => n),
  );
  expect(taken.filter(([, attempt]) => attempt !== 1)).toEqual([]);
  expect(await server.redelivered()).toBe(0);
});

it('a handler that outlives its lease while its process is stopped is called off, and its ack refused', async () => {
  const server = await startServer();
  const client = connect(server.url);
  const handle = await client.publisher().publish('mail', 1);
  const stopped = startWorker(server.url, 'mail', { leaseMs: 1_500, workMs: null });
  await stopped.until('took');
  stopped.child.kill('SIGSTOP');
  void client.subscriber('mail').run((task) => `by another, attempt ${task.attempt}`);
  expect(await handle.result({ timeoutMs: 60_000 })).toBe('by another, attempt 2');
  expect(stopped.events).toHaveLength(1);
  stopped.child.kill('SIGCONT');
  expect(await stopped.until('aborted')).toMatchObject({ id: handle.id, code: 'lease-lost' });
  expect(await stopped.until('trouble')).toMatchObject({ id: handle.id, code: 'lease-lost' });
  expect(await handle.result()).toBe('by another, attempt 2');
});

it('10,000 publishes through 50 reconnections: none is lost, none is there twice', async () => {
  const server = await startServer();
  const proxy = await startProxy(server.port);
  const client = connect(proxy.url);
  onTestFinished(() => proxy.close());
  const publisher = client.publisher();
  const published: Promise<{ readonly id: string }>[] = [];
  const rounds = 50;
  for (let round = 0; round < rounds; round++) {
    for (let n = 0; n < 200; n++) published.push(publisher.publish(`topic-${n % 5}`, round * 200 + n));
    // In every other round what the server has done by then is not heard of.
    proxy.hold(round % 2 === 0);
    const before = proxy.connections();
    for (let turns = Math.random() * 20; turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve));
    proxy.cut();
    proxy.hold(false);
    await eventually(() => proxy.connections() > before);
  }
  const handles = await Promise.all(published);
  expect(proxy.connections()).toBeGreaterThanOrEqual(rounds);
  expect(new Set(handles.map(({ id }) => id)).size).toBe(10_000);
  const found: number[] = [];
  const reader = connect(server.url);
  for await (const task of reader.subscriber('topic-*', { prefetch: 500 })) {
    found.push(task.payload as number);
    void task.success();
    if (found.length === 10_000) break;
  }
  await reader.drain();
  expect(found.sort((a, b) => a - b)).toEqual(Array.from({ length: 10_000 }, (_, n) => n));
  const counts = await fetch(`${server.url}/status`, { headers: { accept: 'application/json' } });
  expect(await counts.json()).toMatchObject({ queue: { ready: 0, leased: 0, enqueued: 10_000, redelivered: 0 } });
});
