/** A process of its own around one queue: small topics that get a task now and then, perhaps beside one that is never empty. */
import { setMaxListeners } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import type { Queue } from '../src/queue/api.ts';
import { answerOrders } from './child.ts';
import { tasksOf } from './payload.ts';
import { openBuiltQueue } from './place.ts';
import { type Percentiles, Times, together } from './rounds.ts';

export type NeighboursOrder =
  /** Opens the store, and puts so many tasks into the noisy topic. */
  | { readonly kind: 'open'; readonly store: string; readonly noisy: number }
  /** Lets workers take what there is, while tasks are put into the small topics. */
  | { readonly kind: 'run'; readonly topics: number; readonly perSecond: number; readonly seconds: number }
  | { readonly kind: 'stop' };

/** How long tasks of the small topics took from their enqueue's call until a worker had them. */
export interface NeighboursReport extends Percentiles {
  /** Tasks of the noisy topic that were worked on meanwhile, a second. */
  readonly noisyPerSecond: number;
}

const NOISY = 'noisy';
const WORKERS = 16;
/** How long a worker is busy with a task, on average; the same for each would keep all of them in step. */
const WORK_MS = 5;
let queue: Queue | null = null;

const theQueue = (): Queue => {
  if (queue === null) throw new Error('no store is open');
  return queue;
};

async function open(store: string, noisy: number): Promise<void> {
  queue = await openBuiltQueue(store);
  const batch = tasksOf(200);
  for (let left = noisy; left > 0; left -= batch.length) await queue.enqueue(NOISY, batch.slice(0, left));
}

async function run(topics: number, perSecond: number, seconds: number): Promise<NeighboursReport> {
  const times = new Times();
  const over = new AbortController();
  setMaxListeners(WORKERS, over.signal);
  let left = perSecond * seconds;
  let noisy = 0;
  const start = performance.now();
  const working = together(WORKERS, async () => {
    while (left > 0) {
      const got = await theQueue().lease({ max: 1, waitMs: 5_000, leaseMs: 60_000, signal: over.signal });
      for (const { topic, payload } of got) {
        if (topic === NOISY) noisy++;
        else {
          times.add(performance.now() - Number(payload));
          left--;
        }
      }
      if (left === 0) over.abort();
      if (got.length === 0) continue;
      await wait(2 * WORK_MS * Math.random());
      await theQueue().settle({ ack: got.map(({ leaseId }) => ({ leaseId })) });
    }
  });
  for (let nth = 0; nth < perSecond * seconds; nth++) {
    await wait(Math.max(0, start + (nth * 1_000) / perSecond - performance.now()));
    const topic = `small-${Math.floor(Math.random() * topics)}`;
    // Not waited for: who produces does not slow down because others wait.
    void theQueue().enqueue(topic, { payload: performance.now() });
  }
  await working;
  return { ...times.percentiles(), noisyPerSecond: (noisy * 1_000) / (performance.now() - start) };
}

const NOTHING: NeighboursReport = { ...new Times().percentiles(), noisyPerSecond: 0 };

answerOrders<NeighboursOrder, NeighboursReport>(async (order) => {
  if (order.kind === 'run') return run(order.topics, order.perSecond, order.seconds);
  if (order.kind === 'open') await open(order.store, order.noisy);
  else await theQueue().stop();
  return NOTHING;
});
