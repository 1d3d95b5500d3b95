/** A noisy neighbour: what a topic with a million waiting tasks costs a thousand topics that get a task now and then. */
import { Child } from '../child.ts';
import type { NeighboursOrder, NeighboursReport } from '../neighbours.ts';
import type { BenchOptions } from '../options.ts';
import type { Place } from '../place.ts';
import { inRounds, median } from '../rounds.ts';
import { figure, type Row, rowBeside, type Target } from '../table.ts';

const TOPICS = 1_000;
const PER_SECOND = 50;
/** Two minutes in all, of each. */
const MEASURED_SECONDS = 120;
const TWICE: Target = { of: 'ratio', is: 'at most', bound: 2 };

export async function noisy(place: Place, options: BenchOptions): Promise<readonly Row[]> {
  const waiting = options.quick ? 100_000 : 1_000_000;
  const seconds = options.quick ? 5 : Math.ceil(MEASURED_SECONDS / options.rounds);
  const children: Child<NeighboursOrder, NeighboursReport>[] = [];
  const start = async (tasks: number) => {
    const child = new Child<NeighboursOrder, NeighboursReport>('neighbours.ts');
    children.push(child);
    await child.ask({ kind: 'open', store: place.fresh(), noisy: tasks });
    return () => child.ask({ kind: 'run', topics: TOPICS, perSecond: PER_SECOND, seconds });
  };
  try {
    const alone = await start(0);
    options.progress(`noisy: enqueueing ${waiting} tasks into one topic`);
    const beside = await start(waiting);
    const reports = await inRounds<NeighboursReport>({ alone, beside }, options.rounds, (text) =>
      options.progress(`noisy: ${TOPICS} small topics, ${text}`),
    );
    const of = (series: string, part: keyof NeighboursReport) => (reports.get(series) ?? []).map((one) => one[part]);
    const rows = (['p50', 'p99'] as const).map((part) =>
      rowBeside(
        'noisy',
        `enqueue to lease of ${TOPICS} small topics beside a noisy one, ${part}`,
        { unit: 'ms', values: of('beside', part) },
        { name: 'without it', values: of('alone', part) },
        part === 'p99' ? TWICE : null,
      ),
    );
    const rate = median(of('beside', 'noisyPerSecond'));
    return [...rows, figure('noisy', `the noisy one, ${waiting} tasks waiting at first`, rate, 'tasks/s')];
  } finally {
    await Promise.all(children.map((child) => child.stop()));
  }
}
