import type { App, Surroundings } from '../app.ts';
import { Health, NoQuery, Ready } from '../contract/service.ts';
import { errorsPage } from '../errors-page.ts';
import { metricsOf } from '../metrics.ts';

const tags = ['service'];

const text = (description: string, type = 'text/plain') => ({
  description,
  content: { [type]: { schema: { type: 'string' } } },
});

/** Liveness, readiness, metrics, and the page that explains the error codes. */
export function serviceRoutes(app: App, { queue, isStopping, processMetrics, logLinesDropped }: Surroundings): void {
  // Who opens the address in a browser wants to read.
  app.get('/', { schema: { hide: true } }, async (_request, reply) => reply.redirect('/docs', 302));

  app.get(
    '/healthz',
    {
      schema: {
        operationId: 'health',
        summary: 'Whether the process is alive',
        tags,
        querystring: NoQuery,
        response: { 200: Health },
      },
    },
    async () => ({ status: 'ok' as const }),
  );

  app.get(
    '/readyz',
    {
      schema: {
        operationId: 'ready',
        summary: 'Whether the store is reachable and the scanner alive',
        tags,
        querystring: NoQuery,
        response: { 200: Ready, 503: Ready },
      },
    },
    async (_request, reply) => {
      const readiness = isStopping()
        ? { ready: false, reasons: ['the server is shutting down'] }
        : await queue.readiness();
      if (!readiness.ready) reply.code(503);
      return readiness;
    },
  );

  const metrics = metricsOf(queue, processMetrics, logLinesDropped);
  app.get(
    '/metrics',
    {
      schema: {
        operationId: 'metrics',
        summary: 'Metrics for Prometheus',
        tags,
        querystring: NoQuery,
        response: { 200: text('Prometheus text format') },
      },
    },
    async (_request, reply) => reply.type(metrics.contentType).send(await metrics.read()),
  );

  app.get(
    '/docs/errors',
    {
      schema: {
        operationId: 'errors',
        summary: 'What every error code means; where the `type` of a problem leads',
        tags,
        querystring: NoQuery,
        response: { 200: text('All codes', 'text/html') },
      },
    },
    async (_request, reply) => reply.type('text/html; charset=utf-8').send(errorsPage()),
  );
}
