import { invalid } from '../core/errors.ts';
import { openSqliteStore, type SqliteOptions } from '../store/sqlite/store.ts';
import type { Store } from '../store/store.ts';
import type { Queue } from './api.ts';
import { type QueueLogger, silentLogger } from './engine.ts';
import { type Environment, systemEnvironment } from './environment.ts';
import { LocalQueue } from './queue.ts';

export type { QueueLogger } from './engine.ts';

/** Where a queue keeps its tasks, and what it takes from its surroundings. */
export interface OpenOptions {
  /** `sqlite:PATH`, or `sqlite::memory:` for one that ends with the process. */
  readonly store: string;
  /** Told of background trouble; nothing is logged when absent. */
  readonly log?: QueueLogger;
  /** Time, randomness and timers; the system's when absent. */
  readonly environment?: Environment;
}

/**
 * Opens a store, creating it where it isn't there, and starts the queue on it.
 *
 * @throws QueueError `invalid-input` where the address is none; StoreInUseError where another process has it open;
 *   StoreDamagedError where what is there is no such store, which is left as it is
 */
export async function openQueue(options: OpenOptions): Promise<Queue> {
  const environment = options.environment ?? systemEnvironment();
  return startQueue(await openStore(options.store, { now: environment.now }), { ...options, environment });
}

/** Starts a queue on a store that is open; the queue closes it when it stops. */
export async function startQueue(store: Store, options: Omit<OpenOptions, 'store'> = {}): Promise<Queue> {
  try {
    return await LocalQueue.start(store, options.environment ?? systemEnvironment(), options.log ?? silentLogger);
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** Opens a store by its address. */
export async function openStore(address: string, options: SqliteOptions = {}): Promise<Store> {
  if (!address.startsWith('sqlite:') || address === 'sqlite:') {
    throw invalid('store', address, 'the address of a store (sqlite:PATH)', 'sqlite:./ebbmark.db');
  }
  return openSqliteStore(address.slice('sqlite:'.length), options);
}
