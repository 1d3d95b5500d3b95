import type { Database, Statement } from 'better-sqlite3';
import { type Entry, type EntryHead, FIRST_VERSION, type NewEntry } from '../../core/entry.ts';
import { segmentEnd, segmentStart } from '../../core/log.ts';
import { APPLIED, type Append, CONFLICT, type Outcome, type ReadRange } from '../store.ts';
import { ENTRY_COLUMNS, type EntryRow, entryOf, HEAD_COLUMNS, type HeadRow, headOf, placeText } from './rows.ts';
import type { Segments } from './segments.ts';

/** Rows that one transaction of a trim deletes: about a millisecond. */
export const TRIM_ROWS = 500;

/** Reads entries, appends them, trims them. */
export class Entries {
  readonly #segments: Segments;
  readonly #segmentSize: number;
  readonly #readEntries: Statement<unknown[], EntryRow>;
  readonly #readHeads: Statement<unknown[], HeadRow>;
  readonly #insertPlain: Statement;
  readonly #insert: Statement;
  readonly #delete: Statement;

  constructor(db: Database, segments: Segments, segmentSize: number) {
    this.#segments = segments;
    this.#segmentSize = segmentSize;
    const range = 'FROM task WHERE topic = ? AND tier = ? AND id >= ? AND id < ?';
    const page = `${range} ORDER BY id LIMIT ?`;
    this.#readEntries = db.prepare<unknown[], EntryRow>(`SELECT ${ENTRY_COLUMNS} ${page}`).raw();
    this.#readHeads = db.prepare<unknown[], HeadRow>(`SELECT ${HEAD_COLUMNS} ${page}`).raw();
    this.#insertPlain = db.prepare(insertSql(PLAIN));
    this.#insert = db.prepare(insertSql([...PLAIN, ...REST]));
    this.#delete = db.prepare(`DELETE FROM task WHERE rowid IN (SELECT rowid ${range} ORDER BY id LIMIT ${TRIM_ROWS})`);
  }

  read(range: ReadRange): readonly Entry[] {
    const { topic, tier } = range.log;
    return this.#readEntries.all(topic, tier, range.from, range.to, range.limit).map((row) => entryOf(row, topic));
  }

  readHeads(range: ReadRange): readonly EntryHead[] {
    const { topic, tier } = range.log;
    return this.#readHeads.all(topic, tier, range.from, range.to, range.limit).map((row) => headOf(row, topic));
  }

  append(append: Append): Outcome {
    const { log, segment, entries, firstId } = append;
    const header = this.#segments.read(log, segment);
    if ((header?.nextId ?? null) !== append.expectNext) return CONFLICT;
    const end = segmentEnd(segment, this.#segmentSize);
    const behind = firstId + entries.length;
    const start = segmentStart(segment, this.#segmentSize);
    if (firstId !== (append.expectNext ?? start) || behind > end) {
      throw new RangeError(`ids ${firstId} to ${behind} don't fit into segment ${segment} of ${start} to ${end}`);
    }
    const nextId = append.seal ? end : behind;
    const sealedAt = append.seal ? behind : null;
    if (header !== null) this.#segments.setNext(log, segment, nextId, append.bytes, sealedAt);
    else this.#segments.create(log, segment, { nextId, bytes: append.bytes, scan: start, term: 0, sealedAt });
    for (let i = 0; i < entries.length; i++) this.#insertEntry(log.topic, log.tier, firstId + i, entries[i]!);
    return APPLIED;
  }

  /** Deletes up to TRIM_ROWS entries of the range; returns how many. */
  trimSome(topic: string, tier: number, from: number, to: number): number {
    return this.#delete.run(topic, tier, from, to).changes;
  }

  #insertEntry(topic: string, tier: number, id: number, entry: NewEntry): void {
    if (isPlain(entry)) {
      this.#insertPlain.run(
        topic,
        tier,
        id,
        entry.status,
        entry.uid,
        entry.placedAt,
        entry.messageId,
        entry.priority,
        entry.maxAttempts,
        entry.attempt,
        entry.hops,
        entry.enqueuedAt,
        entry.expiresAt,
        entry.placedAt,
        entry.metadata,
        entry.payload,
      );
      return;
    }
    this.#insert.run(
      topic,
      tier,
      id,
      entry.status,
      entry.uid,
      entry.placedAt,
      entry.messageId,
      entry.priority,
      entry.maxAttempts,
      entry.attempt,
      entry.hops,
      entry.enqueuedAt,
      entry.expiresAt,
      entry.placedAt,
      entry.metadata,
      entry.payload,
      entry.reason,
      entry.dueAt,
      entry.target,
      placeText(entry.origin, topic),
      entry.originVersion,
      entry.supersedes,
      entry.taskId,
      entry.progress,
      entry.history,
    );
  }
}

/** The columns of an entry that was just enqueued; each bound value costs time, and the others are null in most. */
const PLAIN = [
  'topic',
  'tier',
  'id',
  'status',
  'uid',
  'updated_at',
  'message_id',
  'priority',
  'max_attempts',
  'attempt',
  'hops',
  'enqueued_at',
  'expires_at',
  'placed_at',
  'metadata',
  'payload',
];
/** The columns that entries made by a move, for a time slot or by `again` have besides. */
const REST = ['reason', 'due_at', 'target', 'origin', 'origin_version', 'supersedes', 'task_id', 'progress', 'history'];

const isPlain = (entry: NewEntry): boolean =>
  entry.origin === null &&
  entry.dueAt === null &&
  entry.supersedes === null &&
  entry.taskId === null &&
  entry.history === null &&
  entry.progress === null &&
  entry.reason === null &&
  entry.target === null &&
  entry.originVersion === null;

const insertSql = (columns: readonly string[]): string =>
  `INSERT INTO task (version, ${columns.join(', ')}) VALUES (${FIRST_VERSION}${', ?'.repeat(columns.length)})`;
