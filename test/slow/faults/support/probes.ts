/** Tells when the last shard serves: a topic in each, with a task in it, leased by name. */
import type { QueueCalls } from '../../../../src/client/http-queue.ts';
import { shardOf } from '../../../../src/core/message.ts';
import { until } from './servers.ts';

/** As keyspaces are made. */
const SHARDS = 256;
const everyNth = (step: number) => Array.from({ length: SHARDS / step }, (_, nth) => nth * step);
const LEASE_MS = 300_000;
const WAIT_MS = 1_000;
/** Topics that one call puts something into at a time: each is a conditional write of its own. */
const AT_ONCE = 32;

type Leasing = Pick<QueueCalls, 'enqueue' | 'lease' | 'settle'>;

export interface Served {
  /** From the start of the wait until a task of the first and of the last shard was there, in milliseconds. */
  readonly firstMs: number;
  readonly lastMs: number;
  readonly leaseIds: readonly string[];
}

export class Probes {
  readonly topics: readonly string[];

  /** @param prefix of the topics' names; @param shards which have one, or how many, evenly spread */
  constructor(prefix: string, shards: number | readonly number[] = SHARDS) {
    const step = typeof shards === 'number' ? SHARDS / shards : 1;
    const missing = new Set(typeof shards === 'number' ? everyNth(step) : shards);
    const topics: string[] = [];
    for (let n = 0; missing.size > 0; n++) {
      if (missing.delete(shardOf(`${prefix}${n}`, SHARDS))) topics.push(`${prefix}${n}`);
    }
    this.topics = topics;
  }

  /** Puts a task into each. */
  async put(queue: Leasing): Promise<void> {
    for (let at = 0; at < this.topics.length; at += AT_ONCE) {
      const some = this.topics.slice(at, at + AT_ONCE);
      await Promise.all(some.map((topic) => queue.enqueue(topic, [{ payload: topic, maxAttempts: 1_000 }])));
    }
  }

  /** Leases the task of each, and tells how long that took from now. @throws after `timeoutMs`, naming some left */
  async lease(queue: Leasing, timeoutMs: number): Promise<Served> {
    const began = performance.now();
    const left = new Set(this.topics);
    const leaseIds: string[] = [];
    let [firstMs, lastMs] = [0, 0];
    while (left.size > 0) {
      const topics = [...left];
      const asked = { topics, max: topics.length, waitMs: WAIT_MS, leaseMs: LEASE_MS };
      const { value: tasks } = await until(timeoutMs, () => queue.lease(asked));
      lastMs = performance.now() - began;
      if (leaseIds.length === 0) firstMs = lastMs;
      for (const { topic, leaseId } of tasks) {
        left.delete(topic);
        leaseIds.push(leaseId);
      }
      if (lastMs > timeoutMs && left.size > 0) {
        throw new Error(`${left.size} shards do not serve after ${timeoutMs} ms: ${topics.slice(0, 3).join(', ')}`);
      }
    }
    return { firstMs, lastMs, leaseIds };
  }

  /** The same, and settles them. @returns how many settlements counted */
  async serve(queue: Leasing, timeoutMs: number): Promise<Served & { readonly settled: number }> {
    const served = await this.lease(queue, timeoutMs);
    const { value } = await until(timeoutMs, () =>
      queue.settle({ ack: served.leaseIds.map((leaseId) => ({ leaseId })) }),
    );
    return { ...served, settled: value.ack!.filter(({ ok }) => ok).length };
  }
}
