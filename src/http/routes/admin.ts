import type { App, Surroundings } from '../app.ts';
import { backupStream } from '../backup-stream.ts';
import { Ref } from '../contract/schema.ts';
import { NoBody, NoQuery } from '../contract/service.ts';
import {
  CursorsRef,
  Explanation,
  RedriveAnswer,
  RedriveBody,
  Topic,
  TopicParams,
  WhyQuery,
} from '../contract/topics.ts';
import { orEmpty } from '../optional-body.ts';

const tags = ['admin'];
const SQLITE_TYPE = 'application/vnd.sqlite3';

const bytes = (description: string, type: string) => ({
  description,
  content: { [type]: { schema: { type: 'string', format: 'binary' } } },
});

/** What an operator looks at and does. */
export function adminRoutes(app: App, { queue, log }: Surroundings): void {
  app.get(
    '/v1/admin/backup',
    {
      schema: {
        operationId: 'getBackup',
        summary:
          'A copy of an embedded store as it is now, while the queue goes on; `ebbmark backup` makes a file of it',
        tags,
        querystring: NoQuery,
        response: { 200: bytes('A SQLite file', SQLITE_TYPE) },
      },
      config: { docs: { codes: ['unsupported'] } },
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
        .header('cache-control', 'no-store')
        .send(stream);
    },
  );

  app.get(
    '/v1/admin/topics/:topic/cursors',
    {
      schema: {
        operationId: 'getCursors',
        summary: 'Both cursors of every tier, and what holds the completion cursor',
        tags,
        params: TopicParams,
        querystring: NoQuery,
        response: { 200: CursorsRef },
      },
      config: { docs: { codes: ['topic-invalid', 'topic-not-found'] } },
    },
    (request) => queue.cursors(request.params.topic),
  );

  app.get(
    '/v1/admin/topics/:topic/why',
    {
      schema: {
        operationId: 'getWhy',
        summary: 'Why a topic, or one of its tasks, is not being handed out just now, and what would change that',
        tags,
        params: TopicParams,
        querystring: WhyQuery,
        response: { 200: Explanation },
      },
      config: { docs: { codes: ['topic-invalid', 'topic-not-found', 'task-not-found'] } },
    },
    (request) => queue.why(request.params.topic, request.query.task),
  );

  app.post(
    '/v1/admin/topics/:topic/pause',
    {
      schema: {
        operationId: 'pauseTopic',
        summary: 'Lease nothing of this topic until it is resumed',
        tags,
        params: TopicParams,
        querystring: NoQuery,
        body: NoBody,
        response: { 200: Ref(Topic) },
      },
      config: { docs: { codes: ['topic-invalid', 'settings-conflict', 'outcome-unknown'], optionalBody: true } },
      preValidation: orEmpty,
    },
    (request) => queue.pause(request.params.topic),
  );

  app.post(
    '/v1/admin/topics/:topic/resume',
    {
      schema: {
        operationId: 'resumeTopic',
        summary: 'Undo a pause',
        tags,
        params: TopicParams,
        querystring: NoQuery,
        body: NoBody,
        response: { 200: Ref(Topic) },
      },
      config: { docs: { codes: ['topic-invalid', 'settings-conflict', 'outcome-unknown'], optionalBody: true } },
      preValidation: orEmpty,
    },
    (request) => queue.resume(request.params.topic),
  );

  app.post(
    '/v1/admin/topics/:topic/redrive',
    {
      schema: {
        operationId: 'redriveTopic',
        summary: 'Put dead letters back to work, all or some; their attempts start anew',
        tags,
        params: TopicParams,
        querystring: NoQuery,
        body: RedriveBody,
        response: { 200: RedriveAnswer },
      },
      config: { docs: { codes: ['topic-invalid', 'topic-not-found', 'outcome-unknown'], optionalBody: true } },
      preValidation: orEmpty,
    },
    (request) => queue.redrive(request.params.topic, request.body),
  );

  app.post(
    '/v1/admin/topics/:topic/scan',
    {
      schema: {
        operationId: 'scanTopic',
        summary: 'Run the completion scanner over the topic now',
        tags,
        params: TopicParams,
        querystring: NoQuery,
        body: NoBody,
        response: { 200: CursorsRef },
      },
      config: { docs: { codes: ['topic-invalid', 'topic-not-found'], optionalBody: true } },
      preValidation: orEmpty,
    },
    (request) => queue.scan(request.params.topic),
  );
}
