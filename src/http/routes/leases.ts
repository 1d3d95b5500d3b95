import type { App, Surroundings } from '../app.ts';
import { LeaseAnswer, LeaseBody, SettleAnswer, SettleBody } from '../contract/leases.ts';
import { NoQuery } from '../contract/service.ts';
import { Leasing } from '../leasing.ts';
import { orEmpty } from '../optional-body.ts';
import { taskToWire } from '../payloads.ts';

const tags = ['leases'];

/** Take tasks, settle them. */
export function leaseRoutes(app: App, surroundings: Surroundings): void {
  const { waits } = surroundings;
  const leasing = new Leasing(surroundings);

  app.post(
    '/v1/leases',
    {
      schema: {
        operationId: 'lease',
        summary: 'Lease tasks that are ready, or wait for some',
        description: 'Highest priority first inside a topic, in turn among topics. Empty when there is none.',
        tags,
        querystring: NoQuery,
        body: LeaseBody,
        response: { 200: LeaseAnswer },
      },
      config: {
        access: { roles: ['consume'] },
        docs: { codes: ['topic-invalid'], optionalBody: true },
        budget: 'lease',
      },
      preValidation: orEmpty,
    },
    async (request, reply) => {
      const lease = (signal?: AbortSignal) => leasing.lease(reply, request.caller, request.body, signal);
      const tasks = await (request.body.waitMs ? waits.during(reply, lease) : lease());
      return { tasks: tasks.map(taskToWire) };
    },
  );

  app.post(
    '/v1/leases/settle',
    {
      schema: {
        operationId: 'settle',
        summary: 'Settle, extend, save progress of, or give back what was leased',
        description: 'A result per item; an item that is refused (`lease-lost`) affects no other.',
        tags,
        querystring: NoQuery,
        body: SettleBody,
        response: { 200: SettleAnswer },
      },
      config: { access: { roles: ['consume'] }, docs: { codes: ['outcome-unknown'] } },
    },
    (request) => request.caller.queue.settle(request.body),
  );
}
