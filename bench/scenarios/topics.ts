/**
 * What it costs that there are many topics: the same tasks in more and more topics, from one to a million, each put there
 * by a call of its own and taken by leases over all of them.
 */
import { Child } from '../child.ts';
import type { BenchOptions } from '../options.ts';
import type { Place } from '../place.ts';
import { inRounds, type Percentiles } from '../rounds.ts';
import { figure, type Row, rateRow, rowBeside, type Target, type ValueTarget } from '../table.ts';
import type { TopicsOrder, TopicsReport } from '../topics.ts';

/** Less than this many tasks say little about a rate. */
const LEAST_TASKS = 20_000;
/** Until topics in which tasks wait are folded, garbage is collected, and its pages are given back. */
const REST_MS = 110_000;
const FEW = 1_000;
const LOOK_MS = 5_000;
const IDLE_CALLS = 500;
const CHANGING = 100;
const PACE = 50;
const AS_FAST: Target = { of: 'ratio', is: 'at most', bound: 1.5 };
const TWICE: Target = { of: 'ratio', is: 'at most', bound: 2 };
const SMALL: ValueTarget = { of: 'value', is: 'at most', bound: 500 };

type Server = Child<TopicsOrder, TopicsReport>;

interface Measured {
  readonly topics: number;
  readonly server: Server;
  readonly enqueue: number;
  readonly drain: number;
  /** Lease and acknowledgement of one task while all topics have some. */
  readonly lease: Percentiles;
  readonly bytesPerTopic: number;
  /** With 100 of them in use: calls of the store for a task; null: not measured. */
  readonly callsPerTask: number | null;
}

export async function topics(place: Place, options: BenchOptions): Promise<readonly Row[]> {
  const counts = options.quick ? [1, 10, FEW, 20_000] : [1, 10, FEW, 10_000, 100_000, 1_000_000];
  const started: Server[] = [];
  const start = async (): Promise<Server> => {
    const server: Server = new Child('topics.ts');
    started.push(server);
    await server.ask({ kind: 'open', store: place.fresh() });
    return server;
  };
  try {
    const alone = await callsOf(await start(), options);
    const all: Measured[] = [];
    for (const count of counts) all.push(await measure(await start(), count, count === counts.at(-1), options));
    const idle = await afterwards(all.find((one) => one.topics === FEW)!, all.at(-1)!, options);
    return [...all.flatMap((one) => rowsOf(one, all[0]!)), ...idle, fewOfMany(all.at(-1)!, alone)];
  } finally {
    await Promise.all(started.map((child) => child.stop()));
  }
}

async function measure(server: Server, count: number, isLast: boolean, options: BenchOptions): Promise<Measured> {
  const tasks = Math.max(options.quick ? LEAST_TASKS / 4 : LEAST_TASKS, count);
  const say = (text: string) => options.progress(`topics: ${count}, ${text}`);
  const samples = Math.min(tasks / 10, options.quick ? 200 : 2_000);
  const before = await server.ask({ kind: 'rest', ms: 0 });
  say(`enqueueing ${tasks} tasks`);
  const filled = await server.ask({ kind: 'fill', topics: count, tasks });
  say('at rest');
  const rested = await server.ask({ kind: 'rest', ms: count < LEAST_TASKS || options.quick ? 1_000 : REST_MS });
  say('leases');
  const leased = await server.ask({ kind: 'pass', topics: count, samples });
  const callsPerTask = isLast ? await callsOf(server, options) : null;
  say('draining');
  const drained = await server.ask({ kind: 'drain', tasks });
  return {
    topics: count,
    server,
    enqueue: filled.perSecond,
    drain: drained.perSecond,
    lease: leased,
    bytesPerTopic: ((rested.residentMb - before.residentMb) * 1024 * 1024) / count,
    callsPerTask,
  };
}

/** Calls of the store for each task of a hundred topics, put and taken at a steady pace, with all that goes on besides. */
async function callsOf(server: Server, options: BenchOptions): Promise<number> {
  const seconds = options.quick ? 5 : 60;
  options.progress(`topics: ${CHANGING} of them change, for ${seconds} s`);
  const before = await server.ask({ kind: 'rest', ms: 0 });
  const after = await server.ask({ kind: 'pace', topics: CHANGING, perSecond: PACE, seconds });
  return (after.storeCalls - before.storeCalls) / (PACE * seconds);
}

/** Waits until nothing goes on behind what was drained: cursors are saved, of a million logs for a while. */
async function untilIdle({ server, topics }: Measured, options: BenchOptions): Promise<void> {
  for (let before = await server.ask({ kind: 'rest', ms: 0 }); ; ) {
    options.progress(`topics: ${topics}, until nothing goes on any more`);
    const after = await server.ask({ kind: 'rest', ms: LOOK_MS });
    if (after.storeCalls - before.storeCalls < IDLE_CALLS) return;
    before = after;
  }
}

/** All are drained by now, and idle: what a lease takes beside a million of them. */
async function afterwards(few: Measured, many: Measured, options: BenchOptions): Promise<readonly Row[]> {
  await untilIdle(few, options);
  await untilIdle(many, options);
  const samples = options.quick ? 100 : 1_000;
  const times = await inRounds<Percentiles>(
    {
      few: () => few.server.ask({ kind: 'pass', topics: few.topics, samples }),
      many: () => many.server.ask({ kind: 'pass', topics: many.topics, samples }),
    },
    options.rounds,
    (text) => options.progress(`topics: a lease beside idle ones, ${text}`),
  );
  return (['p50', 'p99'] as const).map((percentile) => {
    const of = (series: string) => (times.get(series) ?? []).map((round) => round[percentile]);
    return rowBeside(
      'topics',
      `lease beside ${many.topics} idle topics, ${percentile}`,
      { unit: 'ms', values: of('many') },
      { name: `beside ${few.topics}`, values: of('few') },
      percentile === 'p50' ? AS_FAST : null,
    );
  });
}

function rowsOf(one: Measured, floor: Measured): readonly Row[] {
  const name = `${one.topics} ${one.topics === 1 ? 'topic' : 'topics'}`;
  const beside = (metric: 'enqueue' | 'drain'): Row =>
    rateRow('topics', `${metric}, ${name}`, [one[metric]], { name: 'one topic', values: [floor[metric]] }, null);
  return [
    beside('enqueue'),
    beside('drain'),
    figure('topics', `lease, ${name}, p50`, one.lease.p50, 'ms'),
    figure('topics', `lease, ${name}, p99`, one.lease.p99, 'ms'),
    ...(one.topics < LEAST_TASKS
      ? []
      : [figure('topics', `resident for each of ${name} that wait`, one.bytesPerTopic, 'bytes', SMALL)]),
  ];
}

const fewOfMany = (many: Measured, alone: number): Row =>
  rowBeside(
    'topics',
    `${CHANGING} topics change beside ${many.topics} that wait`,
    { unit: 'store calls/task', values: [many.callsPerTask!] },
    { name: 'alone', values: [alone] },
    TWICE,
  );
