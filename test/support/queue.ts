import { onTestFinished } from 'vitest';
import type { LeasedTask, LeaseRequest, Queue } from '../../src/queue/api.ts';
import { startQueue } from '../../src/queue/open.ts';
import { openSqliteStore, type SqliteOptions } from '../../src/store/sqlite/store.ts';
import { type ManualEnvironment, manualEnvironment } from './manual-environment.ts';

export interface TestQueue {
  readonly queue: Queue;
  readonly env: ManualEnvironment;
  /** Leases, and waits for what is due by now. */
  lease(request?: LeaseRequest): Promise<readonly LeasedTask[]>;
  /** Stops the queue and starts another one on the same store. */
  restart(): Promise<Queue>;
}

/** A queue on a real SQLite store, whose clock the test moves; stopped when the test is over. */
export async function testQueue(
  options: { readonly segmentSize?: number; readonly path?: string } = {},
): Promise<TestQueue> {
  const env = manualEnvironment();
  const open: SqliteOptions = { now: env.now, meta: { segmentSize: options.segmentSize ?? 10_000 } };
  const path = options.path ?? ':memory:';
  let queue = await startQueue(await openSqliteStore(path, open), { environment: env });
  onTestFinished(() => queue.stop());
  return {
    get queue() {
      return queue;
    },
    env,
    lease: (request) => queue.lease(request),
    async restart() {
      await queue.stop();
      queue = await startQueue(await openSqliteStore(path, open), { environment: env });
      return queue;
    },
  };
}

export const ackAll = (queue: Queue, tasks: readonly LeasedTask[]) =>
  queue.settle({ ack: tasks.map(({ leaseId }) => ({ leaseId })) });
