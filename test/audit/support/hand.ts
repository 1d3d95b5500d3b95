/** A store made by hand, row by row, so that anything can be wrong in it. */
import { type Entry, type EntryStatus, FINAL_VERSION, isFinal, type LogAddress } from '../../../src/core/entry.ts';
import { type Checkpoint, logKey, type SegmentHeader } from '../../../src/core/log.ts';
import type { MessageRow } from '../../../src/core/message.ts';
import type { ScheduleDefinition, ScheduleState } from '../../../src/core/schedule.ts';
import { Tables } from '../../../src/store/memory/tables.ts';
import type { StoreMeta } from '../../../src/store/store.ts';
import { asAppended, entry } from '../../conformance/harness.ts';
import { schedule } from '../../conformance/schedules.ts';

export const NOW = 1_700_000_000_000;
export const SIZE = 10;
const META: StoreMeta = { segmentSize: SIZE, shards: 1, messageBuckets: 1, slotMs: 250 };
export const LOG: LogAddress = { topic: 't', tier: 5 };

export class Hand {
  readonly tables = new Tables(META, () => this.now);
  now = NOW;

  /** A log in use: one entry that is done and passed, one that is leased, one that waits. */
  static inUse(): Hand {
    const hand = new Hand();
    hand.shard({ term: 1, period: 2, oldestPeriod: 2 });
    hand.put(LOG, 0, 'done');
    hand.put(LOG, 1, 'leased', { leaseId: 'L', leasedAt: NOW - 1, leaseUntil: NOW + 30_000 });
    hand.put(LOG, 2, 'ready');
    hand.header(LOG, 0, { scan: 2, term: 1 });
    hand.checkpoint(LOG, { scan: 2, completion: 1, trimmed: 0 });
    hand.record(LOG);
    return hand;
  }

  /** An entry; its segment's header gives out its id. */
  put({ topic, tier }: LogAddress, id: number, status: EntryStatus, changed: Partial<Entry> = {}): void {
    const log = { topic, tier };
    const segment = Math.floor(id / SIZE);
    const before = this.#segments(log).get(segment);
    const rows = before?.rows ?? new Map<number, Entry>();
    const version = isFinal(status) ? FINAL_VERSION : status === 'leased' ? 2 : 1;
    const made = entry(`${topic}-${tier}-${id}`, { enqueuedAt: NOW - 1_000, placedAt: NOW - 1_000 });
    rows.set(id, { ...asAppended(made, id), status, version, ...changed });
    const header = before?.header ?? { bytes: 0, scan: segment * SIZE, term: 0, sealedAt: null, closed: false };
    this.#segments(log).set(segment, { header: { ...header, nextId: id + 1 }, rows });
  }

  header(log: LogAddress, segment: number, changed: Partial<SegmentHeader>): void {
    const start = segment * SIZE;
    const fresh = { nextId: start, bytes: 0, scan: start, term: 0, sealedAt: null, closed: false };
    const found = this.#segments(log).get(segment) ?? { header: fresh, rows: new Map() };
    this.#segments(log).set(segment, { ...found, header: { ...found.header, ...changed } });
  }

  schedule(name: string, changed: Partial<ScheduleDefinition>, moved: Partial<ScheduleState> = {}): void {
    const made = schedule(name, changed, moved);
    this.tables.writeSchedule(0, { expect: null, ...made });
  }

  loseHeader(log: LogAddress, segment: number): void {
    const found = this.#segments(log).get(segment)!;
    found.header = null as never;
  }

  remove(log: LogAddress, id: number): void {
    this.#segments(log)
      .get(Math.floor(id / SIZE))!
      .rows.delete(id);
  }

  checkpoint({ topic, tier }: LogAddress, checkpoint: Checkpoint): void {
    const tiers = this.tables.checkpoints.get(topic) ?? new Map<number, Checkpoint>();
    this.tables.checkpoints.set(topic, tiers.set(tier, checkpoint));
  }

  record(log: LogAddress, period = 2): void {
    this.tables.recordActivity(0, period, [{ ...log, at: NOW }]);
  }

  unrecord(): void {
    this.tables.activity.clear();
  }

  shard({ term, period, oldestPeriod }: { term: number; period: number; oldestPeriod: number }): void {
    this.tables.shards.set(0, { holder: null, term, version: 1, period, oldestPeriod });
  }

  row(topic: string, changed: Partial<MessageRow> & Pick<MessageRow, 'key' | 'uid'>, expiresAt: number | null): void {
    const rows = this.tables.messages.get(topic) ?? new Map();
    const place = { ...LOG, id: 0 };
    const row: MessageRow = { place, hops: 0, status: 'live', enqueuedAt: NOW, settledAt: null, ...changed };
    this.tables.messages.set(topic, rows.set(row.key, { row, expiresAt }));
  }

  #segments({ topic, tier }: LogAddress) {
    const key = logKey({ topic, tier });
    let stored = this.tables.logs.get(key);
    if (stored === undefined) {
      stored = { address: { topic, tier }, segments: new Map() };
      this.tables.logs.set(key, stored);
    }
    return stored.segments;
  }
}

export const uidAt = ({ topic, tier }: LogAddress, id: number): string => `uid-${topic}-${tier}-${id}`;
