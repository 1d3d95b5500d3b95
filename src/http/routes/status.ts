import type { App } from '../app.ts';
import { NoQuery, StatusAnswer } from '../contract/service.ts';
import { type StatusDesk, statusText } from '../status-page.ts';

/** The status page: text for people, JSON for programs. */
export function statusRoute(app: App, desk: StatusDesk): void {
  app.get(
    '/status',
    {
      schema: {
        operationId: 'status',
        summary: 'A page of plain text for people; JSON where JSON is asked for',
        tags: ['service'],
        querystring: NoQuery,
        response: {
          200: {
            description: 'How the queue is',
            content: { 'text/plain': { schema: { type: 'string' } }, 'application/json': { schema: StatusAnswer } },
          },
        },
      },
      config: { access: { roles: ['admin'], allTopics: true }, docs: { codes: ['busy'] }, budget: 'service' },
      // Before anything is done for it. Who reads slowly is still there.
      onRequest: (_request, reply, done) => {
        reply.raw.once('close', desk.enter());
        done();
      },
    },
    async (request, reply) => {
      const json = request.headers.accept?.includes('application/json') ?? false;
      const status = await desk.read();
      return json
        ? reply.type('application/json').send(status)
        : reply.type('text/plain; charset=utf-8').send(statusText(status));
    },
  );
}
