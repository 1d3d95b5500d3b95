import type { LogAddress } from '../../core/entry.ts';
import type { Checkpoint } from '../../core/log.ts';
import type { MessageWrite } from '../../core/message.ts';
import {
  type ActivityRow,
  type Append,
  type KeysWrite,
  type NodeRow,
  type ReadRange,
  type ScheduleWrite,
  type SegmentChange,
  type ShardWrite,
  type Store,
  type StoreMeta,
  StoreUnavailableError,
} from '../store.ts';
import { headOf, type Tables } from './tables.ts';

/** How a call reaches the tables: `run` makes it, now or later, once, or not at all. */
export type Carrier = <T>(verb: Verb, run: () => T, about: () => string) => Promise<T>;

/** What a call may do, and which answers it has besides those of the tables. */
export type Verb =
  | 'read'
  /** Answers `applied`, `conflict` or `unknown`. */
  | 'conditional'
  /** Applied or refused. */
  | 'plain';

/** Calls reach the tables at once. */
export const directly: Carrier = async (_verb, run) => run();

export interface MemoryStoreOptions {
  readonly carrier?: Carrier;
  /** The way of calls about schedules; that of the others when absent. */
  readonly scheduleCarrier?: Carrier;
  /** Only one process has it open. */
  readonly exclusive?: boolean;
  /** The database's clock as known to the process that has it open. */
  readonly now?: () => number;
}

/** A store over tables in memory. */
export class MemoryStore implements Store {
  readonly description = 'memory';
  readonly file = null;
  readonly exclusive: boolean;
  readonly meta: StoreMeta;
  readonly now: () => number;
  readonly #tables: Tables;
  readonly #carry: Carrier;
  readonly #carrySchedule: Carrier;
  #closed = false;

  constructor(tables: Tables, options: MemoryStoreOptions = {}) {
    const { carrier = directly, scheduleCarrier = carrier, exclusive = true, now = () => tables.clock() } = options;
    this.meta = tables.meta;
    this.exclusive = exclusive;
    this.now = now;
    this.#tables = tables;
    const unlessClosed =
      (way: Carrier): Carrier =>
      (verb, run, about) =>
        this.#closed ? Promise.reject(new StoreUnavailableError('the store is closed')) : way(verb, run, about);
    this.#carry = unlessClosed(carrier);
    this.#carrySchedule = unlessClosed(scheduleCarrier);
  }

  isFull() {
    return false;
  }

  async ping() {
    await this.#carry(
      'read',
      () => null,
      () => 'ping',
    );
  }

  async close() {
    this.#closed = true;
  }

  readSegment(log: LogAddress, segment: number) {
    return this.#carry(
      'read',
      () => this.#tables.readSegment(log, segment),
      () => `readSegment ${name(log)}#${segment}`,
    );
  }

  readEntries(range: ReadRange) {
    return this.#carry(
      'read',
      () => this.#tables.readEntries(range),
      () => `readEntries ${rangeName(range)}`,
    );
  }

  readHeads(range: ReadRange) {
    return this.#carry(
      'read',
      () => this.#tables.readEntries(range).map(headOf),
      () => `readHeads ${rangeName(range)}`,
    );
  }

  append(append: Append) {
    return this.#carry(
      'conditional',
      () => this.#tables.append(append),
      () => appendName(append),
    );
  }

  change(change: SegmentChange) {
    return this.#carry(
      'conditional',
      () => this.#tables.change(change),
      () => changeName(change),
    );
  }

  closeSegment(log: LogAddress, segment: number) {
    return this.#carry(
      'conditional',
      () => this.#tables.closeSegment(log, segment),
      () => `closeSegment ${name(log)}#${segment}`,
    );
  }

  trim(log: LogAddress, segment: number, from: number, to: number) {
    return this.#carry(
      'conditional',
      () => this.#tables.trim(log, segment, from, to),
      () => `trim ${name(log)} ${from}-${to}`,
    );
  }

  dropSegment(log: LogAddress, segment: number, expectNext: number) {
    return this.#carry(
      'conditional',
      () => this.#tables.dropSegment(log, segment, expectNext),
      () => `dropSegment ${name(log)}#${segment}`,
    );
  }

  readCheckpoints(topic: string) {
    return this.#carry(
      'read',
      () => this.#tables.readCheckpoints(topic),
      () => `readCheckpoints ${topic}`,
    );
  }

  advanceCheckpoint(log: LogAddress, mark: Checkpoint, _at: number) {
    return this.#carry(
      'plain',
      () => this.#tables.advanceCheckpoint(log, mark),
      () => `advanceCheckpoint ${name(log)} scan ${mark.scan} completion ${mark.completion} trimmed ${mark.trimmed}`,
    );
  }

  readMessages(topic: string, keys: readonly string[]) {
    return this.#carry(
      'read',
      () => this.#tables.readMessages(topic, keys),
      () => `readMessages ${topic} ${keys.join(' ')}`,
    );
  }

  writeMessages(topic: string, bucket: number, writes: readonly MessageWrite[], now: number) {
    return this.#carry(
      'conditional',
      () => this.#tables.writeMessages(topic, writes, now),
      () =>
        `writeMessages ${topic}/${bucket} ${writes.map(({ row }) => `${row.key}=${row.uid.slice(-4)} ${row.status}`).join(', ')}`,
    );
  }

  readTopic(topic: string) {
    return this.#carry(
      'read',
      () => this.#tables.readTopic(topic),
      () => `readTopic ${topic}`,
    );
  }

  writeTopic(topic: string, expect: number | null, settings: string) {
    return this.#carry(
      'conditional',
      () => this.#tables.writeTopic(topic, expect, settings),
      () => `writeTopic ${topic}`,
    );
  }

  readSchedule(shard: number, schedule: string) {
    return this.#carrySchedule(
      'read',
      () => this.#tables.readSchedule(shard, schedule),
      () => `readSchedule ${schedule}`,
    );
  }

  readSchedules(shard: number, after: string | null, limit: number) {
    return this.#carrySchedule(
      'read',
      () => this.#tables.readSchedules(shard, after, limit),
      () => `readSchedules ${shard}`,
    );
  }

  writeSchedule(shard: number, write: ScheduleWrite) {
    return this.#carrySchedule(
      'conditional',
      () => this.#tables.writeSchedule(shard, write),
      () => `writeSchedule ${write.name} ${write.state === null ? 'deleted' : `fired up to ${write.state.firedUpTo}`}`,
    );
  }

  readKeys() {
    return this.#carry(
      'read',
      () => this.#tables.readKeys(),
      () => 'readKeys',
    );
  }

  readKeysVersion() {
    return this.#carry(
      'read',
      () => this.#tables.readKeys().version,
      () => 'readKeysVersion',
    );
  }

  writeKeys(write: KeysWrite) {
    return this.#carry(
      'conditional',
      () => this.#tables.writeKeys(write),
      () => `writeKeys ${write.put.id}${write.put.revokedAt === null ? '' : ' revoked'}`,
    );
  }

  recordActivity(shard: number, period: number, rows: readonly ActivityRow[]) {
    return this.#carry(
      'plain',
      () => this.#tables.recordActivity(shard, period, rows),
      () => `recordActivity ${shard}/${period} ${rows.map(name).join(' ')}`,
    );
  }

  readActivity(shard: number, period: number, from: string | number | null, limit: number) {
    return this.#carry(
      'read',
      () => this.#tables.readActivity(shard, period, from, limit),
      () => `readActivity ${shard}/${period}`,
    );
  }

  dropPeriod(shard: number, period: number) {
    return this.#carry(
      'plain',
      () => this.#tables.dropPeriod(shard, period),
      () => `dropPeriod ${shard}/${period}`,
    );
  }

  readShards() {
    return this.#carry(
      'read',
      () => this.#tables.readShards(),
      () => 'readShards',
    );
  }

  writeShards(writes: readonly ShardWrite[]) {
    return this.#carry(
      'conditional',
      () => this.#tables.writeShards(writes),
      () => `writeShards ${writes.map(({ shard, row }) => `${shard}: ${row.holder} ${row.term} ${row.period}`)}`,
    );
  }

  readNodes() {
    return this.#carry(
      'read',
      () => this.#tables.readNodes(),
      () => 'readNodes',
    );
  }

  writeNode(node: NodeRow) {
    return this.#carry(
      'plain',
      () => this.#tables.writeNode(node),
      () => `writeNode ${node.id} ${node.beat}`,
    );
  }

  dropNode(id: string) {
    return this.#carry(
      'plain',
      () => this.#tables.dropNode(id),
      () => `dropNode ${id}`,
    );
  }

  scanSegments(after: string | null, limit: number) {
    return this.#carry(
      'read',
      () => this.#tables.scanSegments(after, limit),
      () => 'scanSegments',
    );
  }

  scanCheckpoints(after: string | null, limit: number) {
    return this.#carry(
      'read',
      () => this.#tables.scanCheckpoints(after, limit),
      () => 'scanCheckpoints',
    );
  }

  scanMessages(after: string | null, limit: number) {
    return this.#carry(
      'read',
      () => this.#tables.scanMessages(after, limit),
      () => 'scanMessages',
    );
  }

  scanTopics(after: string | null, limit: number) {
    return this.#carry(
      'read',
      () => this.#tables.scanTopics(after, limit),
      () => 'scanTopics',
    );
  }

  listPeriods(shard: number) {
    return this.#carry(
      'read',
      () => this.#tables.listPeriods(shard),
      () => `listPeriods ${shard}`,
    );
  }

  sweep(now: number, limit: number) {
    return this.#carry(
      'plain',
      () => this.#tables.sweep(now, limit),
      () => 'sweep',
    );
  }
}

const name = ({ topic, tier }: LogAddress): string => `${topic.replace('\u0001', '')}:${tier}`;
const rangeName = ({ log, from, to, serial }: ReadRange): string =>
  `${name(log)} ${from}-${to - 1}${serial ? ' serial' : ''}`;
const appendName = ({ log, firstId, entries, seal }: Append): string =>
  `append ${name(log)} ${firstId} ${entries.map(({ uid, status, hops }) => `${uid.slice(-4)}/${hops} ${status}`).join(', ')}${seal ? ' seal' : ''}`;
function changeName({ log, changes, scan }: SegmentChange): string {
  const parts = changes.map(
    ({ id, set }) => `${id}→${set.status}${set.dest ? ` ${name(set.dest)} ${set.dest.id}` : ''}`,
  );
  return `change ${name(log)} ${parts.join(', ')}${scan ? ` scan ${scan.from}→${scan.to} term ${scan.seenTerm}→${scan.term}` : ''}`;
}
