import type { Database, Statement } from 'better-sqlite3';
import type { MessageCondition, MessageRow, MessageStatus, MessageWrite } from '../../core/message.ts';
import { APPLIED, type MessageOutcome } from '../store.ts';
import { placeOf, placeText } from './rows.ts';

type Row = readonly [
  uid: string,
  place: string,
  hops: number,
  status: MessageStatus,
  enqueuedAt: number,
  settledAt: number | null,
  expiresAt: number | null,
];

/** Rows that one transaction of a sweep deletes. */
export const SWEEP_ROWS = 500;

/** Message rows. One whose time to live is over counts as absent, whether or not it was swept. */
export class Messages {
  readonly #select: Statement<unknown[], Row>;
  readonly #upsert: Statement;
  readonly #sweep: Statement;

  constructor(db: Database) {
    this.#select = db
      .prepare<unknown[], Row>(
        'SELECT uid, place, hops, status, enqueued_at, settled_at, expires_at FROM message WHERE topic = ? AND key = ?',
      )
      .raw();
    this.#upsert = db.prepare(
      `INSERT INTO message (topic, key, uid, place, hops, status, enqueued_at, settled_at, expires_at)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (topic, key) DO UPDATE SET uid = excluded.uid, place = excluded.place, hops = excluded.hops,
         status = excluded.status, enqueued_at = excluded.enqueued_at, settled_at = excluded.settled_at,
         expires_at = excluded.expires_at`,
    );
    this.#sweep = db.prepare(
      `DELETE FROM message WHERE rowid IN
         (SELECT rowid FROM message WHERE expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at LIMIT ?)`,
    );
  }

  read(topic: string, keys: readonly string[], now: number): ReadonlyMap<string, MessageRow> {
    const found = new Map<string, MessageRow>();
    for (const key of keys) {
      const row = this.#find(topic, key, now);
      if (row !== null) found.set(key, row);
    }
    return found;
  }

  write(topic: string, writes: readonly MessageWrite[], now: number): MessageOutcome {
    const holds = writes.every((write) => meets(this.#find(topic, write.row.key, now), write.expect));
    if (!holds) {
      const keys = writes.map((write) => write.row.key);
      return { kind: 'conflict', rows: [...this.read(topic, keys, now).values()] };
    }
    for (const { row, ttlMs } of writes) {
      this.#upsert.run(
        topic,
        row.key,
        row.uid,
        placeText(row.place, topic),
        row.hops,
        row.status,
        row.enqueuedAt,
        row.settledAt,
        ttlMs === null ? null : now + ttlMs,
      );
    }
    return APPLIED;
  }

  /** Deletes up to `limit` rows whose time is over; returns how many. */
  sweepSome(now: number, limit: number): number {
    return this.#sweep.run(now, limit).changes;
  }

  #find(topic: string, key: string, now: number): MessageRow | null {
    const row = this.#select.get(topic, key);
    if (row === undefined || (row[6] !== null && row[6] <= now)) return null;
    return {
      key,
      uid: row[0],
      place: placeOf(row[1], topic)!,
      hops: row[2],
      status: row[3],
      enqueuedAt: row[4],
      settledAt: row[5],
    };
  }
}

/** Whether a row, or its absence, meets the condition of a write. */
function meets(row: MessageRow | null, expect: MessageCondition): boolean {
  if ('absent' in expect) return row === null;
  return (
    row !== null &&
    row.uid === expect.uid &&
    (expect.statusIn === undefined || expect.statusIn.includes(row.status)) &&
    (expect.hopsBelow === undefined || row.hops < expect.hopsBelow)
  );
}
