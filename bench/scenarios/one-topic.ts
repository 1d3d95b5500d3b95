/** One topic on Cassandra, the queue as a library, beside rows that are written one by one: F1 and F2. */
import type { Queue, TaskInput } from '../../src/queue/api.ts';
import type { CassandraPlace } from '../cassandra.ts';
import { cqlFloors, FLOOR_CALLERS } from '../cql-floors.ts';
import { calls, drainRate, enqueueRate } from '../drive.ts';
import type { BenchOptions } from '../options.ts';
import { PAYLOAD, tasksOf } from '../payload.ts';
import { openBuiltQueue } from '../place.ts';
import { inRounds } from '../rounds.ts';
import { type Row, rateRow, type Target } from '../table.ts';

const BATCH = 200;
/** Callers with a batch each: one is written while others are prepared. */
const CALLERS = 4;
const NAMED_CALLERS = 8;
const WORKERS = 8;

const atLeast = (bound: number): Target => ({ of: 'ratio', is: 'at least', bound });

export async function oneTopic(place: CassandraPlace, options: BenchOptions): Promise<readonly Row[]> {
  const address = place.fresh();
  const queue = await openBuiltQueue(address);
  const cluster = await place.connect(address);
  try {
    const floors = await cqlFloors(cluster);
    const unit = options.quick ? 1_000 : 4_000;
    const rates = await inRounds<Rates>(
      {
        F1: async () => ({ F1: await floors.plain(2 * unit) }),
        F2: async () => ({ F2: await floors.conditional(unit) }),
        batches: () => batches(queue, 4 * unit),
        singles: () => singles(queue, 2 * unit),
        'with message ids': () => named(queue, 2 * unit),
      },
      options.rounds,
      (text) => options.progress(`one topic, ${text}`),
    );
    const of = (series: string, rate: string): readonly number[] =>
      (rates.get(series) ?? []).map((round) => round[rate] ?? Number.NaN);
    const row = (metric: string, subject: readonly number[], floor: 'F1' | 'F2', bound: number): Row =>
      rateRow('one-topic', metric, subject, { name: floor, values: of(floor, floor) }, atLeast(bound));
    const ids = 'with message ids';
    return [
      row(`enqueue, batches of ${BATCH}`, of('batches', 'enqueue'), 'F1', 1.8),
      row(`enqueue, single, ${FLOOR_CALLERS} callers`, of('singles', 'enqueue'), 'F1', 1),
      row(`drain, batches of ${BATCH}, ${WORKERS} workers`, of('batches', 'drain'), 'F1', 0.5),
      row(`enqueue, ${ids}, batches of ${BATCH}`, of(ids, 'enqueue'), 'F2', 1.5),
      row(`drain, ${ids}, batches of ${BATCH}, ${WORKERS} workers`, of(ids, 'drain'), 'F2', 1),
    ];
  } finally {
    await cluster.close();
    await queue.stop();
  }
}

/** Tasks a second. */
type Rates = Readonly<Record<string, number>>;

let topics = 0;
const newTopic = (): readonly string[] => [`topic-${topics++}`];

async function batches(queue: Queue, tasks: number): Promise<Rates> {
  const topic = newTopic();
  const input = tasksOf(BATCH);
  const enqueue = await enqueueRate(
    queue,
    CALLERS,
    calls(topic, tasks, BATCH, () => input),
  );
  return { enqueue, drain: await drainRate(queue, { topics: topic, tasks, workers: WORKERS }) };
}

/** Each call brings one task; what was enqueued is drained outside of what is measured. */
async function singles(queue: Queue, tasks: number): Promise<Rates> {
  const topic = newTopic();
  const input = tasksOf(1);
  const enqueue = await enqueueRate(
    queue,
    FLOOR_CALLERS,
    calls(topic, tasks, 1, () => input),
  );
  await drainRate(queue, { topics: topic, tasks, workers: WORKERS });
  return { enqueue };
}

async function named(queue: Queue, tasks: number): Promise<Rates> {
  const topic = newTopic();
  let id = 0;
  const input = (): TaskInput[] =>
    Array.from({ length: BATCH }, () => ({ payload: PAYLOAD, messageId: `https://example.org/${id++}` }));
  const enqueue = await enqueueRate(queue, NAMED_CALLERS, calls(topic, tasks, BATCH, input));
  return { enqueue, drain: await drainRate(queue, { topics: topic, tasks, workers: WORKERS }) };
}
