import type { Database, Statement } from 'better-sqlite3';
import type { LogAddress } from '../../core/entry.ts';
import { type SegmentHeader, segmentEnd } from '../../core/log.ts';
import { APPLIED, CONFLICT, type Outcome, type SegmentChange } from '../store.ts';

type HeaderRow = readonly [
  nextId: number,
  bytes: number,
  scan: number,
  term: number,
  sealedAt: number | null,
  closed: number,
];

/** What segments say of themselves. */
export class Segments {
  readonly #size: number;
  readonly #select: Statement<unknown[], HeaderRow>;
  readonly #insert: Statement;
  readonly #append: Statement;
  readonly #scan: Statement;
  readonly #close: Statement;
  readonly #drop: Statement;

  constructor(db: Database, size: number) {
    const key = 'WHERE topic = ? AND tier = ? AND segment = ?';
    this.#size = size;
    this.#select = db
      .prepare<unknown[], HeaderRow>(`SELECT next_id, bytes, scan, term, sealed_at, closed FROM segment ${key}`)
      .raw();
    this.#insert = db.prepare(
      'INSERT INTO segment (topic, tier, segment, next_id, bytes, scan, term, sealed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    );
    this.#append = db.prepare(`UPDATE segment SET next_id = ?, bytes = ?, sealed_at = ? ${key}`);
    this.#scan = db.prepare(`UPDATE segment SET scan = ?, term = ? ${key}`);
    this.#close = db.prepare(`UPDATE segment SET closed = 1 ${key} AND next_id = ?`);
    this.#drop = db.prepare(`DELETE FROM segment ${key} AND next_id = ?`);
  }

  read(log: LogAddress, segment: number): SegmentHeader | null {
    const row = this.#select.get(log.topic, log.tier, segment);
    if (row === undefined) return null;
    return { nextId: row[0], bytes: row[1], scan: row[2], term: row[3], sealedAt: row[4], closed: row[5] === 1 };
  }

  /** A new header; its scan cursor stands at its first id. */
  create(log: LogAddress, segment: number, header: Omit<SegmentHeader, 'closed'>): void {
    this.#insert.run(
      log.topic,
      log.tier,
      segment,
      header.nextId,
      header.bytes,
      header.scan,
      header.term,
      header.sealedAt,
    );
  }

  setNext(log: LogAddress, segment: number, nextId: number, bytes: number, sealedAt: number | null): void {
    this.#append.run(nextId, bytes, sealedAt, log.topic, log.tier, segment);
  }

  /** Whether the scan clause's condition holds; a segment that isn't there yet has scan at its start and term 0. */
  admitsScan(header: SegmentHeader | null, change: SegmentChange): boolean {
    const { scan } = change;
    if (scan === undefined) return true;
    if (header !== null) return header.scan === scan.from && header.term === scan.seenTerm;
    return scan.from === change.segment * this.#size && scan.to === scan.from && scan.seenTerm === 0;
  }

  /** Carries out a scan clause that was admitted. A term can so be taken in a segment before its first entry. */
  writeScan(header: SegmentHeader | null, change: SegmentChange): void {
    const { scan, log, segment } = change;
    if (scan === undefined) return;
    if (header !== null) {
      this.#scan.run(scan.to, scan.term, log.topic, log.tier, segment);
      return;
    }
    this.create(log, segment, { nextId: scan.from, bytes: 0, scan: scan.to, term: scan.term, sealedAt: null });
  }

  drop(log: LogAddress, segment: number, expectNext: number): Outcome {
    const { changes } = this.#drop.run(log.topic, log.tier, segment, expectNext);
    return changes === 1 ? APPLIED : CONFLICT;
  }

  close(log: LogAddress, segment: number): Outcome {
    const { changes } = this.#close.run(log.topic, log.tier, segment, segmentEnd(segment, this.#size));
    return changes === 1 ? APPLIED : CONFLICT;
  }
}
