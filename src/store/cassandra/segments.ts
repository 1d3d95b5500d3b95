import type { LogAddress } from '../../core/entry.ts';
import { type SegmentHeader, segmentEnd, segmentStart } from '../../core/log.ts';
import { APPLIED, type Append, CONFLICT, type Outcome, type SegmentChange } from '../store.ts';
import type { Cluster, Statement } from './client.ts';
import { conditionally } from './conditional.ts';
import { bodyId, HEADER_COLUMNS, HEADER_ID, headerOf } from './rows.ts';
import { bigint } from './values.ts';

/** The key of a segment's partition, encoded once for all statements of a batch. */
export type PartitionKey = readonly [topic: Buffer, tier: Buffer, segment: Buffer];

export const partitionKey = (log: LogAddress, segment: number): PartitionKey => [
  Buffer.from(log.topic),
  bigint(log.tier),
  bigint(segment),
];

export const IN_PARTITION = 'WHERE topic = ? AND tier = ? AND segment = ?';

/** What segments say of themselves: one row each, beside the entries, so that one batch writes both. */
export class Segments {
  readonly #cluster: Cluster;
  readonly #size: number;
  readonly #select: string;
  readonly #create: string;
  readonly #append: string;
  readonly #scan: string;
  readonly #close: string;
  readonly #drop: string;
  readonly #trim: string;
  readonly #delete: string;

  constructor(cluster: Cluster, size: number) {
    const table = `${cluster.keyspace}.task`;
    const header = `${IN_PARTITION} AND id = ${HEADER_ID}`;
    this.#cluster = cluster;
    this.#size = size;
    this.#select = `SELECT ${HEADER_COLUMNS} FROM ${table} ${header}`;
    this.#create = `UPDATE ${table} SET next_id = ?, bytes = ?, sealed_at = ?, scan = ?, term = ?, closed = false ${header} IF next_id = null`;
    this.#append = `UPDATE ${table} SET next_id = ?, bytes = ?, sealed_at = ? ${header} IF next_id = ?`;
    this.#scan = `UPDATE ${table} SET scan = ?, term = ? ${header} IF scan = ? AND term = ?`;
    this.#close = `UPDATE ${table} SET closed = true ${header} IF next_id = ?`;
    this.#drop = `DELETE FROM ${table} ${header} IF next_id = ?`;
    this.#trim = `UPDATE ${table} SET trimmed = ? ${header} IF next_id >= 0`;
    this.#delete = `DELETE FROM ${table} ${IN_PARTITION} AND id >= ? AND id < ?`;
  }

  async read(log: LogAddress, segment: number, serial?: boolean): Promise<SegmentHeader | null> {
    const rows = await this.#cluster.rows(this.#select, partitionKey(log, segment), { serial });
    return headerOf(rows[0]);
  }

  /** The statement by which an append takes its ids: it carries the condition of the whole batch. */
  take(key: PartitionKey, append: Append): Statement {
    const { segment, entries, firstId, expectNext } = append;
    const start = segmentStart(segment, this.#size);
    const end = segmentEnd(segment, this.#size);
    const behind = firstId + entries.length;
    if (firstId !== (expectNext ?? start) || behind > end) {
      throw new RangeError(`ids ${firstId} to ${behind} don't fit into segment ${segment} of ${start} to ${end}`);
    }
    const nextId = bigint(append.seal ? end : behind);
    const sealedAt = append.seal ? bigint(behind) : undefined;
    return expectNext === null
      ? { query: this.#create, params: [nextId, bigint(append.bytes), sealedAt, bigint(start), bigint(0), ...key] }
      : { query: this.#append, params: [nextId, bigint(append.bytes), sealedAt, ...key, bigint(expectNext)] };
  }

  /** The statement that carries out a scan clause, under its condition. */
  advance(key: PartitionKey, { from, to, seenTerm, term }: NonNullable<SegmentChange['scan']>): Statement {
    return { query: this.#scan, params: [bigint(to), bigint(term), ...key, bigint(from), bigint(seenTerm)] };
  }

  /** Takes a term in a segment before its first entry; its scan cursor stands at its first id. */
  async takeTermFirst(log: LogAddress, segment: number, term: number): Promise<Outcome> {
    const start = bigint(segmentStart(segment, this.#size));
    const params = [start, bigint(0), undefined, start, bigint(term), ...partitionKey(log, segment)];
    return outcomeOf(await conditionally(this.#cluster, [{ query: this.#create, params }]));
  }

  async close(log: LogAddress, segment: number): Promise<Outcome> {
    const params = [...partitionKey(log, segment), bigint(segmentEnd(segment, this.#size))];
    return outcomeOf(await conditionally(this.#cluster, [{ query: this.#close, params }]));
  }

  async drop(log: LogAddress, segment: number, expectNext: number): Promise<Outcome> {
    const params = [...partitionKey(log, segment), bigint(expectNext)];
    return outcomeOf(await conditionally(this.#cluster, [{ query: this.#drop, params }]));
  }

  /**
   * Deletes entries and the payloads that stand apart, as two ranges. A range cannot carry a condition of its own, and
   * this table is written by conditional statements alone; so it goes along with one that holds for every header.
   */
  async trim(log: LogAddress, segment: number, from: number, to: number): Promise<Outcome> {
    const key = partitionKey(log, segment);
    const range = (first: number, behind: number): Statement => ({
      query: this.#delete,
      params: [...key, bigint(first), bigint(behind)],
    });
    return outcomeOf(
      await conditionally(this.#cluster, [
        { query: this.#trim, params: [bigint(to), ...key] },
        range(from, to),
        range(bodyId(to) + 1, bodyId(from) + 1),
      ]),
    );
  }
}

export const outcomeOf = ({ kind }: { readonly kind: 'applied' | 'refused' | 'unknown' }): Outcome =>
  kind === 'applied' ? APPLIED : kind === 'refused' ? CONFLICT : { kind };
