import type { Database, Statement } from 'better-sqlite3';
import type { KeyRow, Role } from '../../core/api-key.ts';
import { APPLIED, CONFLICT, type KeysWrite, type Outcome, type StoredKeys } from '../store.ts';

type Columns = Omit<KeyRow, 'roles' | 'prefixes' | 'rate'> & {
  readonly roles: string;
  readonly prefixes: string | null;
  readonly perSecond: number | null;
  readonly burst: number | null;
};

/** API keys, each change conditional on the version of all before. */
export class Keys {
  readonly #select: Statement<unknown[], Columns>;
  readonly #version: Statement<unknown[], number>;
  readonly #raise: Statement;
  readonly #put: Statement;
  readonly #drop: Statement;

  constructor(db: Database) {
    this.#select = db.prepare<unknown[], Columns>(
      `SELECT id, hash, seal, name, description, roles, prefixes, rate_per_second AS perSecond, rate_burst AS burst,
         created_at AS createdAt, expires_at AS expiresAt, revoked_at AS revokedAt FROM api_key ORDER BY id`,
    );
    this.#version = db.prepare<unknown[], number>('SELECT version FROM api_key_version').pluck();
    this.#raise = db.prepare('UPDATE api_key_version SET version = version + 1 WHERE version = ?');
    this.#put = db.prepare(
      `INSERT OR REPLACE INTO api_key (id, hash, seal, name, description, roles, prefixes, rate_per_second, rate_burst,
         created_at, expires_at, revoked_at)
       VALUES (@id, @hash, @seal, @name, @description, @roles, @prefixes, @perSecond, @burst, @createdAt, @expiresAt, @revokedAt)`,
    );
    this.#drop = db.prepare('DELETE FROM api_key WHERE id = ?');
  }

  read(): StoredKeys {
    return { version: this.version(), keys: this.#select.all().map(keyOf) };
  }

  version(): number {
    return this.#version.get()!;
  }

  write({ expect, put, drop }: KeysWrite): Outcome {
    if (this.#raise.run(expect).changes === 0) return CONFLICT;
    this.#put.run(columnsOf(put));
    for (const id of drop) this.#drop.run(id);
    return APPLIED;
  }
}

const keyOf = ({ roles, prefixes, perSecond, burst, ...row }: Columns): KeyRow => ({
  ...row,
  roles: JSON.parse(roles) as Role[],
  prefixes: prefixes === null ? null : (JSON.parse(prefixes) as string[]),
  rate: perSecond === null || burst === null ? null : { perSecond, burst },
});

const columnsOf = ({ roles, prefixes, rate, ...row }: KeyRow): Columns => ({
  ...row,
  roles: JSON.stringify(roles),
  prefixes: prefixes === null ? null : JSON.stringify(prefixes),
  perSecond: rate?.perSecond ?? null,
  burst: rate?.burst ?? null,
});
