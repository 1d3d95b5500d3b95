/** Two servers on Cassandra, and more and more topics of ten tasks each: what a task costs, and how long a lease takes. */
import type { CassandraPlace } from '../cassandra.ts';
import { drainRate, enqueueRate } from '../drive.ts';
import { Fleet } from '../fleet.ts';
import type { BenchOptions } from '../options.ts';
import { tasksOf } from '../payload.ts';
import { Times } from '../rounds.ts';
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
  const fleet = new Fleet(place.fresh());
  try {
    await fleet.growTo(SERVERS);
    // The first is for what is only done once.
    const counts = options.quick ? [200, 1_000, 2_000] : [200, 1_000, 10_000, 100_000];
    const all: Measured[] = [];
    for (const count of counts) all.push(await measure(fleet, count, options));
    const [, floor, ...more] = all as [Measured, Measured, ...Measured[]];
    return [floor, ...more].flatMap((one) => rowsOf(one, floor));
  } finally {
    await fleet.stop();
  }
}

async function measure(fleet: Fleet, topics: number, options: BenchOptions): Promise<Measured> {
  const tasks = topics * TASKS_EACH;
  const lease = new Times();
  const inTurn = fleet.inTurn();
  const anyOf = {
    ...inTurn,
    lease: async (...args: Parameters<typeof inTurn.lease>) => {
      const start = performance.now();
      const got = await inTurn.lease(...args);
      if (got.length > 0) lease.add(performance.now() - start);
      return got;
    },
  };
  const input = tasksOf(TASKS_EACH);
  let nth = 0;
  const before = await fleet.statements();
  options.progress(`topics: ${topics}, enqueueing ${tasks} tasks`);
  const enqueue = await enqueueRate(anyOf, CALLERS, () =>
    nth < topics ? { topic: `of-${topics}-${nth++}`, tasks: input } : null,
  );
  const between = await fleet.statements();
  options.progress(`topics: ${topics}, draining`);
  const drain = await drainRate(anyOf, { ...DRAIN, tasks });
  const after = await fleet.statements();
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
