import type { Queue } from '../../queue/api.ts';
import type { App, Surroundings } from '../app.ts';
import { Health, NoQuery, Ready } from '../contract/service.ts';
import { errorsPage } from '../errors-page.ts';

const tags = ['service'];

const text = (description: string, type = 'text/plain') => ({
  description,
  content: { [type]: { schema: { type: 'string' } } },
});

/** Liveness, readiness, metrics, and the page that explains the error codes. */
export function serviceRoutes(app: App, { isStopping, metrics }: Surroundings, queue: Queue): void {
  // Who opens the address in a browser wants to read.
  app.get('/', { schema: { hide: true }, config: { access: 'open' } }, async (_request, reply) =>
    reply.redirect('/docs', 302),
  );

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
      config: { access: 'open', budget: 'service' },
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
      config: { access: 'open', budget: 'service' },
    },
    async (_request, reply) => {
      const readiness = isStopping()
        ? { ready: false, reasons: ['the server is shutting down'] }
        : await queue.readiness();
      if (!readiness.ready) reply.code(503);
      return readiness;
    },
  );

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
      config: { access: { roles: ['admin'], allTopics: true }, budget: 'service' },
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
      config: { access: 'open' },
    },
    async (_request, reply) => reply.type('text/html; charset=utf-8').send(errorsPage()),
  );
}
