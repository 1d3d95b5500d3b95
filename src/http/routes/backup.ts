import type { Queue } from '../../queue/api.ts';
import type { App, Surroundings } from '../app.ts';
import { backupStream } from '../backup-stream.ts';
import { NoQuery } from '../contract/service.ts';

const SQLITE_TYPE = 'application/vnd.sqlite3';

const bytes = (description: string, type: string) => ({
  description,
  content: { [type]: { schema: { type: 'string', format: 'binary' } } },
});

/** A copy of the whole store. */
export function backupRoute(app: App, { log }: Surroundings, queue: Pick<Queue, 'backup'>): void {
  app.get(
    '/v1/admin/backup',
    {
      schema: {
        operationId: 'getBackup',
        summary:
          'A copy of an embedded store as it is now, while the queue goes on; `ebbmark backup` makes a file of it',
        tags: ['admin'],
        querystring: NoQuery,
        response: { 200: bytes('A SQLite file', SQLITE_TYPE) },
      },
      config: { access: { roles: ['admin'], allTopics: true }, docs: { codes: ['unsupported'] }, budget: 'service' },
      // A HEAD would begin a copy that nobody reads.
      exposeHeadRoute: false,
    },
    async (_request, reply) => {
      const backup = await queue.backup();
      const stream = backupStream(backup);
      stream.on('error', (error) => log?.warn({ err: error }, 'a backup was broken off'));
      return reply
        .type(SQLITE_TYPE)
        .header('content-length', backup.bytes)
        .header('content-disposition', 'attachment; filename="ebbmark-backup.db"')
        .send(stream);
    },
  );
}
