import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer as createSocketServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { resolve } from 'node:path';
import closeWithGrace from 'close-with-grace';
import {
  type Environment,
  type Flags,
  readServerSettings,
  SETTINGS,
  type StoreAddress,
  storeOptionsOf,
  unknownSettings,
} from '../config.ts';
import { createServer } from '../http/server.ts';
import { VERSION } from '../http/version.ts';
import { openLocalQueue } from '../queue/open.ts';
import { StoreInUseError, StoreOutdatedError } from '../store/store.ts';
import { CommandError, inUseBy, outdated } from './failure.ts';
import { createLog } from './log.ts';
import { readServerRecord, writeServerRecord } from './server-record.ts';

/** From the signal to the end: what runs may finish, long polls end at once. */
const STOP_MS = 4_500;
/** A cluster that answers nothing for so long is waited for behind an open port, where /readyz tells of it. */
const REACH_MS = 15_000;
/** What of it requests have; the rest is for the queue to let go of its store. */
const REQUESTS_MS = 3_000;

/**
 * Runs the server until a signal ends it. Resolves once it listens; the process then lives on by its socket, and ends
 * with 0 after SIGTERM or SIGINT, within five seconds; a second signal ends it at once.
 * @throws ConfigError, or what keeps the store from opening or the address from being taken
 */
export async function serve(flags: Flags, env: Environment): Promise<void> {
  const settings = readServerSettings(flags, env);
  const { options } = storeOptionsOf(settings, flags);
  const log = createLog(settings.logLevel);
  for (const name of unknownSettings(env)) log.warn({ name }, 'this name in the environment is no setting');
  if (!settings.listen.loopback) {
    log.warn(
      { listen: settings.listen.host },
      `ANYONE who reaches this address can read, change and delete every task (--${SETTINGS.allowPublic.flag}): keep others out by a firewall or a proxy`,
    );
  }

  const { host, port } = settings.listen;
  // Before the store: a start that fails has created nothing, and taken nothing over.
  await mustBeFree(host, port).catch((error: unknown) => {
    throw isServerOf(settings.store, port) ? new CommandError(inUseBy(settings.store, 'serve')) : error;
  });
  const newFile = newFileOf(settings.store);
  const queue = await openLocalQueue({ ...options, migrate: settings.migrate, reachMs: REACH_MS, log }).catch(
    (error: unknown) => {
      if (error instanceof StoreInUseError) throw new CommandError(inUseBy(settings.store, 'serve'));
      throw error instanceof StoreOutdatedError ? outdated(error.message, options.store) : error;
    },
  );
  if (newFile !== null) log.info({ path: newFile }, 'created a new store');
  if (queue.status().space?.givesBack === false) {
    log.info(
      { store: options.store },
      'this file was made by an older version: space of what was deleted is used again, and not given back to the disk, until `ebbmark compact` was run on it',
    );
  }
  const server = await createServer(queue, {
    maxBodyBytes: settings.maxBodyBytes,
    anyHost: settings.allowPublic,
    log,
    peers: queue.peers,
    processMetrics: true,
  });
  let url: string;
  try {
    url = await server.listen(host, port);
  } catch (error) {
    await queue.stop();
    throw error;
  }
  const { store } = settings;
  const isFile = store.kind === 'sqlite' && store.path !== ':memory:';
  const forget = isFile ? writeServerRecord(store.path, { pid: process.pid, url }) : () => {};
  // Not awaited: it takes as long as what is in the store takes to load, and /readyz tells of that.
  queue.reachableAt(settings.advertise ?? advertised(url)).catch((error: unknown) => {
    log.error({ err: error }, 'this server could not take its share of the work; it is tried again');
  });

  closeWithGrace(
    {
      delay: STOP_MS,
      // Crashes are the system's: nothing useful can run after them.
      skip: ['SIGILL', 'SIGTRAP', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGSEGV', 'SIGUSR2'],
      logger: { error: (what: unknown) => log.error({ err: what }, 'while stopping') },
    },
    async ({ signal, err }) => {
      if (err) log.fatal({ err }, 'an error that nobody caught; stopping');
      else log.info({ signal }, 'stopping');
      // At once: others go on with the shards while requests here come to their end.
      await Promise.all([server.stop(REQUESTS_MS), queue.stop()]);
      forget();
      log.info({}, 'stopped');
    },
  );
  log.info({ version: VERSION, url, store: queue.status().store, pid: process.pid }, 'listening');
}

/** Where other servers reach an address that this one listens on: by one of the machine's, where it is all of them. */
function advertised(url: string): string {
  const { hostname, port } = new URL(url);
  if (hostname !== '0.0.0.0' && hostname !== '[::]') return url;
  const addresses = Object.values(networkInterfaces()).flatMap((some) => some ?? []);
  const outer = addresses.find(({ family, internal }) => family === 'IPv4' && !internal);
  return `http://${outer?.address ?? '127.0.0.1'}:${port}`;
}

/** Takes an address and lets go of it. @throws what keeps it from being taken */
async function mustBeFree(host: string, port: number): Promise<void> {
  if (port === 0) return;
  const probe = createSocketServer().listen(port, host);
  await once(probe, 'listening');
  probe.close();
  await once(probe, 'close');
}

/** Whether a server that has this store is the one that has the port. */
function isServerOf(store: StoreAddress, port: number): boolean {
  const record = store.kind === 'sqlite' ? readServerRecord(store.path) : null;
  return record !== null && Number(new URL(record.url).port) === port;
}

/** The absolute path of a file that is not there yet; null where there is one, or needs to be none. */
const newFileOf = (store: StoreAddress): string | null =>
  store.kind === 'sqlite' && store.path !== ':memory:' && !existsSync(store.path) ? resolve(store.path) : null;
