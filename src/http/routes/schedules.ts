import type { ScheduleInput } from '../../queue/api.ts';
import type { App, Surroundings } from '../app.ts';
import { Schedule, ScheduleBody, SchedulePage, ScheduleParams, SchedulesQuery } from '../contract/schedules.ts';
import { Ref } from '../contract/schema.ts';
import { NoQuery } from '../contract/service.ts';
import { payloadFromWire, taskToWire } from '../payloads.ts';

const tags = ['schedules'];

/** Set, look at, list, delete. */
export function scheduleRoutes(app: App, { waits }: Surroundings): void {
  app.get(
    '/v1/schedules',
    {
      schema: {
        operationId: 'listSchedules',
        summary: "List schedules, in an order of the store's own",
        tags,
        querystring: SchedulesQuery,
        response: { 200: SchedulePage },
      },
      config: { access: { roles: ['produce', 'admin'] } },
    },
    (request, reply) => waits.during(reply, (signal) => request.caller.queue.schedules(request.query, signal)),
  );

  app.get(
    '/v1/schedules/:name',
    {
      schema: {
        operationId: 'getSchedule',
        summary: 'Look at a schedule: its next times, its last firing, and what it missed',
        tags,
        params: ScheduleParams,
        querystring: NoQuery,
        response: { 200: Ref(Schedule) },
      },
      config: { access: { roles: ['produce', 'admin'] }, docs: { codes: ['schedule-not-found'] } },
    },
    async (request) => taskToWire(await request.caller.queue.schedule(request.params.name)),
  );

  app.put(
    '/v1/schedules/:name',
    {
      schema: {
        operationId: 'setSchedule',
        summary: 'Make a schedule, or change it as a whole',
        description:
          'Puts one task into the topic at each time of the pattern from now on, exactly once, whatever servers die meanwhile. A change keeps up to when it has fired; what was due before fires first, as it was. Setting what is set already changes nothing, so a retry is safe. Each task has the metadata `ebbmark-schedule` and `ebbmark-fired-for` beside its own.',
        tags,
        params: ScheduleParams,
        querystring: NoQuery,
        body: ScheduleBody,
        response: { 200: Ref(Schedule) },
      },
      config: {
        access: { roles: ['produce'] },
        docs: { codes: ['topic-invalid', 'payload-too-large', 'outcome-unknown', 'not-holder'] },
        budget: 'publish',
      },
    },
    async (request) => {
      const schedule = payloadFromWire<ScheduleInput>(request.body);
      return taskToWire(await request.caller.queue.setSchedule(request.params.name, schedule));
    },
  );

  app.delete(
    '/v1/schedules/:name',
    {
      schema: {
        operationId: 'deleteSchedule',
        summary: 'End a schedule; tasks that it has enqueued stay',
        tags,
        params: ScheduleParams,
        querystring: NoQuery,
        response: { 204: { type: 'null', description: 'Deleted' } },
      },
      config: {
        access: { roles: ['produce', 'admin'] },
        docs: { codes: ['schedule-not-found', 'outcome-unknown', 'not-holder'] },
      },
    },
    async (request, reply) => {
      await request.caller.queue.deleteSchedule(request.params.name);
      return reply.code(204).send(null);
    },
  );
}
