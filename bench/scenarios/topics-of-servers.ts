/** Two servers on Cassandra, and more and more topics of ten tasks each: what a task costs, and how long a lease takes. */
import { HttpQueue } from '../../src/client/http-queue.ts';
import { untilEven } from '../../test/slow/faults/support/servers.ts';
import type { CassandraPlace } from '../cassandra.ts';
import { Child } from '../child.ts';
import { drainRate, enqueueRate } from '../drive.ts';
import type { BenchOptions } from '../options.ts';
import { tasksOf } from '../payload.ts';
import { Times } from '../rounds.ts';
import type { ServerOrder, ServerReport } from '../server.ts';
import { figure, type Row, rateRow, rowBeside, type Target } from '../table.ts';

const SERVERS = 2;
const TASKS_EACH = 10;
const CALLERS = 64;
const DRAIN = { workers: 32, max: 100 } as const;
/** With so many times the topics, a task may cost so much more. */
const ALIKE: Target = { of: 'ratio', is: 'at most', bound: 1.5 };

interface Measured {
  readonly topics: number;
  /** Tasks a second. */
  readonly enqueue: number;
  readonly drain: number;
  /** Statements a task. */
  readonly enqueueStatements: number;
  readonly drainStatements: number;
  /** How long leases took that brought something. */
  readonly lease: Times;
}

export async function topicsOfServers(place: CassandraPlace, options: BenchOptions): Promise<readonly Row[]> {
  const store = place.fresh();
  const running: Child<ServerOrder, ServerReport>[] = [];
  const start = async (): Promise<HttpQueue> => {
    const child = new Child<ServerOrder, ServerReport>('server.ts');
    running.push(child);
    return new HttpQueue((await child.ask({ kind: 'open', store })).origin);
  };
  const statements = async (): Promise<number> => {
    let sum = 0;
    for (const child of running) sum += (await child.ask({ kind: 'look' })).statements;
    return sum;
  };
  try {
    const queues: HttpQueue[] = [];
    while (queues.length < SERVERS) queues.push(await start());
    await untilEven(queues.map((queue) => ({ queue })));
    // The first is for what is only done once.
    const counts = options.quick ? [200, 1_000, 2_000] : [200, 1_000, 10_000, 100_000];
    const all: Measured[] = [];
    for (const count of counts) all.push(await measure(queues, count, statements, options));
    const [, floor, ...more] = all as [Measured, Measured, ...Measured[]];
    return [floor, ...more].flatMap((one) => rowsOf(one, floor));
  } finally {
    await Promise.all(running.map((child) => child.stop()));
  }
}

async function measure(
  queues: readonly HttpQueue[],
  topics: number,
  statements: () => Promise<number>,
  options: BenchOptions,
): Promise<Measured> {
  const tasks = topics * TASKS_EACH;
  const lease = new Times();
  let turn = 0;
  const next = (): HttpQueue => queues[turn++ % queues.length]!;
  const anyOf = {
    enqueue: (...args: Parameters<HttpQueue['enqueue']>) => next().enqueue(...args),
    lease: async (...args: Parameters<HttpQueue['lease']>) => {
      const start = performance.now();
      const got = await next().lease(...args);
      if (got.length > 0) lease.add(performance.now() - start);
      return got;
    },
    settle: (...args: Parameters<HttpQueue['settle']>) => next().settle(...args),
  };
  const input = tasksOf(TASKS_EACH);
  let nth = 0;
  const before = await statements();
  options.progress(`topics: ${topics}, enqueueing ${tasks} tasks`);
  const enqueue = await enqueueRate(anyOf, CALLERS, () =>
    nth < topics ? { topic: `of-${topics}-${nth++}`, tasks: input } : null,
  );
  const between = await statements();
  options.progress(`topics: ${topics}, draining`);
  const drain = await drainRate(anyOf, { ...DRAIN, tasks });
  const after = await statements();
  return {
    topics,
    enqueue,
    drain,
    enqueueStatements: (between - before) / tasks,
    drainStatements: (after - between) / tasks,
    lease,
  };
}

function rowsOf(one: Measured, floor: Measured): readonly Row[] {
  const name = `${one.topics} topics of ${TASKS_EACH}, ${SERVERS} servers`;
  const beside = `${floor.topics} topics`;
  const rate = (metric: 'enqueue' | 'drain'): Row =>
    rateRow('topics', `${metric}, ${name}`, [one[metric]], { name: beside, values: [floor[metric]] }, null);
  const cost = (metric: string, part: 'enqueueStatements' | 'drainStatements'): Row =>
    rowBeside(
      'topics',
      `statements for a task, ${metric}, ${name}`,
      { unit: 'statements', values: [one[part]] },
      { name: beside, values: [floor[part]] },
      ALIKE,
    );
  const { p50, p99 } = one.lease.percentiles();
  return [
    rate('enqueue'),
    cost('enqueue', 'enqueueStatements'),
    rate('drain'),
    cost('drain', 'drainStatements'),
    figure('topics', `lease of up to ${DRAIN.max} while draining, ${name}, p50`, p50, 'ms'),
    figure('topics', `lease of up to ${DRAIN.max} while draining, ${name}, p99`, p99, 'ms'),
  ];
}
