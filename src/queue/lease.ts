import { BATCH_ENTRIES } from '../core/bounds.ts';
import { QueueError } from '../core/errors.ts';
import { formatLeaseToken } from '../core/lease-token.ts';
import { taskIdOf } from '../core/task-id.ts';
import type { Pick, ReadyRing, Waiter } from '../scheduler/ready-ring.ts';
import type { JsonValue, LeasedTask, LeaseRequest } from './api.ts';
import type { Claimed, Claimer, Grant } from './claim.ts';
import type { Engine } from './engine.ts';
import { placeIn } from './topics.ts';
import { type CheckedLease, checkLease, decodeJson } from './validate.ts';

/** Answers lease calls: chooses among the topics that are ready, claims there, and waits where nothing is. */
export class Leaser {
  readonly #engine: Engine;
  readonly #ring: ReadyRing;
  readonly #claimer: Claimer;
  readonly #release: (leaseIds: readonly string[]) => Promise<void>;
  #stopping: 'shutting-down' | 'not-holder' | null = null;

  constructor(
    engine: Engine,
    ring: ReadyRing,
    claimer: Claimer,
    release: (leaseIds: readonly string[]) => Promise<void>,
  ) {
    this.#engine = engine;
    this.#ring = ring;
    this.#claimer = claimer;
    this.#release = release;
  }

  async lease(input: LeaseRequest): Promise<readonly LeasedTask[]> {
    const request = checkLease(input);
    const { signal } = input;
    const { env } = this.#engine;
    const deadline = env.now() + request.waitMs;
    const grant: Grant = { leaseId: env.token(), worker: request.worker, leaseMs: request.leaseMs };
    const tasks: LeasedTask[] = [];
    const had = new Map<string, number>();
    while (tasks.length < request.max && this.#stopping === null && !signal?.aborted) {
      const picks = this.#ring.pick(request, request.max - tasks.length, had);
      if (picks.length > 0) {
        for (const task of await this.#claimAll(picks, grant)) {
          tasks.push(task);
          had.set(task.topic, (had.get(task.topic) ?? 0) + 1);
        }
        continue;
      }
      if (tasks.length > 0 || env.now() >= deadline) break;
      await this.#wait(request, deadline, signal);
    }
    if (this.#stopping !== null && tasks.length === 0) throw new QueueError(this.#stopping);
    if (signal?.aborted) {
      // Whoever asked is gone: others get what it was given, or was woken for.
      if (tasks.length > 0) await this.#release(tasks.map((task) => task.leaseId));
      this.#ring.passOn();
      return [];
    }
    return tasks;
  }

  /** Ends all waits, and refuses what comes. */
  stop(why: 'shutting-down' | 'not-holder'): void {
    this.#stopping = why;
    this.#ring.wakeAll();
  }

  async #claimAll(picks: readonly Pick[], grant: Grant): Promise<readonly LeasedTask[]> {
    const claims = picks.flatMap(({ topic, log, count }) => {
      const parts: Promise<readonly LeasedTask[]>[] = [];
      for (let left = count; left > 0; left -= BATCH_ENTRIES) {
        const claim = this.#claimer.claim(topic, log, Math.min(left, BATCH_ENTRIES), grant);
        parts.push(claim.then((claimed) => claimed.map((one) => leasedTask(log.address, one))));
      }
      return parts;
    });
    const settled = await Promise.allSettled(claims);
    for (const topic of new Set(picks.map((pick) => pick.topic))) this.#ring.claimed(topic);
    const tasks = settled.flatMap((result) => (result.status === 'fulfilled' ? result.value : []));
    const failed = settled.find((result) => result.status === 'rejected');
    // What was claimed is handed out; only where nothing was, the caller learns of the trouble.
    if (failed !== undefined && tasks.length === 0) throw failed.reason;
    return tasks;
  }

  #wait(request: CheckedLease, deadline: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#ring.stopWaiting(waiter);
        cancel();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const waiter: Waiter = { request, wake: done };
      const cancel = this.#engine.env.timer(deadline - this.#engine.env.now(), done);
      signal?.addEventListener('abort', done, { once: true });
      this.#ring.wait(waiter);
    });
  }
}

function leasedTask(log: { readonly topic: string; readonly tier: number }, claimed: Claimed): LeasedTask {
  const { entry, leaseId, leaseUntil } = claimed;
  const place = placeIn(log, entry.id);
  return {
    topic: log.topic,
    id: taskIdOf(entry, place),
    messageId: entry.messageId,
    payload: decodePayload(entry.payload),
    metadata: entry.metadata === null ? {} : (JSON.parse(entry.metadata) as Record<string, string>),
    priority: entry.priority,
    attempt: entry.attempt + 1,
    progress: decodeJson(entry.progress),
    enqueuedAt: entry.enqueuedAt,
    leaseId: formatLeaseToken(leaseId, place),
    leaseUntil,
  };
}

export const decodePayload = (payload: string | Uint8Array): JsonValue | Uint8Array =>
  typeof payload === 'string' ? (JSON.parse(payload) as JsonValue) : payload;
