import { QueueError } from '../../core/errors.ts';
import type { LeasedTask, Queue } from '../../queue/api.ts';
import { bytesToWire, PEER_PATH } from '../../queue/peer-transport.ts';
import { PEER_METHODS, type PeerMethod, type PeerService } from '../../queue/peers.ts';
import type { App, Surroundings } from '../app.ts';

/** What other servers on the same store ask. Each shows the secret that only who can read the store knows. */
export function peerRoutes(app: App, { waits, log, isStopping }: Surroundings, queue: Queue, peers: PeerService): void {
  const giveBack = (tasks: readonly LeasedTask[]): void => {
    queue.settle({ release: tasks.map(({ leaseId }) => ({ leaseId })) }).catch((error: unknown) => {
      log?.warn({ err: error, tasks: tasks.length }, 'could not give back what was leased for another server');
    });
  };

  app.post(
    `${PEER_PATH}/:method`,
    { schema: { hide: true }, config: { access: 'servers' } },
    async (request, reply) => {
      const { authorization } = request.headers;
      if (!authorization?.startsWith('Bearer ') || !peers.knows(authorization.slice('Bearer '.length))) {
        throw new QueueError('forbidden', 'This address is for other servers on the same store');
      }
      if (isStopping()) throw new QueueError('shutting-down');
      const { method } = request.params as { readonly method: string };
      if (!(PEER_METHODS as readonly string[]).includes(method)) throw new QueueError('not-found');
      const wait = waits.begin(reply);
      try {
        const answer = await peers.answer(method as PeerMethod, request.body as never, wait.signal);
        if (method === 'lease') {
          const { tasks } = answer as { readonly tasks: readonly LeasedTask[] };
          if (tasks.length > 0) waits.whenUnsent(reply.raw, () => giveBack(tasks));
        }
        return bytesToWire(answer);
      } finally {
        wait.end();
      }
    },
  );
}
