import type { ScheduleDefinition, ScheduleHead, ScheduleRow, ScheduleState } from '../../core/schedule.ts';
import type { Outcome, ScheduleWrite } from '../store.ts';
import type { Cluster, Row } from './client.ts';
import { conditionally } from './conditional.ts';
import { payloadOf } from './rows.ts';
import { outcomeOf } from './segments.ts';
import { bigint, bigintOrNull, numberOf, numberOrNull } from './values.ts';

const STATE_COLUMNS = [
  'incarnation',
  'version',
  'created_at',
  'updated_at',
  'fired_up_to',
  'next_at',
  'last_fired_for',
  'last_task',
  'fired',
  'missed',
  'refusal',
];
const HEAD_COLUMNS = ['topic', 'pattern', 'time_zone', 'priority', 'ttl_ms', 'max_attempts', 'catch_up_ms'];
const DEFINITION_COLUMNS = [...HEAD_COLUMNS, 'metadata', 'payload', 'payload_bytes'];

/** Schedules, each change conditional on the incarnation and version before. */
export class Schedules {
  readonly #cluster: Cluster;
  readonly #select: string;
  readonly #page: string;
  readonly #insert: string;
  readonly #setState: string;
  readonly #setAll: string;
  readonly #delete: string;

  constructor(cluster: Cluster) {
    const table = `${cluster.keyspace}.schedule`;
    const head = ['name', ...STATE_COLUMNS, ...HEAD_COLUMNS].join(', ');
    const all = [...STATE_COLUMNS, ...DEFINITION_COLUMNS];
    const found = 'WHERE shard = ? AND name = ? IF incarnation = ? AND version = ?';
    const set = (columns: readonly string[]): string => columns.map((column) => `${column} = ?`).join(', ');
    this.#cluster = cluster;
    this.#select = `SELECT ${head}, metadata, payload, payload_bytes FROM ${table} WHERE shard = ? AND name = ?`;
    this.#page = `SELECT ${head} FROM ${table} WHERE shard = ? AND name > ? LIMIT ?`;
    this.#insert = `INSERT INTO ${table} (${all.join(', ')}, shard, name) VALUES (${all.map(() => '?').join(', ')}, ?, ?) IF NOT EXISTS`;
    this.#setState = `UPDATE ${table} SET ${set(STATE_COLUMNS)} ${found}`;
    this.#setAll = `UPDATE ${table} SET ${set(all)} ${found}`;
    this.#delete = `DELETE FROM ${table} ${found}`;
  }

  async read(shard: number, name: string, serial?: boolean): Promise<ScheduleRow | null> {
    const [row] = await this.#cluster.rows(this.#select, [shard, name], { serial });
    if (row === undefined) return null;
    return { ...headOf(row), metadata: row.metadata as string | null, payload: payloadOf(row)! };
  }

  async page(shard: number, after: string | null, limit: number): Promise<readonly ScheduleHead[]> {
    return (await this.#cluster.rows(this.#page, [shard, after ?? '', limit])).map(headOf);
  }

  async write(shard: number, { name, expect, state, definition }: ScheduleWrite): Promise<Outcome> {
    const key = [shard, name];
    const condition = expect === null ? [] : [expect.incarnation, expect.version];
    const values = [
      ...(state === null ? [] : stateValues(state)),
      ...(definition === undefined ? [] : definitionValues(definition)),
    ];
    const query =
      state === null
        ? this.#delete
        : expect === null
          ? this.#insert
          : definition === undefined
            ? this.#setState
            : this.#setAll;
    // A new row has nothing that a null would have to take away, and a null would be a tombstone.
    const params = expect === null ? values.map((value) => value ?? undefined) : values;
    return outcomeOf(await conditionally(this.#cluster, [{ query, params: [...params, ...key, ...condition] }]));
  }
}

const stateValues = (state: ScheduleState): readonly unknown[] => [
  state.incarnation,
  state.version,
  bigint(state.createdAt),
  bigint(state.updatedAt),
  bigint(state.firedUpTo),
  bigintOrNull(state.nextAt),
  bigintOrNull(state.lastFiredFor),
  state.lastTask,
  bigint(state.fired),
  bigint(state.missed),
  state.refusal,
];

const definitionValues = ({ payload, ...definition }: ScheduleDefinition): readonly unknown[] => [
  definition.topic,
  definition.pattern,
  definition.timeZone,
  bigintOrNull(definition.priority),
  bigintOrNull(definition.ttlMs),
  definition.maxAttempts,
  bigint(definition.catchUpMs),
  definition.metadata,
  typeof payload === 'string' ? payload : null,
  typeof payload === 'string' ? null : Buffer.from(payload),
];

const headOf = (row: Row): ScheduleHead => ({
  name: row.name as string,
  incarnation: row.incarnation as string,
  version: row.version as number,
  topic: row.topic as string,
  pattern: row.pattern as string,
  timeZone: row.time_zone as string,
  priority: numberOrNull(row.priority),
  ttlMs: numberOrNull(row.ttl_ms),
  maxAttempts: numberOrNull(row.max_attempts),
  catchUpMs: numberOf(row.catch_up_ms),
  createdAt: numberOf(row.created_at),
  updatedAt: numberOf(row.updated_at),
  firedUpTo: numberOf(row.fired_up_to),
  nextAt: numberOrNull(row.next_at),
  lastFiredFor: numberOrNull(row.last_fired_for),
  lastTask: row.last_task as string | null,
  fired: numberOf(row.fired),
  missed: numberOf(row.missed),
  refusal: row.refusal as string | null,
});
