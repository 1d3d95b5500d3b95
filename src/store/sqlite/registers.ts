import type { Database, Statement } from 'better-sqlite3';
import type { LogAddress } from '../../core/entry.ts';
import type { Checkpoint } from '../../core/log.ts';
import { APPLIED, CONFLICT, type Outcome, type ShardRow, type TopicRow } from '../store.ts';

type CheckpointRow = readonly [tier: number, scan: number, completion: number, trimmed: number];

/** Where to start reading each log of a topic. Each mark is raised on its own and never falls (promise Q4). */
export class Checkpoints {
  readonly #select: Statement<unknown[], CheckpointRow>;
  readonly #raise: Statement;

  constructor(db: Database) {
    this.#select = db
      .prepare<unknown[], CheckpointRow>('SELECT tier, scan, completion, trimmed FROM checkpoint WHERE topic = ?')
      .raw();
    this.#raise = db.prepare(
      `INSERT INTO checkpoint (topic, tier, scan, completion, trimmed, updated_at) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (topic, tier) DO UPDATE SET scan = max(scan, excluded.scan),
         completion = max(completion, excluded.completion), trimmed = max(trimmed, excluded.trimmed),
         updated_at = excluded.updated_at
       WHERE excluded.scan > scan OR excluded.completion > completion OR excluded.trimmed > trimmed`,
    );
  }

  read(topic: string): ReadonlyMap<number, Checkpoint> {
    const rows = this.#select.all(topic);
    return new Map(rows.map(([tier, scan, completion, trimmed]) => [tier, { scan, completion, trimmed }]));
  }

  advance(log: LogAddress, { scan, completion, trimmed }: Checkpoint, at: number): void {
    this.#raise.run(log.topic, log.tier, scan, completion, trimmed, at);
  }
}

/** Settings of topics, each change conditional on the version before. */
export class Topics {
  readonly #select: Statement<unknown[], TopicRow>;
  readonly #insert: Statement;
  readonly #update: Statement;

  constructor(db: Database) {
    this.#select = db.prepare<unknown[], TopicRow>('SELECT settings, version FROM topic WHERE topic = ?');
    this.#insert = db.prepare('INSERT INTO topic (topic, settings, version) VALUES (?, ?, 1) ON CONFLICT DO NOTHING');
    this.#update = db.prepare('UPDATE topic SET settings = ?, version = version + 1 WHERE topic = ? AND version = ?');
  }

  read(topic: string): TopicRow | null {
    return this.#select.get(topic) ?? null;
  }

  write(topic: string, expect: number | null, settings: string): Outcome {
    const { changes } = expect === null ? this.#insert.run(topic, settings) : this.#update.run(settings, topic, expect);
    return changes === 1 ? APPLIED : CONFLICT;
  }
}

/** Rows of shards, each change conditional on the version before. */
export class Shards {
  readonly #select: Statement<unknown[], ShardRow>;
  readonly #insert: Statement;
  readonly #update: Statement;

  constructor(db: Database) {
    this.#select = db.prepare<unknown[], ShardRow>(
      `SELECT holder, term, version, period, oldest_period AS oldestPeriod, slot_cursor AS slotCursor
       FROM shard WHERE shard = ?`,
    );
    this.#insert = db.prepare(
      `INSERT INTO shard (holder, term, period, oldest_period, slot_cursor, version, shard)
       VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
    );
    this.#update = db.prepare(
      `UPDATE shard SET holder = ?, term = ?, period = ?, oldest_period = ?, slot_cursor = ?, version = ?
       WHERE shard = ? AND version = ?`,
    );
  }

  read(shard: number): ShardRow | null {
    return this.#select.get(shard) ?? null;
  }

  write(shard: number, expect: number | null, row: ShardRow): Outcome {
    const values = [row.holder, row.term, row.period, row.oldestPeriod, row.slotCursor, (expect ?? 0) + 1, shard];
    const { changes } = expect === null ? this.#insert.run(...values) : this.#update.run(...values, expect);
    return changes === 1 ? APPLIED : CONFLICT;
  }
}
