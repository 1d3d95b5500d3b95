/**
 * The context of a trace that goes along with a task: what W3C Trace Context (https://www.w3.org/TR/trace-context/) puts into
 * headers, as two names of the task's metadata. So any worker in any language finds it where messages of other systems have
 * it, and it needs no place of its own in the store.
 */
import { createTraceState, isSpanContextValid, type SpanContext } from '@opentelemetry/api';
import { METADATA_BYTES } from '../core/bounds.ts';

export type Metadata = Readonly<Record<string, string>>;

const TRACEPARENT = 'traceparent';
const TRACESTATE = 'tracestate';
/** Version 00 is these four parts; later ones may say more behind them. */
const FORM = /^(?!ff)([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/;

/** The context that a task was created in, where its metadata says so; null: it doesn't, or not by the rules. */
export function creationContextOf(metadata: Metadata): SpanContext | null {
  const parts = FORM.exec(metadata[TRACEPARENT] ?? '');
  if (parts === null || (parts[1] === '00' && parts[5] !== undefined)) return null;
  const state = metadata[TRACESTATE];
  const context: SpanContext = {
    traceId: parts[2]!,
    spanId: parts[3]!,
    traceFlags: Number.parseInt(parts[4]!, 16) & 1,
    isRemote: true,
    ...(state === undefined ? {} : { traceState: createTraceState(state) }),
  };
  return isSpanContextValid(context) ? context : null;
}

/** What says it in metadata. */
export function metadataOf({ traceId, spanId, traceFlags, traceState }: SpanContext): Metadata {
  const state = traceState?.serialize();
  return {
    [TRACEPARENT]: `00-${traceId}-${spanId}-${(traceFlags & 1).toString().padStart(2, '0')}`,
    ...(state ? { [TRACESTATE]: state } : {}),
  };
}

/** What headers of a request say of its context; null: nothing, or not by the rules, and it is to be ignored. */
export function contextOfHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): Metadata | null {
  const { traceparent, tracestate } = headers;
  if (typeof traceparent !== 'string') return null;
  // The header may come several times (RFC 9110, section 5.3).
  const state = Array.isArray(tracestate) ? tracestate.join(',') : tracestate;
  const carried = { traceparent, ...(state ? { tracestate: state } : {}) };
  return creationContextOf(carried) === null ? null : carried;
}

/**
 * Tasks with the context that they are created in. A task that has one of its own keeps it, and one for which there is no
 * room left, or whose metadata are none, stays as it is: what a task may be is for others to say.
 */
export function carrying<T extends { readonly metadata?: Metadata | undefined }>(
  tasks: readonly T[],
  context: Metadata,
): readonly T[] {
  return tasks.map((task) => {
    if (typeof task !== 'object' || task === null) return task;
    const { metadata = {} } = task;
    const isObject = typeof metadata === 'object' && metadata !== null && !Array.isArray(metadata);
    if (!isObject || TRACEPARENT in metadata || TRACESTATE in metadata) return task;
    const all = { ...metadata, ...context };
    return Buffer.byteLength(JSON.stringify(all)) > METADATA_BYTES ? task : { ...task, metadata: all };
  });
}
