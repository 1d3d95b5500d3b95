import type { Database, Statement } from 'better-sqlite3';
import type { ScheduleHead, ScheduleRow } from '../../core/schedule.ts';
import { APPLIED, CONFLICT, type Outcome, type ScheduleWrite } from '../store.ts';
import { payloadOf } from './rows.ts';

const HEAD = `name, incarnation, version, topic, pattern, time_zone AS timeZone, priority, ttl_ms AS ttlMs,
  max_attempts AS maxAttempts, catch_up_ms AS catchUpMs, created_at AS createdAt, updated_at AS updatedAt,
  fired_up_to AS firedUpTo, next_at AS nextAt, last_fired_for AS lastFiredFor, last_task AS lastTask, fired, missed, refusal`;

type FullRow = Omit<ScheduleRow, 'payload'> & { readonly payload: string | Buffer };

/** Schedules, each change conditional on the incarnation and version before. */
export class Schedules {
  readonly #select: Statement<unknown[], FullRow>;
  readonly #page: Statement<unknown[], ScheduleHead>;
  readonly #insert: Statement;
  readonly #setState: Statement;
  readonly #setDefinition: Statement;
  readonly #delete: Statement;

  constructor(db: Database) {
    this.#select = db.prepare<unknown[], FullRow>(
      `SELECT ${HEAD}, metadata, payload FROM schedule WHERE shard = ? AND name = ?`,
    );
    this.#page = db.prepare<unknown[], ScheduleHead>(
      `SELECT ${HEAD} FROM schedule WHERE shard = ? AND name > ? ORDER BY name LIMIT ?`,
    );
    this.#insert = db.prepare(
      `INSERT INTO schedule (shard, name, incarnation, version, topic, pattern, time_zone, priority, ttl_ms, max_attempts,
         catch_up_ms, created_at, updated_at, fired_up_to, next_at, last_fired_for, last_task, fired, missed, refusal,
         metadata, payload)
       VALUES (@shard, @name, @incarnation, @version, @topic, @pattern, @timeZone, @priority, @ttlMs, @maxAttempts,
         @catchUpMs, @createdAt, @updatedAt, @firedUpTo, @nextAt, @lastFiredFor, @lastTask, @fired, @missed, @refusal,
         @metadata, @payload)
       ON CONFLICT DO NOTHING`,
    );
    const found = 'WHERE shard = @shard AND name = @name AND incarnation = @ifIncarnation AND version = @ifVersion';
    this.#setState = db.prepare(
      `UPDATE schedule SET incarnation = @incarnation, version = @version, created_at = @createdAt,
         updated_at = @updatedAt, fired_up_to = @firedUpTo, next_at = @nextAt, last_fired_for = @lastFiredFor,
         last_task = @lastTask, fired = @fired, missed = @missed, refusal = @refusal ${found}`,
    );
    this.#setDefinition = db.prepare(
      `UPDATE schedule SET topic = @topic, pattern = @pattern, time_zone = @timeZone, priority = @priority,
         ttl_ms = @ttlMs, max_attempts = @maxAttempts, catch_up_ms = @catchUpMs, metadata = @metadata,
         payload = @payload ${found}`,
    );
    this.#delete = db.prepare(`DELETE FROM schedule ${found}`);
  }

  read(shard: number, name: string): ScheduleRow | null {
    const row = this.#select.get(shard, name);
    return row === undefined ? null : { ...row, payload: payloadOf(row.payload) };
  }

  page(shard: number, after: string | null, limit: number): readonly ScheduleHead[] {
    return this.#page.all(shard, after ?? '', limit);
  }

  write(shard: number, { name, expect, state, definition }: ScheduleWrite): Outcome {
    const key = { shard, name, ifIncarnation: expect?.incarnation, ifVersion: expect?.version };
    if (state === null) return outcomeOf(this.#delete.run(key));
    if (expect === null) return outcomeOf(this.#insert.run({ ...definition, ...state, ...key }));
    // The state last: it changes what the condition names.
    if (definition !== undefined && this.#setDefinition.run({ ...definition, ...key }).changes === 0) return CONFLICT;
    return outcomeOf(this.#setState.run({ ...state, ...key }));
  }
}

const outcomeOf = ({ changes }: { readonly changes: number }): Outcome => (changes === 1 ? APPLIED : CONFLICT);
