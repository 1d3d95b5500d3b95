/** Reads whole tables page by page, each page by one range of a key. A cursor is the key of the last row, as JSON. */
import type { Database, Statement } from 'better-sqlite3';
import type { MessageRow, MessageStatus } from '../../core/message.ts';
import type { Page, SegmentAddress, StoredCheckpoint, StoredMessage, StoredTopic } from '../store.ts';
import { placeOf } from './rows.ts';

type Key = readonly (string | number)[];
type MessageColumns = readonly [
  topic: string,
  key: string,
  uid: string,
  place: string,
  hops: number,
  status: MessageStatus,
  enqueuedAt: number,
  settledAt: number | null,
  expiresAt: number | null,
];

export class Scans {
  readonly #nextSegment: Statement<unknown[], readonly [string, number, number]>;
  readonly #checkpoints: Statement<unknown[], readonly [string, number, number, number, number]>;
  readonly #messages: Statement<unknown[], MessageColumns>;
  readonly #topics: Statement<unknown[], readonly [string, string, number]>;

  constructor(db: Database, segmentSize: number) {
    // From one segment to the next by two steps in an index: a header, or, where that is missing, an entry.
    this.#nextSegment = db
      .prepare<unknown[], readonly [string, number, number]>(
        `SELECT topic, tier, segment FROM (
           SELECT * FROM (SELECT topic, tier, segment FROM segment WHERE (topic, tier, segment) > (@topic, @tier, @segment)
             ORDER BY topic, tier, segment LIMIT 1)
           UNION ALL
           SELECT * FROM (SELECT topic, tier, id / ${segmentSize} FROM task
             WHERE (topic, tier, id) >= (@topic, @tier, (@segment + 1) * ${segmentSize}) ORDER BY topic, tier, id LIMIT 1)
         ) ORDER BY topic, tier, segment LIMIT 1`,
      )
      .raw();
    this.#checkpoints = db
      .prepare<unknown[], readonly [string, number, number, number, number]>(
        `SELECT topic, tier, scan, completion, trimmed FROM checkpoint WHERE (topic, tier) > (?, ?)
         ORDER BY topic, tier LIMIT ?`,
      )
      .raw();
    this.#messages = db
      .prepare<unknown[], MessageColumns>(
        `SELECT topic, key, uid, place, hops, status, enqueued_at, settled_at, expires_at FROM message
         WHERE (topic, key) > (?, ?) ORDER BY topic, key LIMIT ?`,
      )
      .raw();
    this.#topics = db
      .prepare<unknown[], readonly [string, string, number]>(
        'SELECT topic, settings, version FROM topic WHERE topic > ? ORDER BY topic LIMIT ?',
      )
      .raw();
  }

  segments(after: string | null, limit: number): Page<SegmentAddress> {
    const rows: SegmentAddress[] = [];
    let last: SegmentAddress = after === null ? { topic: '', tier: 0, segment: -1 } : JSON.parse(after);
    while (rows.length < limit) {
      const found = this.#nextSegment.get(last);
      if (found === undefined) return { rows, next: null };
      last = { topic: found[0], tier: found[1], segment: found[2] };
      rows.push(last);
    }
    return { rows, next: JSON.stringify(last) };
  }

  checkpoints(after: string | null, limit: number): Page<StoredCheckpoint> {
    const found = this.#checkpoints.all(...keyOf(after, ['', 0]), limit);
    const rows = found.map(([topic, tier, scan, completion, trimmed]) => ({
      topic,
      tier,
      checkpoint: { scan, completion, trimmed },
    }));
    return { rows, next: nextOf(found, limit, ([topic, tier]) => [topic, tier]) };
  }

  messages(after: string | null, limit: number, now: number): Page<StoredMessage> {
    const found = this.#messages.all(...keyOf(after, ['', '']), limit);
    const rows = found.filter((row) => row[8] === null || row[8] > now).map(storedMessage);
    return { rows, next: nextOf(found, limit, ([topic, key]) => [topic, key]) };
  }

  topics(after: string | null, limit: number): Page<StoredTopic> {
    const found = this.#topics.all(...keyOf(after, ['']), limit);
    const rows = found.map(([topic, settings, version]) => ({ topic, settings, version }));
    return { rows, next: nextOf(found, limit, ([topic]) => [topic]) };
  }
}

const keyOf = (after: string | null, first: Key): Key => (after === null ? first : (JSON.parse(after) as Key));

const nextOf = <T>(found: readonly T[], limit: number, key: (row: T) => Key): string | null =>
  found.length < limit ? null : JSON.stringify(key(found.at(-1)!));

function storedMessage([topic, key, uid, place, hops, status, enqueuedAt, settledAt, expiresAt]: MessageColumns) {
  const row: MessageRow = { key, uid, place: placeOf(place, topic)!, hops, status, enqueuedAt, settledAt };
  return { topic, row, expiresAt };
}
