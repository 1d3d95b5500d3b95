import { context, propagation, type Span, SpanKind, trace } from '@opentelemetry/api';
import type { FastifyRequest } from 'fastify';
import { setError, tracer } from '../telemetry/spans.ts';
import type { App } from './app.ts';

/**
 * Makes a span of each call under /v1/, by the HTTP conventions of OpenTelemetry, in the trace that its headers name; where
 * an instrumentation of Node's http has made one already, that one is gone on with. Call before there are routes.
 */
export function traceRequests(app: App): void {
  const spans = new WeakMap<FastifyRequest, Span>();
  app.addHook('onRequest', (request, _reply, done) => {
    const by = tracer();
    const { url: route } = request.routeOptions;
    const isTold = by === null || trace.getSpan(context.active()) !== undefined;
    if (!isTold && route?.startsWith('/v1/')) {
      const parent = propagation.extract(context.active(), request.headers);
      const attributes = { 'http.request.method': request.method, 'http.route': route };
      spans.set(request, by.startSpan(`${request.method} ${route}`, { kind: SpanKind.SERVER, attributes }, parent));
    }
    done();
  });
  // Not sooner: what reads a body goes on in the context of its connection.
  app.addHook('preHandler', (request, _reply, done) => {
    const span = spans.get(request);
    if (span === undefined) done();
    else context.with(trace.setSpan(context.active(), span), done);
  });
  app.addHook('onResponse', (request, reply, done) => {
    const span = spans.get(request);
    if (span !== undefined) {
      span.setAttribute('http.response.status_code', reply.statusCode);
      // What the caller did wrong is no error of the server.
      if (reply.statusCode >= 500) setError(span, String(reply.statusCode));
      span.end();
    }
    done();
  });
}
