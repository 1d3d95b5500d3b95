/**
 * Changes of entries of one segment, all or none: one conditional batch, a condition on each row.
 *
 * What a refused batch returns is too little to answer with (of each row its key and the columns of conditions), so the
 * rows are read again, serially: a change that was still under way when ours was refused is then among them.
 */
import { type EntryHead, type EntryPatch, type EntryState, FIRST_VERSION, type LogAddress } from '../../core/entry.ts';
import { type SegmentHeader, segmentStart } from '../../core/log.ts';
import { APPLIED, type ChangeOutcome, type SegmentChange, UNKNOWN } from '../store.ts';
import type { Cluster, Statement } from './client.ts';
import { conditionally } from './conditional.ts';
import {
  HEAD_COLUMNS,
  HEADER_COLUMNS,
  HEADER_ID,
  headerOf,
  headOf,
  placeText,
  STATE_COLUMNS,
  STATE_TIMES,
} from './rows.ts';
import { IN_PARTITION, type PartitionKey, partitionKey, type Segments } from './segments.ts';
import { bigint, numberOf } from './values.ts';

export class Changes {
  readonly #cluster: Cluster;
  readonly #segments: Segments;
  readonly #segmentSize: number;
  readonly #table: string;
  readonly #select: string;
  /** An UPDATE for each set of columns and each kind of condition. */
  readonly #updates = new Map<string, string>();

  constructor(cluster: Cluster, segments: Segments, segmentSize: number) {
    this.#cluster = cluster;
    this.#segments = segments;
    this.#segmentSize = segmentSize;
    this.#table = `${cluster.keyspace}.task`;
    this.#select = `SELECT ${HEAD_COLUMNS}, ${HEADER_COLUMNS} FROM ${this.#table} ${IN_PARTITION} AND id IN ?`;
  }

  async run(change: SegmentChange): Promise<ChangeOutcome> {
    const { log, scan } = change;
    const key = partitionKey(log, change.segment);
    const statements = this.#statements(key, change);
    if (scan !== undefined) statements.unshift(this.#segments.advance(key, scan));
    if (statements.length === 0) return APPLIED;
    const answer = await conditionally(this.#cluster, statements);
    if (answer.kind !== 'refused') return answer;
    const conflict = await this.#conflict(key, change);
    if (conflict.header !== null || !this.#startsTerm(change)) return conflict;
    const { kind } = await this.#segments.takeTermFirst(log, change.segment, scan!.term);
    if (kind === 'applied') return APPLIED;
    return kind === 'unknown' ? UNKNOWN : this.#conflict(key, change);
  }

  /** Whether it only takes a term, so that it may do so in a segment that is not there yet. */
  #startsTerm({ segment, changes, scan }: SegmentChange): boolean {
    const start = segmentStart(segment, this.#segmentSize);
    return changes.length === 0 && scan?.from === start && scan.to === start && scan.seenTerm === 0;
  }

  #statements(key: PartitionKey, { log, changes }: SegmentChange): Statement[] {
    // A claim and a settlement change many rows in one way: what they share is encoded once.
    const encoded = {
      fresh: new Map<EntryPatch, readonly unknown[]>(),
      other: new Map<EntryPatch, readonly unknown[]>(),
    };
    return changes.map(({ id, expect, set }) => {
      const isFresh = 'version' in expect && expect.version === FIRST_VERSION;
      const keys = keysOf(set);
      const known = isFresh ? encoded.fresh : encoded.other;
      let values = known.get(set);
      if (values === undefined) {
        values = keys.map((name) => boundValue(set, name, log, isFresh));
        known.set(set, values);
      }
      const condition = 'leaseId' in expect ? [expect.leaseId] : [expect.uid, expect.version];
      return {
        query: this.#update(keys, 'leaseId' in expect),
        params: [...values, ...key, bigint(id), ...condition],
      };
    });
  }

  #update(keys: readonly (keyof EntryState)[], byLease: boolean): string {
    const name = `${keys.join()}${byLease ? '/lease' : ''}`;
    let query = this.#updates.get(name);
    if (query === undefined) {
      const assignments = keys.map((key) => `${STATE_COLUMNS[key]} = ?`).join(', ');
      const condition = byLease ? "status = 'leased' AND lease_id = ?" : 'uid = ? AND version = ?';
      query = `UPDATE ${this.#table} SET ${assignments} ${IN_PARTITION} AND id = ? IF ${condition}`;
      this.#updates.set(name, query);
    }
    return query;
  }

  async #conflict(key: PartitionKey, { log, changes }: SegmentChange): Promise<Conflict> {
    const ids = [HEADER_ID, ...changes.map((change) => change.id)].map(bigint);
    const rows = await this.#cluster.rows(this.#select, [...key, ids], { serial: true });
    const isHeader = (row: (typeof rows)[number]): boolean => numberOf(row.id) === HEADER_ID;
    return {
      kind: 'conflict',
      rows: rows.filter((row) => !isHeader(row)).map((row) => headOf(row, log.topic)),
      header: headerOf(rows.find(isHeader)),
    };
  }
}

interface Conflict {
  readonly kind: 'conflict';
  readonly rows: readonly EntryHead[];
  readonly header: SegmentHeader | null;
}

const keysOf = (set: EntryPatch): (keyof EntryState)[] =>
  (Object.keys(set) as (keyof EntryState)[]).filter((key) => set[key] !== undefined);

/** Of these nothing is written by an append, so at its first version an entry has none of them. */
const NOT_APPENDED: ReadonlySet<keyof EntryState> = new Set([
  'leaseId',
  'worker',
  'leasedAt',
  'leaseUntil',
  'dest',
  'result',
]);

/** A value to bind; a null for what is null already is left out, for it would be a tombstone. */
function boundValue(set: EntryPatch, name: keyof EntryState, log: LogAddress, isFresh: boolean): unknown {
  const value = set[name];
  if (value === null || value === undefined) return isFresh && NOT_APPENDED.has(name) ? undefined : null;
  if (name === 'dest') return placeText(set.dest!, log.topic);
  return STATE_TIMES.has(name) ? bigint(value as number) : value;
}
