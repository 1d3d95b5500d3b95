import type { LeasedTask } from '../../queue/api.ts';
import type { TopicQueue } from '../../queue/confined-queue.ts';
import type { App, Surroundings } from '../app.ts';
import { LeaseAnswer, LeaseBody, SettleAnswer, SettleBody } from '../contract/leases.ts';
import { NoQuery } from '../contract/service.ts';
import { orEmpty } from '../optional-body.ts';
import { taskToWire } from '../payloads.ts';

const tags = ['leases'];

/** Take tasks, settle them. */
export function leaseRoutes(app: App, { waits, log }: Surroundings): void {
  /** Nobody has them: without this they would wait for their leases to lapse. */
  const giveBack = (queue: TopicQueue, tasks: readonly LeasedTask[]): void => {
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
      config: { access: { roles: ['consume'] }, docs: { codes: ['topic-invalid'], optionalBody: true } },
      preValidation: orEmpty,
    },
    async (request, reply) => {
      const wait = request.body.waitMs ? waits.begin(reply) : null;
      const { queue } = request.caller;
      let tasks: readonly LeasedTask[];
      try {
        tasks = await queue.lease(wait ? { ...request.body, signal: wait.signal } : request.body);
      } finally {
        wait?.end();
      }
      // A key may be revoked while its call waits.
      if (wait !== null && tasks.length > 0) {
        await request.caller.recheck().catch((error: unknown) => {
          giveBack(queue, tasks);
          throw error;
        });
      }
      if (tasks.length > 0) waits.whenUnsent(reply.raw, () => giveBack(queue, tasks));
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
