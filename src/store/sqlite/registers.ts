import type { Database, Statement } from 'better-sqlite3';
import type { LogAddress } from '../../core/entry.ts';
import type { Checkpoint } from '../../core/log.ts';
import {
  APPLIED,
  CONFLICT,
  NODE_TTL_MS,
  type NodeRow,
  type Outcome,
  type ShardRow,
  type ShardWrite,
  type TopicRow,
} from '../store.ts';

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
  readonly #select: Statement<unknown[], ShardRow & { readonly shard: number }>;
  readonly #insert: Statement;
  readonly #update: Statement;
  readonly #version: Statement<unknown[], { readonly version: number }>;

  constructor(db: Database) {
    this.#select = db.prepare<unknown[], ShardRow & { readonly shard: number }>(
      'SELECT shard, holder, term, version, period, oldest_period AS oldestPeriod FROM shard',
    );
    this.#version = db.prepare<unknown[], { readonly version: number }>('SELECT version FROM shard WHERE shard = ?');
    this.#insert = db.prepare(
      'INSERT INTO shard (holder, term, period, oldest_period, version, shard) VALUES (?, ?, ?, ?, ?, ?)',
    );
    this.#update = db.prepare(
      'UPDATE shard SET holder = ?, term = ?, period = ?, oldest_period = ?, version = ? WHERE shard = ?',
    );
  }

  read(): ReadonlyMap<number, ShardRow> {
    return new Map(this.#select.all().map(({ shard, ...row }) => [shard, row]));
  }

  /** Looks at all conditions first: within one transaction nothing changes in between. */
  write(writes: readonly ShardWrite[]): Outcome {
    for (const { shard, expect } of writes) {
      if ((this.#version.get(shard)?.version ?? null) !== expect) return CONFLICT;
    }
    for (const { shard, expect, row } of writes) {
      const statement = expect === null ? this.#insert : this.#update;
      statement.run(row.holder, row.term, row.period, row.oldestPeriod, (expect ?? 0) + 1, shard);
    }
    return APPLIED;
  }
}

type NodeColumns = Omit<NodeRow, 'holds'> & { readonly holds: number };

/** Servers that take part, until their time to live is over. */
export class Nodes {
  readonly #select: Statement<unknown[], NodeColumns>;
  readonly #write: Statement;
  readonly #drop: Statement;

  constructor(db: Database) {
    this.#select = db.prepare<unknown[], NodeColumns>(
      'SELECT node AS id, beat, address, secret, holds FROM node WHERE expires_at > ?',
    );
    this.#write = db.prepare(
      `INSERT INTO node (node, beat, address, secret, holds, expires_at) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (node) DO UPDATE SET beat = excluded.beat, address = excluded.address, secret = excluded.secret,
         holds = excluded.holds, expires_at = excluded.expires_at`,
    );
    this.#drop = db.prepare('DELETE FROM node WHERE node = ? OR expires_at <= ?');
  }

  read(now: number): readonly NodeRow[] {
    return this.#select.all(now).map((row) => ({ ...row, holds: row.holds === 1 }));
  }

  write({ id, beat, address, secret, holds }: NodeRow, now: number): void {
    this.#write.run(id, beat, address, secret, holds ? 1 : 0, now + NODE_TTL_MS);
  }

  drop(id: string, now: number): void {
    this.#drop.run(id, now);
  }
}
