import type { FastifyReply, FastifyRequest } from 'fastify';

/** For calls whose body may be left out: no body is an empty object. */
export function orEmpty(request: FastifyRequest, _reply: FastifyReply, done: () => void): void {
  // A body of `null` is one, and not an object.
  if (request.body === undefined) request.body = {};
  done();
}
