import { QueueError } from '../../core/errors.ts';
import type { TopicQueue } from '../../queue/confined-queue.ts';
import { ANY_ROLE } from '../access.ts';
import type { App, Surroundings } from '../app.ts';
import { Ref } from '../contract/schema.ts';
import { NoQuery } from '../contract/service.ts';
import {
  SettingsBody,
  Topic,
  TopicAnswer,
  TopicPage,
  TopicParams,
  TopicQuery,
  TopicsQuery,
} from '../contract/topics.ts';

const tags = ['topics'];

/** Counts and settings; change settings; purge; list. */
export function topicRoutes(app: App, { waits }: Surroundings): void {
  app.get(
    '/v1/topics',
    {
      schema: {
        operationId: 'listTopics',
        summary: 'List active topics in the order of their names',
        tags,
        querystring: TopicsQuery,
        response: { 200: TopicPage },
      },
      config: { access: ANY_ROLE },
    },
    (request) => request.caller.queue.topics(request.query),
  );

  app.get(
    '/v1/topics/:topic',
    {
      schema: {
        operationId: 'getTopic',
        summary: 'Counts and settings of a topic; or wait until it is drained',
        tags,
        params: TopicParams,
        querystring: TopicQuery,
        response: { 200: TopicAnswer },
      },
      config: { access: ANY_ROLE, docs: { codes: ['topic-invalid', 'topic-not-found'] } },
    },
    async (request, reply) => {
      const { topic } = request.params;
      const timeoutMs = request.query.drainedWaitMs;
      const { queue } = request.caller;
      if (timeoutMs === undefined) return queue.topic(topic);
      request.admission.awaitsResult();
      return waits.during(reply, async (signal) => {
        const drained = await queue.drained(topic, { timeoutMs, signal });
        return { ...(await queue.topic(topic)), drained };
      });
    },
  );

  app.put(
    '/v1/topics/:topic',
    {
      schema: {
        operationId: 'configureTopic',
        summary: 'Change settings of a topic',
        description: 'What is absent stays, null removes a limit. Answers once leases follow the new settings.',
        tags,
        params: TopicParams,
        querystring: NoQuery,
        body: SettingsBody,
        response: { 200: Ref(Topic) },
      },
      config: {
        access: { roles: ['admin'] },
        docs: { codes: ['topic-invalid', 'settings-conflict', 'outcome-unknown'] },
      },
    },
    async (request) => {
      const { topic } = request.params;
      const { purgedAt, ...patch } = request.body;
      const { queue } = request.caller;
      if (purgedAt !== undefined && purgedAt !== null) await checkPurgedAt(queue, topic, purgedAt);
      return queue.configure(topic, patch);
    },
  );

  app.delete(
    '/v1/topics/:topic',
    {
      schema: {
        operationId: 'purgeTopic',
        summary: 'Cancel all tasks of a topic that wait; leased ones finish, and are not retried',
        tags,
        params: TopicParams,
        querystring: NoQuery,
        response: { 204: { type: 'null', description: 'Purged' } },
      },
      config: {
        access: { roles: ['admin'] },
        docs: { codes: ['topic-invalid', 'topic-not-found', 'outcome-unknown'] },
      },
    },
    async (request, reply) => {
      await request.caller.queue.purge(request.params.topic);
      return reply.code(204).send(null);
    },
  );
}

/** Settings may be sent back as they were answered; a purge is another call. */
async function checkPurgedAt(queue: TopicQueue, topic: string, purgedAt: number): Promise<void> {
  const now = await queue.topic(topic).then(
    ({ settings }) => settings.purgedAt,
    (error: unknown) => {
      if (error instanceof QueueError && error.code === 'topic-not-found') return null;
      throw error;
    },
  );
  if (now === purgedAt) return;
  const message = `${purgedAt} is not what it is (${now}); only a purge changes it: DELETE /v1/topics/{topic}`;
  throw new QueueError('invalid-input', `body /purgedAt: ${message}`, [{ path: '/purgedAt', message }]);
}
