import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { Server as TlsServer } from 'node:tls';
import { QueueError } from '../core/errors.ts';
import type { Budgets } from './budgets.ts';
import { endWith, lastAnswer } from './last-words.ts';

/** Connections over the limit that are told so at the same time. Those beyond are closed before anything is made of them. */
const TOLD_AT_ONCE = 256;

/**
 * Lets in as many connections as there is room for. One more gets a short answer before it has asked anything, which
 * costs neither a parser nor a look at what it sends.
 */
export function limitConnections(server: Server, budgets: Budgets): void {
  const { connections: limit } = budgets.limits;
  const busy = lastAnswer(
    new QueueError('busy', `${limit} connections are open, as many as this server takes (EBBMARK_MAX_CONNECTIONS)`),
  );
  const admit = server.listeners('connection') as ((this: Server, socket: Socket) => void)[];
  server.removeAllListeners('connection');
  server.on('connection', (socket: Socket) => {
    if (budgets.connect()) {
      socket.once('close', () => budgets.disconnect());
      for (const listener of admit) listener.call(server, socket);
      return;
    }
    budgets.countRefusal('connections');
    // Whoever is there may be gone already.
    socket.on('error', () => {});
    // Before a handshake there is nothing that would be understood.
    if (server instanceof TlsServer) socket.destroy();
    else endWith(socket.resume(), busy);
  });
  server.maxConnections = limit + TOLD_AT_ONCE;
  server.on('drop', () => budgets.countRefusal('connections'));
}
