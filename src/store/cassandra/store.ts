import type { LogAddress } from '../../core/entry.ts';
import type { Checkpoint } from '../../core/log.ts';
import type { MessageWrite } from '../../core/message.ts';
import {
  type ActivityRow,
  type Append,
  type KeysWrite,
  type Migration,
  type NodeRow,
  type ReadRange,
  type ScheduleWrite,
  type SegmentChange,
  type ShardWrite,
  type Store,
  type StoreMeta,
  StoreOutdatedError,
  StoreUnavailableError,
} from '../store.ts';
import { Activity } from './activity.ts';
import { type CassandraCredentials, parseCassandraAddress, readAccess } from './address.ts';
import { Changes } from './change.ts';
import { checkSettings, checkVersions, measureClocks, type StoreLog, silentLog } from './checks.ts';
import { Cluster } from './client.ts';
import { DatabaseClock } from './clock.ts';
import { Entries } from './entries.ts';
import { Keys } from './keys.ts';
import { Messages } from './messages.ts';
import { readMeta } from './meta.ts';
import { latestSchema, migrate, schemaNumber } from './migrate.ts';
import { Checkpoints, Nodes, Shards, Topics } from './registers.ts';
import { Scans } from './scans.ts';
import { Schedules } from './schedules.ts';
import { Segments } from './segments.ts';

export interface CassandraOptions extends CassandraCredentials {
  /** `cassandra://host1,host2:9042/keyspace?dc=…&replication=…&consistency=local|global` */
  readonly address: string;
  /** For a keyspace that is filled now; an existing one keeps what it was created with. */
  readonly meta?: Partial<StoreMeta>;
  /** `false`: refuse a keyspace that is not there or not up to date, instead of making it so. */
  readonly migrate?: boolean;
  /** Told of what an operator should know; nothing is logged when absent. */
  readonly log?: StoreLog;
}

/**
 * Opens the store in a keyspace, once.
 * @throws StoreUnavailableError the cluster cannot be reached, or not a quorum of it; another try may succeed
 * @throws StoreOutdatedError its schema is missing or older, and `migrate` is off
 * @throws StoreDamagedError its schema is newer than this version and shuts it out, or something is missing in it
 * @throws QueueError `invalid-input` the address or a setting doesn't fit, or the cluster is too old
 */
export async function openCassandraStore(options: CassandraOptions): Promise<CassandraStore> {
  const { log = silentLog } = options;
  const address = parseCassandraAddress(options.address);
  const access = readAccess(options);
  const cluster = await Cluster.connect(address, access);
  try {
    await checkVersions(cluster);
    const number = await schemaNumber(cluster);
    if (number < latestSchema()) {
      if (options.migrate === false) throw outdated(cluster, number);
      await migrate(cluster, { address, access, meta: options.meta ?? {}, log });
    } else if (number > latestSchema()) {
      log.warn(
        { keyspace: cluster.keyspace, schema: number, known: latestSchema() },
        'the keyspace has a newer schema than this version knows, which may work beside it until all servers are upgraded',
      );
    }
    await cluster.learnReplicas();
    const meta = await readMeta(cluster, address);
    await checkSettings(cluster, address.replication, log);
    const clock = clockOf(cluster, log);
    await clock.start();
    return new CassandraStore(cluster, meta, clock);
  } catch (error) {
    await cluster.close();
    throw error;
  }
}

/** Creates or upgrades the keyspace, and lets go of it. @throws what openCassandraStore throws */
export async function migrateCassandraStore(options: CassandraOptions): Promise<Migration> {
  const address = parseCassandraAddress(options.address);
  const access = readAccess(options);
  const cluster = await Cluster.connect(address, access);
  try {
    await checkVersions(cluster);
    return await migrate(cluster, { address, access, meta: options.meta ?? {}, log: options.log ?? silentLog });
  } finally {
    await cluster.close();
  }
}

function outdated({ name }: Cluster, number: number): StoreOutdatedError {
  const what =
    number === 0 ? 'is not there, or is empty' : `has schema ${number}, and this version needs ${latestSchema()}`;
  return new StoreOutdatedError(`${name} ${what}; and migrations are off (ebbmark migrate makes it so)`);
}

function clockOf(cluster: Cluster, log: StoreLog): DatabaseClock {
  let warned = 0;
  return new DatabaseClock(
    () => measureClocks(cluster),
    (spreadMs) => {
      // Once, and again when it has become twice as bad.
      if (spreadMs < 2 * warned) return;
      warned = spreadMs;
      log.warn(
        { spreadMs },
        "the nodes' clocks differ by seconds: leases may end early or late; set up NTP on all of them",
      );
    },
  );
}

/** The store on a keyspace that is open. */
export class CassandraStore implements Store {
  readonly description: string;
  readonly meta: StoreMeta;
  readonly exclusive = false;
  readonly file = null;
  readonly #cluster: Cluster;
  readonly #clock: DatabaseClock;
  readonly #segments: Segments;
  readonly #entries: Entries;
  readonly #changes: Changes;
  readonly #messages: Messages;
  readonly #activity: Activity;
  readonly #checkpoints: Checkpoints;
  readonly #topics: Topics;
  readonly #schedules: Schedules;
  readonly #keys: Keys;
  readonly #shards: Shards;
  readonly #nodes: Nodes;
  readonly #scans: Scans;

  constructor(cluster: Cluster, meta: StoreMeta, clock: DatabaseClock) {
    this.description = cluster.name;
    this.meta = meta;
    this.#cluster = cluster;
    this.#clock = clock;
    this.#segments = new Segments(cluster, meta.segmentSize);
    this.#entries = new Entries(cluster, this.#segments, meta.segmentSize);
    this.#changes = new Changes(cluster, this.#segments, meta.segmentSize);
    this.#messages = new Messages(cluster, meta.messageBuckets);
    this.#activity = new Activity(cluster);
    this.#checkpoints = new Checkpoints(cluster);
    this.#topics = new Topics(cluster);
    this.#schedules = new Schedules(cluster);
    this.#keys = new Keys(cluster);
    this.#shards = new Shards(cluster);
    this.#nodes = new Nodes(cluster);
    this.#scans = new Scans(cluster);
  }

  now(): number {
    return this.#clock.now();
  }

  /** Reads what was fixed at creation, which takes a quorum like any other read. */
  /** How much it may hold is Cassandra's own to say. */
  isFull() {
    return false;
  }

  async ping() {
    await this.#cluster.rows(`SELECT value FROM ${this.#cluster.keyspace}.meta WHERE name = ?`, ['segmentSize']);
    if (!this.#clock.isSure) {
      throw new StoreUnavailableError(`${this.description}: the database's clock has jumped, or is not known`);
    }
  }

  close() {
    this.#clock.stop();
    return this.#cluster.close();
  }

  readSegment(log: LogAddress, segment: number, serial?: boolean) {
    return this.#segments.read(log, segment, serial);
  }

  readEntries(range: ReadRange) {
    return this.#entries.read(range);
  }

  readHeads(range: ReadRange) {
    return this.#entries.readHeads(range);
  }

  append(append: Append) {
    return this.#entries.append(append);
  }

  change(change: SegmentChange) {
    return this.#changes.run(change);
  }

  closeSegment(log: LogAddress, segment: number) {
    return this.#segments.close(log, segment);
  }

  trim(log: LogAddress, segment: number, from: number, to: number) {
    return this.#segments.trim(log, segment, from, to);
  }

  dropSegment(log: LogAddress, segment: number, expectNext: number) {
    return this.#segments.drop(log, segment, expectNext);
  }

  readCheckpoints(topic: string) {
    return this.#checkpoints.read(topic);
  }

  advanceCheckpoint(log: LogAddress, checkpoint: Checkpoint, at: number) {
    return this.#checkpoints.advance(log, checkpoint, at);
  }

  readMessages(topic: string, keys: readonly string[], serial?: boolean) {
    return this.#messages.read(topic, keys, serial);
  }

  writeMessages(topic: string, bucket: number, writes: readonly MessageWrite[], now: number) {
    return this.#messages.write(topic, bucket, writes, now);
  }

  readTopic(topic: string) {
    return this.#topics.read(topic);
  }

  writeTopic(topic: string, expect: number | null, settings: string) {
    return this.#topics.write(topic, expect, settings);
  }

  readSchedule(shard: number, name: string, serial?: boolean) {
    return this.#schedules.read(shard, name, serial);
  }

  readSchedules(shard: number, after: string | null, limit: number) {
    return this.#schedules.page(shard, after, limit);
  }

  writeSchedule(shard: number, write: ScheduleWrite) {
    return this.#schedules.write(shard, write);
  }

  readKeys(serial?: boolean) {
    return this.#keys.read(serial);
  }

  readKeysVersion() {
    return this.#keys.version();
  }

  writeKeys(write: KeysWrite) {
    return this.#keys.write(write);
  }

  recordActivity(shard: number, period: number, rows: readonly ActivityRow[]) {
    return this.#activity.record(shard, period, rows);
  }

  readActivity(shard: number, period: number, from: string | number | null, limit: number) {
    return this.#activity.read(shard, period, from, limit);
  }

  dropPeriod(shard: number, period: number) {
    return this.#activity.drop(shard, period);
  }

  readShards(serial?: boolean) {
    return this.#shards.read(serial);
  }

  writeShards(writes: readonly ShardWrite[]) {
    return this.#shards.write(writes);
  }

  readNodes() {
    return this.#nodes.read();
  }

  writeNode(node: NodeRow) {
    return this.#nodes.write(node);
  }

  dropNode(id: string) {
    return this.#nodes.drop(id);
  }

  scanSegments(after: string | null, limit: number) {
    return this.#scans.segments(after, limit);
  }

  scanCheckpoints(after: string | null, limit: number) {
    return this.#scans.checkpoints(after, limit);
  }

  scanMessages(after: string | null, limit: number) {
    return this.#scans.messages(after, limit, this.now());
  }

  scanTopics(after: string | null, limit: number) {
    return this.#scans.topics(after, limit);
  }

  listPeriods(shard: number) {
    return this.#scans.periods(shard);
  }

  /** Nothing to do: Cassandra lets rows go by themselves. */
  async sweep() {
    return 0;
  }
}
