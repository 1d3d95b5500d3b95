import {
  bucketOf,
  type MessageCondition,
  type MessageRow,
  type MessageStatus,
  type MessageWrite,
} from '../../core/message.ts';
import { APPLIED, type MessageOutcome } from '../store.ts';
import type { Cluster, Row, Statement } from './client.ts';
import { conditionally } from './conditional.ts';
import { placeOf, placeText } from './rows.ts';
import { bigint, bigintOrNull, numberOf, numberOrNull } from './values.ts';

/** Keys that one read asks for. */
const READ_KEYS = 100;
/** The end of time for a time to live, in seconds since 1970: what Cassandra can count to where it is to stay compatible. */
const LAST_EXPIRY = 2 ** 31 - 2;

/** Message rows. Their time to live is Cassandra's own, in whole seconds. */
export class Messages {
  readonly #cluster: Cluster;
  readonly #buckets: number;
  readonly #select: string;
  readonly #update: string;

  constructor(cluster: Cluster, buckets: number) {
    const table = `${cluster.keyspace}.message`;
    this.#cluster = cluster;
    this.#buckets = buckets;
    this.#select = `SELECT key, uid, place, hops, status, enqueued_at, settled_at FROM ${table} WHERE topic = ? AND bucket = ? AND key IN ?`;
    // Never an INSERT: the row marker that it leaves would outlast the columns of a row that was settled later.
    this.#update = `UPDATE ${table} USING TTL ? SET uid = ?, place = ?, hops = ?, status = ?, enqueued_at = ?, settled_at = ? WHERE topic = ? AND bucket = ? AND key = ? IF `;
  }

  async read(topic: string, keys: readonly string[], serial?: boolean): Promise<ReadonlyMap<string, MessageRow>> {
    const buckets = new Map<number, string[]>();
    for (const key of keys) {
      const bucket = bucketOf(key, this.#buckets);
      const list = buckets.get(bucket);
      if (list === undefined) buckets.set(bucket, [key]);
      else list.push(key);
    }
    const reads = [...buckets].flatMap(([bucket, list]) =>
      chunks(list, READ_KEYS).map((chunk) => this.#readBucket(topic, bucket, chunk, serial)),
    );
    const found = new Map((await Promise.all(reads)).flat().map((row) => [row.key, row]));
    // In the order of the question, as from any other store.
    return new Map(keys.flatMap((key) => (found.has(key) ? [[key, found.get(key)!] as const] : [])));
  }

  async write(topic: string, bucket: number, writes: readonly MessageWrite[], now: number): Promise<MessageOutcome> {
    if (writes.length === 0) return APPLIED;
    const answer = await conditionally(
      this.#cluster,
      writes.map((write) => this.#statement(topic, bucket, write, now)),
    );
    if (answer.kind !== 'refused') return answer;
    const keys = writes.map((write) => write.row.key);
    // Serially: a refusal of a moment ago may stand for a write that has not come to its end everywhere.
    const rows = await Promise.all(
      chunks(keys, READ_KEYS).map((chunk) => this.#readBucket(topic, bucket, chunk, true)),
    );
    return { kind: 'conflict', rows: rows.flat() };
  }

  async #readBucket(
    topic: string,
    bucket: number,
    keys: readonly string[],
    serial?: boolean,
  ): Promise<readonly MessageRow[]> {
    const rows = await this.#cluster.rows(this.#select, [topic, bucket, keys], { serial });
    return rows.map((row) => rowOf(row, topic));
  }

  #statement(topic: string, bucket: number, { expect, row, ttlMs }: MessageWrite, now: number): Statement {
    const [condition, ...values] = conditionOf(expect);
    // A row that is absent has no settled_at to be taken away, and a null would be a tombstone.
    const isNew = 'absent' in expect;
    const settledAt = row.settledAt === null && isNew ? undefined : bigintOrNull(row.settledAt);
    const columns = [row.uid, placeText(row.place, topic), row.hops, row.status, bigint(row.enqueuedAt), settledAt];
    return {
      query: this.#update + condition,
      params: [ttlSeconds(ttlMs, now), ...columns, topic, bucket, row.key, ...values],
    };
  }
}

/** The condition in CQL and its values. Each names the row, so that an absent one meets only `absent`. */
function conditionOf(expect: MessageCondition): readonly [string, ...unknown[]] {
  if ('absent' in expect) return ['uid = null'];
  let text = 'uid = ?';
  const values: unknown[] = [expect.uid];
  if (expect.statusIn !== undefined) {
    text += ' AND status IN ?';
    // An empty list would be sent as null, which is refused; no row has this status.
    values.push(expect.statusIn.length === 0 ? [''] : expect.statusIn);
  }
  if (expect.hopsBelow !== undefined) {
    text += ' AND hops < ?';
    values.push(expect.hopsBelow);
  }
  return [text, ...values];
}

/**
 * The time to live to bind; 0 is none. Where it would end after what Cassandra can count to, the row stays for good:
 * a message id that is known for too long does no harm, one that is forgotten too early does (promise Q6).
 */
function ttlSeconds(ttlMs: number | null, now: number): number {
  if (ttlMs === null) return 0;
  const seconds = Math.max(1, Math.ceil(ttlMs / 1_000));
  return now / 1_000 + seconds > LAST_EXPIRY || seconds > 20 * 365 * 86_400 ? 0 : seconds;
}

const rowOf = (row: Row, topic: string): MessageRow => ({
  key: row.key as string,
  uid: row.uid as string,
  place: placeOf(row.place as string, topic),
  hops: row.hops as number,
  status: row.status as MessageStatus,
  enqueuedAt: numberOf(row.enqueued_at),
  settledAt: numberOrNull(row.settled_at),
});

function chunks<T>(list: readonly T[], size: number): readonly (readonly T[])[] {
  if (list.length <= size) return [list];
  const parts: (readonly T[])[] = [];
  for (let at = 0; at < list.length; at += size) parts.push(list.slice(at, at + size));
  return parts;
}
