import type { LogAddress } from '../core/entry.ts';
import type { Checkpoint } from '../core/log.ts';
import type { MessageWrite } from '../core/message.ts';
import type {
  ActivityRow,
  Append,
  KeysWrite,
  NodeRow,
  ReadRange,
  ScheduleWrite,
  SegmentChange,
  ShardWrite,
  Store,
  StoreMeta,
} from '../store/store.ts';
import { type Measures, measured } from './measures.ts';

/** A store whose calls are measured by their names. Whole tables are read by nobody here, and left out. */
export class MeasuredStore implements Store {
  readonly meta: StoreMeta;
  readonly exclusive: boolean;
  readonly #store: Store;
  readonly #measures: Measures;
  readonly #clock: () => number;

  /** @param clock milliseconds since any moment */
  constructor(store: Store, measures: Measures, clock: () => number) {
    this.meta = store.meta;
    this.exclusive = store.exclusive;
    this.#store = store;
    this.#measures = measures;
    this.#clock = clock;
  }

  get description(): string {
    return this.#store.description;
  }

  now(): number {
    return this.#store.now();
  }

  get file(): Store['file'] {
    return this.#store.file;
  }

  isFull(): boolean {
    return this.#store.isFull();
  }

  ping(): Promise<void> {
    return this.#call('ping', () => this.#store.ping());
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  readSegment(log: LogAddress, segment: number, serial?: boolean): ReturnType<Store['readSegment']> {
    return this.#call('read_segment', () => this.#store.readSegment(log, segment, serial));
  }

  readEntries(range: ReadRange): ReturnType<Store['readEntries']> {
    return this.#call('read_entries', () => this.#store.readEntries(range));
  }

  readHeads(range: ReadRange): ReturnType<Store['readHeads']> {
    return this.#call('read_heads', () => this.#store.readHeads(range));
  }

  append(append: Append): ReturnType<Store['append']> {
    return this.#write('append', append.entries.length, () => this.#store.append(append));
  }

  change(change: SegmentChange): ReturnType<Store['change']> {
    return this.#write('change', change.changes.length, () => this.#store.change(change));
  }

  closeSegment(log: LogAddress, segment: number): ReturnType<Store['closeSegment']> {
    return this.#call('close_segment', () => this.#store.closeSegment(log, segment));
  }

  trim(log: LogAddress, segment: number, from: number, to: number): ReturnType<Store['trim']> {
    return this.#call('trim', () => this.#store.trim(log, segment, from, to));
  }

  dropSegment(log: LogAddress, segment: number, expectNext: number): ReturnType<Store['dropSegment']> {
    return this.#call('drop_segment', () => this.#store.dropSegment(log, segment, expectNext));
  }

  readCheckpoints(topic: string): ReturnType<Store['readCheckpoints']> {
    return this.#call('read_checkpoints', () => this.#store.readCheckpoints(topic));
  }

  advanceCheckpoint(log: LogAddress, checkpoint: Checkpoint, at: number): Promise<void> {
    return this.#call('advance_checkpoint', () => this.#store.advanceCheckpoint(log, checkpoint, at));
  }

  readMessages(topic: string, keys: readonly string[], serial?: boolean): ReturnType<Store['readMessages']> {
    return this.#call('read_messages', () => this.#store.readMessages(topic, keys, serial));
  }

  writeMessages(
    topic: string,
    bucket: number,
    writes: readonly MessageWrite[],
    now: number,
  ): ReturnType<Store['writeMessages']> {
    return this.#write('write_messages', writes.length, () => this.#store.writeMessages(topic, bucket, writes, now));
  }

  readTopic(topic: string): ReturnType<Store['readTopic']> {
    return this.#call('read_topic', () => this.#store.readTopic(topic));
  }

  writeTopic(topic: string, expect: number | null, settings: string): ReturnType<Store['writeTopic']> {
    return this.#call('write_topic', () => this.#store.writeTopic(topic, expect, settings));
  }

  readSchedule(shard: number, name: string, serial?: boolean): ReturnType<Store['readSchedule']> {
    return this.#call('read_schedule', () => this.#store.readSchedule(shard, name, serial));
  }

  readSchedules(shard: number, after: string | null, limit: number): ReturnType<Store['readSchedules']> {
    return this.#call('read_schedules', () => this.#store.readSchedules(shard, after, limit));
  }

  writeSchedule(shard: number, write: ScheduleWrite): ReturnType<Store['writeSchedule']> {
    return this.#call('write_schedule', () => this.#store.writeSchedule(shard, write));
  }

  readKeys(serial?: boolean): ReturnType<Store['readKeys']> {
    return this.#call('read_keys', () => this.#store.readKeys(serial));
  }

  readKeysVersion(): ReturnType<Store['readKeysVersion']> {
    return this.#call('read_keys_version', () => this.#store.readKeysVersion());
  }

  writeKeys(write: KeysWrite): ReturnType<Store['writeKeys']> {
    return this.#call('write_keys', () => this.#store.writeKeys(write));
  }

  recordActivity(shard: number, period: number, rows: readonly ActivityRow[]): Promise<void> {
    return this.#write('record_activity', rows.length, () => this.#store.recordActivity(shard, period, rows));
  }

  readActivity(
    shard: number,
    period: number,
    from: string | number | null,
    limit: number,
  ): ReturnType<Store['readActivity']> {
    return this.#call('read_activity', () => this.#store.readActivity(shard, period, from, limit));
  }

  dropPeriod(shard: number, period: number): Promise<void> {
    return this.#call('drop_period', () => this.#store.dropPeriod(shard, period));
  }

  readShards(serial?: boolean): ReturnType<Store['readShards']> {
    return this.#call('read_shards', () => this.#store.readShards(serial));
  }

  writeShards(writes: readonly ShardWrite[]): ReturnType<Store['writeShards']> {
    return this.#write('write_shards', writes.length, () => this.#store.writeShards(writes));
  }

  readNodes(): ReturnType<Store['readNodes']> {
    return this.#call('read_nodes', () => this.#store.readNodes());
  }

  writeNode(node: NodeRow): Promise<void> {
    return this.#call('write_node', () => this.#store.writeNode(node));
  }

  dropNode(id: string): Promise<void> {
    return this.#call('drop_node', () => this.#store.dropNode(id));
  }

  sweep(now: number, limit: number): Promise<number> {
    return this.#call('sweep', () => this.#store.sweep(now, limit));
  }

  scanSegments(after: string | null, limit: number): ReturnType<Store['scanSegments']> {
    return this.#store.scanSegments(after, limit);
  }

  scanCheckpoints(after: string | null, limit: number): ReturnType<Store['scanCheckpoints']> {
    return this.#store.scanCheckpoints(after, limit);
  }

  scanMessages(after: string | null, limit: number): ReturnType<Store['scanMessages']> {
    return this.#store.scanMessages(after, limit);
  }

  scanTopics(after: string | null, limit: number): ReturnType<Store['scanTopics']> {
    return this.#store.scanTopics(after, limit);
  }

  listPeriods(shard: number): ReturnType<Store['listPeriods']> {
    return this.#store.listPeriods(shard);
  }

  #write<T>(name: string, rows: number, call: () => Promise<T>): Promise<T> {
    this.#measures.batch(name).observe(rows);
    return this.#call(name, call);
  }

  #call<T>(name: string, call: () => Promise<T>): Promise<T> {
    return measured(this.#measures.storeCall(name), this.#clock, call);
  }
}
