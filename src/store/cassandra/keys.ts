import type { KeyRow, Role } from '../../core/api-key.ts';
import type { KeysWrite, Outcome, StoredKeys } from '../store.ts';
import type { Cluster, Row } from './client.ts';
import { conditionally } from './conditional.ts';
import { outcomeOf } from './segments.ts';
import { bigint, bigintUnlessNull, numberOf, numberOrNull, unlessNull } from './values.ts';

/** All keys in one partition, so that one statement reads them, and one condition covers them. */
const PART = 'all';

const COLUMNS = [
  'id',
  'hash',
  'seal',
  'name',
  'description',
  'roles',
  'prefixes',
  'rate_per_second',
  'rate_burst',
  'created_at',
  'expires_at',
  'revoked_at',
];

/** API keys, each change conditional on the version of all before. */
export class Keys {
  readonly #cluster: Cluster;
  readonly #select: string;
  readonly #version: string;
  readonly #begin: string;
  readonly #raise: string;
  readonly #put: string;
  readonly #drop: string;

  constructor(cluster: Cluster) {
    const table = `${cluster.keyspace}.api_key`;
    this.#cluster = cluster;
    this.#select = `SELECT version, ${COLUMNS.join(', ')} FROM ${table} WHERE part = ?`;
    this.#version = `SELECT DISTINCT part, version FROM ${table} WHERE part = ?`;
    this.#begin = `UPDATE ${table} SET version = ? WHERE part = ? IF version = null`;
    this.#raise = `UPDATE ${table} SET version = ? WHERE part = ? IF version = ?`;
    this.#put = `INSERT INTO ${table} (part, ${COLUMNS.join(', ')}) VALUES (?, ${COLUMNS.map(() => '?').join(', ')})`;
    this.#drop = `DELETE FROM ${table} WHERE part = ? AND id = ?`;
  }

  async read(serial?: boolean): Promise<StoredKeys> {
    const rows = await this.#cluster.rows(this.#select, [PART], { serial });
    // Of the first page: what is changed while the others are read is read once more, for its version is higher.
    return { version: versionOf(rows), keys: rows.filter(({ id }) => id != null).map(keyOf) };
  }

  async version(): Promise<number> {
    return versionOf(await this.#cluster.rows(this.#version, [PART]));
  }

  async write({ expect, put, drop }: KeysWrite): Promise<Outcome> {
    const version = [bigint(expect + 1), PART];
    const condition =
      expect === 0
        ? { query: this.#begin, params: version }
        : { query: this.#raise, params: [...version, bigint(expect)] };
    const answer = await conditionally(this.#cluster, [
      condition,
      { query: this.#put, params: [PART, ...valuesOf(put)] },
      ...drop.map((id) => ({ query: this.#drop, params: [PART, id] })),
    ]);
    return outcomeOf(answer);
  }
}

/** 0 where nothing was ever written. */
const versionOf = ([first]: readonly Row[]): number => numberOrNull(first?.version) ?? 0;

/** A row is written when it is made and when it is revoked: nothing that it had is ever taken away. */
const valuesOf = (key: KeyRow): readonly unknown[] => [
  key.id,
  key.hash,
  key.seal,
  key.name,
  unlessNull(key.description),
  JSON.stringify(key.roles),
  key.prefixes === null ? undefined : JSON.stringify(key.prefixes),
  bigintUnlessNull(key.rate?.perSecond ?? null),
  bigintUnlessNull(key.rate?.burst ?? null),
  bigint(key.createdAt),
  bigintUnlessNull(key.expiresAt),
  bigintUnlessNull(key.revokedAt),
];

function keyOf(row: Row): KeyRow {
  const [perSecond, burst] = [numberOrNull(row.rate_per_second), numberOrNull(row.rate_burst)];
  return {
    id: row.id as string,
    hash: row.hash as string,
    seal: row.seal as string,
    name: row.name as string,
    description: row.description as string | null,
    roles: JSON.parse(row.roles as string) as Role[],
    prefixes: row.prefixes === null ? null : (JSON.parse(row.prefixes as string) as string[]),
    rate: perSecond === null || burst === null ? null : { perSecond, burst },
    createdAt: numberOf(row.created_at),
    expiresAt: numberOrNull(row.expires_at),
    revokedAt: numberOrNull(row.revoked_at),
  };
}
