/**
 * Changes of entries of one segment, all or none: every condition is checked first, by reads in the same transaction,
 * then everything is written. There is one writer, so nothing comes between.
 *
 * Row by row this makes 135,000 changes a second. A claim and a settlement change neighbours in one way, so changes of
 * consecutive ids that share their `set` (the same object) are written by one UPDATE of the range: 298,000 a second.
 */
import type { Database, Statement } from 'better-sqlite3';
import type { EntryChange, EntryCondition, EntryPatch, EntryState, EntryStatus, LogAddress } from '../../core/entry.ts';
import { APPLIED, type ChangeOutcome, type SegmentChange } from '../store.ts';
import { HEAD_COLUMNS, type HeadRow, headOf, placeText, STATE_COLUMNS } from './rows.ts';
import type { Segments } from './segments.ts';

type CheckRow = readonly [uid: string, version: number, status: EntryStatus, leaseId: string | null];

export class Changes {
  readonly #db: Database;
  readonly #segments: Segments;
  readonly #check: Statement<unknown[], CheckRow>;
  readonly #countLeased: Statement<unknown[], number>;
  readonly #head: Statement<unknown[], HeadRow>;
  /** An UPDATE of a range of ids for each set of columns. */
  readonly #updates = new Map<string, Statement>();

  constructor(db: Database, segments: Segments) {
    this.#db = db;
    this.#segments = segments;
    const log = 'FROM task WHERE topic = ? AND tier = ?';
    this.#check = db
      .prepare<unknown[], CheckRow>(`SELECT uid, version, status, lease_id ${log} AND id BETWEEN ? AND ? ORDER BY id`)
      .raw();
    this.#countLeased = db
      .prepare<unknown[], number>(
        `SELECT count(*) ${log} AND id BETWEEN ? AND ? AND status = 'leased' AND lease_id = ?`,
      )
      .pluck();
    this.#head = db.prepare<unknown[], HeadRow>(`SELECT ${HEAD_COLUMNS} ${log} AND id = ?`).raw();
  }

  run(change: SegmentChange): ChangeOutcome {
    const { log, changes } = change;
    const header = change.scan === undefined ? null : this.#segments.read(log, change.segment);
    if (!this.#segments.admitsScan(header, change)) return this.#conflict(change);
    for (const stretch of stretches(changes, areNeighbours)) {
      if (!this.#holds(log, stretch)) return this.#conflict(change);
    }
    for (const stretch of stretches(changes, areAlike)) this.#write(log, stretch);
    this.#segments.writeScan(header, change);
    return APPLIED;
  }

  /** Whether the conditions of changes of consecutive ids hold. */
  #holds(log: LogAddress, stretch: readonly EntryChange[]): boolean {
    const [first, last] = [stretch[0]!, stretch.at(-1)!];
    const leaseId = commonLease(stretch);
    // To count them without bringing them over is what makes settling 1.3 times as fast.
    if (leaseId !== null) {
      return this.#countLeased.get(log.topic, log.tier, first.id, last.id, leaseId) === stretch.length;
    }
    const rows = this.#check.all(log.topic, log.tier, first.id, last.id);
    if (rows.length !== stretch.length) return false;
    return stretch.every((change, i) => meets(rows[i]!, change.expect));
  }

  #write(log: LogAddress, stretch: readonly EntryChange[]): void {
    const { set } = stretch[0]!;
    const keys = keysOf(set);
    const values: unknown[] = keys.map((key) => (key === 'dest' ? placeText(set.dest ?? null, log.topic) : set[key]));
    this.#update(keys).run(...values, log.topic, log.tier, stretch[0]!.id, stretch.at(-1)!.id);
  }

  #update(keys: readonly (keyof EntryState)[]): Statement {
    const name = keys.join();
    let statement = this.#updates.get(name);
    if (statement === undefined) {
      const assignments = keys.map((key) => `${STATE_COLUMNS[key]} = ?`).join(', ');
      statement = this.#db.prepare(
        `UPDATE task SET ${assignments} WHERE topic = ? AND tier = ? AND id BETWEEN ? AND ?`,
      );
      this.#updates.set(name, statement);
    }
    return statement;
  }

  #conflict({ log, segment, changes }: SegmentChange): ChangeOutcome {
    const rows = changes.flatMap((change) => {
      const row = this.#head.get(log.topic, log.tier, change.id);
      return row === undefined ? [] : [headOf(row, log.topic)];
    });
    return { kind: 'conflict', rows, header: this.#segments.read(log, segment) };
  }
}

/** Splits a list where two that follow each other don't belong together. */
function* stretches<T>(list: readonly T[], together: (a: T, b: T) => boolean): Generator<readonly T[]> {
  let start = 0;
  for (let i = 1; i <= list.length; i++) {
    if (i < list.length && together(list[i - 1]!, list[i]!)) continue;
    if (i > start) yield list.slice(start, i);
    start = i;
  }
}

const areNeighbours = (a: EntryChange, b: EntryChange): boolean => b.id === a.id + 1;
const areAlike = (a: EntryChange, b: EntryChange): boolean => areNeighbours(a, b) && a.set === b.set;

/** The lease that all conditions name, or null. */
function commonLease(stretch: readonly EntryChange[]): string | null {
  const first = stretch[0]!.expect;
  if (!('leaseId' in first)) return null;
  const { leaseId } = first;
  return stretch.every(({ expect }) => 'leaseId' in expect && expect.leaseId === leaseId) ? leaseId : null;
}

const meets = ([uid, version, status, leaseId]: CheckRow, expect: EntryCondition): boolean =>
  'leaseId' in expect
    ? status === 'leased' && leaseId === expect.leaseId
    : uid === expect.uid && version === expect.version;

const keysOf = (set: EntryPatch): (keyof EntryState)[] =>
  (Object.keys(set) as (keyof EntryState)[]).filter((key) => set[key] !== undefined);
