import { QueueError } from '../../core/errors.ts';
import type { EnqueueResult } from '../../queue/api.ts';
import { carrying, contextOfHeaders } from '../../telemetry/trace-context.ts';
import { ANY_ROLE } from '../access.ts';
import type { App, Surroundings } from '../app.ts';
import { Ref } from '../contract/schema.ts';
import { NoQuery } from '../contract/service.ts';
import {
  CancelQuery,
  EnqueueAnswer,
  EnqueueBody,
  EnqueueHeaders,
  ListQuery,
  RescheduleBody,
  Task,
  TaskPage,
  TaskParams,
  TaskQuery,
} from '../contract/tasks.ts';
import { TopicParams } from '../contract/topics.ts';
import { tasksFromWire, taskToWire } from '../payloads.ts';
import type { TaskIssue } from '../problem.ts';

const tags = ['tasks'];

/** Enqueue, look at, list, cancel, reschedule. */
export function taskRoutes(app: App, { waits }: Surroundings): void {
  app.post(
    '/v1/topics/:topic/tasks',
    {
      schema: {
        operationId: 'enqueue',
        summary: 'Put one or many tasks into a topic, which needs no creation',
        description:
          'Answers once every accepted task is on disk. A result per task, in order: look at the `id` of each. One that is refused (a payload too large or not to be stored, a priority out of range, a `runAt` too far away or beside a `delayMs`, a topic or a store that is full) has a null `id` and says why, and affects no other; where all are refused, the call is, with `errors` naming each. A shape that breaks the schema (a field missing, unknown or of another type, a number out of its bounds) refuses the whole call.',
        tags,
        params: TopicParams,
        querystring: NoQuery,
        headers: EnqueueHeaders,
        body: EnqueueBody,
        response: { 201: EnqueueAnswer },
      },
      config: {
        access: { roles: ['produce'] },
        docs: { codes: ['topic-invalid', 'payload-too-large', 'topic-full', 'store-full', 'outcome-unknown'] },
        budget: 'enqueue',
      },
    },
    async (request, reply) => {
      request.admission.enqueues(request.body.tasks.length);
      const idempotencyKey = request.headers['idempotency-key'];
      const trace = contextOfHeaders(request.headers);
      const inputs = tasksFromWire(request.body.tasks);
      const tasks = await request.caller.queue.enqueue(
        request.params.topic,
        trace === null ? inputs : carrying(inputs, trace),
        idempotencyKey === undefined ? undefined : { idempotencyKey },
      );
      refuseWhereAllWereRefused(tasks);
      reply.code(201);
      return { tasks };
    },
  );

  app.get(
    '/v1/topics/:topic/tasks',
    {
      schema: {
        operationId: 'listTasks',
        summary: 'List tasks by state, or find the one with a message id',
        tags,
        params: TopicParams,
        querystring: ListQuery,
        response: { 200: TaskPage },
      },
      config: { access: ANY_ROLE, docs: { codes: ['topic-invalid', 'topic-not-found'] } },
    },
    async (request, reply) => {
      const { messageId, ...list } = request.query;
      const { topic } = request.params;
      if (messageId === undefined) {
        const page = await waits.during(reply, (signal) => request.caller.queue.tasks(topic, list, signal));
        return { ...page, tasks: page.tasks.map(taskToWire) };
      }
      if (Object.keys(list).length > 0) {
        const message = `messageId goes alone, not with ${Object.keys(list).join(', ')}`;
        throw new QueueError('invalid-input', `query: ${message}`, [{ path: '/messageId', message }]);
      }
      try {
        return { tasks: [taskToWire(await request.caller.queue.taskByMessageId(topic, messageId))] };
      } catch (error) {
        if (error instanceof QueueError && error.code === 'task-not-found') return { tasks: [] };
        throw error;
      }
    },
  );

  app.get(
    '/v1/topics/:topic/tasks/:id',
    {
      schema: {
        operationId: 'getTask',
        summary: 'Look at a task: its state, attempts and result; or wait for the result',
        tags,
        params: TaskParams,
        querystring: TaskQuery,
        response: { 200: Ref(Task) },
      },
      config: { access: ANY_ROLE, docs: { codes: ['topic-invalid', 'task-not-found'] } },
    },
    async (request, reply) => {
      const { topic, id } = request.params;
      const { waitMs } = request.query;
      if (!waitMs) return taskToWire(await request.caller.queue.task(topic, id));
      request.admission.awaitsResult();
      return taskToWire(
        await waits.during(reply, (signal) => request.caller.queue.task(topic, id, { waitMs, signal })),
      );
    },
  );

  app.delete(
    '/v1/topics/:topic/tasks/:id',
    {
      schema: {
        operationId: 'cancelTask',
        summary: 'Cancel a task that is not settled; a worker that has it loses its lease',
        tags,
        params: TaskParams,
        querystring: CancelQuery,
        response: { 200: Ref(Task) },
      },
      config: {
        access: { roles: ['produce', 'admin'] },
        docs: { codes: ['topic-invalid', 'task-not-found', 'task-settled', 'outcome-unknown'] },
      },
    },
    async (request) => {
      const { topic, id } = request.params;
      return taskToWire(await request.caller.queue.cancel(topic, id, request.query.reason));
    },
  );

  app.patch(
    '/v1/topics/:topic/tasks/:id',
    {
      schema: {
        operationId: 'rescheduleTask',
        summary: 'Change priority or due time of a task that waits',
        tags,
        params: TaskParams,
        querystring: NoQuery,
        body: RescheduleBody,
        response: { 200: Ref(Task) },
      },
      config: {
        access: { roles: ['produce', 'admin'] },
        docs: { codes: ['topic-invalid', 'task-not-found', 'task-settled', 'task-leased', 'outcome-unknown'] },
      },
    },
    async (request) => {
      const { topic, id } = request.params;
      return taskToWire(await request.caller.queue.reschedule(topic, id, request.body));
    },
  );
}

/** Where all tasks of a call were refused for one of these, so is the call. */
const REFUSED_ALIKE = ['payload-too-large', 'topic-full', 'store-full'] as const;

/** A caller who looks at nothing but the status must not take a refusal for a success. */
function refuseWhereAllWereRefused(results: readonly EnqueueResult[]): void {
  const issues: TaskIssue[] = [];
  for (const [at, result] of results.entries()) {
    if (result.id !== null) return;
    issues.push({ path: `/tasks/${at}`, message: result.detail, code: result.code });
  }
  const [first] = issues;
  if (first === undefined) return;
  const code = REFUSED_ALIKE.find((alike) => issues.every((issue) => issue.code === alike)) ?? 'invalid-input';
  const what = issues.length === 1 ? 'The task was refused' : `All ${issues.length} tasks were refused; the first`;
  throw new QueueError(code, `${what}: ${first.message}`, issues);
}
