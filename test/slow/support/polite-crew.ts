/** Workers that fetch from hosts as a crawler does, and the log of their fetches. */
import { setTimeout as wait } from 'node:timers/promises';
import type { HttpQueue } from '../../../src/client/http-queue.ts';
import type { LeasedTask } from '../../../src/queue/api.ts';

/** One fetch from a host, by the clock of the workers, in milliseconds. */
export interface Fetch {
  readonly host: string;
  readonly id: string;
  readonly start: number;
  readonly end: number;
}

export interface CrewOptions {
  /** The servers; who gets no answer of one asks the next. */
  readonly queues: readonly HttpQueue[];
  readonly workers: number;
  /** How long a fetch takes, in milliseconds. */
  readonly fetchMs: number;
  /** Done once so many tasks are acknowledged. */
  readonly tasks: number;
  readonly onFetch?: (log: readonly Fetch[]) => void;
}

const WAIT_MS = 1_000;
const LEASE_MS = 30_000;
const AGAIN_MS = 100;

/** Works until all tasks are acknowledged; resolves with the log of fetches, in the order in which they ended. */
export async function fetchAll(options: CrewOptions): Promise<readonly Fetch[]> {
  const log: Fetch[] = [];
  const done = new Set<string>();
  const over = new AbortController();

  /** Asks one server after the other until one of them answers. */
  const ask = async <T>(nth: number, call: (queue: HttpQueue) => Promise<T>): Promise<T> => {
    for (let tries = 0; ; tries++) {
      try {
        return await call(options.queues[(nth + tries) % options.queues.length]!);
      } catch (error) {
        if (over.signal.aborted) throw error;
        await wait(AGAIN_MS);
      }
    }
  };
  const fetchOne = async (nth: number, { topic, id, leaseId }: LeasedTask): Promise<void> => {
    const start = performance.now();
    await wait(options.fetchMs);
    log.push({ host: topic, id, start, end: performance.now() });
    options.onFetch?.(log);
    const { ack } = await ask(nth, (queue) => queue.settle({ ack: [{ leaseId }] }));
    if (ack[0]!.ok) done.add(id);
    if (done.size === options.tasks) over.abort();
  };
  const work = async (nth: number): Promise<void> => {
    const atOnce = Math.ceil(200 / options.workers);
    const fetching = new Set<Promise<void>>();
    while (!over.signal.aborted) {
      const max = atOnce - fetching.size;
      const request = { max, waitMs: WAIT_MS, leaseMs: LEASE_MS, worker: `crew-${nth}`, signal: over.signal };
      const got = max > 0 ? await ask(nth, (queue) => queue.lease(request)).catch(() => []) : [];
      for (const task of got) {
        const fetched = fetchOne(nth, task).finally(() => fetching.delete(fetched));
        fetching.add(fetched);
      }
      if (fetching.size === atOnce) await Promise.race(fetching);
    }
    await Promise.all(fetching);
  };
  await Promise.all(Array.from({ length: options.workers }, (_, nth) => work(nth)));
  return log;
}

/** Fetches that began before the host had rested since the end of the one before. */
export function tooSoon(
  log: readonly Fetch[],
  restMs: number,
): readonly { readonly host: string; readonly afterMs: number }[] {
  const lastEnd = new Map<string, number>();
  const found: { host: string; afterMs: number }[] = [];
  for (const { host, start, end } of [...log].sort((a, b) => a.start - b.start)) {
    const before = lastEnd.get(host);
    if (before !== undefined && start < before + restMs) found.push({ host, afterMs: start - before });
    lastEnd.set(host, Math.max(before ?? 0, end));
  }
  return found;
}
