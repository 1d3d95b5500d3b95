/** Ends connections so that what was said last arrives: one that closes with bytes unread resets, and loses it. */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { QueueError } from '../core/errors.ts';
import { problemHeaders, problemOf } from './problem.ts';

/** How long the other side has to take what was said last, and to stop sending. */
export const LINGER_MS = 5_000;

/** A problem as the last answer of a connection: written by hand, where there is no request yet that it could answer. */
export function lastAnswer(error: QueueError): string {
  const problem = problemOf(error);
  const body = JSON.stringify(problem);
  const headers = {
    ...problemHeaders(error.code),
    'content-length': String(Buffer.byteLength(body)),
    connection: 'close',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}\r\n${lines.join('')}\r\n${body}`;
}

/** Says it, and closes the connection. */
export function endWith(socket: Socket, answer: string): void {
  socket.end(answer);
  // Ended on this side alone, it would stay open for as long as the other one likes.
  destroyLater(socket);
}

/** What is left of a request that was answered early is read and dropped, so that the connection stays of use; for a while. */
export function dropRest(request: IncomingMessage, response: ServerResponse): void {
  response.once('finish', () => {
    if (!request.complete) request.once('end', destroyLater(request.socket));
  });
}

/** @returns what calls it off */
function destroyLater(socket: Socket): () => void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  const callOff = (): void => clearTimeout(timer);
  socket.once('close', callOff);
  return () => {
    callOff();
    socket.off('close', callOff);
  };
}
