import { ANSWER_BYTES, BATCH_ENTRIES } from '../core/bounds.ts';
import { entryBytes } from '../core/entry.ts';
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
    let bytes = 0;
    while (tasks.length < request.max && this.#stopping === null && !signal?.aborted) {
      const picks = this.#ring.pick(request, request.max - tasks.length, had);
      if (picks.length > 0) {
        const claimed = await this.#claimAll(fitting(picks, ANSWER_BYTES - bytes), picks, grant).catch(
          (error: unknown) => {
            // What was claimed before is handed out all the same.
            if (tasks.length === 0) throw error;
            return null;
          },
        );
        if (claimed === null) break;
        for (const { task, size } of claimed) {
          tasks.push(task);
          bytes += size;
          had.set(task.topic, (had.get(task.topic) ?? 0) + 1);
        }
        if (bytes >= ANSWER_BYTES) break;
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

  /** @param picked all that was picked; what does not fit is offered again */
  async #claimAll(picks: readonly Pick[], picked: readonly Pick[], grant: Grant): Promise<readonly Sized[]> {
    const claims = picks.flatMap(({ topic, log, count }) => {
      const parts: Promise<readonly Sized[]>[] = [];
      for (let left = count; left > 0; left -= BATCH_ENTRIES) {
        const claim = this.#claimer.claim(topic, log, Math.min(left, BATCH_ENTRIES), grant);
        parts.push(
          claim.then((claimed) =>
            claimed.map((one) => ({ task: leasedTask(log.address, one), size: entryBytes(one.entry) })),
          ),
        );
      }
      return parts;
    });
    const settled = await Promise.allSettled(claims);
    for (const topic of new Set(picked.map((pick) => pick.topic))) this.#ring.claimed(topic);
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

interface Sized {
  readonly task: LeasedTask;
  readonly size: number;
}

/** So much of what was picked as fits into an answer, by what entries of each log take on average; one at least. */
function fitting(picks: readonly Pick[], bytes: number): readonly Pick[] {
  const fits: Pick[] = [];
  let left = bytes;
  for (const pick of picks) {
    const each = Math.max(1, pick.log.averageBytes);
    const count = Math.min(pick.count, Math.max(fits.length === 0 ? 1 : 0, Math.floor(left / each)));
    if (count === 0) break;
    fits.push({ ...pick, count });
    left -= count * each;
  }
  return fits;
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
