import type { ActivityRow } from '../store.ts';
import type { Cluster, Row, Statement } from './client.ts';
import { bigint, numberOf } from './values.ts';

/** Rows that one statement writes. */
const WRITE_ROWS = 100;

/**
 * The index by which work is found: which logs had an enqueue in a period. Its writes are plain and may be repeated. They
 * carry the time of their coordinator, one for each partition, so that a drop is later than what it drops.
 */
export class Activity {
  readonly #cluster: Cluster;
  readonly #insert: string;
  readonly #all: string;
  readonly #since: string;
  readonly #behind: string;
  readonly #drop: string;

  constructor(cluster: Cluster) {
    const table = `${cluster.keyspace}.activity`;
    this.#cluster = cluster;
    this.#insert = `INSERT INTO ${table} (shard, period, at, topic, tier) VALUES (?, ?, ?, ?, ?)`;
    const select = `SELECT at, topic, tier FROM ${table} WHERE shard = ? AND period = ?`;
    this.#all = `${select} LIMIT ?`;
    this.#since = `${select} AND at >= ? LIMIT ?`;
    this.#behind = `${select} AND (at, topic, tier) > (?, ?, ?) LIMIT ?`;
    this.#drop = `DELETE FROM ${table} WHERE shard = ? AND period = ?`;
  }

  async record(shard: number, period: number, rows: readonly ActivityRow[]): Promise<void> {
    const statements = rows.map(
      (row): Statement => ({
        query: this.#insert,
        params: [shard, bigint(period), bigint(row.at), row.topic, bigint(row.tier)],
      }),
    );
    for (let at = 0; at < statements.length; at += WRITE_ROWS) {
      await this.#cluster.write(statements.slice(at, at + WRITE_ROWS));
    }
  }

  /** A page of a period's rows, in the order of their key; the cursor is the key of the last row. */
  async read(
    shard: number,
    period: number,
    from: string | number | null,
    limit: number,
  ): Promise<{ readonly rows: readonly ActivityRow[]; readonly next: string | null }> {
    const [start, values] = this.#startOf(from);
    const found = await this.#cluster.rows(start, [shard, bigint(period), ...values, limit + 1]);
    const rows = found.slice(0, limit).map(activityOf);
    return { rows, next: found.length > limit ? cursorText(rows.at(-1)) : null };
  }

  #startOf(from: string | number | null): readonly [query: string, values: readonly unknown[]] {
    if (from === null) return [this.#all, []];
    return typeof from === 'number' ? [this.#since, [bigint(from)]] : [this.#behind, cursorOf(from)];
  }

  /** Deletes a period whole, as one partition. */
  async drop(shard: number, period: number): Promise<void> {
    await this.#cluster.write([{ query: this.#drop, params: [shard, bigint(period)] }]);
  }
}

const activityOf = (row: Row): ActivityRow => ({
  topic: row.topic as string,
  tier: numberOf(row.tier),
  at: numberOf(row.at),
});

const cursorText = (row: ActivityRow | undefined): string | null =>
  row === undefined ? null : `${row.at}/${row.tier}/${row.topic}`;

function cursorOf(text: string): readonly unknown[] {
  const match = /^(-?\d+)\/(-?\d+)\/(.*)$/s.exec(text);
  if (match === null) throw new RangeError('this is not a cursor that readActivity gave');
  return [bigint(Number(match[1])), match[3]!, bigint(Number(match[2]))];
}
