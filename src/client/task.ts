import type { StandardSchemaV1 } from '@standard-schema/spec';
import { QueueError } from '../core/errors.ts';
import { isFromKey } from '../core/message.ts';
import type { JsonValue, LeasedTask, SettleItem } from '../queue/api.ts';
import { type SettleName, settling, tracer } from '../telemetry/spans.ts';
import { handled, isLeaseLost, isRefusal, RetryAfterError, refusalOf, sayError, UnrecoverableError } from './errors.ts';
import { HeldLease } from './held-lease.ts';
import type { Nack, Settlements } from './settlements.ts';
import type { DefinitionOf, NameOf, TopicBook, TopicSchemas } from './topics.ts';

/** A task in a worker's hand. Its lease is extended until it is settled. */
export interface Task<P = unknown, N extends string = string> {
  readonly topic: N;
  readonly id: string;
  /** The producer's own id; null where it gave none. */
  readonly messageId: string | null;
  readonly payload: P;
  readonly metadata: Readonly<Record<string, string>>;
  readonly priority: number;
  /** 1 for the first delivery. */
  readonly attempt: number;
  /** What an earlier attempt saved with `saveProgress`; null where none did. */
  readonly progress: JsonValue;
  /** Milliseconds since 1970, by the queue's clock. */
  readonly enqueuedAt: number;
  /** Aborted when the lease is lost (the reason is a QueueError `lease-lost`), or the subscriber is closed. */
  readonly signal: AbortSignal;
  /**
   * It is done.
   *
   * @param result any JSON value, 256 KiB at the most, for whoever waits for it
   * @throws QueueError `lease-lost`: another worker may have the task; `result-too-large`, `invalid-input`: the lease
   *   is kept, and something smaller may follow, or `fail`; `task-settled` where it was settled here before
   */
  success(result?: JsonValue): Promise<void>;
  /**
   * It is not: it comes back after the topic's backoff, or goes to the dead letters once its attempts are used up.
   *
   * @param reason for people to read, cut at 1,024 characters. An UnrecoverableError sends it to the dead letters at
   *   once, a RetryAfterError says when it comes back
   * @throws QueueError `lease-lost`, `task-settled`
   */
  fail(reason: unknown): Promise<void>;
  /** Gives it back unworked, at once; the attempt does not count. @throws QueueError `lease-lost`, `task-settled` */
  release(): Promise<void>;
  /**
   * Keeps a position for the next attempt, should there be one.
   *
   * @param position any JSON value, 64 KiB at the most
   * @throws QueueError `lease-lost`, `result-too-large`, `invalid-input`
   */
  saveProgress(position: JsonValue): Promise<void>;
}

/** What a worker gets of topics: a union, told apart by `topic`. */
export type TaskOf<T extends TopicSchemas, N extends string> = N extends string
  ? Task<StandardSchemaV1.InferOutput<T[DefinitionOf<T, N>]>, NameOf<N>>
  : never;

export interface DeliveryOptions {
  readonly settlements: Settlements;
  readonly leaseMs: number;
  /** How long before its end the lease is extended, in milliseconds. */
  readonly leadMs: number;
  /** Told of extensions that fail. */
  readonly onError: (error: unknown) => void;
  /** Called once, when it was settled, or its lease was lost. @param error why it could not be settled */
  readonly onEnd: (error?: unknown) => void;
}

/** A task that was leased: from the answer that brought it to its settlement, or the loss of its lease. */
export class Delivery implements Task {
  readonly topic: string;
  readonly id: string;
  readonly messageId: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly priority: number;
  readonly attempt: number;
  readonly progress: JsonValue;
  readonly enqueuedAt: number;
  readonly #leaseId: string;
  readonly #lease: HeldLease;
  readonly #settlements: Settlements;
  readonly #onEnd: (error?: unknown) => void;
  #payload: unknown;
  #isSettled = false;
  #hasEnded = false;

  constructor(leased: LeasedTask, { settlements, leaseMs, leadMs, onError, onEnd }: DeliveryOptions) {
    const { leaseId, leaseUntil, messageId } = leased;
    this.topic = leased.topic;
    this.id = leased.id;
    this.messageId = messageId === null || isFromKey(messageId) ? null : messageId;
    this.metadata = leased.metadata;
    this.priority = leased.priority;
    this.attempt = leased.attempt;
    this.progress = leased.progress;
    this.enqueuedAt = leased.enqueuedAt;
    this.#payload = leased.payload;
    this.#leaseId = leaseId;
    this.#settlements = settlements;
    this.#onEnd = (error) => {
      if (!this.#hasEnded) onEnd(error);
      this.#hasEnded = true;
    };
    this.#lease = new HeldLease({
      leaseId,
      leaseMs,
      leaseUntil,
      leadMs,
      extend: () => settlements.extend(leaseId, leaseMs),
      onError,
      onLost: () => this.#onEnd(),
    });
  }

  get payload(): unknown {
    return this.#payload;
  }

  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  /** Whether it was settled here, or is being settled. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Makes the payload what its schema makes of it. @throws QueueError `invalid-input` where it does not fit */
  async parse(topics: TopicBook): Promise<void> {
    this.#payload = await topics.parse(this.topic, this.#payload);
  }

  /** Calls the work off, and leaves the lease to run out. */
  abandon(reason: unknown): void {
    this.#lease.abort(reason);
    this.#onEnd();
  }

  success(result?: JsonValue): Promise<void> {
    return handled(this.#settle('ack', async () => this.#settlements.ack(this.#leaseId, result)));
  }

  fail(reason: unknown): Promise<void> {
    const nack = { reason: sayError(reason), ...whatNext(reason) };
    return handled(this.#settle('nack', () => this.#settlements.nack(this.#leaseId, nack)));
  }

  release(): Promise<void> {
    return handled(this.#settle('release', () => this.#settlements.release(this.#leaseId)));
  }

  saveProgress(position: JsonValue): Promise<void> {
    return handled(this.#save(position));
  }

  async #save(position: JsonValue): Promise<void> {
    const answer = await this.#settlements.progress(this.#leaseId, position);
    if (!answer.ok) throw refusalOf(answer);
  }

  #told(name: SettleName, send: () => Promise<SettleItem>): Promise<SettleItem> {
    const by = tracer();
    if (by === null) return send();
    const about = { name, topics: [this.topic], count: null, tasks: [this] };
    return settling(by, about, send, (item) => (item.ok ? { id: this.id } : { id: this.id, error: item.code }));
  }

  async #settle(name: SettleName, send: () => Promise<SettleItem>): Promise<void> {
    if (this.#isSettled) throw new QueueError('task-settled', 'This worker has settled the task already');
    this.#isSettled = true;
    this.#lease.drop();
    let refusal: QueueError;
    try {
      const answer = await this.#told(name, send);
      if (answer.ok) {
        this.#onEnd();
        return;
      }
      refusal = refusalOf(answer);
    } catch (error) {
      if (!isRefusal(error)) {
        this.#onEnd(error);
        throw error;
      }
      refusal = error;
    }
    if (isLeaseLost(refusal.code)) this.#onEnd();
    else {
      this.#isSettled = false;
      this.#lease.keep();
    }
    throw refusal;
  }
}

function whatNext(reason: unknown): Nack {
  if (reason instanceof UnrecoverableError) return { dead: true };
  return reason instanceof RetryAfterError ? { delayMs: reason.ms } : {};
}
