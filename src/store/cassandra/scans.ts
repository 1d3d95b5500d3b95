/**
 * Reads whole tables page by page, in the order of the ring. Partitions are told apart by their keys alone
 * (`SELECT DISTINCT`), which reads no rows.
 */
import type { MessageRow, MessageStatus } from '../../core/message.ts';
import type { Page, SegmentAddress, StoredCheckpoint, StoredMessage, StoredTopic } from '../store.ts';
import type { Cluster, Row } from './client.ts';
import { placeOf } from './rows.ts';
import { numberOf, numberOrNull } from './values.ts';

export class Scans {
  readonly #cluster: Cluster;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  segments(after: string | null, limit: number): Promise<Page<SegmentAddress>> {
    return this.#page('SELECT DISTINCT topic, tier, segment FROM', 'task', after, limit, (row) => ({
      topic: row.topic as string,
      tier: numberOf(row.tier),
      segment: numberOf(row.segment),
    }));
  }

  checkpoints(after: string | null, limit: number): Promise<Page<StoredCheckpoint>> {
    const columns = 'SELECT topic, tier, scan, completion, trimmed FROM';
    return this.#page(columns, 'checkpoint', after, limit, (row) => ({
      topic: row.topic as string,
      tier: numberOf(row.tier),
      checkpoint: {
        scan: numberOf(row.scan),
        completion: numberOf(row.completion),
        trimmed: numberOf(row.trimmed),
      },
    }));
  }

  messages(after: string | null, limit: number, now: number): Promise<Page<StoredMessage>> {
    const columns = 'SELECT topic, key, uid, place, hops, status, enqueued_at, settled_at, TTL(uid) AS ttl FROM';
    return this.#page(columns, 'message', after, limit, (row) => storedMessage(row, now));
  }

  topics(after: string | null, limit: number): Promise<Page<StoredTopic>> {
    return this.#page('SELECT topic, settings, version FROM', 'topic', after, limit, (row) => ({
      topic: row.topic as string,
      settings: row.settings as string,
      version: row.version as number,
    }));
  }

  /** Periods are some dozens at the most: those of an hour each that were not deleted. */
  async periods(shard: number): Promise<readonly number[]> {
    const { keyspace } = this.#cluster;
    const rows = await this.#cluster.rows(`SELECT DISTINCT shard, period FROM ${keyspace}.activity`, []);
    return rows.filter((row) => row.shard === shard).map((row) => numberOf(row.period));
  }

  async #page<T>(
    select: string,
    table: string,
    after: string | null,
    limit: number,
    read: (row: Row) => T,
  ): Promise<Page<T>> {
    const { rows, next } = await this.#cluster.page(`${select} ${this.#cluster.keyspace}.${table}`, after, limit);
    return { rows: rows.map(read), next };
  }
}

function storedMessage(row: Row, now: number): StoredMessage {
  const topic = row.topic as string;
  const message: MessageRow = {
    key: row.key as string,
    uid: row.uid as string,
    place: placeOf(row.place as string, topic),
    hops: row.hops as number,
    status: row.status as MessageStatus,
    enqueuedAt: numberOf(row.enqueued_at),
    settledAt: numberOrNull(row.settled_at),
  };
  const ttl = numberOrNull(row.ttl);
  return { topic, row: message, expiresAt: ttl === null ? null : now + ttl * 1_000 };
}
