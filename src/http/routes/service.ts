import type { Queue } from '../../queue/api.ts';
import type { App, Surroundings } from '../app.ts';
import { Health, NoQuery, Ready, StatusAnswer } from '../contract/service.ts';
import { errorsPage } from '../errors-page.ts';
import { readStatus, type Status, statusText } from '../status-page.ts';

const tags = ['service'];
/** How long a status page is shown again instead of asking the queue anew. */
const STATUS_CACHE_MS = 1000;

const text = (description: string, type = 'text/plain') => ({
  description,
  content: { [type]: { schema: { type: 'string' } } },
});

/** Liveness, readiness, metrics, the status page, and the page that explains the error codes. */
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

  const status = cached(STATUS_CACHE_MS, () => readStatus(queue));
  app.get(
    '/status',
    {
      schema: {
        operationId: 'status',
        summary: 'A page of plain text for people; JSON where JSON is asked for',
        tags,
        querystring: NoQuery,
        response: {
          200: {
            description: 'How the queue is',
            content: { 'text/plain': { schema: { type: 'string' } }, 'application/json': { schema: StatusAnswer } },
          },
        },
      },
      config: { access: { roles: ['admin'], allTopics: true }, budget: 'service' },
    },
    async (request, reply) => {
      const json = request.headers.accept?.includes('application/json') ?? false;
      const now = await status();
      return json
        ? reply.type('application/json').send(now)
        : reply.type('text/plain; charset=utf-8').send(statusText(now));
    },
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

/** Asks at most once in so many milliseconds, however many ask at once. */
function cached(ms: number, read: () => Promise<Status>): () => Promise<Status> {
  let last: Promise<Status> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;
  return () => {
    const now = performance.now();
    if (last === null || now - readAt >= ms) {
      readAt = now;
      const reading = read();
      last = reading;
      // A failure is not kept.
      reading.catch(() => {
        if (last === reading) last = null;
      });
    }
    return last;
  };
}
