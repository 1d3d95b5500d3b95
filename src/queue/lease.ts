import { ANSWER_BYTES, BATCH_ENTRIES } from '../core/bounds.ts';
import { entryBytes } from '../core/entry.ts';
import { QueueError } from '../core/errors.ts';
import { formatLeaseToken } from '../core/lease-token.ts';
import { taskIdOf } from '../core/task-id.ts';
import type { Pick, ReadyRing, Waiter } from '../scheduler/ready-ring.ts';
import type { JsonValue, LeasedTask } from './api.ts';
import type { Claimed, Claimer, Grant } from './claim.ts';
import type { Engine } from './engine.ts';
import { placeIn } from './topics.ts';
import { type CheckedLease, decodeJson } from './validate.ts';
import type { Workers } from './workers.ts';

/** A lease call, and what it has got so far. */
export interface LeaseCall {
  readonly request: CheckedLease;
  readonly grant: Grant;
  readonly signal: AbortSignal | undefined;
  readonly tasks: LeasedTask[];
  /** How many of each topic. */
  readonly had: Map<string, number>;
  /** Payloads and metadata of them. */
  bytes: number;
}

/** Whether a call has got all it can carry. */
export const isFull = ({ tasks, bytes, request }: LeaseCall): boolean =>
  tasks.length >= request.max || bytes >= ANSWER_BYTES;

/** Takes tasks of the shards that this server holds: chooses among the topics that are ready, and claims there. */
export class Leaser {
  readonly #engine: Engine;
  readonly #ring: ReadyRing;
  readonly #claimer: Claimer;
  readonly #workers: Workers;
  #stopping = false;

  constructor(engine: Engine, ring: ReadyRing, claimer: Claimer, workers: Workers) {
    this.#workers = workers;
    this.#engine = engine;
    this.#ring = ring;
    this.#claimer = claimer;
  }

  /** @param had how many of each topic its caller has got already */
  begin(request: CheckedLease, signal?: AbortSignal, had: Readonly<Record<string, number>> = {}): LeaseCall {
    const grant: Grant = { leaseId: this.#engine.env.token(), worker: request.worker, leaseMs: request.leaseMs };
    return { request, grant, signal, tasks: [], had: new Map(Object.entries(had)), bytes: 0 };
  }

  /** Takes what is there now. @throws what went wrong, where the call has got nothing for it */
  async take(call: LeaseCall, request = call.request): Promise<void> {
    const before = call.tasks.length;
    let left = request.max - before;
    while (left > 0 && !isFull(call) && !this.#stopping && !call.signal?.aborted) {
      const picks = this.#ring.pick(request, left, call.had);
      if (picks.length === 0) return;
      const fits = fitting(picks, ANSWER_BYTES - call.bytes);
      const claimed = await this.#claimAll(fits, picks, call.grant).catch((error: unknown) => {
        // What was claimed before is handed out all the same. A shard that went to another server is no fault.
        const isMoved = error instanceof QueueError && error.code === 'not-holder';
        if (call.tasks.length === 0 && !isMoved) throw error;
        return null;
      });
      if (claimed === null) return;
      for (const { task, size } of claimed) {
        call.tasks.push(task);
        call.bytes += size;
        call.had.set(task.topic, (call.had.get(task.topic) ?? 0) + 1);
      }
      left = request.max - call.tasks.length;
    }
  }

  /** Calls back once something comes up that a call asks for; the returned function calls it off. */
  wait(request: CheckedLease, wake: (ready: number) => void): () => void {
    const waiter: Waiter = { request, wake };
    this.#ring.wait(waiter);
    return () => this.#ring.stopWaiting(waiter);
  }

  /** Ends all waits, and hands out nothing more. */
  stop(): void {
    this.#stopping = true;
    this.#ring.wakeAll();
  }

  /** @param picked all that was picked; what does not fit is offered again */
  async #claimAll(picks: readonly Pick[], picked: readonly Pick[], grant: Grant): Promise<readonly Sized[]> {
    const claims = picks.flatMap(({ topic, log, count }) => {
      const parts: Promise<readonly Sized[]>[] = [];
      for (let left = count; left > 0; left -= BATCH_ENTRIES) {
        const claim = this.#claimer.claim(topic, log, Math.min(left, BATCH_ENTRIES), grant);
        parts.push(
          claim.then((claimed) => {
            const now = this.#engine.env.now();
            return claimed.map((one) => {
              this.#engine.measures.wait.observe(Math.max(0, now - one.entry.placedAt) / 1000);
              return { task: leasedTask(log.address, one), size: entryBytes(one.entry) };
            });
          }),
        );
      }
      return parts;
    });
    const settled = await Promise.allSettled(claims);
    for (const topic of new Set(picked.map((pick) => pick.topic))) {
      this.#ring.claimed(topic);
      if (grant.worker !== null) this.#workers.saw(grant.worker, topic.name, this.#engine.env.now());
    }
    const tasks = settled.flatMap((result) => (result.status === 'fulfilled' ? result.value : []));
    const failed = settled.find((result) => result.status === 'rejected');
    // What was claimed is handed out; only where nothing was, the caller learns of the trouble.
    if (failed !== undefined && tasks.length === 0) throw failed.reason;
    return tasks;
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
