/** Every way in which a request can fail ends here, and leaves as a problem document. */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { QueueError } from '../core/errors.ts';
import type { App, HttpLogger } from './app.ts';
import type { Budgets } from './budgets.ts';
import { endWith, lastAnswer } from './last-words.ts';
import { sendProblem, toQueueError } from './problem.ts';

/** Errors of handlers, hooks, parsers and validation, and misses. Call before there are routes. */
export function handleErrors(app: App, log: HttpLogger | null): void {
  const answerMiss = missesOf(app);
  app.setNotFoundHandler(answerMiss);
  app.setErrorHandler((error, request, reply) => {
    // What is wrong with a request to nowhere is, first of all, its address.
    if (request.is404) answerMiss(request, reply);
    else answerError(error, request, reply, log);
  });
}

/** Also for what fails before a route is found. */
export function answerError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  log: HttpLogger | null,
): void {
  const known = toQueueError(error);
  // The text of an unforeseen error stays here: it may show what is inside.
  if (known.code === 'internal') {
    log?.error({ err: error, method: request.method, route: request.routeOptions.url }, 'a request failed unforeseen');
  }
  sendProblem(reply, known);
}

/** Addresses that are not there, and methods that don't go with those that are. */
function missesOf(app: App): (request: FastifyRequest, reply: FastifyReply) => void {
  const routes: { readonly pattern: RegExp; readonly methods: Set<string> }[] = [];
  const byUrl = new Map<string, Set<string>>();
  app.addHook('onRoute', ({ url, method }) => {
    let methods = byUrl.get(url);
    if (!methods) {
      methods = new Set();
      byUrl.set(url, methods);
      routes.push({ pattern: patternOf(url), methods });
    }
    for (const name of Array.isArray(method) ? method : [method]) methods.add(name);
  });
  return (request, reply) => {
    const path = request.raw.url!.split('?', 1)[0]!;
    const methods = new Set<string>();
    for (const route of routes) if (route.pattern.test(path)) for (const name of route.methods) methods.add(name);
    if (methods.size === 0) {
      sendProblem(reply, new QueueError('not-found', 'There is nothing at this address; /docs lists what there is'));
      return;
    }
    const allow = [...methods].sort().join(', ');
    reply.header('allow', allow);
    sendProblem(
      reply,
      new QueueError('method-not-allowed', `${request.method} does not go with this address; ${allow} do`),
    );
  };
}

const patternOf = (url: string): RegExp =>
  new RegExp(
    `^${url
      .split('/')
      .map((part) =>
        part.startsWith(':') ? '[^/]+' : part === '*' ? '.*' : part.replace(/[.+?^$()[\]{}|\\]/g, '\\$&'),
      )
      .join('/')}$`,
  );

const NO_REQUEST = lastAnswer(new QueueError('invalid-input', 'This is not an HTTP/1.1 request'));
const TOO_LARGE_HEADERS = lastAnswer(new QueueError('headers-too-large'));
const LATE = lastAnswer(new QueueError('request-timeout'));

/** What Node's parser refuses, or what does not arrive in time: there is no request yet, so the answer is written by hand. */
export function answersClientErrors(budgets: Budgets | null): (error: NodeJS.ErrnoException, socket: Socket) => void {
  return (error, socket) => {
    const isLate = error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
    const isOverflow = error.code === 'HPE_HEADER_OVERFLOW';
    if (isLate) budgets?.countRefusal('slow-request');
    if (isOverflow) budgets?.countRefusal('headers');
    // Nobody is there; or an earlier request of this connection is not answered yet, and would seem to get this answer.
    const answering = (socket as Socket & { readonly _httpMessage?: ServerResponse | null })._httpMessage;
    const isItself = isLate && answering?.headersSent === false && !answering.req.complete;
    const isLost = error.code === 'ECONNRESET' || /^ERR_(?:SSL|TLS)_/.test(error.code ?? '');
    if (isLost || socket.destroyed || !socket.writable || (answering && !isItself)) {
      socket.destroy();
    } else endWith(socket, isOverflow ? TOO_LARGE_HEADERS : isLate ? LATE : NO_REQUEST);
  };
}
