/**
 * Spans by the messaging conventions of OpenTelemetry (https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/),
 * version 1.36. Without an SDK in the process there are none, and it costs one look whether there is one.
 */
import {
  type Attributes,
  type Context,
  context,
  createContextKey,
  type Link,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { carrying, creationContextOf, type Metadata, metadataOf } from './trace-context.ts';

/** A task as it came from a queue. */
export interface Carried {
  readonly topic: string;
  readonly id: string;
  readonly metadata: Metadata;
}

export type SettleName = 'ack' | 'nack' | 'release' | 'settle';
type Operation = 'send' | 'receive' | 'process' | 'settle';

const NAME = 'ebbmark';
/** Who calls has made a span of it already. */
const IS_TOLD = createContextKey('ebbmark.is-told');
const TOLD_ROOT = ROOT_CONTEXT.setValue(IS_TOLD, true);

/** What spans are made with; null: there is no SDK in this process. */
export function tracer(): Tracer | null {
  const provider = trace.getTracerProvider();
  // The provider of the API stands in for one that may come later; until then its spans lead nowhere.
  const found = provider instanceof ProxyTracerProvider ? provider.getDelegateTracer(NAME) : provider.getTracer(NAME);
  return found ?? null;
}

/** The same for a queue that may be called by a client in this process, which tells of the call itself. */
export const tracerOfQueue = (): Tracer | null => (context.active().getValue(IS_TOLD) === true ? null : tracer());

/** Makes a call in a context, for which the caller has made a span, or wants none. */
export const callIn = <T>(of: Context, call: () => T): T =>
  context.with(of === ROOT_CONTEXT ? TOLD_ROOT : of.setValue(IS_TOLD, true), call);

/** Several tasks that are put in by one call, or a single one. */
export interface Sending<T> {
  readonly topic: string;
  readonly tasks: readonly T[];
  /** Whether the caller gave a list. */
  readonly isBatch: boolean;
  /** What the span is where tasks have a context of their own: CLIENT where another process is called. */
  readonly kindOtherwise: SpanKind;
}

/**
 * Tells of tasks that are sent. Those without a context of their own get the span's as the one that they are created in; the
 * span links to those of the others.
 *
 * @param outcomeOf what the answer says: the id of a single task, why all were refused
 */
export function sending<T extends { readonly metadata?: Metadata }, R>(
  by: Tracer,
  { topic, tasks, isBatch, kindOtherwise }: Sending<T>,
  send: (tasks: readonly T[]) => Promise<R>,
  outcomeOf: (answer: R) => Outcome,
): Promise<R> {
  const own = tasks.flatMap((task) => creationContextOf(task?.metadata ?? {}) ?? []);
  const isCreation = own.length < tasks.length;
  const span = by.startSpan(`send ${topic}`, {
    kind: isCreation ? SpanKind.PRODUCER : kindOtherwise,
    attributes: attributesOf('send', 'send', topic, isBatch ? tasks.length : null),
    links: own.map((of) => ({ context: of })),
  });
  const carried = isCreation ? carrying(tasks, metadataOf(span.spanContext())) : tasks;
  return during(span, () => send(carried), outcomeOf);
}

/** How a call came out. */
export interface Outcome {
  /** The task's, where it is about one. */
  readonly id?: string | undefined;
  /** The code of what went wrong; absent where nothing did. */
  readonly error?: string | undefined;
}

/** Tells of tasks that were received by one call, once there are any: a wait in vain is no news. */
export function received(by: Tracer, tasks: readonly Carried[], askedAt: number): void {
  const [first] = tasks;
  if (first === undefined) return;
  const topic = sameTopic(tasks.map((task) => task.topic));
  by.startSpan(topic === null ? 'receive' : `receive ${topic}`, {
    kind: SpanKind.CLIENT,
    startTime: askedAt,
    attributes: {
      ...attributesOf('receive', 'receive', topic, tasks.length),
      ...(tasks.length === 1 ? { 'messaging.message.id': first.id } : {}),
    },
    links: tasks.flatMap(linkTo),
  }).end();
}

/** Work on a task, as a span. */
export interface Processing {
  /** Does something as part of it. */
  run<T>(work: () => T): T;
  /** @param error why it failed; absent where it did not */
  end(error?: unknown): void;
}

const NOT_TOLD: Processing = { run: (work) => work(), end() {} };

/**
 * Begins to tell of the work on a task. Its span is a child of the one that the task was created in, and links to it: whatever
 * the worker happened to be doing when it began to take tasks is not its cause.
 */
export function processing(task: Carried & { readonly attempt: number }): Processing {
  const by = tracer();
  if (by === null) return NOT_TOLD;
  const creation = creationContextOf(task.metadata);
  const parent = creation === null ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, creation);
  const span = by.startSpan(
    `process ${task.topic}`,
    {
      kind: SpanKind.CONSUMER,
      attributes: {
        ...attributesOf('process', 'process', task.topic, null),
        'messaging.message.id': task.id,
        'messaging.ebbmark.message.attempt': task.attempt,
      },
      links: linkTo(task),
    },
    parent,
  );
  const within = trace.setSpan(parent, span);
  return {
    run: (work) => context.with(within, work),
    end: (...failure) => {
      if (failure.length > 0) setError(span, typeOf(failure[0]), messageOf(failure[0]));
      span.end();
    },
  };
}

/** Tells of tasks that are settled; `tasks` are those that are known. */
export function settling<R>(
  by: Tracer,
  {
    name,
    topics,
    count,
    tasks,
  }: {
    readonly name: SettleName;
    readonly topics: readonly string[];
    /** How many; null: it is about one. */
    readonly count: number | null;
    readonly tasks: readonly Carried[];
  },
  settle: () => Promise<R>,
  outcomeOf: (answer: R) => Outcome,
): Promise<R> {
  const topic = sameTopic(topics);
  const span = by.startSpan(topic === null ? name : `${name} ${topic}`, {
    kind: SpanKind.CLIENT,
    attributes: attributesOf(name, 'settle', topic, count),
    links: tasks.flatMap(linkTo),
  });
  return during(span, settle, outcomeOf);
}

/** Tells of a wait for the result of a task: in the caller's trace, or, where it has none, in the task's own. */
export function awaiting<R>(task: Carried, wait: () => Promise<R>): Promise<R> {
  const by = tracer();
  if (by === null) return wait();
  const creation = creationContextOf(task.metadata);
  const active = context.active();
  const isAlone = trace.getSpanContext(active) === undefined && creation !== null;
  const parent = isAlone ? trace.setSpanContext(active, creation) : active;
  const span = by.startSpan(
    `result ${task.topic}`,
    {
      kind: SpanKind.CLIENT,
      attributes: { ...attributesOf('result', null, task.topic, null), 'messaging.message.id': task.id },
      links: linkTo(task),
    },
    parent,
  );
  return during(span, wait, () => ({}), parent);
}

async function during<R>(
  span: Span,
  call: () => Promise<R>,
  outcomeOf: (answer: R) => Outcome,
  parent = context.active(),
): Promise<R> {
  try {
    const answer = await context.with(trace.setSpan(parent, span), call);
    const { id, error } = outcomeOf(answer);
    if (id !== undefined) span.setAttribute('messaging.message.id', id);
    if (error !== undefined) setError(span, error);
    return answer;
  } catch (error) {
    setError(span, typeOf(error), messageOf(error));
    throw error;
  } finally {
    span.end();
  }
}

export function setError(span: Span, type: string, message?: string): void {
  span.setAttribute('error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR, ...(message === undefined ? {} : { message }) });
}

/** The code of an error, or its class. */
function typeOf(error: unknown): string {
  if (!(error instanceof Error)) return '_OTHER';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const attributesOf = (
  name: string,
  type: Operation | null,
  topic: string | null,
  count: number | null,
): Attributes => ({
  'messaging.system': NAME,
  'messaging.operation.name': name,
  ...(type === null ? {} : { 'messaging.operation.type': type }),
  ...(topic === null ? {} : { 'messaging.destination.name': topic }),
  ...(count === null ? {} : { 'messaging.batch.message_count': count }),
});

function linkTo({ id, metadata }: Carried): Link[] {
  const of: SpanContext | null = creationContextOf(metadata);
  return of === null ? [] : [{ context: of, attributes: { 'messaging.message.id': id } }];
}

const sameTopic = (topics: readonly string[]): string | null =>
  topics.length > 0 && topics.every((topic) => topic === topics[0]) ? topics[0]! : null;
