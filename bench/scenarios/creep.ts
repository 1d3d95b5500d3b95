/**
 * Whether a topic gets slower with what has gone through it: a million tasks are enqueued and drained through one, with
 * a few thousand waiting at a time, while what is settled is trimmed. Tombstones of it lie in the same partitions that
 * leases read, unless the layout of the tables keeps them apart, which is the question.
 *
 * The shortest retention is five minutes, longer than most of the run. So the queue's clock and its timers go
 * CLOCK_SPEED times as fast: five minutes are over in one second, and trimming follows the leases within the same
 * partition, which is harder than in a real run. Short waits stay what they are, or the scanner would do nothing but
 * pass. Cassandra's own time is what it is.
 */
import type { Queue } from '../../src/queue/api.ts';
import type { Environment } from '../../src/queue/environment.ts';
import type { Cluster } from '../../src/store/cassandra/client.ts';
import type { Store } from '../../src/store/store.ts';
import type { CassandraPlace } from '../cassandra.ts';
import { calls, drainRate, enqueueRate } from '../drive.ts';
import type { BenchOptions } from '../options.ts';
import { tasksOf } from '../payload.ts';
import { built } from '../place.ts';
import { inRounds, median, ratioOf, Times, together } from '../rounds.ts';
import { StatementWatch, type Traced } from '../statements.ts';
import { figure, meets, type Row, type Target, type ValueTarget } from '../table.ts';

const TOPIC = 'creep';
const RETENTION_MS = 300_000;
const CLOCK_SPEED = 300;
const SHORT_WAIT_MS = 250;
const BATCH = 200;
const CALLERS = 4;
const WORKERS = 8;
/** Tasks at the beginning and at the end that are leased one by one, by several workers, and timed. */
const TIMED = 10_000;
/** They are leased in so many parts, in turns with as many of topics that were never used. */
const PARTS = 10;
/** Parts of the run, after each of which some leases are traced. */
const CHUNKS = 10;
const TRACED = 5;

const AS_FAST: Target = { of: 'ratio', is: 'at most', bound: 1.3 };
/** That rows and tombstones stay constant: what a lease reads at the end is at most this more than at the beginning. */
const CONSTANT: Target = { of: 'ratio', is: 'at most', bound: 1.05 };
/** That trimming follows: two segments of a million tasks. */
const TRIMMED: ValueTarget = { of: 'value', is: 'at most', bound: 20_000 };
const HARDLY_ANY: ValueTarget = { of: 'value', is: 'at most', bound: 1 };

export async function creep(place: CassandraPlace, options: BenchOptions): Promise<readonly Row[]> {
  const address = place.fresh();
  const watch = new StatementWatch();
  const queue = await openFast(address);
  const cluster = await place.connect(address);
  try {
    await queue.configure(TOPIC, { retentionMs: RETENTION_MS });
    const first = await oneByOne(queue, TOPIC, TIMED);
    const samples: Reads[] = [];
    let behind = 0;
    let statements = 0;
    const perChunk = Math.floor((options.tasks - 2 * TIMED) / CHUNKS / BATCH) * BATCH;
    for (let chunk = 0; chunk <= CHUNKS; chunk++) {
      options.progress(`creep: ${TIMED + chunk * perChunk} of ${options.tasks} tasks`);
      const before = watch.count;
      if (chunk > 0) await through(queue, perChunk);
      statements += watch.count - before;
      behind = Math.max(behind, await untrimmed(queue));
      samples.push(await readsPerLease(queue, cluster, watch));
    }
    options.progress('creep: the last leases, one by one');
    const parts = await inRounds<Times>(
      {
        old: () => oneByOne(queue, TOPIC, TIMED / PARTS),
        fresh: async () => oneByOne(queue, `fresh-${fresh++}`, TIMED / PARTS),
      },
      PARTS,
      () => {},
    );
    return [
      ...readRows(samples),
      value(
        'statements for 1,000 tasks, enqueued and drained',
        (statements * 1_000) / (CHUNKS * perChunk),
        'statements',
      ),
      value('tasks that were not trimmed yet, at most', behind, 'tasks', TRIMMED),
      ...latencyRows(first, parts.get('old') ?? [], parts.get('fresh') ?? []),
    ];
  } finally {
    watch.stop();
    await cluster.close();
    await queue.stop();
  }
}

let fresh = 0;

/** The queue with a clock that runs faster. */
async function openFast(address: string): Promise<Queue> {
  const { openStore, startQueue } = await built<typeof import('../../src/queue/open.ts')>('queue/open.js');
  const { systemEnvironment } = await built<typeof import('../../src/queue/environment.ts')>('queue/environment.js');
  const store = await openStore({ store: address });
  const start = store.now();
  const fast: Store = new Proxy(store, {
    get: (target, name) => {
      if (name === 'now') return () => start + (target.now() - start) * CLOCK_SPEED;
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
  const environment = systemEnvironment();
  const timer: Environment['timer'] = (ms, call) =>
    environment.timer(Math.max(ms / CLOCK_SPEED, Math.min(ms, SHORT_WAIT_MS)), call);
  return startQueue(fast, { environment: { ...environment, timer } });
}

/** Tasks that went through and are still there. */
async function untrimmed(queue: Queue): Promise<number> {
  const { priorities } = await queue.cursors(TOPIC);
  return priorities.reduce((sum, { nextId, trimmed }) => sum + nextId - trimmed, 0);
}

/** Enqueues tasks and drains them at the same time. */
async function through(queue: Queue, tasks: number): Promise<void> {
  const input = tasksOf(BATCH);
  await Promise.all([
    enqueueRate(
      queue,
      CALLERS,
      calls([TOPIC], tasks, BATCH, () => input),
    ),
    drainRate(queue, { topics: [TOPIC], tasks, workers: WORKERS }),
  ]);
}

/** Enqueues tasks, then leases and acknowledges them one by one; how long each lease took. */
async function oneByOne(queue: Queue, topic: string, tasks: number): Promise<Times> {
  const input = tasksOf(BATCH);
  await enqueueRate(
    queue,
    CALLERS,
    calls([topic], tasks, BATCH, () => input),
  );
  const times = new Times();
  let left = tasks;
  await together(WORKERS, async () => {
    while (left-- > 0) {
      const start = performance.now();
      const got = await queue.lease({ topics: [topic], max: 1, leaseMs: 43_200_000 });
      times.add(performance.now() - start);
      if (got.length !== 1) throw new Error(`${got.length} tasks leased instead of 1`);
      await queue.settle({ ack: got.map(({ leaseId }) => ({ leaseId })) });
    }
  });
  return times;
}

/** Of one lease of 200: what its statements read, in the table of entries. */
interface Reads {
  readonly rows: number;
  readonly tombstones: number;
}

async function readsPerLease(queue: Queue, cluster: Cluster, watch: StatementWatch): Promise<Reads> {
  const ofLeases: Reads[] = [];
  await enqueueRate(
    queue,
    1,
    calls([TOPIC], TRACED * BATCH, BATCH, () => tasksOf(BATCH)),
  );
  for (let nth = 0; nth < TRACED; nth++) {
    const ack: { leaseId: string }[] = [];
    const traced = await watch.traced(cluster, async () => {
      const got = await queue.lease({ topics: [TOPIC], max: BATCH, leaseMs: 43_200_000 });
      for (const { leaseId } of got) ack.push({ leaseId });
    });
    if (ack.length !== BATCH) throw new Error(`${ack.length} tasks leased instead of ${BATCH}`);
    await queue.settle({ ack });
    ofLeases.push(sum(traced));
  }
  return {
    rows: median(ofLeases.map(({ rows }) => rows)),
    tombstones: Math.max(...ofLeases.map(({ tombstones }) => tombstones)),
  };
}

function sum(traced: readonly Traced[]): Reads {
  let [rows, tombstones] = [0, 0];
  for (const one of traced) {
    if (!one.kind.endsWith(' task')) continue;
    rows += one.rows;
    tombstones += one.tombstones;
  }
  return { rows, tombstones };
}

function readRows(samples: readonly Reads[]): readonly Row[] {
  const [before, after] = [samples[0]!, samples.at(-1)!];
  const ratio = after.rows / before.rows;
  const most = Math.max(...samples.map(({ tombstones }) => tombstones));
  return [
    {
      ...value(`rows read by a lease of ${BATCH}, at the end`, after.rows, 'rows'),
      floor: { name: 'at the beginning', value: before.rows },
      ratio,
      target: CONSTANT,
      reached: meets(CONSTANT, { value: after.rows, ratio }),
    },
    value(`tombstones read by a lease of ${BATCH}, at most`, most, 'tombstones', HARDLY_ANY),
  ];
}

function latencyRows(first: Times, old: readonly Times[], fresh: readonly Times[]): readonly Row[] {
  return (['p50', 'p99'] as const).flatMap((percentile) => {
    const of = (times: readonly Times[]) => times.map((part) => part.percentiles()[percentile]);
    const last = median(of(old));
    const began = first.percentiles()[percentile];
    const target = percentile === 'p50' ? AS_FAST : null;
    const row = (name: string, floor: number, ratio: number): Row => ({
      ...value(`lease of one, the last ${TIMED}, ${percentile}`, last, 'ms'),
      floor: { name, value: floor },
      ratio,
      target,
      reached: target && meets(target, { value: last, ratio }),
    });
    return [
      row('a fresh topic, in turns', median(of(fresh)), ratioOf(of(old), of(fresh))),
      row(`the first ${TIMED}, minutes before`, began, last / began),
    ];
  });
}

const value = (metric: string, value: number, unit: string, target?: ValueTarget): Row =>
  figure('creep', metric, value, unit, target);
