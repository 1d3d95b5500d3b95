/** The SDK of OpenTelemetry, as a program would set it up, with spans kept in memory. */
import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { onTestFinished } from 'vitest';
import { eventually } from '../http/support/server.ts';

export interface Spans {
  /** Those that have ended, in the order of their ends. */
  all(): readonly ReadableSpan[];
  /** The one that has ended with this name; what the server tells of a request that it works on is left out. */
  one(name: string): ReadableSpan;
  /** Resolves once as many have ended with this name. */
  until(name: string, count?: number): Promise<readonly ReadableSpan[]>;
}

/** Sets the SDK up for a test. */
export function startSdk(): Spans {
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  onTestFinished(async () => {
    trace.disable();
    context.disable();
    propagation.disable();
    await provider.shutdown();
  });
  const named = (name: string) => {
    const spans = exporter.getFinishedSpans();
    const servers = new Set(spans.filter(({ kind }) => kind === SpanKind.SERVER).map(idOf));
    return spans.filter((span) => span.name === name && !servers.has(parentOf(span) ?? ''));
  };
  return {
    all: () => exporter.getFinishedSpans(),
    one: (name) => {
      const [span, ...others] = named(name);
      if (span === undefined || others.length > 0) {
        const names = exporter.getFinishedSpans().map((other) => other.name);
        throw new Error(`not one "${name}" among ${names.join(', ')}`);
      }
      return span;
    },
    until: async (name, count = 1) => {
      await eventually(() => named(name).length >= count);
      return named(name);
    },
  };
}

/** Does something in a span of the test's own. */
export const inSpan = <T>(name: string, work: () => Promise<T>): Promise<T> =>
  trace.getTracer('test').startActiveSpan(name, (span) => work().finally(() => span.end()));

/** What a test compares of a span. */
export const brief = (span: ReadableSpan) => ({
  kind: SpanKind[span.kind],
  status: SpanStatusCode[span.status.code],
  attributes: span.attributes,
  links: span.links.map((link) => link.context.spanId),
});

export const traceOf = (span: ReadableSpan): string => span.spanContext().traceId;
export const idOf = (span: ReadableSpan): string => span.spanContext().spanId;
export const parentOf = (span: ReadableSpan): string | undefined => span.parentSpanContext?.spanId;
