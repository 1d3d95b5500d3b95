import type { FastifyReply } from 'fastify';
import { QueueError } from '../../core/errors.ts';
import type { Queue } from '../../queue/api.ts';
import { bytesToWire, PEER_PATH } from '../../queue/peer-transport.ts';
import { PEER_METHODS, type PeerCalls, type PeerMethod, type PeerService } from '../../queue/peers.ts';
import type { App, Surroundings } from '../app.ts';
import { Leasing } from '../leasing.ts';

/** What other servers on the same store ask. Each shows the secret that only who can read the store knows. */
export function peerRoutes(app: App, surroundings: Surroundings, queue: Queue, peers: PeerService): void {
  const { waits, isStopping } = surroundings;
  const leasing = new Leasing(surroundings);

  /** As much as there is room for: where it is none, the caller gets what other servers have. */
  const lease = async (
    body: PeerCalls['lease']['body'],
    reply: FastifyReply,
  ): Promise<PeerCalls['lease']['answer']> => {
    let answer: PeerCalls['lease']['answer'] = { tasks: [] };
    const tasks = await leasing.now(reply, queue, body.request.max ?? 1, async (max) => {
      answer = await peers.answer('lease', { ...body, request: { ...body.request, max } });
      return answer.tasks;
    });
    return { ...answer, tasks: tasks ?? [] };
  };

  app.post(
    `${PEER_PATH}/:method`,
    {
      schema: { hide: true },
      config: { access: 'servers' },
      // Before the body is read.
      onRequest: ({ headers: { authorization } }, _reply, done) => {
        const isServer = authorization?.startsWith('Bearer ') && peers.knows(authorization.slice('Bearer '.length));
        if (isServer) done();
        else done(new QueueError('forbidden', 'This address is for other servers on the same store'));
      },
    },
    async (request, reply) => {
      if (isStopping()) throw new QueueError('shutting-down');
      const { method } = request.params as { readonly method: string };
      if (!(PEER_METHODS as readonly string[]).includes(method)) throw new QueueError('not-found');
      if (method === 'lease') return bytesToWire(await lease(request.body as PeerCalls['lease']['body'], reply));
      const ask = (signal: AbortSignal) => peers.answer(method as PeerMethod, request.body as never, signal);
      return bytesToWire(await waits.during(reply, ask));
    },
  );
}
