import { existsSync } from 'node:fs';
import { HttpQueue, type QueueCalls } from '../client/http-queue.ts';
import { keyFromEnvironment } from '../client/key.ts';
import {
  CALL_SETTINGS,
  COMMAND_SETTINGS,
  type Environment,
  type Flags,
  readSettings,
  readStoreSettings,
} from '../config.ts';
import { readStatus, type Status } from '../http/status-page.ts';
import type { KeyCalls } from '../queue/keys.ts';
import { type Store, StoreInUseError } from '../store/store.ts';
import { readCallerTls } from '../tls-files.ts';
import { CommandError, inUseBy, noStore } from './failure.ts';
import { note } from './output.ts';

/** A queue that a command works with: a running server's, or one opened in this process. */
export interface Connection {
  readonly queue: QueueCalls;
  status(): Promise<Status>;
  close(): Promise<void>;
}

/**
 * Speaks to the running server, or, where `--store` is given, opens that store in this process: a SQLite file that no
 * server has open, or a keyspace, which this process then shares with the servers on it.
 * EBBMARK_STORE does not count here: it is the server's.
 * @throws ConfigError, CommandError
 */
export async function connect(flags: Flags, env: Environment): Promise<Connection> {
  if (flags.store === undefined) {
    const remote = remoteQueue(flags, env);
    return { queue: remote, status: () => remote.status(), close: async () => remote.close() };
  }
  const { address, options } = readStoreSettings(flags, env);
  if (address.kind === 'sqlite' && !existsSync(address.path)) throw noStore(address);
  // Loaded only here: commands to a running server start faster without a store.
  const { openQueue } = await import('../queue/open.ts');
  // A command changes tasks, not the schema; but a file that one process has to itself may as well be upgraded.
  const { tls } = readCallerTls(readSettings(CALL_SETTINGS, flags, env), flags);
  const queue = await openQueue({ ...options, migrate: address.kind === 'sqlite', tls }).catch((error: unknown) => {
    throw error instanceof StoreInUseError ? new CommandError(inUseBy(address, 'calls')) : error;
  });
  const { ready, reasons } = await queue.readiness();
  if (!ready) {
    await queue.stop();
    throw new CommandError(`${address.text} cannot be used: ${reasons.join('; ')}`);
  }
  return { queue, status: () => readStatus(queue), close: () => queue.stop() };
}

/** The keys that a command works with: a running server's, or those of a store. */
export interface KeyConnection {
  readonly keys: KeyCalls;
  close(): Promise<void>;
}

/**
 * Speaks to the running server about keys, or to the store itself, without a queue.
 * @param purpose `create`: also makes or upgrades a store that is not there, or not up to date
 * @throws ConfigError, CommandError
 */
export async function connectKeys(flags: Flags, env: Environment, purpose: 'create' | 'look'): Promise<KeyConnection> {
  if (flags.store === undefined) {
    const remote = remoteQueue(flags, env);
    return { keys: remote, close: async () => remote.close() };
  }
  const { address, options } = readStoreSettings(flags, env);
  const isNew = address.kind === 'sqlite' && !existsSync(address.path);
  if (isNew && purpose !== 'create') throw noStore(address);
  const [{ openStore }, { Keyring }, { systemEnvironment }] = await Promise.all([
    import('../queue/open.ts'),
    import('../queue/keys.ts'),
    import('../queue/environment.ts'),
  ]);
  const migrate = address.kind === 'sqlite' || purpose === 'create';
  const store = await openStore({ ...options, migrate }).catch((error: unknown): Store => {
    if (!(error instanceof StoreInUseError)) throw error;
    throw new CommandError(
      `${address.text} is in use. Ask its server, with an admin key for all topics in EBBMARK_KEY or EBBMARK_KEY_FILE: --url URL; or stop it first.`,
    );
  });
  if (isNew) note(`Created a new store at ${address.path}.`);
  return { keys: new Keyring(() => store, systemEnvironment()), close: () => store.close() };
}

/** A running server, called as the settings of commands say: with their key and their certificates. @throws ConfigError */
export function remoteQueue(flags: Flags, env: Environment): HttpQueue {
  const { url, ...files } = readSettings(COMMAND_SETTINGS, flags, env);
  // Not read for a server that speaks none: what is wrong with them is in nobody's way there.
  const tls = url.startsWith('https:') ? readCallerTls(files, flags).tls : {};
  return new HttpQueue(url, { key: keyFromEnvironment(env), tls });
}
