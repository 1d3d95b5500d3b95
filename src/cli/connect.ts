import { existsSync } from 'node:fs';
import { type Environment, type Flags, readSettings } from '../config.ts';
import { readStatus, type Status } from '../http/status-page.ts';
import { noStore } from './failure.ts';
import { type CommandQueue, RemoteQueue } from './remote-queue.ts';

/** A queue that a command works with: a running server's, or one opened in this process. */
export interface Connection {
  readonly queue: CommandQueue;
  status(): Promise<Status>;
  close(): Promise<void>;
}

/**
 * Speaks to the running server, or, where `--store` is given, opens a stopped one's store in this process.
 * EBBMARK_STORE does not count here: it is the server's.
 * @throws ConfigError, CommandError
 */
export async function connect(flags: Flags, env: Environment): Promise<Connection> {
  if (flags.store === undefined) {
    const remote = new RemoteQueue(readSettings(['url'], flags, env).url);
    return { queue: remote, status: () => remote.status(), close: async () => {} };
  }
  const { store } = readSettings(['store'], flags, env);
  if (!existsSync(store.path)) throw noStore(store);
  // Loaded only here: commands to a running server start faster without a store.
  const { openQueue } = await import('../queue/open.ts');
  const queue = await openQueue({ store: store.text });
  return { queue, status: () => readStatus(queue), close: () => queue.stop() };
}
