/**
 * Lets requests in as far as the budgets go, before their bodies are read, and gives back what each has taken once it is
 * over: its work is done, and its answer has been taken or nobody is left to take it. A request whose caller has gone
 * is not over while it still runs: else one who comes again and again would have any number of them running.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { QueueError } from '../core/errors.ts';
import { Admission } from './admission.ts';
import type { App, Budget, Surroundings } from './app.ts';
import type { Budgets } from './budgets.ts';
import { dropRest } from './last-words.ts';
import { problemHeaders, problemOf } from './problem.ts';

/** More are never sent by who has something to say; Node leaves out those above 2,000 without a word. */
const MAX_HEADERS = 100;
/** Requests of one connection that are not answered yet. Node reads on and on while the first one waits. */
const MAX_PIPELINED = 64;

/** Closes connections that have too many requests under way. Before all other hooks: what those refuse is answered, too. */
export function limitPipelining(app: App, { budgets, waits }: Surroundings): void {
  const unanswered = new WeakMap<Socket, number>();

  app.addHook('onRequest', ({ raw }, reply, done) => {
    const pending = (unanswered.get(raw.socket) ?? 0) + 1;
    unanswered.set(raw.socket, pending);
    waits.whenOver(reply.raw, () => unanswered.set(raw.socket, unanswered.get(raw.socket)! - 1));
    if (pending <= MAX_PIPELINED) {
      done();
      return;
    }
    budgets.countRefusal('pipelining');
    // An answer would have to wait behind the others, and take up room meanwhile.
    raw.socket.destroy();
    done(new QueueError('busy'));
  });
}

/**
 * Adds the hooks that admit requests; after those that say who may come in at all.
 * @param maxBodyBytes of one request
 */
export function admitRequests(app: App, { budgets, waits, answers }: Surroundings, maxBodyBytes: number): void {
  app.decorateRequest('admission');
  app.addHook('onRequest', (request, reply, done) => {
    const { budget } = request.routeOptions.config;
    const isInput = budget === 'enqueue' || budget === 'publish';
    const admission = new Admission(budgets, isInput ? budgets.input : budgets.rest, reply.raw, maxBodyBytes);
    request.admission = admission;
    waits.whenOver(reply.raw, () => admission.gone());
    try {
      // The error handler says what is wrong with the address. Nobody reads a body there, and no key was asked for: who has
      // none could take all of the memory by lengths alone.
      if (request.is404) throw new QueueError('not-found');
      admit(request.raw, admission, budgets, budget);
      done();
    } catch (error) {
      done(error as Error);
    }
  });

  app.addHook('onSend', (request, reply, payload: unknown, done) => {
    const { raw, admission } = request;
    if (!raw.complete) dropRest(raw, reply.raw);
    const isWhole = typeof payload === 'string' || payload instanceof Uint8Array;
    // What is read as it is sent takes no room for all of it, but as long as all of it takes.
    const bytes = isWhole ? Buffer.byteLength(payload) : 0;
    answers.begins(reply.raw, isWhole ? bytes : Number(reply.getHeader('content-length') ?? 0));
    waits.whenOver(reply.raw, () => answers.ended(reply.raw));
    // There is none where it failed before it came to the hooks.
    if (admission?.answers(bytes, isRefusable(request, reply)) ?? true) {
      done();
      return;
    }
    waits.lose(reply.raw);
    const problem = problemOf(new QueueError('busy', 'Answers that are not taken yet leave no memory for this one'));
    const refusal = Buffer.from(JSON.stringify(problem));
    admission.answers(refusal.length, false);
    reply.code(problem.status).headers(problemHeaders(problem.code));
    done(null, refusal);
  });
}

/** Whether nothing is lost where an answer is left unsaid: it can be asked for again, or what is in it is given back. */
const isRefusable = ({ method, routeOptions }: FastifyRequest, { statusCode }: FastifyReply): boolean => {
  const { budget } = routeOptions.config;
  return statusCode < 300 && (budget === 'lease' || (method === 'GET' && budget !== 'service'));
};

/** @throws QueueError what keeps a request out */
function admit(
  { rawHeaders, headers }: IncomingMessage,
  admission: Admission,
  budgets: Budgets,
  budget: Budget | undefined,
): void {
  if (rawHeaders.length > 2 * MAX_HEADERS) {
    budgets.countRefusal('headers');
    throw new QueueError('headers-too-large', `A request has ${MAX_HEADERS} headers at the most`);
  }
  if (budget === 'lease') budgets.refuseWhenFull();
  // How many there are is known once the body is read.
  if (budget === 'enqueue') admission.enqueues(1);
  admission.hasBody(Number(headers['content-length'] ?? 0));
}
