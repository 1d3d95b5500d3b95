/**
 * What the second and the third server cost: statements through the driver for each task, and of servers that have
 * nothing to do.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { HttpQueue } from '../../src/client/http-queue.ts';
import { untilEven } from '../../test/slow/faults/support/servers.ts';
import type { CassandraPlace } from '../cassandra.ts';
import { Child } from '../child.ts';
import { calls, drainRate, enqueueRate } from '../drive.ts';
import type { BenchOptions } from '../options.ts';
import { tasksOf } from '../payload.ts';
import { median } from '../rounds.ts';
import type { ServerOrder, ServerReport } from '../server.ts';
import { figure, meets, type Row, type Target } from '../table.ts';

const SERVERS = 3;
const TOPICS = 40;
const BATCH = 200;
const WORKERS = 6;
const CALLERS = { [BATCH]: 6, 1: 96 } as const;
const LITTLE: Target = { of: 'ratio', is: 'at most', bound: 1.25 };

type Server = Child<ServerOrder, ServerReport>;

export async function servers(place: CassandraPlace, options: BenchOptions): Promise<readonly Row[]> {
  const store = place.fresh();
  const running: Server[] = [];
  const start = async (): Promise<HttpQueue> => {
    const child: Server = new Child('server.ts');
    running.push(child);
    return new HttpQueue((await child.ask({ kind: 'open', store })).origin);
  };
  const statements = async (): Promise<number> => {
    let sum = 0;
    for (const child of running) sum += (await child.ask({ kind: 'look' })).statements;
    return sum;
  };
  try {
    const queues = [await start()];
    options.progress('servers: one');
    const alone = await measure(queues, statements, options);
    while (queues.length < SERVERS) queues.push(await start());
    await untilEven(queues.map((queue) => ({ queue })));
    options.progress(`servers: ${SERVERS}`);
    const all = await measure(queues, statements, options);
    return [...rows(alone, all), idleRow(1, alone), idleRow(SERVERS, all)];
  } finally {
    await Promise.all(running.map((child) => child.stop()));
  }
}

/** Statements for 1,000 tasks, and, with nothing to do, for a second and a server. */
interface Statements {
  readonly batches: { readonly enqueue: number; readonly drain: number };
  readonly singles: { readonly enqueue: number; readonly drain: number };
  readonly idle: number;
}

async function measure(
  queues: readonly HttpQueue[],
  statements: () => Promise<number>,
  options: BenchOptions,
): Promise<Statements> {
  const unit = options.quick ? 8_000 : 40_000;
  const tasks = { [BATCH]: unit, 1: unit / 4 } as const;
  let turn = 0;
  const next = (): HttpQueue => queues[turn++ % queues.length]!;
  const anyOf = {
    enqueue: (...args: Parameters<HttpQueue['enqueue']>) => next().enqueue(...args),
    lease: (...args: Parameters<HttpQueue['lease']>) => next().lease(...args),
    settle: (...args: Parameters<HttpQueue['settle']>) => next().settle(...args),
  };
  const topics = Array.from({ length: TOPICS }, (_, nth) => `busy-${nth}`);
  const counted = async (of: number, run: () => Promise<unknown>): Promise<number> => {
    const before = await statements();
    await run();
    return ((await statements()) - before) / (of / 1_000);
  };
  const through = async (size: 200 | 1): Promise<{ readonly enqueue: number; readonly drain: number }> => {
    const input = tasksOf(size);
    const count = tasks[size];
    return {
      enqueue: await counted(count, () =>
        enqueueRate(
          anyOf,
          CALLERS[size],
          calls(topics, count, size, () => input),
        ),
      ),
      drain: await counted(count, () => drainRate(anyOf, { topics, tasks: count, workers: WORKERS })),
    };
  };
  // Once for what is only done the first time.
  await through(BATCH);
  const rounds: Omit<Statements, 'idle'>[] = [];
  for (let round = 1; round <= options.rounds; round++) {
    options.progress(`servers: ${queues.length}, round ${round}/${options.rounds}`);
    rounds.push({ batches: await through(BATCH), singles: await through(1) });
  }
  const middle = (kind: 'batches' | 'singles') => ({
    enqueue: median(rounds.map((round) => round[kind].enqueue)),
    drain: median(rounds.map((round) => round[kind].drain)),
  });
  const seconds = options.quick ? 10 : 60;
  options.progress(`servers: ${queues.length}, ${seconds} s of nothing to do`);
  const idle = (await counted(1_000, () => wait(seconds * 1_000))) / seconds / queues.length;
  return { batches: middle('batches'), singles: middle('singles'), idle };
}

function rows(alone: Statements, all: Statements): readonly Row[] {
  const row = (metric: string, value: number, floor: number): Row => {
    const ratio = value / floor;
    return {
      ...figure('servers', `${metric}: statements for 1,000 tasks, ${SERVERS} servers`, value, 'statements'),
      floor: { name: 'one server', value: floor },
      ratio,
      target: LITTLE,
      reached: meets(LITTLE, { value, ratio }),
    };
  };
  return [
    row(`enqueue, batches of ${BATCH}`, all.batches.enqueue, alone.batches.enqueue),
    row(`drain, batches of ${BATCH}`, all.batches.drain, alone.batches.drain),
    row(`enqueue, single, ${CALLERS[1]} callers`, all.singles.enqueue, alone.singles.enqueue),
    row('drain of these', all.singles.drain, alone.singles.drain),
  ];
}

const idleRow = (count: number, { idle }: Statements): Row =>
  figure('servers', `nothing to do, ${count} ${count === 1 ? 'server' : 'servers'}`, idle, 'statements/s each');
