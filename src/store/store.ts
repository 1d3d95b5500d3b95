/**
 * The port between the queue and a database. Everything the queue keeps goes through these verbs; a store adds no
 * logic of its own beyond making each of them atomic within its partition.
 *
 * Answers of conditional verbs:
 *
 * - `applied`   the condition held and everything was written;
 * - `conflict`  the condition did not hold and nothing was written; rows that were looked at come along, rows that
 *               don't exist are not among them;
 * - `unknown`   the store cannot say (a time-out). It may still be applied later. The caller repeats the *identical*
 *               call until it gets one of the other answers, and then reads whose row stands there.
 *
 * A verb rejects only with StoreUnavailableError (nothing was written, and nothing will be) or StoreDamagedError.
 * Reads see every write that was answered `applied` before they began; with `serial` they also settle writes that
 * are still under way.
 */

import type { KeyRow } from '../core/api-key.ts';
import { SEGMENT_SIZE, SLOT_MS } from '../core/bounds.ts';
import type { Entry, EntryChange, EntryHead, LogAddress, NewEntry } from '../core/entry.ts';
import type { Checkpoint, SegmentHeader } from '../core/log.ts';
import type { MessageRow, MessageWrite } from '../core/message.ts';
import type { ScheduleDefinition, ScheduleHead, ScheduleRow, ScheduleState } from '../core/schedule.ts';

export type Outcome = { readonly kind: 'applied' } | { readonly kind: 'conflict' } | { readonly kind: 'unknown' };
export type ChangeOutcome =
  | { readonly kind: 'applied' }
  | { readonly kind: 'conflict'; readonly rows: readonly EntryHead[]; readonly header: SegmentHeader | null }
  | { readonly kind: 'unknown' };
export type MessageOutcome =
  | { readonly kind: 'applied' }
  | { readonly kind: 'conflict'; readonly rows: readonly MessageRow[] }
  | { readonly kind: 'unknown' };

export const APPLIED = { kind: 'applied' } as const;
export const CONFLICT = { kind: 'conflict' } as const;
export const UNKNOWN = { kind: 'unknown' } as const;

/** What is fixed when a store is created. */
export interface StoreMeta {
  /** Ids of one segment. */
  readonly segmentSize: number;
  readonly shards: number;
  /** Partitions of a topic's message rows; writes are grouped by them. */
  readonly messageBuckets: number;
  /** Width of a near slot of delayed tasks, in milliseconds; far slots are 360 times as wide. */
  readonly slotMs: number;
}

/** What a store has that only one process can have open, unless it is created with something else. */
export const EMBEDDED_META: StoreMeta = { segmentSize: SEGMENT_SIZE, shards: 1, messageBuckets: 1, slotMs: SLOT_MS };

/** What it took to bring a store to the latest schema. */
export interface Migration {
  /** The number of the schema before; 0: there was none. */
  readonly from: number;
  readonly to: number;
  /** The files that were applied, in order. */
  readonly applied: readonly string[];
}

/** Entries to append; all of one segment. */
export interface Append {
  readonly log: LogAddress;
  readonly segment: number;
  /** The segment's `nextId` as read, null where the segment is not there. The first entry gets this id. */
  readonly expectNext: number | null;
  /** The id of the first entry: `expectNext`, or the segment's first id. */
  readonly firstId: number;
  readonly entries: readonly NewEntry[];
  /** The segment's `bytes` after this append. */
  readonly bytes: number;
  /** Seal the segment behind these entries: `nextId` becomes its end, `sealedAt` the end of the entries. */
  readonly seal: boolean;
}

/** Changes of entries of one segment, all or none. */
export interface SegmentChange {
  readonly log: LogAddress;
  readonly segment: number;
  readonly changes: readonly EntryChange[];
  /**
   * Moves the segment's scan cursor, if it stands at `from` and the segment's term at `seenTerm`, and writes `term`.
   * With `from` equal to `to` only the term is taken.
   */
  readonly scan?: { readonly from: number; readonly to: number; readonly seenTerm: number; readonly term: number };
}

export interface ReadRange {
  readonly log: LogAddress;
  /** First id. */
  readonly from: number;
  /** The id behind the last; at most the end of `from`'s segment. */
  readonly to: number;
  readonly limit: number;
  readonly serial?: boolean;
}

/** A log that had an enqueue in a period. */
export interface ActivityRow extends LogAddress {
  readonly at: number;
}

/** The row of a shard: who schedules it, and where its index stands. */
export interface ShardRow {
  /** The id of a server; null: nobody's. */
  readonly holder: string | null;
  /** Counts the changes of holder. */
  readonly term: number;
  /** Counts the changes of this row; the condition of each. */
  readonly version: number;
  /** The current period of the shard's activity index. */
  readonly period: number;
  /** The oldest period that was not deleted. */
  readonly oldestPeriod: number;
}

/** A change of one shard's row, if its version is `expect` (null: there is no row). */
export interface ShardWrite {
  readonly shard: number;
  readonly expect: number | null;
  /** Its version is one above `expect`, 1 for a new row. */
  readonly row: ShardRow;
}

/** How long the row of a server stays that was not written again, in milliseconds: much longer than servers wait for a beat. */
export const NODE_TTL_MS = 60_000;

/** A server that takes part. */
export interface NodeRow {
  readonly id: string;
  /** Raised by the server every few seconds: whoever sees it stand still takes the server for dead. */
  readonly beat: number;
  /** Where other servers reach it, as the beginning of a URL; null: nowhere. */
  readonly address: string | null;
  /** What a call of another server has to show to be answered; known to whoever can read the store. */
  readonly secret: string;
  /** Whether it is to have a share of the shards. */
  readonly holds: boolean;
}

/** A segment that has anything: a header, entries, or both. */
export interface SegmentAddress extends LogAddress {
  readonly segment: number;
}

/** A message row as it lies there, and when it goes by itself: null, it stays. */
export interface StoredMessage {
  readonly topic: string;
  readonly row: MessageRow;
  readonly expiresAt: number | null;
}

export interface StoredCheckpoint extends LogAddress {
  readonly checkpoint: Checkpoint;
}

export interface StoredTopic extends TopicRow {
  readonly topic: string;
}

/** A page of a whole table, in the store's own order; `next` is the cursor of the page behind it, null at the end. */
export interface Page<T> {
  readonly rows: readonly T[];
  readonly next: string | null;
}

/** A topic's settings, as JSON text, and the version that the next change names. */
export interface TopicRow {
  readonly settings: string;
  readonly version: number;
}

/** A change of a schedule, if it is the incarnation and version of `expect` (null: there is none). */
export interface ScheduleWrite {
  readonly name: string;
  readonly expect: Pick<ScheduleState, 'incarnation' | 'version'> | null;
  /** What it is from now on; null: it is deleted. */
  readonly state: ScheduleState | null;
  /** Absent where it stays as it is; always there for a new one. */
  readonly definition?: ScheduleDefinition;
}

/** All API keys, and how often they were changed: 0, never. */
export interface StoredKeys {
  readonly version: number;
  readonly keys: readonly KeyRow[];
}

/** A change of API keys, if their version is `expect`; it is one higher from then on. */
export interface KeysWrite {
  readonly expect: number;
  /** A new key, or one that is revoked. */
  readonly put: KeyRow;
  /** Ids of keys that are forgotten. */
  readonly drop: readonly string[];
}

/** Space on a disk, in bytes. */
export interface StoreSpace {
  /** Of the file, what is free in it included. */
  readonly bytes: number;
  /** What was deleted left so much free in it: it is used again, or given back. */
  readonly freeBytes: number;
  /** Of the log beside it, in which writes wait until they are copied into the file. */
  readonly logBytes: number;
  /** How much may be in use before new tasks are refused; null: there is no bound. */
  readonly limitBytes: number | null;
  /** Whether free space is given back; a file that was made before that was so keeps it until it is compacted. */
  readonly givesBack: boolean;
}

/** The store as it was at one moment, to be read from the first byte to the last. */
export interface Snapshot {
  readonly bytes: number;
  /**
   * The next piece; null behind the last one. One call at a time.
   * @throws StoreUnavailableError where it had to be given up: it was closed, or held the store up for too long
   */
  read(): Promise<Uint8Array | null>;
  /** Lets go of it. Idempotent. */
  close(): void;
}

/** What can be done with a store that is one file. */
export interface StoreFile {
  space(): StoreSpace;
  /** Gives free space back to the disk, in short steps while there is nothing else to write. Resolves when it is done. */
  reclaim(): Promise<void>;
  /** All that was answered before this call is in it, and nothing of what is answered later. Null: another one is open. */
  snapshot(): Snapshot | null;
}

export interface Store {
  /** What this store is, for messages and the status page; without secrets. */
  readonly description: string;
  readonly meta: StoreMeta;
  /** Null where a database sees to its files itself. */
  readonly file: StoreFile | null;
  /** Only one process can have it open: whoever opened it may take everything over at once. */
  readonly exclusive: boolean;
  /** The database's clock as known here, milliseconds since 1970; never goes back. It is the one that all servers share. */
  now(): number;
  /** It holds as much as it may: nothing new is to be put into it, while what it has goes on. Costs next to nothing. */
  isFull(): boolean;
  /** Answers once the store could be reached. */
  ping(): Promise<void>;
  /** Finishes what was begun and lets go of the database. Idempotent. */
  close(): Promise<void>;

  readSegment(log: LogAddress, segment: number, serial?: boolean): Promise<SegmentHeader | null>;
  /** Entries in the order of their ids; a gap is possible only beside a running append, or where entries were trimmed. */
  readEntries(range: ReadRange): Promise<readonly Entry[]>;
  /** The same without payload, metadata, history, result and progress. */
  readHeads(range: ReadRange): Promise<readonly EntryHead[]>;
  /** Gives ids by writing: applied if `nextId` still stands at `expectNext`. */
  append(append: Append): Promise<Outcome>;
  change(change: SegmentChange): Promise<ChangeOutcome>;
  /** Marks a full segment closed; conflict where it isn't full. */
  closeSegment(log: LogAddress, segment: number): Promise<Outcome>;
  /** Deletes the entries of one segment with ids in [from, to), never its header. */
  trim(log: LogAddress, segment: number, from: number, to: number): Promise<Outcome>;

  /**
   * Deletes the header of a trimmed segment whose `nextId` is as read. Only for logs of time slots that are over: what
   * is appended there later begins with id 0 again, and conditions tell the entries apart by their uids.
   */
  dropSegment(log: LogAddress, segment: number, expectNext: number): Promise<Outcome>;

  readCheckpoints(topic: string): Promise<ReadonlyMap<number, Checkpoint>>;
  /** Raises each of the three marks that is below the one given; none ever falls. */
  advanceCheckpoint(log: LogAddress, checkpoint: Checkpoint, at: number): Promise<void>;

  readMessages(topic: string, keys: readonly string[], serial?: boolean): Promise<ReadonlyMap<string, MessageRow>>;
  /** Writes message rows of one bucket of a topic, each under its condition, all or none. Keys don't repeat. */
  writeMessages(topic: string, bucket: number, writes: readonly MessageWrite[], now: number): Promise<MessageOutcome>;

  readTopic(topic: string): Promise<TopicRow | null>;
  /** Writes if the row's version is `expect` (null: no row); the new version is one higher (1 for a new row). */
  writeTopic(topic: string, expect: number | null, settings: string): Promise<Outcome>;

  /** A schedule of a shard; null: there is none. */
  readSchedule(shard: number, name: string, serial?: boolean): Promise<ScheduleRow | null>;
  /**
   * Schedules of a shard in the order of their names' UTF-8 bytes, without payload and metadata; fewer than `limit` only
   * at the end.
   * @param after only names behind this one; null: from the first
   */
  readSchedules(shard: number, after: string | null, limit: number): Promise<readonly ScheduleHead[]>;
  writeSchedule(shard: number, write: ScheduleWrite): Promise<Outcome>;

  /** In no order. */
  readKeys(serial?: boolean): Promise<StoredKeys>;
  readKeysVersion(): Promise<number>;
  writeKeys(write: KeysWrite): Promise<Outcome>;

  /** Idempotent: one row a log, period and writer is enough. */
  recordActivity(shard: number, period: number, rows: readonly ActivityRow[]): Promise<void>;
  /**
   * Rows of a period in the order of their times, with the next page's cursor or null.
   * @param from a cursor: behind that page; a number: rows of that time and later; null: all
   */
  readActivity(
    shard: number,
    period: number,
    from: string | number | null,
    limit: number,
  ): Promise<{ readonly rows: readonly ActivityRow[]; readonly next: string | null }>;
  dropPeriod(shard: number, period: number): Promise<void>;

  /** Rows of shards by their number; those that were never held are not there. */
  readShards(serial?: boolean): Promise<ReadonlyMap<number, ShardRow>>;
  /** Changes rows of different shards, all or none. */
  writeShards(writes: readonly ShardWrite[]): Promise<Outcome>;

  /** Servers whose beat is not older than a minute or so. */
  readNodes(): Promise<readonly NodeRow[]>;
  /** A plain write, which goes by itself after a minute without another one. */
  writeNode(node: NodeRow): Promise<void>;
  dropNode(id: string): Promise<void>;

  /**
   * Whole tables, page by page, for who looks the store over: the queue itself never enumerates. A row that is there
   * from the first page to the last is told once; of one that comes or goes meanwhile nothing is promised. Message rows
   * whose time is over are left out. A page may hold fewer rows than `limit`, also before the last one.
   *
   * @param after the `next` of the page before; null: from the beginning
   */
  scanSegments(after: string | null, limit: number): Promise<Page<SegmentAddress>>;
  scanCheckpoints(after: string | null, limit: number): Promise<Page<StoredCheckpoint>>;
  scanMessages(after: string | null, limit: number): Promise<Page<StoredMessage>>;
  scanTopics(after: string | null, limit: number): Promise<Page<StoredTopic>>;
  /** The periods of a shard's activity index that have rows, in no order. */
  listPeriods(shard: number): Promise<readonly number[]>;

  /** Deletes what has outlived its time to live, where the database does not do so itself; returns how many rows. */
  sweep(now: number, limit: number): Promise<number>;
}

/** The store could not be reached or refused the write; nothing was written. */
export class StoreUnavailableError extends Error {
  override readonly name = 'StoreUnavailableError';
}

/** What the store holds cannot be read as what it should be; it is left as it is. */
export class StoreDamagedError extends Error {
  override readonly name = 'StoreDamagedError';
}

/** Another process has this store open. */
export class StoreInUseError extends Error {
  override readonly name = 'StoreInUseError';
}

/** What the store holds is missing or of an older schema, and this process may not change that; it is left as it is. */
export class StoreOutdatedError extends Error {
  override readonly name = 'StoreOutdatedError';
}
