/**
 * What the second and the third server cost: statements through the driver for each task, and of servers that have
 * nothing to do.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { CassandraPlace } from '../cassandra.ts';
import { calls, drainRate, enqueueRate } from '../drive.ts';
import { Fleet } from '../fleet.ts';
import type { BenchOptions } from '../options.ts';
import { tasksOf } from '../payload.ts';
import { median } from '../rounds.ts';
import { figure, type Row, rowBeside, type Target } from '../table.ts';

const SERVERS = 3;
const TOPICS = 40;
const BATCH = 200;
const WORKERS = 6;
const CALLERS = { [BATCH]: 6, 1: 96 } as const;
const LITTLE: Target = { of: 'ratio', is: 'at most', bound: 1.25 };

export async function servers(place: CassandraPlace, options: BenchOptions): Promise<readonly Row[]> {
  const fleet = new Fleet(place.fresh());
  try {
    await fleet.growTo(1);
    options.progress('servers: one');
    const alone = await measure(fleet, options);
    await fleet.growTo(SERVERS);
    options.progress(`servers: ${SERVERS}`);
    const all = await measure(fleet, options);
    return [...rows(alone, all), idleRow(1, alone), idleRow(SERVERS, all)];
  } finally {
    await fleet.stop();
  }
}

/** Statements for 1,000 tasks, and, with nothing to do, for a second and a server. */
interface Statements {
  readonly batches: { readonly enqueue: number; readonly drain: number };
  readonly singles: { readonly enqueue: number; readonly drain: number };
  readonly idle: number;
}

async function measure(fleet: Fleet, options: BenchOptions): Promise<Statements> {
  const { length: size } = fleet.queues;
  const unit = options.quick ? 8_000 : 40_000;
  const tasks = { [BATCH]: unit, 1: unit / 4 } as const;
  const anyOf = fleet.inTurn();
  const topics = Array.from({ length: TOPICS }, (_, nth) => `busy-${nth}`);
  const counted = async (of: number, run: () => Promise<unknown>): Promise<number> => {
    const before = await fleet.statements();
    await run();
    return ((await fleet.statements()) - before) / (of / 1_000);
  };
  const through = async (batch: 200 | 1): Promise<{ readonly enqueue: number; readonly drain: number }> => {
    const input = tasksOf(batch);
    const count = tasks[batch];
    return {
      enqueue: await counted(count, () =>
        enqueueRate(
          anyOf,
          CALLERS[batch],
          calls(topics, count, batch, () => input),
        ),
      ),
      drain: await counted(count, () => drainRate(anyOf, { topics, tasks: count, workers: WORKERS })),
    };
  };
  // Once for what is only done the first time.
  await through(BATCH);
  const rounds: Omit<Statements, 'idle'>[] = [];
  for (let round = 1; round <= options.rounds; round++) {
    options.progress(`servers: ${size}, round ${round}/${options.rounds}`);
    rounds.push({ batches: await through(BATCH), singles: await through(1) });
  }
  const middle = (kind: 'batches' | 'singles') => ({
    enqueue: median(rounds.map((round) => round[kind].enqueue)),
    drain: median(rounds.map((round) => round[kind].drain)),
  });
  const seconds = options.quick ? 10 : 60;
  options.progress(`servers: ${size}, ${seconds} s of nothing to do`);
  const idle = (await counted(1_000, () => wait(seconds * 1_000))) / seconds / size;
  return { batches: middle('batches'), singles: middle('singles'), idle };
}

function rows(alone: Statements, all: Statements): readonly Row[] {
  const row = (metric: string, value: number, floor: number): Row =>
    rowBeside(
      'servers',
      `${metric}: statements for 1,000 tasks, ${SERVERS} servers`,
      { unit: 'statements', values: [value] },
      { name: 'one server', values: [floor] },
      LITTLE,
    );
  return [
    row(`enqueue, batches of ${BATCH}`, all.batches.enqueue, alone.batches.enqueue),
    row(`drain, batches of ${BATCH}`, all.batches.drain, alone.batches.drain),
    row(`enqueue, single, ${CALLERS[1]} callers`, all.singles.enqueue, alone.singles.enqueue),
    row('drain of these', all.singles.drain, alone.singles.drain),
  ];
}

const idleRow = (count: number, { idle }: Statements): Row =>
  figure('servers', `nothing to do, ${count} ${count === 1 ? 'server' : 'servers'}`, idle, 'statements/s each');
