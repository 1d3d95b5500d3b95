/**
 * API keys: made, listed, revoked, and checked.
 *
 * A key is 256 random bits, of which the store has the SHA-256. A slow hash, as passwords need, would gain nothing: there
 * are no likely keys to try first; and it would cost each request milliseconds that anybody could make a server spend.
 *
 * Every server holds all keys in memory, so a check is a look into a map, the same for each key that is not good,
 * whyever it isn't. Who may be late, and what then?
 *
 * - A server that makes or revokes a key answers once it goes by that itself. What it had begun to read before is of a
 *   lower version, and is dropped.
 * - Others ask for the version of the table when they are called, once in LOOK_MS, and go on with what they have while
 *   they wait, until that is STALE_MS old: from then on calls wait. So nobody is let in by a key that was revoked longer
 *   ago than that. There is no loop that could die: a server that slept, or was paused, is late by its own clock.
 * - Where the store cannot be read, nobody can say which keys are good by now. Those that were go on for OUTAGE_MS, so that
 *   a store which is away for a moment locks nobody out; then every call is refused with `store-unavailable`. What can be
 *   had from a server without its store is little.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import {
  type ApiKey,
  endOf,
  formatKey,
  isUsable,
  KEY_ID_DIGITS,
  KEY_SECRET_DIGITS,
  type KeyRow,
  keyIdOf,
  ROLES,
  type Role,
  sparsest,
} from '../core/api-key.ts';
import {
  KEY_DESCRIPTION_BYTES,
  KEY_KEPT_MS,
  KEY_NAME_BYTES,
  KEY_PAGE,
  KEY_PREFIXES,
  KEY_RATE,
  KEYS,
} from '../core/bounds.ts';
import { invalid, QueueError } from '../core/errors.ts';
import { checkFields } from '../core/fields.ts';
import { checkTopic, isWellFormed, utf8Bytes } from '../core/names.ts';
import { integer, optionalInteger } from '../core/numbers.ts';
import type { KeysWrite, Store, StoredKeys } from '../store/store.ts';
import { type Environment, within } from './environment.ts';
import { asToldToCallers, definitely } from './outcomes.ts';
import { checkCount } from './validate.ts';

/** After so long the table is asked whether it has changed; what a revocation takes to be known everywhere is STALE_MS. */
const LOOK_MS = 2_000;
const STALE_MS = 5_000;
/** How long a call waits for the store before it takes that for an outage. */
const PATIENCE_MS = 2_000;
const OUTAGE_MS = 300_000;
/** How often a change is tried again after another one. */
const TRIES = 20;
/** Ended keys that one change forgets. */
const DROPPED_AT_ONCE = 100;

/** A key to be made. */
export interface KeyInput {
  /** For people: whose it is. At most 128 bytes. */
  readonly name: string;
  /** At most 1,024 bytes. */
  readonly description?: string;
  /** At least one. */
  readonly roles: readonly Role[];
  /** What the names of its topics begin with, at most 100; all topics when absent. */
  readonly prefixes?: readonly string[];
  /** Requests to each server; no limit when absent. `burst` is `perSecond` when absent. */
  readonly rate?: { readonly perSecond: number; readonly burst?: number };
  /** How long it is good for, in milliseconds; for ever when absent. */
  readonly ttlMs?: number;
}

/** A key that was just made. */
export interface NewKey extends ApiKey {
  /** What its holder shows. It is told this once. */
  readonly key: string;
}

export interface KeyList {
  /** By the time they were made, first ones first. */
  readonly keys: readonly ApiKey[];
  /** Where the next page begins; absent at the end. */
  readonly after?: string;
}

/** Makes, lists and revokes keys. */
export interface KeyCalls {
  /** @throws QueueError `invalid-input`, `topic-invalid`, `too-many-keys`, `outcome-unknown` */
  createKey(input: KeyInput): Promise<NewKey>;
  /** Also those that ended within the last month. `after` is the id of the last one before, `limit` 100 when absent. */
  listKeys(request?: { readonly after?: string; readonly limit?: number }): Promise<KeyList>;
  /** The key is good for nothing from now on, here at once and on other servers within five seconds. @throws QueueError `key-not-found` */
  revokeKey(id: string): Promise<ApiKey>;
}

/** Keys as they were read. */
interface Snapshot {
  readonly version: number;
  readonly byId: ReadonlyMap<string, KeyRow>;
  /** When it was known to be the latest, by the monotonic clock: before the read began. */
  readonly asOf: number;
}

/** What no key's hash is compared with where there is none. */
const NOBODY = Buffer.alloc(32);

export class Keyring implements KeyCalls {
  readonly #store: () => Store;
  readonly #env: Environment;
  #known: Snapshot | null = null;
  #looking: Promise<void> | null = null;

  /** @param store @throws QueueError `store-unavailable` where it was not reached yet */
  constructor(store: () => Store, env: Environment) {
    this.#store = store;
    this.#env = env;
  }

  /** The key of this text, if it is good now; null where it is not. @throws QueueError `store-unavailable` */
  async check(text: string): Promise<KeyRow | null> {
    const { byId } = await this.#current();
    const id = keyIdOf(text);
    const row = id === null ? undefined : byId.get(id);
    const isSame = timingSafeEqual(sha256(text), row === undefined ? NOBODY : Buffer.from(row.hash, 'hex'));
    return isSame && row !== undefined && isUsable(row, this.#store().now()) ? row : null;
  }

  /** Whether a key that was good still is. @throws QueueError `store-unavailable` */
  async isGood({ id }: ApiKey): Promise<boolean> {
    const row = (await this.#current()).byId.get(id);
    return row !== undefined && isUsable(row, this.#store().now());
  }

  /** Whether there is any key that is good now. @throws QueueError `store-unavailable` */
  async hasAny(): Promise<boolean> {
    const { byId } = await this.#current();
    const now = this.#store().now();
    return [...byId.values()].some((row) => isUsable(row, now));
  }

  async createKey(input: KeyInput): Promise<NewKey> {
    const checked = checkKey(input);
    const id = randomBytes(KEY_ID_DIGITS / 2).toString('hex');
    const key = formatKey(id, randomBytes(KEY_SECRET_DIGITS / 2).toString('hex'));
    const hash = sha256(key).toString('hex');
    const seal = randomBytes(16).toString('hex');
    const made = await this.#change(({ version, keys }) => {
      // Made by a write in doubt.
      const found = keys.find((row) => row.id === id);
      if (found !== undefined) return found;
      const now = this.#store().now();
      const drop = endedKeys(keys, now);
      if (keys.length - drop.length >= KEYS) {
        throw new QueueError('too-many-keys', `There are ${KEYS} keys already; revoke some that nobody uses`);
      }
      const { ttlMs, ...rest } = checked;
      const expiresAt = ttlMs === null ? null : now + ttlMs;
      return { expect: version, drop, put: { id, hash, seal, ...rest, createdAt: now, expiresAt, revokedAt: null } };
    });
    return { ...shown(made), key };
  }

  async listKeys({ after, limit }: { readonly after?: string; readonly limit?: number } = {}): Promise<KeyList> {
    const most = optionalInteger(limit, '/limit', 1, KEY_PAGE) ?? 100;
    await this.#look();
    const all = [...this.#known!.byId.values()].sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1));
    const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
    if (after !== undefined && from === 0) throw notFound(after);
    const keys = all.slice(from, from + most).map(shown);
    return from + most < all.length ? { keys, after: keys.at(-1)!.id } : { keys };
  }

  async revokeKey(id: string): Promise<ApiKey> {
    return shown(
      await this.#change(({ version, keys }) => {
        const found = keys.find((row) => row.id === id);
        if (found === undefined) throw notFound(id);
        if (found.revokedAt !== null) return found;
        return { expect: version, drop: [], put: { ...found, revokedAt: this.#store().now() } };
      }),
    );
  }

  /** Makes a change, until it is made, here or by a write of ours that was in doubt; then goes by it. */
  async #change(decide: (stored: StoredKeys) => KeysWrite | KeyRow): Promise<KeyRow> {
    return sayingSo(async () => {
      const store = this.#store();
      for (let tries = 0; tries < TRIES; tries++) {
        const decision = decide(await store.readKeys(true));
        const isDone = !('put' in decision);
        if (!isDone && (await definitely(this.#env, () => store.writeKeys(decision))) === 'conflict') continue;
        await this.#read();
        return isDone ? decision : decision.put;
      }
      throw new QueueError('busy', 'keys are being changed faster than this one can be');
    });
  }

  // ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────

  /** What calls go by: not older than STALE_MS, unless the store cannot be read. */
  async #current(): Promise<Snapshot> {
    const age = this.#age();
    if (age < LOOK_MS) return this.#known!;
    const looking = this.#look();
    if (age < STALE_MS) {
      // What keeps it from being read is told once it is too old.
      looking.catch(() => {});
      return this.#known!;
    }
    try {
      await within(this.#env, PATIENCE_MS, looking, undefined);
    } catch (error) {
      if (!isOutOfReach(error) || this.#age() >= OUTAGE_MS) throw error;
    }
    if (this.#age() >= OUTAGE_MS) throw new QueueError('store-unavailable');
    return this.#known!;
  }

  #age(): number {
    return this.#known === null ? Number.POSITIVE_INFINITY : this.#env.monotonic() - this.#known.asOf;
  }

  /** Asks whether something has changed, and what; those who ask at the same time share an answer. */
  #look(): Promise<void> {
    this.#looking ??= sayingSo(async () => {
      const asOf = this.#env.monotonic();
      const known = this.#known;
      if (known === null || (await this.#store().readKeysVersion()) !== known.version) await this.#read();
      else this.#learn({ ...known, asOf });
    }).finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  async #read(): Promise<void> {
    const asOf = this.#env.monotonic();
    const { version, keys } = await this.#store().readKeys();
    this.#learn({ version, byId: new Map(keys.map((row) => [row.id, row])), asOf });
  }

  /** Answers come out of order: what is of a lower version is not news. */
  #learn(found: Snapshot): void {
    const known = this.#known;
    if (known === null || found.version > known.version) this.#known = found;
    else if (found.version === known.version) this.#known = { ...known, asOf: Math.max(known.asOf, found.asOf) };
  }
}

const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest();

/** What may be shown of it. */
const shown = ({ hash: _hash, seal: _seal, ...key }: KeyRow): ApiKey => key;

const notFound = (id: string): QueueError =>
  new QueueError('key-not-found', `${JSON.stringify(id)} is the id of no key`);

/** Those that ended longer ago than they are kept; where there are too many keys, those that ended first. */
function endedKeys(keys: readonly KeyRow[], now: number): readonly string[] {
  const kept = keys.length >= KEYS ? 0 : KEY_KEPT_MS;
  return keys
    .map((row) => ({ id: row.id, end: endOf(row) ?? Number.POSITIVE_INFINITY }))
    .filter(({ end }) => end + kept <= now)
    .sort((a, b) => a.end - b.end)
    .slice(0, DROPPED_AT_ONCE)
    .map(({ id }) => id);
}

/** A store that is out of reach, said as callers are told of it. */
async function sayingSo<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw asToldToCallers(error);
  }
}

const isOutOfReach = (error: unknown): boolean => error instanceof QueueError && error.code === 'store-unavailable';

// ── input ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const KEY_FIELDS: ReadonlySet<string> = new Set<keyof KeyInput>([
  'name',
  'description',
  'roles',
  'prefixes',
  'rate',
  'ttlMs',
]);
const RATE_FIELDS: ReadonlySet<string> = new Set<keyof NonNullable<KeyInput['rate']>>(['perSecond', 'burst']);
const EXAMPLE = '{"name": "mailer", "roles": ["consume"], "prefixes": ["mail/"]}';

type CheckedKey = Pick<ApiKey, 'name' | 'description' | 'roles' | 'prefixes' | 'rate'> & {
  readonly ttlMs: number | null;
};

function checkKey(input: KeyInput): CheckedKey {
  if (typeof input !== 'object' || input === null) throw invalid('', input, 'a key to be made', EXAMPLE);
  checkFields(input, '', 'a key', KEY_FIELDS, EXAMPLE);
  const { name, description, roles, prefixes, rate, ttlMs } = input;
  return {
    name: checkText(name, '/name', KEY_NAME_BYTES, '"mailer"'),
    description:
      description === undefined
        ? null
        : checkText(description, '/description', KEY_DESCRIPTION_BYTES, '"sends the mails of the shop"'),
    roles: checkRoles(roles),
    prefixes: prefixes === undefined ? null : checkPrefixes(prefixes),
    rate: rate === undefined ? null : checkRate(rate),
    ttlMs: optionalInteger(ttlMs, '/ttlMs', 1, Number.MAX_SAFE_INTEGER / 2),
  };
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: a name goes to terminals and logs
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

function checkText(text: unknown, path: string, most: number, example: string): string {
  const rule = `a text of 1 to ${most} bytes without control characters`;
  const fits = typeof text === 'string' && text !== '' && isWellFormed(text) && !CONTROL.test(text);
  if (!fits || utf8Bytes(text) > most) throw invalid(path, text, rule, example);
  return text;
}

function checkRoles(roles: readonly Role[]): readonly Role[] {
  const rule = `a list of some of ${ROLES.join(', ')}, each once`;
  const fits = Array.isArray(roles) && roles.length > 0 && new Set(roles).size === roles.length;
  if (!fits || !roles.every((role) => ROLES.includes(role))) throw invalid('/roles', roles, rule, '["consume"]');
  return ROLES.filter((role) => roles.includes(role));
}

function checkPrefixes(prefixes: readonly string[]): readonly string[] {
  checkCount(prefixes, '/prefixes', KEY_PREFIXES, '["mail/"]');
  if (prefixes.length === 0) throw invalid('/prefixes', prefixes, 'a list of one at least', '["mail/"]');
  return sparsest(prefixes.map((prefix, index) => checkTopic(prefix, `/prefixes/${index}`)));
}

function checkRate(rate: NonNullable<KeyInput['rate']>): NonNullable<ApiKey['rate']> {
  const example = '{"perSecond": 100, "burst": 200}';
  if (typeof rate !== 'object' || rate === null) throw invalid('/rate', rate, 'a rate', example);
  checkFields(rate, '/rate', 'a rate', RATE_FIELDS, example);
  const { perSecond, burst } = KEY_RATE;
  const each = integer(rate.perSecond, '/rate/perSecond', perSecond.min, perSecond.max);
  return { perSecond: each, burst: optionalInteger(rate.burst, '/rate/burst', burst.min, burst.max) ?? each };
}
