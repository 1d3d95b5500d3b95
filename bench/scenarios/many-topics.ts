/** Many topics at once on Cassandra: sixteen busy ones, and ten thousand of ten tasks each. */
import type { Queue } from '../../src/queue/api.ts';
import type { CassandraPlace } from '../cassandra.ts';
import { type CqlFloors, cqlFloors } from '../cql-floors.ts';
import { calls, drainRate, enqueueRate } from '../drive.ts';
import type { BenchOptions } from '../options.ts';
import { tasksOf } from '../payload.ts';
import { openBuiltQueue } from '../place.ts';
import { inRounds } from '../rounds.ts';
import { type Row, rateRow } from '../table.ts';

const TOPICS = 16;
const BATCH = 200;
const WORKERS = 16;
const SMALL_TASKS = 10;
const SMALL_CALLERS = 64;

export async function manyTopics(place: CassandraPlace, options: BenchOptions): Promise<readonly Row[]> {
  const address = place.fresh();
  const queue = await openBuiltQueue(address);
  const cluster = await place.connect(address);
  try {
    const floors = await cqlFloors(cluster);
    return [...(await sixteen(queue, floors, options)), ...(await tenThousand(queue, floors, options))];
  } finally {
    await cluster.close();
    await queue.stop();
  }
}

async function sixteen(queue: Queue, floors: CqlFloors, options: BenchOptions): Promise<readonly Row[]> {
  const tasks = options.quick ? 16_000 : 32_000;
  const names = (group: string) => Array.from({ length: TOPICS }, (_, nth) => `${group}-${nth}`);
  const input = tasksOf(BATCH);
  let round = 0;
  const run = async (apart: boolean): Promise<readonly [enqueue: number, drain: number]> => {
    const topics = names(`busy-${round++}`);
    const enqueue = await enqueueRate(
      queue,
      2 * TOPICS,
      calls(topics, tasks, BATCH, () => input),
    );
    return [enqueue, await drainRate(queue, { topics, tasks, workers: WORKERS, apart })];
  };
  const rates = await inRounds<readonly number[]>(
    {
      F1: async () => [await floors.plain(options.quick ? 2_000 : 8_000)],
      apart: () => run(true),
      shared: () => run(false),
    },
    options.rounds,
    (text) => options.progress(`${TOPICS} topics, ${text}`),
  );
  const of = (series: string, nth: number) => (rates.get(series) ?? []).map((round) => round[nth] ?? Number.NaN);
  const row = (metric: string, series: string, nth: number): Row =>
    rateRow('many-topics', metric, of(series, nth), { name: 'F1', values: of('F1', 0) }, null);
  return [
    row(`${TOPICS} topics: enqueue, batches of ${BATCH}`, 'apart', 0),
    row(`${TOPICS} topics: drain, a worker each`, 'apart', 1),
    row(`${TOPICS} topics: drain, ${WORKERS} workers for all of them`, 'shared', 1),
  ];
}

/** Each topic is used for the first time, which costs reads and rows that a topic in use has behind it. */
async function tenThousand(queue: Queue, floors: CqlFloors, options: BenchOptions): Promise<readonly Row[]> {
  const topics = Array.from({ length: options.quick ? 1_000 : 10_000 }, (_, nth) => `small-${nth}`);
  const tasks = topics.length * SMALL_TASKS;
  const input = tasksOf(SMALL_TASKS);
  const say = (text: string) => options.progress(`${topics.length} topics of ${SMALL_TASKS}: ${text}`);
  say('F1');
  const before = await floors.plain(tasks / 10);
  say('enqueue');
  const enqueue = await enqueueRate(
    queue,
    SMALL_CALLERS,
    calls(topics, tasks, SMALL_TASKS, () => input),
  );
  say('F1');
  const between = await floors.plain(tasks / 10);
  say('drain');
  const drain = await drainRate(queue, { topics: ['small-*'], tasks, workers: WORKERS });
  say('F1');
  const after = await floors.plain(tasks / 10);
  const row = (metric: string, rate: number, around: readonly [number, number]): Row =>
    rateRow(
      'many-topics',
      `${topics.length} topics of ${SMALL_TASKS}: ${metric}`,
      [rate],
      { name: 'F1', values: [(around[0] + around[1]) / 2] },
      null,
    );
  return [
    row('enqueue, a call each', enqueue, [before, between]),
    row(`drain, batches of ${BATCH}, ${WORKERS} workers`, drain, [between, after]),
  ];
}
