import Fastify, { type FastifyReply, type FastifyRequest } from 'fastify';
import { QueueError } from '../core/errors.ts';
import type { Queue } from '../queue/api.ts';
import type { PeerService } from '../queue/peers.ts';
import type { App, HttpLogger, Surroundings } from './app.ts';
import { readsJson } from './body.ts';
// For the compiler: fails where the contract and the queue's types drift apart.
import './contract/agreement.ts';
import { Schedule, ScheduleSummary } from './contract/schedules.ts';
import { Problem } from './contract/service.ts';
import { Task, TaskInput } from './contract/tasks.ts';
import { Cursors, Topic } from './contract/topics.ts';
import { describeApi } from './docs.ts';
import { answerClientError, answerError, handleErrors } from './errors.ts';
import { parseQuery } from './query.ts';
import { adminRoutes } from './routes/admin.ts';
import { leaseRoutes } from './routes/leases.ts';
import { peerRoutes } from './routes/peers.ts';
import { scheduleRoutes } from './routes/schedules.ts';
import { serviceRoutes } from './routes/service.ts';
import { statusRoute } from './routes/status.ts';
import { taskRoutes } from './routes/tasks.ts';
import { topicRoutes } from './routes/topics.ts';
import { readStatus, StatusDesk } from './status-page.ts';
import { validatorCompiler } from './validation.ts';
import { Waits } from './waits.ts';

export interface ServerOptions {
  /** Bytes of a body, uncompressed, at the most; 8 MiB when absent. */
  readonly maxBodyBytes?: number;
  /**
   * Takes calls by any Host name. Off, only by those of loopback: a page of a browser here could else have its own name
   * point to this address (DNS rebinding), and would then be of the same origin.
   */
  readonly anyHost?: boolean;
  /** Told of what went wrong; never of payloads. Requests are logged one by one at level `debug` only. */
  readonly log?: HttpLogger;
  /** Answers other servers on the same store. */
  readonly peers?: PeerService;
  /** What is in use of this server's budgets, for the status page. */
  readonly budgets?: Surroundings['budgets'];
  /** How many lines of the log have found no room. */
  readonly logLinesDropped?: () => number;
  /** Serves the status page; off, where it is served at an address of its own, or nowhere. On when absent. */
  readonly statusPage?: boolean;
  /** Adds the process's own metrics to /metrics; once a process. */
  readonly processMetrics?: boolean;
}

export interface HttpServer {
  /** For routes of one's own, before `listen`. */
  readonly app: App;
  /** @returns the address, with the port that the system chose where `port` is 0 */
  listen(host: string, port: number): Promise<string>;
  /**
   * Refuses new work, ends long polls, lets what runs finish for `graceMs` (3,000) at the most, and closes all
   * connections. Leaves the queue as it is. Idempotent.
   */
  stop(graceMs?: number): Promise<void>;
}

export const DEFAULT_MAX_BODY_BYTES = 8 * 1024 * 1024;

/** A request has to arrive, body and all, within this time. How long its answer takes is another matter. */
const REQUEST_TIMEOUT_MS = 60_000;
/** The same at an address of the status page alone, which takes so many connections. */
const STATUS_TIMEOUT_MS = 2_000;
const STATUS_CONNECTIONS = 64;
/** The longest part of a path is a task id that holds a message id of 2,048 bytes. */
const MAX_PARAM_LENGTH = 8192;
const NAMED = [TaskInput, Task, Topic, Cursors, Schedule, ScheduleSummary, Problem];

/** Makes the server of a queue; `listen` starts it. */
export async function createServer(queue: Queue, options: ServerOptions = {}): Promise<HttpServer> {
  const log = options.log ?? null;
  const waits = new Waits();
  let stopping: Promise<void> | null = null;

  const app = newApp(log, options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES, REQUEST_TIMEOUT_MS);
  const surroundings: Surroundings = {
    queue,
    waits,
    log,
    isStopping: () => stopping !== null,
    processMetrics: options.processMetrics ?? false,
    ...serverStatus(options),
  };

  for (const schema of NAMED) app.addSchema(schema);
  app.setValidatorCompiler(validatorCompiler(NAMED));
  handleErrors(app, log);
  readsJson(app, options.maxBodyBytes ?? DEFAULT_MAX_BODY_BYTES);
  guard(app, surroundings, options.anyHost ?? false);
  if (log?.level === 'debug' || log?.level === 'trace') logRequests(app, log);
  await describeApi(app);
  for (const routes of [taskRoutes, leaseRoutes, topicRoutes, scheduleRoutes, adminRoutes, serviceRoutes]) {
    routes(app, surroundings);
  }
  if (options.statusPage ?? true) statusRoute(app, statusDesk(queue, options));
  if (options.peers !== undefined) peerRoutes(app, surroundings, options.peers);

  return {
    app,
    listen: (host, port) => app.listen({ host, port }),
    stop: (graceMs = 3000) => {
      stopping ??= stopServer(app, waits, graceMs);
      return stopping;
    },
  };
}

/**
 * Makes the server of the status page alone, for an address of its own.
 * @param options those of the server that it tells of; `anyHost` for this address
 */
export function createStatusServer(
  queue: Queue,
  options: Pick<ServerOptions, 'anyHost' | 'log' | 'budgets' | 'logLinesDropped'>,
): HttpServer {
  const log = options.log ?? null;
  const app = newApp(log, 1, STATUS_TIMEOUT_MS);
  app.server.maxConnections = STATUS_CONNECTIONS;
  app.setValidatorCompiler(validatorCompiler([]));
  handleErrors(app, log);
  guard(app, { isStopping: () => false }, options.anyHost ?? false);
  statusRoute(app, statusDesk(queue, options));
  let stopping: Promise<void> | null = null;
  return {
    app,
    listen: (host, port) => app.listen({ host, port }),
    stop: (graceMs = 0) => {
      stopping ??= stopServer(app, new Waits(), graceMs);
      return stopping;
    },
  };
}

function newApp(log: HttpLogger | null, bodyLimit: number, requestTimeout: number): App {
  return Fastify({
    bodyLimit,
    // Refused by `guard` instead, with a problem document.
    return503OnClosing: false,
    requestTimeout,
    http: { requireHostHeader: false },
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH, querystringParser: parseQuery },
    clientErrorHandler: answerClientError,
    frameworkErrors: (error, request, reply) =>
      answerError(error, request as FastifyRequest, reply as FastifyReply, log),
  });
}

/** What is there of it. */
function serverStatus({ budgets, logLinesDropped }: ServerOptions): Pick<Surroundings, 'budgets' | 'logLinesDropped'> {
  return {
    ...(budgets === undefined ? {} : { budgets }),
    ...(logLinesDropped === undefined ? {} : { logLinesDropped }),
  };
}

const statusDesk = (queue: Queue, { budgets, logLinesDropped }: ServerOptions): StatusDesk =>
  new StatusDesk(() =>
    readStatus(queue, {
      ...(budgets === undefined ? {} : { budgets: budgets.usage() }),
      ...(logLinesDropped === undefined ? {} : { logLinesDropped: logLinesDropped() }),
    }),
  );

/** What every request has to pass, before its body is read. */
function guard(app: App, { isStopping }: Pick<Surroundings, 'isStopping'>, anyHost: boolean): void {
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

async function stopServer(app: App, waits: Waits, graceMs: number): Promise<void> {
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
  }
}
