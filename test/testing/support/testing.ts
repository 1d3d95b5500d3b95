import { onTestFinished } from 'vitest';
import type { LeasedTask } from '../../../src/queue/api.ts';
import { TestQueue, type TestQueueOptions } from '../../../src/testing/index.ts';

/** A queue that is stopped when the test is over. */
export async function started(options?: TestQueueOptions): Promise<TestQueue> {
  const queue = await TestQueue.start(options);
  onTestFinished(() => queue.stop());
  return queue;
}

/** A worker as programs have them: it asks for a task, works, settles, and asks again until the queue stops. */
export function worker(queue: TestQueue, topic: string, work: (task: LeasedTask) => Promise<void> | void): void {
  const rounds = async (): Promise<void> => {
    for (;;) {
      const [task] = await queue.lease({ topics: [topic], waitMs: 20_000 });
      if (task === undefined) continue;
      const { leaseId } = task;
      await Promise.resolve(task)
        .then(work)
        .then(
          () => queue.settle({ ack: [{ leaseId }] }),
          (error: Error) => queue.settle({ nack: [{ leaseId, reason: error.message }] }),
        );
    }
  };
  // Ends with the error that says that the queue has stopped.
  rounds().catch(() => {});
}

export const payloads = (tasks: readonly { readonly payload: unknown }[]) => tasks.map(({ payload }) => payload);
