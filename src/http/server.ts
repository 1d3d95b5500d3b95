import type { Server as SecureServer } from 'node:https';
import Fastify, { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { QueueError } from '../core/errors.ts';
import type { Queue } from '../queue/api.ts';
import type { Keyring } from '../queue/keys.ts';
import type { PeerService } from '../queue/peers.ts';
import { controlAccess } from './access.ts';
import { admitRequests, limitPipelining } from './admit.ts';
import { Answers } from './answers.ts';
import type { App, HttpLogger, Surroundings } from './app.ts';
import { readsJson } from './body.ts';
import { type BudgetLimits, Budgets, limitsFrom } from './budgets.ts';
import { limitConnections } from './connections.ts';
// For the compiler: fails where the contract and the queue's types drift apart.
import './contract/agreement.ts';
import { ApiKey } from './contract/keys.ts';
import { Schedule, ScheduleSummary } from './contract/schedules.ts';
import { Problem } from './contract/service.ts';
import { Task, TaskInput } from './contract/tasks.ts';
import { Cursors, Topic } from './contract/topics.ts';
import { describeApi } from './docs.ts';
import { answerError, answersClientErrors, handleErrors } from './errors.ts';
import { metricsOf } from './metrics.ts';
import { parseQuery } from './query.ts';
import { adminRoutes } from './routes/admin.ts';
import { backupRoute } from './routes/backup.ts';
import { keyRoutes } from './routes/keys.ts';
import { leaseRoutes } from './routes/leases.ts';
import { peerRoutes } from './routes/peers.ts';
import { scheduleRoutes } from './routes/schedules.ts';
import { serviceRoutes } from './routes/service.ts';
import { statusRoute } from './routes/status.ts';
import { taskRoutes } from './routes/tasks.ts';
import { topicRoutes } from './routes/topics.ts';
import { readStatus, StatusDesk } from './status-page.ts';
import { contextOf, Handshakes, httpsOptions, type ServerTls } from './tls.ts';
import { traceRequests } from './tracing.ts';
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
  /** The API keys that calls need. Absent: none is asked for, and whoever reaches the server may do everything. */
  readonly keys?: Keyring | undefined;
  /** Answers other servers on the same store. */
  readonly peers?: PeerService;
  /** How many lines of the log have found no room. */
  readonly logLinesDropped?: () => number;
  /** Serves the status page; off, where it is served at an address of its own, or nowhere. On when absent. */
  readonly statusPage?: boolean;
  /** Adds the process's own metrics to /metrics; once a process. */
  readonly processMetrics?: boolean;
  /** Speaks TLS, 1.2 or newer, and nothing else; plain HTTP when absent. */
  readonly tls?: ServerTls;
  /** From a connection to the end of its TLS handshake, in milliseconds; 10,000 when absent. */
  readonly handshakeMs?: number;
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
   * Shows another certificate, and admits by another `clientCa`, from the next handshake on; connections that there are
   * stay. Whether clients have to show a certificate at all stays as it was at the start.
   * @throws what Node says of a certificate and a key that it cannot use; the former ones then stay
   */
  renewTls(tls: ServerTls): void;
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
/** The same at an address of the status page alone, which takes so many connections. */
const STATUS_TIMEOUT_MS = 2_000;
const STATUS_CONNECTIONS = 64;
/** The longest part of a path is a task id that holds a message id of 2,048 bytes. */
const MAX_PARAM_LENGTH = 8192;
const NAMED = [TaskInput, Task, Topic, Cursors, Schedule, ScheduleSummary, ApiKey, Problem];

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

  const tls = options.tls ?? null;
  const common = appOptions(log, budgets, maxBodyBytes, headersTimeout, requestTimeout);
  const secure: FastifyInstance<SecureServer> | null =
    tls === null ? null : Fastify({ ...common, https: { ...common.http, ...httpsOptions(tls, options.handshakeMs) } });
  const app: App = secure ?? Fastify(common);
  const handshakes = secure === null ? null : new Handshakes(secure.server, log, options.handshakeMs);
  const surroundings: Surroundings = {
    waits,
    budgets,
    answers,
    log,
    isStopping: () => stopping !== null,
    metrics: metricsOf(queue, {
      processMetrics: options.processMetrics ?? false,
      budgets,
      logLinesDropped: options.logLinesDropped,
    }),
  };

  limitPipelining(app, surroundings);
  measureRequests(app, surroundings);
  traceRequests(app);
  for (const schema of NAMED) app.addSchema(schema);
  app.setValidatorCompiler(validatorCompiler(NAMED));
  handleErrors(app, log);
  readsJson(app);
  // Who asks before sending a body is answered once it is let in, not by Node at once.
  app.server.on('checkContinue', (request, response) => app.server.emit('request', request, response));
  limitConnections(app.server, budgets);
  guard(app, surroundings, options.anyHost ?? false);
  const keys = options.keys ?? null;
  controlAccess(app, queue, keys);
  admitRequests(app, surroundings, maxBodyBytes);
  if (log?.level === 'debug' || log?.level === 'trace') logRequests(app, log);
  await describeApi(app, keys !== null);
  for (const routes of [taskRoutes, leaseRoutes, topicRoutes, scheduleRoutes, adminRoutes]) routes(app, surroundings);
  keyRoutes(app, surroundings, keys);
  backupRoute(app, surroundings, queue);
  serviceRoutes(app, surroundings, queue);
  if (options.statusPage ?? true) statusRoute(app, statusDesk(queue, budgets, options.logLinesDropped));
  if (options.peers !== undefined) peerRoutes(app, surroundings, queue, options.peers);

  return {
    app,
    budgets,
    listen: (host, port) => app.listen({ host, port }),
    renewTls: (renewed) => secure?.server.setSecureContext(contextOf(renewed)),
    stop: (graceMs = 3000) => {
      stopping ??= stopServer(app, surroundings, handshakes, graceMs);
      return stopping;
    },
  };
}

export interface StatusServerOptions extends Pick<ServerOptions, 'anyHost' | 'log' | 'logLinesDropped'> {
  /** Of the server that the page tells of. */
  readonly budgets?: Budgets;
}

/**
 * Makes the server of the status page alone, for an address of its own.
 * @param options of the server that it tells of; `anyHost` for this address
 */
export function createStatusServer(
  queue: Queue,
  options: StatusServerOptions,
): Pick<HttpServer, 'app' | 'listen' | 'stop'> {
  const log = options.log ?? null;
  const { budgets = null, logLinesDropped } = options;
  const app: App = Fastify(appOptions(log, budgets, 1, STATUS_TIMEOUT_MS, STATUS_TIMEOUT_MS));
  app.server.maxConnections = STATUS_CONNECTIONS;
  app.setValidatorCompiler(validatorCompiler([]));
  handleErrors(app, log);
  guard(app, { isStopping: () => false }, options.anyHost ?? false);
  statusRoute(app, statusDesk(queue, budgets, logLinesDropped));
  let stopping: Promise<void> | null = null;
  return {
    app,
    listen: (host, port) => app.listen({ host, port }),
    stop: (graceMs = 0) => {
      stopping ??= closeApp(app, null, graceMs);
      return stopping;
    },
  };
}

const appOptions = (
  log: HttpLogger | null,
  budgets: Budgets | null,
  bodyLimit: number,
  headersTimeout: number,
  requestTimeout: number,
) => ({
  bodyLimit,
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
  frameworkErrors: (error: FastifyError, request: FastifyRequest, reply: FastifyReply) =>
    answerError(error, request, reply, log),
});

const statusDesk = (queue: Queue, budgets: Budgets | null, logLinesDropped: (() => number) | undefined): StatusDesk =>
  new StatusDesk(() =>
    readStatus(queue, {
      ...(budgets === null ? {} : { budgets: budgets.usage() }),
      ...(logLinesDropped === undefined ? {} : { logLinesDropped: logLinesDropped() }),
    }),
  );

/** What every request has to pass, before its body is read. */
function guard(app: App, { isStopping }: Pick<Surroundings, 'isStopping'>, anyHost: boolean): void {
  app.addHook('onRequest', (request, reply, done) => {
    const { headers } = request;
    reply.headers(EVERY_ANSWER);
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

/** No browser takes a payload for a page, no cache keeps it, no link tells where it stood. */
const EVERY_ANSWER = {
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
  'referrer-policy': 'no-referrer',
};

const FOREIGN_HOST =
  'This server listens on loopback, and takes calls only by the names localhost, 127.x.x.x and [::1]; behind a proxy that passes other names on: --allow-public (EBBMARK_ALLOW_PUBLIC=on)';
const isLoopbackHost = (host: string): boolean => /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d*)?$/i.test(host);

const isSafe = (method: string): boolean => method === 'GET' || method === 'HEAD' || method === 'OPTIONS';
const isSameOrigin = (origin: string, host: string | undefined): boolean =>
  origin.slice(origin.indexOf('://') + 3) === host;

function logRequests(app: App, log: HttpLogger): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { method, routeOptions, ip, caller } = request;
    log.debug(
      { method, route: routeOptions.url, ip, key: caller?.key?.id, status: reply.statusCode, ms: reply.elapsedTime },
      'answered',
    );
    done();
  });
}

function measureRequests(app: App, { metrics }: Surroundings): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { url: route } = request.routeOptions;
    const method = route === undefined ? 'none' : request.method;
    metrics.answered(method, route ?? 'none', reply.statusCode, reply.elapsedTime / 1000);
    done();
  });
}

async function stopServer(
  app: App,
  { waits, answers }: Surroundings,
  handshakes: Handshakes | null,
  graceMs: number,
): Promise<void> {
  waits.stop();
  await closeApp(app, handshakes, graceMs).finally(() => answers.stop());
}

async function closeApp(app: App, handshakes: Handshakes | null, graceMs: number): Promise<void> {
  const { server } = app;
  // A connection whose request is answered after the close began stays open, idle, for as long as its client likes; one
  // that has not said anything yet, until it is not waited for any more.
  const sweep = setInterval(() => {
    server.closeIdleConnections();
    handshakes?.close();
  }, 20);
  const deadline = setTimeout(() => server.closeAllConnections(), graceMs);
  try {
    await app.close();
  } finally {
    clearInterval(sweep);
    clearTimeout(deadline);
  }
}
