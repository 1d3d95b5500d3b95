import { existsSync } from 'node:fs';
import { HttpQueue, type QueueCalls } from '../client/http-queue.ts';
import { type Environment, type Flags, readSettings, readStoreSettings } from '../config.ts';
import { readStatus, type Status } from '../http/status-page.ts';
import { StoreInUseError } from '../store/store.ts';
import { CommandError, inUseBy, noStore } from './failure.ts';

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
    const remote = new HttpQueue(readSettings(['url'], flags, env).url);
    return { queue: remote, status: () => remote.status(), close: async () => remote.close() };
  }
  const { address, options } = readStoreSettings(flags, env);
  if (address.kind === 'sqlite' && !existsSync(address.path)) throw noStore(address);
  // Loaded only here: commands to a running server start faster without a store.
  const { openQueue } = await import('../queue/open.ts');
  // A command changes tasks, not the schema; but a file that one process has to itself may as well be upgraded.
  const queue = await openQueue({ ...options, migrate: address.kind === 'sqlite' }).catch((error: unknown) => {
    throw error instanceof StoreInUseError ? new CommandError(inUseBy(address, 'calls')) : error;
  });
  const { ready, reasons } = await queue.readiness();
  if (!ready) {
    await queue.stop();
    throw new CommandError(`${address.text} cannot be used: ${reasons.join('; ')}`);
  }
  return { queue, status: () => readStatus(queue), close: () => queue.stop() };
}
