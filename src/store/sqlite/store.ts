import type { Database, Statement } from 'better-sqlite3';
import { entryBytes, type LogAddress } from '../../core/entry.ts';
import type { MessageWrite } from '../../core/message.ts';
import {
  type ActivityRow,
  APPLIED,
  type Append,
  CONFLICT,
  type KeysWrite,
  type Migration,
  type NodeRow,
  type Outcome,
  type ReadRange,
  type ScheduleWrite,
  type SegmentChange,
  type ShardWrite,
  type Store,
  type StoreFile,
  type StoreMeta,
  StoreUnavailableError,
  UNKNOWN,
} from '../store.ts';
import { Activity } from './activity.ts';
import { Changes } from './change.ts';
import { Committer } from './committer.ts';
import { Entries, TRIM_ROWS } from './entries.ts';
import { storeError } from './errors.ts';
import { Keys } from './keys.ts';
import { Messages, SWEEP_ROWS } from './messages.ts';
import { readMeta } from './migrate.ts';
import { type OpenFile, openFile } from './open.ts';
import { Checkpoints, Nodes, Shards, Topics } from './registers.ts';
import { Scans } from './scans.ts';
import { Schedules } from './schedules.ts';
import { Segments } from './segments.ts';
import { Snapshots } from './snapshot.ts';
import { Space } from './space.ts';

export interface SqliteOptions {
  /** For a store that is created now; an existing one keeps what it was created with. */
  readonly meta?: Partial<StoreMeta>;
  /** The clock, in milliseconds since 1970; this machine's when absent. */
  readonly now?: () => number;
  /** `false`: refuse a file that is not there or not up to date, instead of making it so. */
  readonly migrate?: boolean;
  /** Bytes after which it is full: see `isFull`; without a bound when absent. */
  readonly maxBytes?: number;
}

/**
 * Opens the store in a file, creating it where it isn't there, and keeps it locked until `close`.
 * @param path a path, or `:memory:` for a store that goes with the process
 * @throws StoreInUseError another process has it open
 * @throws StoreDamagedError it is damaged, not a store, or of a newer version; it is left as it is
 * @throws StoreUnavailableError it cannot be opened or made
 * @throws StoreOutdatedError its schema is missing or older, and `migrate` is off
 */
export async function openSqliteStore(path: string, options: SqliteOptions = {}): Promise<Store> {
  const file = openFile(path, options);
  try {
    return new SqliteStore(path, file, options.now, options.maxBytes);
  } catch (error) {
    file.close();
    throw storeError(error, path);
  }
}

/** Creates or upgrades the store in a file, and closes it. @throws what openSqliteStore throws */
export async function migrateSqliteStore(path: string): Promise<Migration> {
  const { migration, close } = openFile(path, {});
  close();
  return migration;
}

/** Bytes a small row takes in a transaction's budget. */
const ROW_BYTES = 200;

/** The store on a file that is open. */
export class SqliteStore implements Store {
  readonly description: string;
  readonly meta: StoreMeta;
  readonly exclusive = true;
  readonly file: StoreFile | null;
  readonly #path: string;
  readonly #open: OpenFile;
  readonly #snapshots: Snapshots | null;
  readonly #db: Database;
  readonly #now: () => number;
  readonly #maxBytes: number | null;
  readonly #pages: Statement<unknown[], readonly [number, number, number]>;
  readonly #committer: Committer;
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

  constructor(path: string, file: OpenFile, now: () => number = Date.now, maxBytes: number | null = null) {
    const { db } = file;
    const meta = readMeta(db, path);
    this.description = `sqlite:${path}`;
    this.meta = meta;
    this.#path = path;
    this.#open = file;
    this.#db = db;
    this.#now = now;
    this.#maxBytes = maxBytes;
    this.#pages = db
      .prepare<unknown[], readonly [number, number, number]>(
        'SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size',
      )
      .raw();
    this.#committer = new Committer(db, path);
    this.#snapshots = file.path === null ? null : new Snapshots(db, file.path);
    this.file = this.#snapshots === null ? null : this.#fileOf(file.path!, this.#snapshots);
    this.#segments = new Segments(db, meta.segmentSize);
    this.#entries = new Entries(db, this.#segments, meta.segmentSize);
    this.#changes = new Changes(db, this.#segments);
    this.#messages = new Messages(db);
    this.#activity = new Activity(db);
    this.#checkpoints = new Checkpoints(db);
    this.#topics = new Topics(db);
    this.#schedules = new Schedules(db);
    this.#keys = new Keys(db);
    this.#shards = new Shards(db);
    this.#nodes = new Nodes(db);
    this.#scans = new Scans(db, meta.segmentSize);
  }

  now() {
    return this.#now();
  }

  /** Pages that are free again don't count: they are written to before the file grows. */
  isFull() {
    if (this.#maxBytes === null || !this.#db.open) return false;
    const [pages, free, size] = this.#pages.get()!;
    return (pages - free) * size >= this.#maxBytes;
  }

  async ping() {
    await this.#read(() => this.#db.pragma('user_version'));
  }

  async close() {
    if (!this.#db.open) return;
    this.#committer.close();
    const closeFile = this.#snapshots?.close();
    this.#open.close();
    closeFile?.();
  }

  #fileOf(path: string, snapshots: Snapshots): StoreFile {
    const space = new Space(this.#db, path, this.#committer, snapshots, this.#maxBytes);
    this.#committer.onCommit = () => snapshots.committed();
    return {
      space: () => space.now(),
      reclaim: () => space.reclaim(),
      snapshot: () => snapshots.begin(),
    };
  }

  readSegment(log: LogAddress, segment: number) {
    return this.#read(() => this.#segments.read(log, segment));
  }

  readEntries(range: ReadRange) {
    return this.#read(() => this.#entries.read(range));
  }

  readHeads(range: ReadRange) {
    return this.#read(() => this.#entries.readHeads(range));
  }

  append(append: Append) {
    let bytes = ROW_BYTES;
    for (const entry of append.entries) bytes += entryBytes(entry);
    return this.#decide(bytes, () => this.#entries.append(append));
  }

  change(change: SegmentChange) {
    let bytes = ROW_BYTES;
    for (const { set } of change.changes) bytes += ROW_BYTES + (set.result?.length ?? 0) + (set.progress?.length ?? 0);
    return this.#committer.submit({ run: () => this.#changes.run(change), bytes, urgent: true, unknown: UNKNOWN });
  }

  closeSegment(log: LogAddress, segment: number) {
    return this.#decide(ROW_BYTES, () => this.#segments.close(log, segment));
  }

  async trim(log: LogAddress, segment: number, from: number, to: number): Promise<Outcome> {
    const header = await this.readSegment(log, segment);
    if (header === null) return CONFLICT;
    await this.#repeat(TRIM_ROWS, () => this.#entries.trimSome(log.topic, log.tier, from, to));
    return APPLIED;
  }

  dropSegment(log: LogAddress, segment: number, expectNext: number) {
    return this.#decide(ROW_BYTES, () => this.#segments.drop(log, segment, expectNext));
  }

  readCheckpoints(topic: string) {
    return this.#read(() => this.#checkpoints.read(topic));
  }

  advanceCheckpoint(log: LogAddress, checkpoint: Parameters<Store['advanceCheckpoint']>[1], at: number) {
    return this.#write(ROW_BYTES, () => this.#checkpoints.advance(log, checkpoint, at));
  }

  readMessages(topic: string, keys: readonly string[]) {
    return this.#read(() => this.#messages.read(topic, keys, this.#now()));
  }

  writeMessages(topic: string, _bucket: number, writes: readonly MessageWrite[], now: number) {
    return this.#decide(ROW_BYTES * writes.length, () => this.#messages.write(topic, writes, now));
  }

  readTopic(topic: string) {
    return this.#read(() => this.#topics.read(topic));
  }

  writeTopic(topic: string, expect: number | null, settings: string) {
    return this.#decide(settings.length + ROW_BYTES, () => this.#topics.write(topic, expect, settings));
  }

  readSchedule(shard: number, name: string) {
    return this.#read(() => this.#schedules.read(shard, name));
  }

  readSchedules(shard: number, after: string | null, limit: number) {
    return this.#read(() => this.#schedules.page(shard, after, limit));
  }

  writeSchedule(shard: number, write: ScheduleWrite) {
    const bytes = ROW_BYTES + (write.definition?.payload.length ?? 0);
    return this.#decide(bytes, () => this.#schedules.write(shard, write));
  }

  readKeys() {
    return this.#read(() => this.#keys.read());
  }

  readKeysVersion() {
    return this.#read(() => this.#keys.version());
  }

  writeKeys(write: KeysWrite) {
    return this.#decide(ROW_BYTES * (1 + write.drop.length), () => this.#keys.write(write));
  }

  recordActivity(shard: number, period: number, rows: readonly ActivityRow[]) {
    return this.#write(ROW_BYTES * rows.length, () => this.#activity.record(shard, period, rows));
  }

  readActivity(shard: number, period: number, from: string | number | null, limit: number) {
    return this.#read(() => this.#activity.read(shard, period, from, limit));
  }

  async dropPeriod(shard: number, period: number) {
    await this.#repeat(1, () => this.#activity.dropSome(shard, period));
  }

  readShards() {
    return this.#read(() => this.#shards.read());
  }

  writeShards(writes: readonly ShardWrite[]) {
    return this.#decide(ROW_BYTES * writes.length, () => this.#shards.write(writes));
  }

  readNodes() {
    return this.#read(() => this.#nodes.read(this.#now()));
  }

  writeNode(node: NodeRow) {
    return this.#write(ROW_BYTES, () => this.#nodes.write(node, this.#now()));
  }

  dropNode(id: string) {
    return this.#write(ROW_BYTES, () => this.#nodes.drop(id, this.#now()));
  }

  scanSegments(after: string | null, limit: number) {
    return this.#read(() => this.#scans.segments(after, limit));
  }

  scanCheckpoints(after: string | null, limit: number) {
    return this.#read(() => this.#scans.checkpoints(after, limit));
  }

  scanMessages(after: string | null, limit: number) {
    return this.#read(() => this.#scans.messages(after, limit, this.#now()));
  }

  scanTopics(after: string | null, limit: number) {
    return this.#read(() => this.#scans.topics(after, limit));
  }

  listPeriods(shard: number) {
    return this.#read(() => this.#activity.periods(shard));
  }

  sweep(now: number, limit: number) {
    return this.#repeat(SWEEP_ROWS, (left) => this.#messages.sweepSome(now, Math.min(left, SWEEP_ROWS)), limit);
  }

  /** Reads run at once: beside the one writer there is no transaction that a read could fall into. */
  async #read<T>(run: () => T): Promise<T> {
    if (!this.#db.open) throw new StoreUnavailableError(`${this.#path} is closed`);
    try {
      return run();
    } catch (error) {
      throw storeError(error, this.#path);
    }
  }

  #write<T>(bytes: number, run: () => T): Promise<T> {
    return this.#committer.submit({ run, bytes, urgent: false });
  }

  #decide<T>(bytes: number, run: () => T): Promise<T | typeof UNKNOWN> {
    return this.#committer.submit<T | typeof UNKNOWN>({ run, bytes, urgent: false, unknown: UNKNOWN });
  }

  /** Deletes in several transactions, so that none holds the event loop, until one finds less than it could take. */
  async #repeat(atOnce: number, some: (left: number) => number, limit = Number.POSITIVE_INFINITY): Promise<number> {
    let total = 0;
    while (total < limit) {
      const deleted = await this.#write(atOnce * ROW_BYTES, () => some(limit - total));
      total += deleted;
      if (deleted < atOnce) break;
    }
    return total;
  }
}
