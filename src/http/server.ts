import Fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import { QueueError } from '../core/errors.ts';
import type { Queue } from '../queue/api.ts';
import type { PeerService } from '../queue/peers.ts';
import { admitRequests } from './admit.ts';
import { Answers } from './answers.ts';
import type { App, HttpLogger, Surroundings } from './app.ts';
import { readsJson } from './body.ts';
import { type BudgetLimits, Budgets, limitsFrom } from './budgets.ts';
import { limitConnections } from './connections.ts';
// For the compiler: fails where the contract and the queue's types drift apart.
import './contract/agreement.ts';
import { Schedule, ScheduleSummary } from './contract/schedules.ts';
import { Problem } from './contract/service.ts';
import { Task, TaskInput } from './contract/tasks.ts';
import { Cursors, Topic } from './contract/topics.ts';
import { describeApi } from './docs.ts';
import { answerError, answersClientErrors, handleErrors } from './errors.ts';
import { parseQuery } from './query.ts';
import { adminRoutes } from './routes/admin.ts';
import { leaseRoutes } from './routes/leases.ts';
import { peerRoutes } from './routes/peers.ts';
import { scheduleRoutes } from './routes/schedules.ts';
import { serviceRoutes } from './routes/service.ts';
import { taskRoutes } from './routes/tasks.ts';
import { topicRoutes } from './routes/topics.ts';
import { validatorCompiler } from './validation.ts';
import { Waits } from './waits.ts';

export interface ServerOptions {
  /** Bytes of a body, uncompressed, at the most; 8 MiB when absent. */
  readonly maxBodyBytes?: number;
  /** How much is taken on at once; defaults, as of the settings, for what is absent. */
  readonly budgets?: Partial<BudgetLimits>;
  /** How many leases the queue has open, where that is known at less cost than by its status. */
  readonly leasesHeld?: () => number;
  readonly timeouts?: Timeouts;
  /**
   * Takes calls by any Host name. Off, only by those of loopback: a page of a browser here could else have its own name
   * point to this address (DNS rebinding), and would then be of the same origin.
   */
  readonly anyHost?: boolean;
  /** Told of what went wrong; never of payloads. Requests are logged one by one at level `debug` only. */
  readonly log?: HttpLogger;
  /** Answers other servers on the same store. */
  readonly peers?: PeerService;
  /** Adds the process's own metrics to /metrics; once a process. */
  readonly processMetrics?: boolean;
}

/** In milliseconds. */
export interface Timeouts {
  /** From the connection, or the first byte of a further request, to the end of its headers; 20 s when absent. */
  readonly headersMs?: number;
  /** From there to the end of its body; 60 s when absent. How long its answer takes is another matter. */
  readonly requestMs?: number;
  /** From the beginning of an answer until it is taken, and as much again for each MiB; 30 s when absent. */
  readonly answerMs?: number;
}

export interface HttpServer {
  /** For routes of one's own, before `listen`. */
  readonly app: App;
  /** What is under way, and what was refused. */
  readonly budgets: Budgets;
  /** @returns the address, with the port that the system chose where `port` is 0 */
  listen(host: string, port: number): Promise<string>;
  /**
   * Refuses new work, ends long polls, lets what runs finish for `graceMs` (3,000) at the most, and closes all
   * connections. Leaves the queue as it is. Idempotent.
   */
  stop(graceMs?: number): Promise<void>;
}

export const DEFAULT_MAX_BODY_BYTES = 8 * 1024 * 1024;

const HEADERS_TIMEOUT_MS = 20_000;
const REQUEST_TIMEOUT_MS = 60_000;
/** How often Node looks for requests that are late. */
const LOOK_FOR_LATE_MS = 1_000;
const MAX_HEADER_BYTES = 16 * 1024;
/** The longest part of a path is a task id that holds a message id of 2,048 bytes. */
const MAX_PARAM_LENGTH = 8192;
const NAMED = [TaskInput, Task, Topic, Cursors, Schedule, ScheduleSummary, Problem];

/** Makes the server of a queue; `listen` starts it. */
export async function createServer(queue: Queue, options: ServerOptions = {}): Promise<HttpServer> {
  const log = options.log ?? null;
  const waits = new Waits();
  const budgets = new Budgets(limitsFrom(options.budgets ?? {}), options.leasesHeld ?? (() => queue.status().leased));
  const answers = new Answers(budgets, options.timeouts?.answerMs);
  const maxBodyBytes = options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES;
  const headersTimeout = options.timeouts?.headersMs ?? HEADERS_TIMEOUT_MS;
  const requestTimeout = Math.max(headersTimeout, options.timeouts?.requestMs ?? REQUEST_TIMEOUT_MS);
  let stopping: Promise<void> | null = null;

  const app: App = Fastify({
    bodyLimit: maxBodyBytes,
    // Refused by `guard` instead, with a problem document.
    return503OnClosing: false,
    requestTimeout,
    http: {
      requireHostHeader: false,
      headersTimeout,
      requestTimeout,
      connectionsCheckingInterval: Math.min(LOOK_FOR_LATE_MS, headersTimeout),
      maxHeaderSize: MAX_HEADER_BYTES,
    },
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH, querystringParser: parseQuery },
    clientErrorHandler: answersClientErrors(budgets),
    frameworkErrors: (error, request, reply) =>
      answerError(error, request as FastifyRequest, reply as FastifyReply, log),
  });
  const surroundings: Surroundings = {
    queue,
    waits,
    budgets,
    answers,
    log,
    isStopping: () => stopping !== null,
    processMetrics: options.processMetrics ?? false,
  };

  for (const schema of NAMED) app.addSchema(schema);
  app.setValidatorCompiler(validatorCompiler(NAMED));
  handleErrors(app, log);
  readsJson(app);
  // Who asks before sending a body is answered once it is let in, not by Node at once.
  app.server.on('checkContinue', (request, response) => app.server.emit('request', request, response));
  limitConnections(app.server, budgets);
  guard(app, surroundings, options.anyHost ?? false);
  admitRequests(app, surroundings, maxBodyBytes);
  if (log?.level === 'debug' || log?.level === 'trace') logRequests(app, log);
  await describeApi(app);
  for (const routes of [taskRoutes, leaseRoutes, topicRoutes, scheduleRoutes, adminRoutes, serviceRoutes]) {
    routes(app, surroundings);
  }
  if (options.peers !== undefined) peerRoutes(app, surroundings, options.peers);

  return {
    app,
    budgets,
    listen: (host, port) => app.listen({ host, port }),
    stop: (graceMs = 3000) => {
      stopping ??= stopServer(app, surroundings, graceMs);
      return stopping;
    },
  };
}

/** What every request has to pass, before its body is read. */
function guard(app: App, { isStopping }: Surroundings, anyHost: boolean): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const { headers } = request;
    if (headers.host === undefined && request.raw.httpVersion === '1.1') {
      done(new QueueError('invalid-input', 'An HTTP/1.1 request has a Host header (RFC 9112, section 3.2)'));
    } else if (!anyHost && headers.host !== undefined && !isLoopbackHost(headers.host)) {
      done(new QueueError('forbidden', FOREIGN_HOST));
    } else if (headers.origin !== undefined && !isSafe(request.method) && !isSameOrigin(headers.origin, headers.host)) {
      // A page of another site, in a browser that reaches this server: a call without a body needs no preflight.
      done(new QueueError('forbidden', 'Changes are not taken from pages of other origins'));
    } else if (isStopping() && request.url.startsWith('/v1/')) {
      done(new QueueError('shutting-down'));
    } else done();
  });
}

const FOREIGN_HOST =
  'This server listens on loopback, and takes calls only by the names localhost, 127.x.x.x and [::1]; behind a proxy that passes other names on: --allow-public (EBBMARK_ALLOW_PUBLIC=on)';
const isLoopbackHost = (host: string): boolean => /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d*)?$/i.test(host);

const isSafe = (method: string): boolean => method === 'GET' || method === 'HEAD' || method === 'OPTIONS';
const isSameOrigin = (origin: string, host: string | undefined): boolean =>
  origin.slice(origin.indexOf('://') + 3) === host;

function logRequests(app: App, log: HttpLogger): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { method, routeOptions, ip } = request;
    log.debug({ method, route: routeOptions.url, ip, status: reply.statusCode, ms: reply.elapsedTime }, 'answered');
    done();
  });
}

async function stopServer(app: App, { waits, answers }: Surroundings, graceMs: number): Promise<void> {
  waits.stop();
  const { server } = app;
  // A connection whose request is answered after the close began stays open, idle, for as long as its client likes.
  const sweep = setInterval(() => server.closeIdleConnections(), 20);
  const deadline = setTimeout(() => server.closeAllConnections(), graceMs);
  try {
    await app.close();
  } finally {
    clearInterval(sweep);
    clearTimeout(deadline);
    answers.stop();
  }
}
