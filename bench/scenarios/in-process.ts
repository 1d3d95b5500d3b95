/** The queue as a library, one process, a fresh store each round. */
import type { Queue } from '../../src/queue/api.ts';
import type { BenchOptions } from '../options.ts';
import { tasksOf } from '../payload.ts';
import { openBuiltQueue } from '../place.ts';
import { inRounds, median, type Percentiles, ratioOf, Times, together } from '../rounds.ts';
import type { SqlitePlace } from '../sqlite.ts';
import { meets, type Row, type Target } from '../table.ts';

const TOPIC = 'bench';
/** As many callers as HTTP has clients. Of batches of 200 one call waits for the other. */
const CALLERS = { 1: 64, 200: 1 } as const;
type Batch = keyof typeof CALLERS;

const ENQUEUE: Target = { of: 'ratio', is: 'at least', bound: 0.6 };
const DRAIN: Target = { of: 'ratio', is: 'at least', bound: 0.25 };

interface Rates {
  /** Tasks a second. */
  readonly enqueue: number;
  readonly drain: number;
}

export async function inProcess(place: SqlitePlace, options: BenchOptions): Promise<readonly Row[]> {
  return [...(await throughput(place, options)), ...(await latency(place, options))];
}

async function throughput(place: SqlitePlace, options: BenchOptions): Promise<readonly Row[]> {
  const tasks = options.quick ? 10_000 : 50_000;
  const floor = async (): Promise<Rates> => {
    const store = place.insertFloor();
    const took = store.write(tasks, 200).reduce((sum, ms) => sum + ms, 0);
    store.close();
    const rate = (tasks * 1000) / took;
    return { enqueue: rate, drain: rate };
  };
  const rates = await inRounds(
    {
      insert: floor,
      'batches of 200': () => ratesOf(place, 200, tasks),
      'batches of 1': () => ratesOf(place, 1, tasks / 2),
    },
    options.rounds,
    (text) => options.progress(`in process, throughput, ${text}`),
  );
  const floors = rates.get('insert') ?? [];
  const row = (batch: Batch, metric: keyof Rates, target: Target | null): Row => {
    const subject = (rates.get(`batches of ${batch}`) ?? []).map((rate) => rate[metric]);
    const value = median(subject);
    const ratio = ratioOf(
      subject,
      floors.map((rate) => rate[metric]),
    );
    return {
      scenario: 'in-process',
      metric: `${metric}, batches of ${batch}`,
      value,
      unit: 'tasks/s',
      floor: { name: 'insert', value: median(floors.map((rate) => rate[metric])) },
      ratio,
      target,
      reached: target && meets(target, { value, ratio }),
    };
  };
  return [row(200, 'enqueue', ENQUEUE), row(200, 'drain', DRAIN), row(1, 'enqueue', null), row(1, 'drain', null)];
}

async function ratesOf(place: SqlitePlace, batch: Batch, tasks: number): Promise<Rates> {
  const queue = await openBuiltQueue(place.fresh());
  try {
    const enqueue = await rate(tasks, () => enqueueAll(queue, batch, tasks));
    const drain = await rate(tasks, () => drainAll(queue, batch, tasks));
    return { enqueue, drain };
  } finally {
    await queue.stop();
  }
}

async function rate(tasks: number, run: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await run();
  return (tasks * 1000) / (performance.now() - start);
}

async function enqueueAll(queue: Queue, batch: Batch, tasks: number): Promise<void> {
  const input = tasksOf(batch);
  let left = tasks / batch;
  await together(CALLERS[batch], async () => {
    while (left-- > 0) await queue.enqueue(TOPIC, input);
  });
}

async function drainAll(queue: Queue, batch: Batch, tasks: number): Promise<void> {
  let acknowledged = 0;
  await together(CALLERS[batch], async () => {
    for (;;) {
      const leased = await queue.lease({ topics: [TOPIC], max: batch, leaseMs: 60_000 });
      if (leased.length === 0) return;
      const { ack } = await queue.settle({ ack: leased.map(({ leaseId }) => ({ leaseId })) });
      for (const item of ack) if (item.ok) acknowledged++;
    }
  });
  if (acknowledged !== tasks) throw new Error(`drained ${acknowledged} of ${tasks} tasks`);
}

/** From the call of enqueue until a waiting lease has brought all of its tasks. */
async function latency(place: SqlitePlace, options: BenchOptions): Promise<readonly Row[]> {
  const samples = options.quick ? 100 : 500;
  const rows: Row[] = [];
  for (const batch of [1, 200] as const) {
    const times = await inRounds<Percentiles>(
      {
        insert: async () => insertTimes(place, batch, samples),
        'hand-over': () => handOverTimes(place, batch, samples),
      },
      options.rounds,
      (text) => options.progress(`in process, latency in batches of ${batch}, ${text}`),
    );
    for (const percentile of ['p50', 'p99'] as const) {
      const of = (name: string) => (times.get(name) ?? []).map((round) => round[percentile]);
      rows.push({
        scenario: 'in-process',
        metric: `enqueue to lease, batches of ${batch}, ${percentile}`,
        value: median(of('hand-over')),
        unit: 'ms',
        floor: { name: 'one insert', value: median(of('insert')) },
        ratio: ratioOf(of('hand-over'), of('insert')),
        target: null,
        reached: null,
      });
    }
  }
  return rows;
}

function insertTimes(place: SqlitePlace, batch: Batch, samples: number): Percentiles {
  const times = new Times();
  const floor = place.insertFloor();
  for (const ms of floor.write(samples * batch, batch)) times.add(ms);
  floor.close();
  return times.percentiles();
}

async function handOverTimes(place: SqlitePlace, batch: Batch, samples: number): Promise<Percentiles> {
  const times = new Times();
  const queue = await openBuiltQueue(place.fresh());
  const input = tasksOf(batch);
  const lease = () => queue.lease({ topics: [TOPIC], max: batch, leaseMs: 60_000, waitMs: 10_000 });
  try {
    for (let i = 0; i < samples; i++) {
      let waiting = lease();
      // Lets the lease find nothing and begin to wait.
      await new Promise((resolve) => setImmediate(resolve));
      const start = performance.now();
      const enqueued = queue.enqueue(TOPIC, input);
      const ack: { leaseId: string }[] = [];
      for (;;) {
        for (const { leaseId } of await waiting) ack.push({ leaseId });
        if (ack.length >= batch) break;
        waiting = lease();
      }
      times.add(performance.now() - start);
      await enqueued;
      await queue.settle({ ack });
    }
    return times.percentiles();
  } finally {
    await queue.stop();
  }
}
