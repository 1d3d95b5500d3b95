/** A thousand active topics in a store in which ten million were used once: they cost what they cost alone. */
import { Child } from '../child.ts';
import { writeOnceUsed } from '../once-used.ts';
import type { BenchOptions } from '../options.ts';
import { built, openBuiltQueue } from '../place.ts';
import { inRounds } from '../rounds.ts';
import type { SqlitePlace } from '../sqlite.ts';
import { figure, type Row, rowBeside, type Target } from '../table.ts';
import type { TopicsOrder, TopicsReport } from '../topics.ts';

const ACTIVE = 1_000;
const TASKS = 20_000;
const ROWS_SHOWN = 100_000;
const FAST: Target = { of: 'ratio', is: 'at least', bound: 0.8 };
const SMALL: Target = { of: 'ratio', is: 'at most', bound: 1.25 };

interface Opened {
  readonly server: Child<TopicsOrder, TopicsReport>;
  readonly openMs: number;
  readonly residentMb: number;
}

export async function onceUsed(place: SqlitePlace, options: BenchOptions): Promise<readonly Row[]> {
  const many = options.quick ? 200_000 : 10_000_000;
  const crowded = place.fresh();
  // Somebody has to have scheduled them.
  await (await openBuiltQueue(crowded)).stop();
  writeOnceUsed(crowded.slice('sqlite:'.length), many, (written) =>
    options.progress(`once-used: ${written} of ${many} topics written`),
  );
  const found = await auditFindings(crowded, options);
  const running: Child<TopicsOrder, TopicsReport>[] = [];
  const start = async (store: string): Promise<Opened> => {
    const server = new Child<TopicsOrder, TopicsReport>('topics.ts');
    running.push(server);
    const before = performance.now();
    const { residentMb } = await server.ask({ kind: 'open', store });
    return { server, openMs: performance.now() - before, residentMb };
  };
  try {
    const full = await start(crowded);
    const empty = await start(place.fresh());
    const rates = await inRounds(
      { full: () => pass(full.server, options), empty: () => pass(empty.server, options) },
      options.rounds,
      (text) => options.progress(`once-used: ${ACTIVE} active topics, ${text}`),
    );
    const of = (series: string, part: keyof Pass) => (rates.get(series) ?? []).map((round) => round[part]);
    const row = (metric: string, unit: string, part: keyof Pass, target: Target): Row =>
      rowBeside(
        'once-used',
        metric,
        { unit, values: of('full', part) },
        { name: `${ACTIVE} alone`, values: of('empty', part) },
        target,
      );
    const beside = `${ACTIVE} active topics beside ${many} used once`;
    return [
      row(`enqueue, ${beside}`, 'tasks/s', 'enqueue', FAST),
      row(`drain, ${beside}`, 'tasks/s', 'drain', FAST),
      row(`store calls for a task, ${beside}`, 'calls', 'calls', SMALL),
      row(`resident, ${beside}`, 'MB', 'residentMb', SMALL),
      rowBeside(
        'once-used',
        `start of a server with ${many} topics used once`,
        { unit: 'ms', values: [full.openMs] },
        { name: 'with none', values: [empty.openMs] },
      ),
      figure('once-used', 'found by an audit of it', found, 'findings', { of: 'value', is: 'at most', bound: 0 }),
    ];
  } finally {
    await Promise.all(running.map((child) => child.stop()));
  }
}

interface Pass {
  readonly enqueue: number;
  readonly drain: number;
  readonly calls: number;
  readonly residentMb: number;
}

async function pass(server: Child<TopicsOrder, TopicsReport>, options: BenchOptions): Promise<Pass> {
  const tasks = options.quick ? TASKS / 4 : TASKS;
  const before = await server.ask({ kind: 'rest', ms: 0 });
  const filled = await server.ask({ kind: 'fill', topics: ACTIVE, tasks });
  const drained = await server.ask({ kind: 'drain', tasks });
  return {
    enqueue: filled.perSecond,
    drain: drained.perSecond,
    calls: (drained.storeCalls - before.storeCalls) / tasks,
    residentMb: drained.residentMb,
  };
}

async function auditFindings(address: string, options: BenchOptions): Promise<number> {
  const { openStore } = await built<typeof import('../../src/queue/open.ts')>('queue/open.js');
  const { auditStore } = await built<typeof import('../../src/audit/audit.ts')>('audit/audit.js');
  const store = await openStore({ store: address });
  try {
    let shown = 0;
    const progress = (rows: number): void => {
      if (rows - shown < ROWS_SHOWN) return;
      shown = rows;
      options.progress(`once-used: audit, ${rows} rows`);
    };
    return (await auditStore(store, { progress })).found;
  } finally {
    await store.close();
  }
}
