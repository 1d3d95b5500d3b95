/**
 * How much of what their limits allow 200 hosts give: each is fetched from by one worker at a time and left alone for a second
 * afterwards, with 8 workers that lease from all of them, over two servers.
 */
import { type Fetch, fetchAll, tooSoon } from '../../test/slow/support/polite-crew.ts';
import type { CassandraPlace } from '../cassandra.ts';
import { Fleet } from '../fleet.ts';
import type { BenchOptions } from '../options.ts';
import { figure, type Row, rowBeside, type Target } from '../table.ts';

const SERVERS = 2;
const HOSTS = 200;
const WORKERS = 8;
const FETCH_MS = 20;
const REST_MS = 1_000;
const MOST: Target = { of: 'ratio', is: 'at least', bound: 0.9 };

export async function politeness(place: CassandraPlace, options: BenchOptions): Promise<readonly Row[]> {
  const pages = options.quick ? 5 : 30;
  const fleet = new Fleet(place.fresh());
  try {
    await fleet.growTo(SERVERS);
    const { queues } = fleet;
    options.progress(`politeness: ${HOSTS} hosts of ${pages} pages`);
    for (let nth = 0; nth < HOSTS; nth++) {
      const host = `host-${nth}.example`;
      await queues[nth % SERVERS]!.configure(host, { maxInFlight: 1, cooldownMs: REST_MS });
      await queues[nth % SERVERS]!.enqueue(
        host,
        Array.from({ length: pages }, (_, page) => ({ payload: `/${page}` })),
      );
    }
    options.progress('politeness: fetching');
    const log = await fetchAll({ queues, workers: WORKERS, fetchMs: FETCH_MS, tasks: HOSTS * pages });
    const allowed = (HOSTS * 1_000) / (REST_MS + FETCH_MS);
    return [
      rowBeside(
        'politeness',
        `${HOSTS} hosts, ${WORKERS} workers, ${SERVERS} servers`,
        { unit: 'fetches/s', values: [rateOf(log)] },
        { name: 'what the limits allow', values: [allowed] },
        MOST,
      ),
      figure('politeness', `fetches within ${REST_MS} ms of the one before`, tooSoon(log, REST_MS).length, 'fetches', {
        of: 'value',
        is: 'at most',
        bound: 0,
      }),
    ];
  } finally {
    await fleet.stop();
  }
}

/** Fetches a second of all hosts together, from the first to the last of each. */
function rateOf(log: readonly Fetch[]): number {
  const starts = new Map<string, number[]>();
  for (const { host, start } of log) starts.set(host, [...(starts.get(host) ?? []), start]);
  let sum = 0;
  for (const times of starts.values()) sum += ((times.length - 1) * 1_000) / (Math.max(...times) - Math.min(...times));
  return sum;
}
