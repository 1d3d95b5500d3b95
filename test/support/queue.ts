import { expect, onTestFinished } from 'vitest';
import { auditStore } from '../../src/audit/audit.ts';
import { SLOT_MS } from '../../src/core/bounds.ts';
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

/**
 * A queue on a real SQLite store, whose clock the test moves. When the test is over its store is looked over, as a
 * process that dies just then would leave it, and the queue is stopped.
 */
export async function testQueue(
  options: { readonly segmentSize?: number; readonly slotMs?: number; readonly path?: string } = {},
): Promise<TestQueue> {
  const env = manualEnvironment();
  const { segmentSize = 10_000, slotMs = SLOT_MS } = options;
  const open: SqliteOptions = { now: env.now, meta: { segmentSize, slotMs } };
  const path = options.path ?? ':memory:';
  let store = await openSqliteStore(path, open);
  let queue = await startQueue(store, { environment: env });
  onTestFinished(async () => {
    const isOpen = (await queue.readiness()).ready;
    const rules = isOpen ? (await auditStore(store)).rules : [];
    await queue.stop();
    expect(rules, 'what an audit finds in the store').toEqual([]);
  });
  return {
    get queue() {
      return queue;
    },
    env,
    lease: (request) => queue.lease(request),
    async restart() {
      await queue.stop();
      store = await openSqliteStore(path, open);
      queue = await startQueue(store, { environment: env });
      return queue;
    },
  };
}

export const ackAll = (queue: Queue, tasks: readonly LeasedTask[]) =>
  queue.settle({ ack: tasks.map(({ leaseId }) => ({ leaseId })) });
