/** A process of its own around one queue, so that its resident memory is the queue's and not the bench's. */
import type { Queue } from '../src/queue/api.ts';
import { answerOrders } from './child.ts';
import { tasksOf } from './payload.ts';
import { openBuiltQueue } from './place.ts';
import { type Percentiles, Times } from './rounds.ts';

export type DepthOrder =
  /** Opens the store. */
  | { readonly kind: 'open'; readonly store: string }
  /** Enqueues so many tasks. */
  | { readonly kind: 'fill'; readonly tasks: number }
  /** Leases one task and acknowledges it, so many times; then enqueues as many, so that the depth stays. */
  | { readonly kind: 'lease'; readonly samples: number }
  | { readonly kind: 'stop' };

export interface DepthReport extends Percentiles {
  /** Resident memory now, and at its highest so far. */
  readonly residentMb: number;
  readonly highestMb: number;
}

const TOPIC = 'bench';
let queue: Queue | null = null;

const theQueue = (): Queue => {
  if (queue === null) throw new Error('no store is open');
  return queue;
};

async function fill(count: number): Promise<void> {
  const batch = tasksOf(200);
  for (let left = count; left > 0; left -= batch.length) await theQueue().enqueue(TOPIC, batch.slice(0, left));
}

async function leases(samples: number): Promise<Times> {
  const times = new Times();
  for (let i = 0; i < samples; i++) {
    const start = performance.now();
    const tasks = await theQueue().lease({ topics: [TOPIC], max: 1, leaseMs: 60_000 });
    times.add(performance.now() - start);
    if (tasks.length !== 1) throw new Error(`${tasks.length} tasks leased instead of 1`);
    await theQueue().settle({ ack: tasks.map(({ leaseId }) => ({ leaseId })) });
  }
  await fill(samples);
  return times;
}

answerOrders<DepthOrder, DepthReport>(async (order) => {
  let times = new Times();
  if (order.kind === 'open') queue = await openBuiltQueue(order.store);
  else if (order.kind === 'fill') await fill(order.tasks);
  else if (order.kind === 'lease') times = await leases(order.samples);
  else await theQueue().stop();
  const mb = 1024 * 1024;
  return {
    ...times.percentiles(),
    residentMb: process.memoryUsage.rss() / mb,
    highestMb: process.resourceUsage().maxRSS / 1024,
  };
});
