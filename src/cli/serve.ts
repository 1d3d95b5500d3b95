import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer as createSocketServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { resolve } from 'node:path';
import { getHeapStatistics } from 'node:v8';
import closeWithGrace from 'close-with-grace';
import {
  type Environment,
  type Flags,
  isGiven,
  type ListenAddress,
  needsKeys,
  readServerSettings,
  SETTINGS,
  type StoreAddress,
  storeOptionsOf,
  unknownSettings,
} from '../config.ts';
import { QueueError } from '../core/errors.ts';
import type { HttpLogger } from '../http/app.ts';
import { inputShareOf, limitsFrom } from '../http/budgets.ts';
import { createServer, createStatusServer, type HttpServer } from '../http/server.ts';
import { VERSION } from '../http/version.ts';
import { openLocalQueue } from '../queue/open.ts';
import type { LocalQueue } from '../queue/queue.ts';
import { StoreInUseError, StoreOutdatedError } from '../store/store.ts';
import { Certificates } from './certificates.ts';
import { CommandError, inUseBy, noKey, outdated } from './failure.ts';
import { createLog } from './log.ts';
import { readServerRecord, writeServerRecord } from './server-record.ts';

/** From the signal to the end: what runs may finish, long polls end at once. */
const STOP_MS = 4_500;
/** What of it requests have; the rest is for the queue to let go of its store. */
const REQUESTS_MS = 3_000;
/** A cluster that answers nothing for so long is waited for behind an open port, where /readyz tells of it. */
const REACH_MS = 15_000;
/** What the log has to be read, at the end. */
const FLUSH_MS = 500;
/** Signals of the system's: nothing useful can run after them. */
const CRASHES = ['SIGILL', 'SIGTRAP', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGSEGV', 'SIGUSR2'] as const;

/**
 * Runs the server until a signal ends it. Resolves once it listens; the process then lives on by its socket, and ends
 * with 0 after SIGTERM or SIGINT, within five seconds; a second signal ends it at once.
 * @throws ConfigError, or what keeps the store from opening or the address from being taken
 */
export async function serve(flags: Flags, env: Environment): Promise<void> {
  const settings = readServerSettings(flags, env);
  const { options } = storeOptionsOf(settings, flags);
  const certificates = new Certificates(settings, flags);
  const { log, dropped, flush } = createLog(settings.logLevel);
  certificates.warn(log);
  for (const name of unknownSettings(env)) log.warn({ name }, 'this name in the environment is no setting');
  const asksForKeys = needsKeys(settings);
  if (!settings.listen.loopback && !asksForKeys) {
    log.warn(
      { listen: settings.listen.host },
      `ANYONE who reaches this address can read, change and delete every task (--${SETTINGS.allowPublic.flag}): keep others out by a firewall or a proxy`,
    );
  }

  const { statusListen } = settings;
  const statusAddress = typeof statusListen === 'string' ? null : statusListen;
  if (statusAddress !== null && !statusAddress.loopback) {
    log.warn(
      { listen: statusAddress.host },
      'ANYONE who reaches the address of the status page can read names of topics: no key is asked for there, and it speaks no TLS',
    );
  }
  for (const { fields, message } of memoryWarnings(settings, isGiven('maxMemoryBytes', flags, env))) {
    log.warn(fields, message);
  }

  const { host, port } = settings.listen;
  // Before the store: a start that fails has created nothing, and taken nothing over.
  await mustBeFree(host, port).catch((error: unknown) => {
    throw isServerOf(settings.store, port) ? new CommandError(inUseBy(settings.store, 'serve')) : error;
  });
  if (statusAddress !== null) await statusMustBeFree(statusAddress);
  const newFile = newFileOf(settings.store);
  if (newFile !== null && asksForKeys) throw noKey(options.store);
  const queue = await openLocalQueue({
    ...options,
    migrate: settings.migrate,
    reachMs: REACH_MS,
    tls: () => certificates.toShow,
    log,
    ...(settings.maxStoreBytes === null ? {} : { maxStoreBytes: settings.maxStoreBytes }),
  }).catch((error: unknown) => {
    if (error instanceof StoreInUseError) throw new CommandError(inUseBy(settings.store, 'serve'));
    throw error instanceof StoreOutdatedError ? outdated(error.message, options.store) : error;
  });
  if (newFile !== null) log.info({ path: newFile }, 'created a new store');
  if (queue.status().space?.givesBack === false) {
    log.info(
      { store: options.store },
      'this file was made by an older version: space of what was deleted is used again, and not given back to the disk, until `ebbmark compact` was run on it',
    );
  }
  const open: { stop(graceMs?: number): Promise<void> }[] = [queue];
  let server: HttpServer;
  let url: string;
  try {
    if (asksForKeys) await mustHaveKey(queue, options.store, log);
    server = await createServer(queue, {
      maxBodyBytes: settings.maxBodyBytes,
      budgets: {
        memoryBytes: settings.maxMemoryBytes,
        tasks: settings.maxTasks,
        connections: settings.maxConnections,
      },
      leasesHeld: () => queue.leasesHeld,
      // Who needs a key gains nothing by a name: a page that has its own name point here has none.
      anyHost: settings.allowPublic || asksForKeys,
      log,
      keys: asksForKeys ? queue.keys : undefined,
      logLinesDropped: dropped,
      statusPage: statusListen === 'main',
      peers: queue.peers,
      processMetrics: true,
      ...(certificates.own === null ? {} : { tls: certificates.own }),
    });
    open.push(server);
    url = await server.listen(host, port);
    if (statusAddress !== null) {
      const statusServer = createStatusServer(queue, {
        anyHost: !statusAddress.loopback,
        log,
        budgets: server.budgets,
        logLinesDropped: dropped,
      });
      open.push(statusServer);
      const status = await statusServer.listen(statusAddress.host, statusAddress.port);
      log.info({ url: `${status}/status` }, 'the status page');
    }
  } catch (error) {
    await Promise.all(open.map((one) => one.stop(0)));
    throw error;
  }
  if (!settings.listen.loopback && asksForKeys && certificates.own === null) {
    log.warn(
      { listen: settings.listen.host },
      `API keys and payloads go over the network as they are: give this server a certificate (${SETTINGS.tlsCert.env}), or put what speaks TLS before it`,
    );
  }
  const { store } = settings;
  const isFile = store.kind === 'sqlite' && store.path !== ':memory:';
  const forget = isFile ? writeServerRecord(store.path, { pid: process.pid, url }) : () => {};
  // Not awaited: it takes as long as what is in the store takes to load, and /readyz tells of that.
  queue.reachableAt(settings.advertise ?? advertised(url)).catch((error: unknown) => {
    log.error({ err: error }, 'this server could not take its share of the work; it is tried again');
  });

  if (certificates.own !== null) process.on('SIGHUP', () => certificates.renew(server, log));
  closeWithGrace(
    {
      delay: STOP_MS,
      skip: [...CRASHES, ...(certificates.own === null ? [] : (['SIGHUP'] as const))],
      logger: { error: (error: unknown) => log.error({ err: error }, 'while stopping') },
      onTimeout: (ms) => log.error({ ms }, 'not stopped in time; ending'),
      onSecondSignal: (signal) => log.error({ signal }, 'a second signal; ending'),
      onSecondError: (err) => log.fatal({ err }, 'a second error that nobody caught; ending'),
    },
    async ({ signal, err }) => {
      if (err) log.fatal({ err }, 'an error that nobody caught; stopping');
      else log.info({ signal }, 'stopping');
      // At once: others go on with the shards while requests here come to their end.
      await Promise.all(open.map((one) => one.stop(REQUESTS_MS)));
      forget();
      log.info({}, 'stopped');
      await flush(FLUSH_MS);
    },
  );
  log.info({ version: VERSION, url, store: queue.status().store, pid: process.pid }, 'listening');
}

/** What an operator should know of the memory that the settings ask for. */
function memoryWarnings(
  { maxMemoryBytes, maxBodyBytes }: { readonly maxMemoryBytes: number; readonly maxBodyBytes: number },
  isGiven: boolean,
): readonly { readonly fields: object; readonly message: string }[] {
  const { memoryBytes } = limitsFrom({ memoryBytes: maxMemoryBytes });
  const { env, flag } = SETTINGS.maxMemoryBytes;
  const inputBytes = inputShareOf(memoryBytes);
  const heapBytes = getHeapStatistics().heap_size_limit;
  return [
    {
      holds: isGiven && memoryBytes < maxMemoryBytes,
      fields: { given: maxMemoryBytes, used: memoryBytes },
      message: `${env} (--${flag}) is more than half of the memory there is; half of it is used`,
    },
    {
      holds: inputBytes < maxBodyBytes,
      fields: { maxBodyBytes, inputBytes },
      message: `a body of ${SETTINGS.maxBodyBytes.env} does not fit into three quarters of ${env}: it will be refused`,
    },
    {
      holds: heapBytes < memoryBytes,
      fields: { heapBytes, memoryBytes },
      message: `the heap of this process is smaller than ${env}: give it more (NODE_OPTIONS=--max-old-space-size=${Math.ceil(memoryBytes / 1024 ** 2)}), or the budget less`,
    },
  ].filter(({ holds }) => holds);
}

/** Where other servers reach an address that this one listens on: by one of the machine's, where it is all of them. */
function advertised(url: string): string {
  const { protocol, hostname, port } = new URL(url);
  if (hostname !== '0.0.0.0' && hostname !== '[::]') return url;
  const addresses = Object.values(networkInterfaces()).flatMap((some) => some ?? []);
  const outer = addresses.find(({ family, internal }) => family === 'IPv4' && !internal);
  return `${protocol}//${outer?.address ?? '127.0.0.1'}:${port}`;
}

/**
 * A server that nobody can call does not start, so that a key can be made on its store. One that has not reached its store yet cannot tell: it starts, and refuses calls until it can.
 * @throws CommandError
 */
async function mustHaveKey(queue: LocalQueue, store: string, log: HttpLogger): Promise<void> {
  const hasKey = await queue.keys.hasAny().catch((error: unknown) => {
    if (!(error instanceof QueueError) || error.code !== 'store-unavailable') throw error;
    log.warn({ err: error }, 'calls need an API key; whether there is one is known once the store is reached');
    return true;
  });
  if (!hasKey) throw noKey(store);
}

/** Takes an address and lets go of it. @throws what keeps it from being taken */
async function mustBeFree(host: string, port: number): Promise<void> {
  if (port === 0) return;
  const probe = createSocketServer().listen(port, host);
  await once(probe, 'listening');
  probe.close();
  await once(probe, 'close');
}

async function statusMustBeFree({ host, port }: ListenAddress): Promise<void> {
  try {
    await mustBeFree(host, port);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    const { flag, env } = SETTINGS.statusListen;
    throw new CommandError(
      `${host}:${port} is in use; choose another address for the status page with --${flag} (${env}), or main or off`,
    );
  }
}

/** Whether a server that has this store is the one that has the port. */
function isServerOf(store: StoreAddress, port: number): boolean {
  const record = store.kind === 'sqlite' ? readServerRecord(store.path) : null;
  return record !== null && Number(new URL(record.url).port) === port;
}

/** The absolute path of a file that is not there yet; null where there is one, or needs to be none. */
const newFileOf = (store: StoreAddress): string | null =>
  store.kind === 'sqlite' && store.path !== ':memory:' && !existsSync(store.path) ? resolve(store.path) : null;
