import { DELAY_MS } from '../core/bounds.ts';
import { type ErrorCode, QueueError } from '../core/errors.ts';
import { integer } from '../core/numbers.ts';
import type { TaskInfo, TaskState } from '../queue/api.ts';

/** A publish or a lease after `startDraining()`: nothing new is taken on, for good. */
export class ClientDrainingError extends Error {
  override readonly name = 'ClientDrainingError';
  constructor() {
    super('This is draining: it takes on nothing new. Make another client for further work.');
  }
}

/** What was under way when `close()` was called, and whatever is asked of what is closed. */
export class ClientClosedError extends Error {
  override readonly name = 'ClientClosedError';
  constructor() {
    super('This is closed: what was under way was cut short.');
  }
}

/** `drain()` awaited inside a handler: it would wait for that handler, which waits for it. */
export class DrainInHandlerError extends Error {
  override readonly name = 'DrainInHandlerError';
  constructor() {
    super('drain() waits for this very handler. It has begun; await it outside of handlers.');
  }
}

/** No server answered, or something that is none. */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';
  readonly url: string;
  /** Whether the call may have reached a server all the same, and been carried out. */
  readonly mayHaveArrived: boolean;
  /** It went out on a connection that had lain idle, and was closed in that moment: the next one may be better. */
  readonly wasIdle: boolean;

  constructor(
    url: string,
    what: string,
    {
      mayHaveArrived = true,
      wasIdle = false,
      cause,
    }: { mayHaveArrived?: boolean; wasIdle?: boolean; cause?: unknown } = {},
  ) {
    super(`${url} ${what}`, { cause });
    this.url = url;
    this.mayHaveArrived = mayHaveArrived;
    this.wasIdle = wasIdle;
  }
}

/** A wait for a result that was over first. The task goes on. */
export class ResultTimeoutError extends Error {
  override readonly name = 'ResultTimeoutError';
  constructor(topic: string, id: string, timeoutMs: number) {
    super(`Task ${id} of ${topic} was not settled within ${timeoutMs} ms; it goes on, and can be waited for again.`);
  }
}

/** A task that ended without a result: dead, expired or cancelled. */
export class TaskFailedError extends Error {
  override readonly name = 'TaskFailedError';
  readonly topic: string;
  readonly id: string;
  readonly state: TaskState;
  /** As the worker, or who cancelled it, gave it. */
  readonly reason: string | null;
  readonly attempt: number;

  constructor({ topic, id, state, reason, attempt }: TaskInfo) {
    super(`Task ${id} of ${topic} is ${state}${reason === null ? '' : `: ${reason}`}`);
    this.topic = topic;
    this.id = id;
    this.state = state;
    this.reason = reason;
    this.attempt = attempt;
  }
}

/** Thrown by a handler: the task goes to the dead letters, whatever attempts are left. */
export class UnrecoverableError extends Error {
  override readonly name = 'UnrecoverableError';
}

/** Thrown by a handler: the task comes back after this long, in place of the topic's backoff. The attempt counts. */
export class RetryAfterError extends Error {
  override readonly name = 'RetryAfterError';
  readonly ms: number;

  /** @param ms milliseconds, 366 days at the most */
  constructor(ms: number, message = `to be tried again in ${ms} ms`) {
    super(message);
    this.ms = integer(ms, '/ms', 0, DELAY_MS.max);
  }
}

/** A promise that nobody waits for does not end the process when it rejects; who awaits it learns of it as ever. */
export function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

const PASSING: ReadonlySet<ErrorCode> = new Set([
  'busy',
  'not-holder',
  'outcome-unknown',
  'rate-limited',
  'request-timeout',
  'shutting-down',
  'store-unavailable',
]);

/** Whether the same call may be answered otherwise in a moment. */
export const isPassing = (error: unknown): boolean =>
  error instanceof ConnectionError || (error instanceof QueueError && PASSING.has(error.code));

/** Whether the server has said no, and would say so again. */
export const isRefusal = (error: unknown): error is QueueError =>
  error instanceof QueueError && error.code !== 'internal' && !PASSING.has(error.code);

const OF_ALL: ReadonlySet<ErrorCode> = new Set(['topic-full', 'store-full', 'unauthenticated', 'forbidden']);

/** Whether what was refused would be so item by item, too: there is no room for any, or its caller may send none. */
export const isOfAll = (error: QueueError): boolean => OF_ALL.has(error.code);

/** Whether a lease is not held any more. */
export const isLeaseLost = (code: string): boolean => code === 'lease-lost' || code === 'lease-invalid';

/** Why an item of a settlement was refused. */
export const refusalOf = ({ code, detail }: { readonly code: string; readonly detail: string }): QueueError =>
  new QueueError(code as ErrorCode, detail);

export const sayError = (error: unknown): string => (error instanceof Error ? error.message : String(error));
