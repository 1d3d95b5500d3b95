/**
 * Writes what topics leave behind that were used once, long ago: a segment header and a checkpoint each. Straight into the
 * file of an embedded store that is closed; `ebbmark audit` finds nothing wrong with it afterwards.
 */
import Database from 'better-sqlite3';

const TIER = 5;
const ROWS_PER_TRANSACTION = 100_000;
/** What a task of 200 bytes counts for. */
const BYTES = 300;

/** @param progress told how many are written, now and then */
export function writeOnceUsed(path: string, topics: number, progress: (written: number) => void): void {
  const db = new Database(path);
  try {
    // A load that is cut off is begun anew.
    for (const pragma of ['journal_mode = WAL', 'synchronous = OFF', 'cache_size = -262144']) db.pragma(pragma);
    const segment = db.prepare(
      'INSERT INTO segment (topic, tier, segment, next_id, bytes, scan, term) VALUES (?, ?, 0, 1, ?, 1, 1)',
    );
    const checkpoint = db.prepare(
      'INSERT INTO checkpoint (topic, tier, scan, completion, trimmed, updated_at) VALUES (?, ?, 1, 1, 1, ?)',
    );
    const at = Date.now();
    const some = db.transaction((from: number, to: number) => {
      for (let nth = from; nth < to; nth++) {
        // In the order of names, as the tables are.
        const topic = `used-${String(nth).padStart(9, '0')}`;
        segment.run(topic, TIER, BYTES);
        checkpoint.run(topic, TIER, at);
      }
    });
    for (let from = 0; from < topics; from += ROWS_PER_TRANSACTION) {
      some(from, Math.min(topics, from + ROWS_PER_TRANSACTION));
      progress(Math.min(topics, from + ROWS_PER_TRANSACTION));
    }
    db.pragma('wal_checkpoint(TRUNCATE)');
  } finally {
    db.close();
  }
}
