import { MAX_STORE_BYTES } from '../core/bounds.ts';
import { invalid, QueueError } from '../core/errors.ts';
import { checkFields } from '../core/fields.ts';
import { optionalInteger } from '../core/numbers.ts';
import type { TlsSource } from '../core/tls.ts';
import type { CassandraCredentials } from '../store/cassandra/address.ts';
import { type CopyOptions, type SavedCopy, saveSnapshot } from '../store/sqlite/copy.ts';
import { type Compaction, compactSqliteStore, type StagedStore, stageSqliteStore } from '../store/sqlite/replace.ts';
import { snapshotOfFile } from '../store/sqlite/snapshot.ts';
import { migrateSqliteStore, openSqliteStore } from '../store/sqlite/store.ts';
import type { Migration, Store } from '../store/store.ts';
import type { Queue } from './api.ts';
import { type QueueLogger, silentLogger } from './engine.ts';
import { type Environment, systemEnvironment } from './environment.ts';
import { HttpTransport } from './peer-transport.ts';
import { LocalQueue, NO_FILE } from './queue.ts';

export type { CopyOptions, SavedCopy } from '../store/sqlite/copy.ts';
export type { QueueLogger } from './engine.ts';

/** Where a queue keeps its tasks, and what it takes from its surroundings. */
export interface OpenOptions {
  /** `sqlite:PATH`, `sqlite::memory:` for one that ends with the process, or `cassandra://HOST[,HOST…]/KEYSPACE`. */
  readonly store: string;
  /** What proves to Cassandra who we are. */
  readonly cassandra?: CassandraCredentials;
  /** `false`: refuse a store that is not there or not up to date, instead of making it so. */
  readonly migrate?: boolean;
  /**
   * How long to wait for a Cassandra cluster, in milliseconds, before the queue is returned as one that has not reached
   * its store yet. As long as the first try takes when absent.
   */
  readonly reachMs?: number;
  /**
   * For calls to the servers on the same keyspace, where they speak TLS: who signs their certificates, and the one to
   * show to them.
   */
  readonly tls?: TlsSource;
  /**
   * Bytes that an embedded store may hold before new tasks are refused with `store-full`; without a bound when absent.
   * Pages that are in use count; the log beside the file (`-wal`), some 16 MB, comes on top.
   */
  readonly maxStoreBytes?: number;
  /** Told of background trouble; nothing is logged when absent. */
  readonly log?: QueueLogger;
  /** Time, randomness and timers; the system's when absent. */
  readonly environment?: Environment;
}

const OPEN_FIELDS: ReadonlySet<string> = new Set<keyof OpenOptions>([
  'store',
  'cassandra',
  'migrate',
  'reachMs',
  'tls',
  'maxStoreBytes',
  'log',
  'environment',
]);

/**
 * Opens a store, creating it where it isn't there, and starts the queue on it. Where a Cassandra cluster cannot be
 * reached yet, the queue is not ready and refuses calls with `store-unavailable` until it can.
 *
 * @throws QueueError `invalid-input` where the address is none; StoreInUseError where another process has it open;
 *   StoreDamagedError where what is there is no such store, or one of a newer version; StoreOutdatedError where it is
 *   missing or older and `migrate` is off. What is there is left as it is
 */
export const openQueue = (options: OpenOptions): Promise<Queue> => openLocalQueue(options);

/** The same, for a server that answers others. */
export async function openLocalQueue(options: OpenOptions): Promise<LocalQueue> {
  const example = '{"store": "sqlite:./ebbmark.db"}';
  if (typeof options !== 'object' || options === null) {
    throw invalid('options', options, 'an object that says where the store is', example);
  }
  checkFields(options, 'options', 'what opens a queue', OPEN_FIELDS, example);
  const environment = options.environment ?? systemEnvironment();
  const log = options.log ?? silentLogger;
  const open = () => openStore({ ...options, environment });
  if (isCassandra(options.store)) {
    return LocalQueue.startWhenReachable(open, environment, log, {
      reachMs: options.reachMs,
      transport: new HttpTransport(options.tls, log),
    });
  }
  return startQueue(await open(), { ...options, environment });
}

/** Starts a queue on a store that is open; the queue closes it when it stops. */
export async function startQueue(store: Store, options: Omit<OpenOptions, 'store'> = {}): Promise<LocalQueue> {
  try {
    const { environment = systemEnvironment(), log = silentLogger, tls } = options;
    return await LocalQueue.start(store, environment, log, new HttpTransport(tls, log));
  } catch (error) {
    await store.close();
    throw error;
  }
}

const isCassandra = (address: string): boolean => address.startsWith('cassandra:');

/** Opens a store by its address, without a queue. */
export async function openStore(options: OpenOptions): Promise<Store> {
  const { store: address, migrate } = options;
  const maxBytes = optionalInteger(options.maxStoreBytes, 'maxStoreBytes', MAX_STORE_BYTES.min, MAX_STORE_BYTES.max);
  if (isCassandra(address) && maxBytes !== null) {
    throw invalid('maxStoreBytes', maxBytes, 'for this store: only an embedded one has a bound', 'none');
  }
  if (isCassandra(address)) return (await cassandraDriver()).openCassandraStore(cassandraOptions(options));
  const now = options.environment?.now ?? systemEnvironment().now;
  return openSqliteStore(pathOf(address), {
    now,
    ...(migrate === undefined ? {} : { migrate }),
    ...(maxBytes === null ? {} : { maxBytes }),
  });
}

/**
 * Brings a store to the schema of this version, creating it where it isn't there. Safe when it is run twice, or by two
 * at once.
 * @throws what openQueue throws; StoreUnavailableError where a cluster cannot be reached
 */
export async function migrateStore(options: Pick<OpenOptions, 'store' | 'cassandra' | 'log'>): Promise<Migration> {
  if (!isCassandra(options.store)) return migrateSqliteStore(pathOf(options.store));
  return (await cassandraDriver()).migrateCassandraStore(cassandraOptions(options));
}

/**
 * Makes a file of a backup: looks whether it is whole, and gives it its name once it is on disk. Nothing is left of one that
 * broke off but a file that ends with `.partial` where the process was killed.
 *
 * @param queue in this process, or an `HttpQueue`
 * @param path of the file; one that is there is replaced with `overwrite` only
 * @throws what `backup` throws; StoreUnavailableError where the file is there or cannot be written; StoreDamagedError
 */
export async function saveBackup(
  queue: Pick<Queue, 'backup'>,
  path: string,
  options: CopyOptions = {},
): Promise<SavedCopy> {
  return saveSnapshot(await queue.backup(), path, options);
}

/**
 * The same of a SQLite store that no queue has open, also of an older schema.
 * @throws QueueError `unsupported` where the store is no file; StoreInUseError; what saveBackup throws
 */
export async function backupStore(store: string, path: string, options: CopyOptions = {}): Promise<SavedCopy> {
  return saveSnapshot(snapshotOfFile(filePathOf(store)), path, options);
}

/**
 * Copies a backup to where a store is to be, and looks whether it is whole; `install` makes it the store.
 * @throws what backupStore throws; StoreUnavailableError where there is a store already, without `overwrite`
 */
export const stageRestore = async (backup: string, store: string, options: CopyOptions = {}): Promise<StagedStore> =>
  stageSqliteStore(backup, filePathOf(store), options);

/** Writes the file of a store that no queue has open anew, without free space in it. @throws what backupStore throws */
export const compactStore = async (store: string): Promise<Compaction> => compactSqliteStore(filePathOf(store));

/** Loaded only where it is used: the driver takes as long to load as all the rest. */
const cassandraDriver = () => import('../store/cassandra/store.ts');

const cassandraOptions = ({ store, cassandra, migrate, log }: OpenOptions) => ({
  address: store,
  ...cassandra,
  ...(migrate === undefined ? {} : { migrate }),
  ...(log === undefined ? {} : { log }),
});

function filePathOf(address: string): string {
  if (isCassandra(address)) throw new QueueError('unsupported', NO_FILE);
  return pathOf(address);
}

function pathOf(address: string): string {
  if (address.startsWith('sqlite:') && address !== 'sqlite:') return address.slice('sqlite:'.length);
  throw invalid('store', address, 'the address of a store (sqlite:PATH or cassandra://…)', 'sqlite:./ebbmark.db');
}
