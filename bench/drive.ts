/** Callers that put tasks into a queue or drain it, and the rate at which they got through. */
import { setMaxListeners } from 'node:events';
import type { QueueCalls } from '../src/client/http-queue.ts';
import type { TaskInput } from '../src/queue/api.ts';
import { together } from './rounds.ts';

export interface Drain {
  /** All topics when absent. */
  readonly topics?: readonly string[];
  readonly tasks: number;
  readonly workers: number;
  /** Each worker leases from one of the topics alone, in turn; else from all. */
  readonly apart?: boolean;
  /** Tasks a lease takes at the most. */
  readonly max?: number;
}

const BATCH = 200;
const LEASE_MS = 600_000;
const WAIT_MS = 5_000;

/** @param next gives the next call's topic and tasks, or null when there are no more; answers with tasks a second */
export async function enqueueRate(
  queue: { enqueue(topic: string, tasks: readonly TaskInput[]): unknown },
  callers: number,
  next: () => { readonly topic: string; readonly tasks: readonly TaskInput[] } | null,
): Promise<number> {
  let tasks = 0;
  const start = performance.now();
  await together(callers, async () => {
    for (let call = next(); call !== null; call = next()) {
      await queue.enqueue(call.topic, call.tasks);
      tasks += call.tasks.length;
    }
  });
  return (tasks * 1000) / (performance.now() - start);
}

/** Leases tasks and acknowledges them, until all are; answers with tasks a second. */
export async function drainRate(
  queue: Pick<QueueCalls, 'lease' | 'settle'>,
  { topics, tasks, workers, apart = false, max = BATCH }: Drain,
): Promise<number> {
  const enough = new AbortController();
  setMaxListeners(workers, enough.signal);
  let leased = 0;
  let acknowledged = 0;
  const start = performance.now();
  await together(workers, async (nth) => {
    const names = apart && topics !== undefined ? [topics[nth % topics.length]!] : topics;
    while (leased < tasks) {
      const got = await queue.lease({
        ...(names === undefined ? {} : { topics: names }),
        max,
        leaseMs: LEASE_MS,
        waitMs: WAIT_MS,
        signal: enough.signal,
      });
      leased += got.length;
      if (leased >= tasks) enough.abort();
      if (got.length === 0) continue;
      const { ack } = await queue.settle({ ack: got.map(({ leaseId }) => ({ leaseId })) });
      for (const item of ack) if (item.ok) acknowledged++;
    }
  });
  const took = performance.now() - start;
  if (acknowledged !== tasks) throw new Error(`drained ${acknowledged} of ${tasks} tasks`);
  return (tasks * 1000) / took;
}

/** So many tasks in calls of so many, for enqueueRate. */
export function calls(topics: readonly string[], tasks: number, batch: number, input: () => readonly TaskInput[]) {
  let left = Math.ceil(tasks / batch);
  return () => (left-- > 0 ? { topic: topics[left % topics.length]!, tasks: input() } : null);
}
