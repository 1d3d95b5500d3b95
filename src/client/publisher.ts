import { randomUUID } from 'node:crypto';
import { SpanKind } from '@opentelemetry/api';
import { type ErrorCode, invalid, QueueError } from '../core/errors.ts';
import { checkFields, TASK_FIELDS } from '../core/fields.ts';
import { jsonText } from '../core/json.ts';
import { messageIdFromKey } from '../core/message.ts';
import { integer } from '../core/numbers.ts';
import type { EnqueueResult, JsonValue, TaskInfo, TaskInput, TaskPayload } from '../queue/api.ts';
import { awaiting, sending, tracer } from '../telemetry/spans.ts';
import { abortedBy } from './abort.ts';
import { Batcher } from './batcher.ts';
import type { ClientContext } from './context.ts';
import { Drainable } from './drainable.ts';
import { ClientClosedError, ConnectionError, handled, ResultTimeoutError, TaskFailedError } from './errors.ts';
import type { AnyTopics, PayloadOf, TopicName, TopicSchemas } from './topics.ts';

export type PublishOptions = Omit<TaskInput, 'payload'>;

export interface ResultOptions {
  /** How long to wait, in milliseconds; for ever when absent. It ends the wait, not the task. */
  readonly timeoutMs?: number;
  /** Ends the wait. */
  readonly signal?: AbortSignal;
}

/** A task that was published. */
export interface TaskHandle {
  readonly topic: string;
  readonly id: string;
  /** Whether the message id was known, and this is its task. */
  readonly deduplicated: boolean;
  /**
   * Waits until the task is settled. Each wait has a connection of its own to the server.
   *
   * @returns what the worker answered; null where that was nothing
   * @throws TaskFailedError where it is dead, expired or cancelled; ResultTimeoutError; ConnectionError where the
   *   server could not be reached for as long as calls are tried; QueueError `task-not-found` after its retention
   */
  result(options?: ResultOptions): Promise<JsonValue>;
}

const RESULT_OPTIONS: ReadonlySet<string> = new Set<keyof ResultOptions>(['timeoutMs', 'signal']);
const OPTIONS: ReadonlySet<string> = new Set([...TASK_FIELDS].filter((field) => field !== 'payload'));
/** What a task adds to a call beside its payload and metadata, roughly. */
const TASK_BYTES = 200;
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1;

/** Puts tasks into topics, and waits for what becomes of them. */
export class Publisher<T extends TopicSchemas = AnyTopics> extends Drainable {
  readonly #context: ClientContext;
  /** By topic; those whose calls may not be repeated apart from the others. */
  readonly #batchers = new Map<string, Batcher<TaskInput, EnqueueResult>>();

  constructor(context: ClientContext, onClosed: () => void) {
    super(context.connection, onClosed);
    this.#context = context;
  }

  /**
   * Puts a task into a topic, which needs no creation; those published within a few milliseconds share a call.
   *
   * A call whose answer is lost is made again, and the task still is there only once: without a `messageId` it gets one
   * made of a key of its own. (Where the topic's `dedupWindowMs` is shorter than the calls are tried, that no longer
   * holds once it is over.) With `onDuplicate: 'again'` a call is not made again once it may have been carried out.
   *
   * @param payload any JSON value, or bytes; not to be changed before this resolves
   * @returns resolves once the task is on disk
   * @throws ClientDrainingError, ClientClosedError; QueueError as the queue refuses it, `invalid-input` where the
   *   payload does not fit the topic's schema, `topic-full` and `store-full` where there is no room for it (not tried again:
   *   how long that takes is up to the workers), `outcome-unknown` where it may have been enqueued; ConnectionError
   *   where the server could not be reached for as long as calls are tried
   */
  publish<const N extends TopicName<T>>(
    topic: N,
    payload: PayloadOf<T, N>,
    options: PublishOptions = {},
  ): Promise<TaskHandle> {
    return handled(this.#told(topic, payload, options));
  }

  protected override stopTaking(): void {}
  protected override giveBack(): void {}

  #told(topic: string, payload: unknown, options: PublishOptions): Promise<TaskHandle> {
    const by = tracer();
    if (by === null) return this.#publish(topic, payload, options);
    return sending(
      by,
      { topic, tasks: [options], isBatch: false, kindOtherwise: SpanKind.CLIENT },
      ([carried = options]) => this.#publish(topic, payload, carried),
      ({ id }) => ({ id }),
    );
  }

  async #publish(topic: string, payload: unknown, options: PublishOptions): Promise<TaskHandle> {
    this.checkOpen();
    const done = this.hold();
    try {
      const [task, bytes] = await this.#check(topic, payload, options);
      const isRepeatable = options.onDuplicate !== 'again' || options.messageId === undefined;
      const answer = await this.#batcher(topic, isRepeatable).add(task, bytes);
      if (answer.id === null) throw new QueueError(answer.code as ErrorCode, answer.detail);
      const { id } = answer;
      const deduplicated = answer.deduplicated && options.messageId !== undefined;
      const { metadata = {} } = options;
      const result = (wait?: ResultOptions): Promise<JsonValue> =>
        handled(awaiting({ topic, id, metadata }, () => this.#result(topic, id, wait)));
      return { topic, id, deduplicated, result };
    } finally {
      done();
    }
  }

  /** @returns what is sent, and its size */
  async #check(topic: string, payload: unknown, options: PublishOptions): Promise<readonly [TaskInput, number]> {
    checkFields(options, '', 'what is published', OPTIONS, '{"priority": 9}');
    if (topic.endsWith('*')) throw invalid('/topic', topic, 'the name of one topic', '"mail.example.org"');
    this.#context.topics.check(topic);
    await this.#context.topics.parse(topic, payload);
    const bytes = payload instanceof Uint8Array ? payload.byteLength * 1.4 : jsonText(payload, '/payload').length;
    const metadata = options.metadata === undefined ? 0 : jsonText(options.metadata, '/metadata').length;
    // Both are JSON, as was just seen.
    const task: TaskInput = { ...options, payload: payload as TaskPayload };
    return [task.messageId === undefined ? withKey(task) : task, TASK_BYTES + bytes + metadata];
  }

  #batcher(topic: string, isRepeatable: boolean): Batcher<TaskInput, EnqueueResult> {
    const key = `${isRepeatable ? 'r' : 'o'}${topic}`;
    let batcher = this.#batchers.get(key);
    if (batcher === undefined) {
      batcher = new Batcher((tasks) => this.#enqueue(topic, tasks, isRepeatable));
      this.#batchers.set(key, batcher);
      // A publisher may see millions of topics.
      if (this.#batchers.size % 256 === 0) {
        for (const [name, other] of this.#batchers) {
          if (other !== batcher && other.isIdle) this.#batchers.delete(name);
        }
      }
    }
    return batcher;
  }

  #enqueue(topic: string, tasks: readonly TaskInput[], isRepeatable: boolean): Promise<readonly EnqueueResult[]> {
    const { backend, connection, retryMs } = this.#context;
    return connection.call(() => backend.enqueue(topic, tasks), {
      forMs: retryMs,
      signal: this.closing,
      isRepeatable: (error) => isRepeatable || !mayHaveBeenDone(error),
    });
  }

  async #result(topic: string, id: string, options: ResultOptions = {}): Promise<JsonValue> {
    checkFields(options, '', 'a wait for a result', RESULT_OPTIONS, '{"timeoutMs": 10000}');
    const { timeoutMs, signal } = options;
    if (timeoutMs !== undefined) integer(timeoutMs, '/timeoutMs', 0, LONGEST_TIMEOUT_MS);
    if (this.isClosed) throw new ClientClosedError();
    const done = this.hold();
    const { controller, unlink } = abortedBy(this.closing, signal);
    const late = (): void => controller.abort(new ResultTimeoutError(topic, id, timeoutMs!));
    const timer = timeoutMs === undefined ? undefined : setTimeout(late, timeoutMs);
    try {
      return resultOf(await this.#settled(topic, id, controller.signal));
    } finally {
      clearTimeout(timer);
      unlink();
      done();
    }
  }

  async #settled(topic: string, id: string, signal: AbortSignal): Promise<TaskInfo> {
    const { backend, connection, resultTurns, retryMs } = this.#context;
    for (;;) {
      const { task, isEarly } = await resultTurns.take(signal, async (waitMs) => {
        const askedAt = performance.now();
        const ask = () => backend.task(topic, id, { waitMs, signal });
        const task = await connection.call(ask, { forMs: retryMs, signal });
        return { task, isEarly: performance.now() - askedAt < waitMs / 2 };
      });
      if (task.settledAt !== null) return task;
      if (isEarly) await connection.rest(signal);
    }
  }
}

const withKey = ({ onDuplicate: _none, ...task }: TaskInput): TaskInput => ({
  ...task,
  messageId: messageIdFromKey(randomUUID(), 0),
});

const mayHaveBeenDone = (error: unknown): boolean =>
  error instanceof ConnectionError
    ? error.mayHaveArrived
    : error instanceof QueueError && error.code === 'outcome-unknown';

function resultOf(task: TaskInfo): JsonValue {
  if (task.state === 'done') return task.result;
  throw new TaskFailedError(task);
}
