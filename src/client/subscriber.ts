import { setMaxListeners } from 'node:events';
import { hostname } from 'node:os';
import { ROOT_CONTEXT } from '@opentelemetry/api';
import { LEASE_MS, LEASE_TASKS, WAIT_MS, WORKER_BYTES } from '../core/bounds.ts';
import { invalid, QueueError } from '../core/errors.ts';
import { checkFields } from '../core/fields.ts';
import { integer, optionalInteger } from '../core/numbers.ts';
import type { JsonValue, LeasedTask, LeaseRequest } from '../queue/api.ts';
import { callIn, processing, received, tracer } from '../telemetry/spans.ts';
import { untilAborted } from './abort.ts';
import type { ClientContext, Trouble } from './context.ts';
import { Drainable } from './drainable.ts';
import { handled, isRefusal, sayError, UnrecoverableError } from './errors.ts';
import { asHandlerOf } from './handler-context.ts';
import { Settlements } from './settlements.ts';
import { Delivery, type Task } from './task.ts';

export interface SubscriberOptions extends Pick<LeaseRequest, 'maxPerTopic' | 'priorities' | 'order' | 'worker'> {
  /**
   * How long a lease lasts, in milliseconds; 30,000 when absent. It is extended for as long as a task is worked on; a
   * task whose worker dies is back when it ends. No longer than the topics' `maxRunMs`, where they have one.
   */
  readonly leaseMs?: number;
  /**
   * Tasks that are leased beyond those that are asked for, so that a worker need not wait for the next one; 0 when
   * absent. A task that is leased ahead waits, while other workers may be free.
   */
  readonly prefetch?: number;
  /** How long a lease call waits for tasks, in milliseconds; 20,000 when absent. Another one follows. */
  readonly waitMs?: number;
}

export interface RunOptions {
  /** Tasks that are worked on at the same time; 1 when absent. */
  readonly concurrency?: number;
}

/** Its answer is the result: any JSON value, or nothing. What it throws fails the task (see `Task.fail`). */
export type Handler<K extends Task> = (task: K) => unknown;

const OPTIONS: ReadonlySet<string> = new Set<keyof SubscriberOptions>([
  'leaseMs',
  'prefetch',
  'waitMs',
  'maxPerTopic',
  'priorities',
  'order',
  'worker',
]);
const RUN_OPTIONS: ReadonlySet<string> = new Set<keyof RunOptions>(['concurrency']);

/** The extension has to be there a second before the end. */
const SPARE_MS = 1_000;
/** Who asks in vain asks again no sooner. */
const SHORT_WAIT_MS = 100;

interface Taker {
  readonly resolve: (delivery: Delivery | null) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Takes tasks of topics, and keeps their leases while they are worked on.
 *
 * Whoever wants a task is a *taker*: a free slot of `run`, or a `next()` of an iteration. As many tasks are leased as
 * there are takers, and `prefetch` more, by one call after the other; so a slow task holds up its own slot and no
 * other. What nobody has taken yet lies in the buffer, under a lease that is kept like any other.
 *
 * Draining ends the lease call that waits. What it brings all the same is handed out; takers end behind it. `drain()` gives back what lies in the buffer, and what comes in without a taker.
 */
export class Subscriber<K extends Task = Task> extends Drainable implements AsyncIterable<K> {
  readonly #context: ClientContext;
  readonly #request: Omit<LeaseRequest, 'max' | 'signal'> & { readonly waitMs: number };
  readonly #leaseMs: number;
  readonly #leadMs: number;
  readonly #prefetch: number;
  readonly #settlements: Settlements;
  readonly #buffer = new Set<Delivery>();
  readonly #taken = new Set<Delivery>();
  readonly #takers = new Set<Taker>();
  /** Aborted when draining starts. */
  readonly #stopped = new AbortController();
  /** Runs and iterations: without any, nothing is leased ahead. */
  #consumers = 0;
  #isLeasing = false;
  #soon: NodeJS.Immediate | null = null;

  /** @throws QueueError `invalid-input`, `topic-invalid` */
  constructor(context: ClientContext, topics: readonly string[], options: SubscriberOptions, onClosed: () => void) {
    super(context.connection, onClosed);
    setMaxListeners(0, this.#stopped.signal);
    if (topics.length === 0) throw invalid('/topics', topics, 'at least one topic', '["mail.example.org", "crawl/*"]');
    for (const topic of topics) context.topics.check(topic);
    checkFields(options, '', "a subscriber's options", OPTIONS, '{"leaseMs": 30000}');
    const { leaseMs, prefetch, waitMs, worker = defaultWorker(), ...request } = options;
    this.#context = context;
    this.#leaseMs = optionalInteger(leaseMs, '/leaseMs', LEASE_MS.min, LEASE_MS.max) ?? 30_000;
    this.#leadMs = Math.min(context.requestTimeoutMs + SPARE_MS, this.#leaseMs / 2);
    this.#prefetch = optionalInteger(prefetch, '/prefetch', 0, LEASE_TASKS) ?? 0;
    this.#request = {
      ...request,
      topics,
      worker,
      leaseMs: this.#leaseMs,
      waitMs: optionalInteger(waitMs, '/waitMs', 0, WAIT_MS) ?? 20_000,
    };
    this.#settlements = new Settlements(context, this.closing, this.#leadMs);
    this.closing.addEventListener('abort', () => this.#cutShort(), { once: true });
  }

  /**
   * Works on tasks until this is drained or closed; several may run at the same time.
   *
   * @returns resolves then; rejects where the queue refuses to lease (a bad option, say), or with ClientDrainingError
   * @throws QueueError `invalid-input`, at once
   */
  run(handler: Handler<K>, options: RunOptions = {}): Promise<void> {
    checkFields(options, '', 'what runs a handler', RUN_OPTIONS, '{"concurrency": 10}');
    const { concurrency = 1 } = options;
    if (typeof handler !== 'function') {
      throw invalid('/handler', handler, 'a function', 'async (task) => send(task.payload)');
    }
    integer(concurrency, '/concurrency', 1, LEASE_TASKS);
    return handled(this.#run(handler, concurrency));
  }

  /**
   * Tasks one by one, each to be settled by whoever takes it; the iteration ends when this is drained or closed.
   * Leaving it early gives back what was leased ahead, and fails the last task where it was not settled.
   * @throws ClientDrainingError, ClientClosedError where that was before its beginning
   */
  [Symbol.asyncIterator](): AsyncIterableIterator<K> {
    const mine = new Set<Taker>();
    let last: Delivery | null = null;
    let leave: (() => void) | null = null;
    let hasEnded = false;
    const end = (): IteratorReturnResult<undefined> => {
      hasEnded = true;
      leave?.();
      leave = null;
      return { done: true, value: undefined };
    };
    const next = async (): Promise<IteratorResult<K, undefined>> => {
      if (hasEnded) return end();
      if (leave === null) {
        this.checkOpen();
        leave = this.#enter();
      }
      const askedAt = Date.now();
      last = await this.#take(mine);
      const by = tracer();
      if (by !== null && last !== null) received(by, [last], askedAt);
      return last === null ? end() : { done: false, value: asTask<K>(last) };
    };
    const iterator: AsyncIterableIterator<K> = {
      [Symbol.asyncIterator]: () => iterator,
      next: () => handled(next()),
      return: async () => {
        for (const taker of mine) {
          this.#takers.delete(taker);
          taker.resolve(null);
        }
        const result = end();
        if (last !== null) await this.#fail(last, 'the iteration was left before the task was settled');
        return result;
      },
    };
    return iterator;
  }

  protected override stopTaking(): void {
    this.#stopped.abort();
    this.#endTakers();
  }

  protected override giveBack(): void {
    for (const delivery of this.#buffer) void this.#release(delivery);
  }

  // ── working ───────────────────────────────────────────────────────────────────────────────────────────────────

  async #run(handler: Handler<K>, concurrency: number): Promise<void> {
    this.checkOpen();
    const leave = this.#enter();
    try {
      await Promise.all(Array.from({ length: concurrency }, () => this.#slot(handler)));
    } finally {
      leave();
    }
  }

  async #slot(handler: Handler<K>): Promise<void> {
    for (;;) {
      const delivery = await this.#take(new Set());
      if (delivery === null) return;
      try {
        await untilAborted(this.#work(delivery, handler), this.closing);
      } catch (error) {
        // A handler that goes on past the end is no longer waited for.
        if (this.isClosed) return;
        throw error;
      }
    }
  }

  /** Never rejects. */
  async #work(delivery: Delivery, handler: Handler<K>): Promise<void> {
    const done = this.hold();
    const work = processing(delivery);
    try {
      const result = await work.run(() => asHandlerOf(this, () => handler(asTask<K>(delivery))));
      work.end();
      await work.run(() => this.#succeed(delivery, result));
    } catch (error) {
      work.end(error);
      if (this.isClosed) return;
      this.#report(error, 'handler', delivery);
      await work.run(() => this.#fail(delivery, error));
    } finally {
      done();
    }
  }

  async #succeed(delivery: Delivery, result: unknown): Promise<void> {
    if (delivery.isSettled || this.isClosed) return;
    try {
      // What is no JSON is refused there.
      await delivery.success(result as JsonValue | undefined);
    } catch (error) {
      this.#report(error, 'settle', delivery);
      // The lease is kept where the result was refused. The same result would be refused after every redelivery.
      if (!delivery.isSettled) await this.#fail(delivery, new UnrecoverableError(sayError(error)));
    }
  }

  async #fail(delivery: Delivery, reason: unknown): Promise<void> {
    if (delivery.isSettled || this.isClosed) return;
    await delivery.fail(reason).catch((error: unknown) => this.#report(error, 'settle', delivery));
  }

  async #release(delivery: Delivery): Promise<void> {
    this.#buffer.delete(delivery);
    await delivery.release().catch((error: unknown) => this.#report(error, 'settle', delivery));
  }

  // ── taking ────────────────────────────────────────────────────────────────────────────────────────────────────

  #enter(): () => void {
    this.#consumers++;
    return () => {
      this.#consumers--;
      if (this.#consumers === 0) this.giveBack();
    };
  }

  /**
   * The next task whose payload fits; null: there will be none any more.
   * @param mine has the taker in it while it waits
   */
  async #take(mine: Set<Taker>): Promise<Delivery | null> {
    for (;;) {
      const delivery = await this.#next(mine);
      if (delivery === null) return null;
      try {
        await delivery.parse(this.#context.topics);
        if (!delivery.signal.aborted) return delivery;
      } catch (error) {
        this.#report(error, 'handler', delivery);
        await this.#fail(delivery, isRefusal(error) ? new UnrecoverableError(error.detail) : error);
      }
    }
  }

  #next(mine: Set<Taker>): Promise<Delivery | null> {
    for (const delivery of this.#buffer) {
      this.#buffer.delete(delivery);
      this.#taken.add(delivery);
      this.#leaseSoon();
      return Promise.resolve(delivery);
    }
    return new Promise<Delivery | null>((resolve, reject) => {
      const taker: Taker = {
        resolve: (delivery) => {
          mine.delete(taker);
          resolve(delivery);
        },
        reject: (error) => {
          mine.delete(taker);
          reject(error);
        },
      };
      mine.add(taker);
      this.#takers.add(taker);
      this.#leaseSoon();
      this.#endTakers();
    });
  }

  /** Takers end once nothing more can come. */
  #endTakers(error?: unknown): void {
    const isOver = this.isClosed || (this.draining && !this.#isLeasing);
    if (!isOver && error === undefined) return;
    for (const taker of this.#takers) {
      this.#takers.delete(taker);
      if (error === undefined) taker.resolve(null);
      else taker.reject(error);
    }
  }

  // ── leasing ───────────────────────────────────────────────────────────────────────────────────────────────────

  /** At the end of this turn, so that all that wait by then are asked for together. */
  #leaseSoon(): void {
    this.#soon ??= setImmediate(() => {
      this.#soon = null;
      if (this.draining || this.#consumers === 0 || this.#isLeasing) return;
      const wanted = this.#takers.size + this.#prefetch - this.#buffer.size;
      if (wanted > 0) void this.#lease(Math.min(wanted, LEASE_TASKS));
    });
  }

  /** Never rejects. */
  async #lease(max: number): Promise<void> {
    const done = this.hold();
    this.#isLeasing = true;
    const { connection } = this.#context;
    const callOff = this.#stopped.signal;
    try {
      const askedAt = performance.now();
      // Not in the trace of whoever was the first to want one, or of the task that is done now.
      const tasks = await connection.call(() => callIn(ROOT_CONTEXT, () => this.#ask(max)), {
        forMs: Number.POSITIVE_INFINITY,
        signal: this.closing,
        callOff,
      });
      for (const task of tasks) this.#arrived(task);
      const isEarly = performance.now() - askedAt < Math.max(this.#request.waitMs / 2, SHORT_WAIT_MS);
      if (tasks.length === 0 && isEarly) await connection.rest(callOff);
    } catch (error) {
      if (!this.draining) await this.#missed(error);
    } finally {
      this.#isLeasing = false;
      done();
      this.#endTakers();
      this.#leaseSoon();
    }
  }

  async #ask(max: number): Promise<readonly LeasedTask[]> {
    const { backend } = this.#context;
    const tasks = await backend.lease({ ...this.#request, max, signal: this.#stopped.signal });
    if (!this.isClosed || tasks.length === 0) return tasks;
    // Nobody is here to take them. Where this does not get through, they are back when their leases end.
    await backend.settle({ release: tasks.map(({ leaseId }) => ({ leaseId })) }).catch(() => {});
    return [];
  }

  /** What is refused now will be refused again: whoever waits for tasks has to know. Anything else may pass. */
  async #missed(error: unknown): Promise<void> {
    this.#report(error, 'lease');
    const isGone = error instanceof QueueError && error.code === 'shutting-down';
    if (isRefusal(error) || isGone || !(error instanceof QueueError)) this.#endTakers(error);
    else await this.#context.connection.rest(this.#stopped.signal).catch(() => {});
  }

  #arrived(leased: LeasedTask): void {
    const done = this.hold();
    const delivery = new Delivery(leased, {
      settlements: this.#settlements,
      leaseMs: this.#leaseMs,
      leadMs: this.#leadMs,
      onError: (error) => this.#report(error, 'extend', delivery),
      onEnd: (error) => {
        this.#buffer.delete(delivery);
        this.#taken.delete(delivery);
        if (error !== undefined) this.failDrain(error);
        done();
      },
    });
    const [taker] = this.#takers;
    if (taker !== undefined) {
      this.#takers.delete(taker);
      this.#taken.add(delivery);
      taker.resolve(delivery);
    } else if (this.isEmptying || this.#consumers === 0) void this.#release(delivery);
    else this.#buffer.add(delivery);
  }

  /** On closing: what is in hand is called off, and comes back when its lease ends. */
  #cutShort(): void {
    for (const delivery of [...this.#buffer, ...this.#taken]) delivery.abandon(this.closing.reason);
    this.#endTakers();
  }

  #report(error: unknown, during: Trouble['during'], delivery?: Delivery): void {
    if (this.isClosed) return;
    this.#context.report(error, { during, ...(delivery && { topic: delivery.topic, id: delivery.id }) });
  }
}

/** The schemas that a client was given say what its payloads are; they were parsed by them. */
const asTask = <K extends Task>(delivery: Delivery): K => delivery as Task as K;

const defaultWorker = (): string => `${hostname()}:${process.pid}`.slice(-WORKER_BYTES);
