import type { LeasedTask } from '../../queue/api.ts';
import type { App, Surroundings } from '../app.ts';
import { LeaseAnswer, LeaseBody, SettleAnswer, SettleBody } from '../contract/leases.ts';
import { NoQuery } from '../contract/service.ts';
import { orEmpty } from '../optional-body.ts';
import { taskToWire } from '../payloads.ts';

const tags = ['leases'];

/** Take tasks, settle them. */
export function leaseRoutes(app: App, { queue, waits, log }: Surroundings): void {
  /** Nobody has them: without this they would wait for their leases to lapse. */
  const giveBack = (tasks: readonly LeasedTask[]): void => {
    queue.settle({ release: tasks.map(({ leaseId }) => ({ leaseId })) }).catch((error: unknown) => {
      log?.warn({ err: error, tasks: tasks.length }, 'could not give back what was leased for a caller who has gone');
    });
  };

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
      config: { docs: { codes: ['topic-invalid'], optionalBody: true } },
      preValidation: orEmpty,
    },
    async (request, reply) => {
      const wait = request.body.waitMs ? waits.begin(reply) : null;
      let tasks: readonly LeasedTask[];
      try {
        tasks = await queue.lease(wait ? { ...request.body, signal: wait.signal } : request.body);
      } finally {
        wait?.end();
      }
      if (tasks.length > 0) waits.whenUnsent(reply.raw, () => giveBack(tasks));
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
      config: { docs: { codes: ['outcome-unknown'] } },
    },
    (request) => queue.settle(request.body),
  );
}
