import { build, type Histogram } from 'hdr-histogram-js';

/**
 * What is compared is measured in turns, within one run: a shared machine can be twice as slow a minute later, but
 * hardly so from one second to the next. Every round runs each series once, in random order, and gives one ratio per
 * pair; the median of the ratios counts. The first round warms up and is thrown away.
 */
export async function inRounds<T>(
  series: Readonly<Record<string, () => Promise<T>>>,
  rounds: number,
  progress: (text: string) => void,
): Promise<ReadonlyMap<string, readonly T[]>> {
  const results = new Map<string, T[]>(Object.keys(series).map((name) => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    for (const [name, run] of shuffled(Object.entries(series))) {
      progress(`${round === 0 ? 'warm-up' : `round ${round}/${rounds}`}: ${name}`);
      const result = await run();
      if (round > 0) results.get(name)?.push(result);
    }
  }
  return results;
}

function shuffled<T>(items: readonly T[]): T[] {
  const mixed = [...items];
  for (let i = mixed.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [mixed[i], mixed[j]] = [mixed[j] as T, mixed[i] as T];
  }
  return mixed;
}

/** So many callers at once, each in a loop of its own. */
export const together = (callers: number, run: (nth: number) => Promise<void>): Promise<unknown> =>
  Promise.all(Array.from({ length: callers }, (_, nth) => run(nth)));

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length / 2;
  return sorted.length === 0
    ? Number.NaN
    : Number.isInteger(middle)
      ? ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2
      : (sorted[Math.floor(middle)] ?? 0);
}

/** The median of subject ÷ floor, round by round. */
export const ratioOf = (subject: readonly number[], floor: readonly number[]): number =>
  median(subject.map((value, round) => value / (floor[round] ?? Number.NaN)));

export interface Percentiles {
  readonly p50: number;
  readonly p99: number;
}

/** Collects times in milliseconds, kept as whole microseconds up to a minute. */
export class Times {
  readonly #histogram: Histogram = build({
    lowestDiscernibleValue: 1,
    highestTrackableValue: 60_000_000,
    numberOfSignificantValueDigits: 3,
  });

  add(ms: number): void {
    this.#histogram.recordValue(Math.min(60_000_000, Math.max(1, Math.round(ms * 1000))));
  }

  get count(): number {
    return this.#histogram.totalCount;
  }

  percentiles(): Percentiles {
    const at = (percentile: number): number => this.#histogram.getValueAtPercentile(percentile) / 1000;
    return { p50: at(50), p99: at(99) };
  }
}
