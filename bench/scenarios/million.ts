/** A million queued tasks in one topic: what they take of memory, and whether a lease takes longer than at a thousand. */
import { Child } from '../child.ts';
import type { DepthOrder, DepthReport } from '../depth.ts';
import type { BenchOptions } from '../options.ts';
import type { Place } from '../place.ts';
import { inRounds, median, type Percentiles, ratioOf } from '../rounds.ts';
import { figure, meets, type Row, type Target, type ValueTarget } from '../table.ts';

const MEMORY: ValueTarget = { of: 'value', is: 'at most', bound: 200 };
const AS_FAST: Target = { of: 'ratio', is: 'at most', bound: 1.5 };
const SHALLOW = 1_000;

export async function million(place: Place, options: BenchOptions): Promise<readonly Row[]> {
  const deep = options.quick ? 100_000 : 1_000_000;
  const stores = { deep: place.fresh(), shallow: place.fresh() };
  const started: Child<DepthOrder, DepthReport>[] = [];
  const start = async (store: string): Promise<Child<DepthOrder, DepthReport>> => {
    const child = new Child<DepthOrder, DepthReport>('depth.ts');
    started.push(child);
    await child.ask({ kind: 'open', store });
    return child;
  };
  try {
    const deepQueue = await start(stores.deep);
    const shallowQueue = await start(stores.shallow);
    options.progress(`million: enqueueing ${deep} tasks`);
    const filled = await deepQueue.ask({ kind: 'fill', tasks: deep });
    await shallowQueue.ask({ kind: 'fill', tasks: SHALLOW });

    const samples = options.quick ? 50 : 300;
    const times = await inRounds<Percentiles>(
      {
        deep: () => deepQueue.ask({ kind: 'lease', samples }),
        shallow: () => shallowQueue.ask({ kind: 'lease', samples }),
      },
      options.rounds,
      (text) => options.progress(`million: leases, ${text}`),
    );
    await deepQueue.ask({ kind: 'stop' });
    await deepQueue.stop();

    options.progress('million: opening the store again');
    const reopened = await start(stores.deep);
    const afterwards = await reopened.ask({ kind: 'lease', samples });
    await reopened.ask({ kind: 'stop' });
    await shallowQueue.ask({ kind: 'stop' });
    return [
      memory(`resident, ${deep} tasks queued`, filled.residentMb),
      memory('resident, at most while enqueueing', filled.highestMb),
      memory('resident, after a restart and leases', afterwards.residentMb),
      leaseRow('p50', deep, times, AS_FAST),
      leaseRow('p99', deep, times, null),
    ];
  } finally {
    await Promise.all(started.map((child) => child.stop()));
  }
}

const memory = (metric: string, mb: number): Row => figure('million', metric, mb, 'MB', MEMORY);

function leaseRow(
  percentile: keyof Percentiles,
  deep: number,
  times: ReadonlyMap<string, readonly Percentiles[]>,
  target: Target | null,
): Row {
  const of = (name: string) => (times.get(name) ?? []).map((round) => round[percentile]);
  const value = median(of('deep'));
  const ratio = ratioOf(of('deep'), of('shallow'));
  return {
    scenario: 'million',
    metric: `lease of one at ${deep}, ${percentile}`,
    value,
    unit: 'ms',
    floor: { name: `at ${SHALLOW}`, value: median(of('shallow')) },
    ratio,
    target,
    reached: target && meets(target, { value, ratio }),
  };
}
