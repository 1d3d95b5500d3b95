import type { Database, Statement } from 'better-sqlite3';
import type { ActivityRow } from '../store.ts';

type Row = readonly [at: number, topic: string, tier: number];

/** Rows that one transaction of a drop deletes. */
const DROP_ROWS = 1_000;

/** The index by which work is found: which logs had an enqueue in a period. */
export class Activity {
  readonly #insert: Statement;
  readonly #page: Statement<unknown[], Row>;
  readonly #drop: Statement;
  readonly #periods: Statement<unknown[], number>;

  constructor(db: Database) {
    this.#insert = db.prepare('INSERT OR IGNORE INTO activity (shard, period, at, topic, tier) VALUES (?, ?, ?, ?, ?)');
    this.#page = db
      .prepare<unknown[], Row>(
        `SELECT at, topic, tier FROM activity WHERE shard = ? AND period = ? AND (at, topic, tier) > (?, ?, ?)
         ORDER BY at, topic, tier LIMIT ?`,
      )
      .raw();
    this.#drop = db.prepare(
      `DELETE FROM activity WHERE shard = ? AND period = ? AND (at, topic, tier) IN
         (SELECT at, topic, tier FROM activity WHERE shard = ? AND period = ? LIMIT ${DROP_ROWS})`,
    );
    // From one period to the next by the key: the rows between are not read.
    this.#periods = db
      .prepare<unknown[], number>(
        `WITH RECURSIVE found (period) AS (
           SELECT min(period) FROM activity WHERE shard = @shard
           UNION ALL
           SELECT (SELECT min(period) FROM activity WHERE shard = @shard AND period > found.period) FROM found
           WHERE found.period IS NOT NULL
         ) SELECT period FROM found WHERE period IS NOT NULL`,
      )
      .pluck();
  }

  record(shard: number, period: number, rows: readonly ActivityRow[]): void {
    for (const row of rows) this.#insert.run(shard, period, row.at, row.topic, row.tier);
  }

  /** A page of a period's rows, in the order of their key; the cursor is the key of the last row. */
  read(
    shard: number,
    period: number,
    from: string | number | null,
    limit: number,
  ): { readonly rows: readonly ActivityRow[]; readonly next: string | null } {
    const [at, topic, tier] = typeof from === 'string' ? cursorOf(from) : [from ?? Number.MIN_SAFE_INTEGER, '', 0];
    const found = this.#page.all(shard, period, at, topic, tier, limit + 1);
    const rows = found.slice(0, limit).map(([at, topic, tier]) => ({ topic, tier, at }));
    return { rows, next: found.length > limit ? cursorText(rows.at(-1)) : null };
  }

  /** The periods that have rows. */
  periods(shard: number): readonly number[] {
    return this.#periods.all({ shard });
  }

  /** Deletes some rows of a period; returns how many. */
  dropSome(shard: number, period: number): number {
    return this.#drop.run(shard, period, shard, period).changes;
  }
}

const cursorText = (row: ActivityRow | undefined): string | null =>
  row === undefined ? null : `${row.at}/${row.tier}/${row.topic}`;

function cursorOf(text: string): Row {
  const match = /^(-?\d+)\/(-?\d+)\/(.*)$/s.exec(text);
  if (match === null) throw new RangeError('this is not a cursor that readActivity gave');
  return [Number(match[1]), match[3]!, Number(match[2])];
}
