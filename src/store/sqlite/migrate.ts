import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Database } from 'better-sqlite3';
import { EMBEDDED_META, type Migration, StoreDamagedError, type StoreMeta, StoreOutdatedError } from '../store.ts';

/** "Ebbm", the application_id in the header of every store file. */
export const APPLICATION_ID = 0x4562626d;

/** The same from `src` and from `dist`, which lie side by side. */
const SCHEMA = new URL('../../../schema/sqlite/', import.meta.url);

/** What may be done to a file. */
export interface Upgrade {
  /** For a store that is created now; an existing one keeps what it was created with. */
  readonly meta?: Partial<StoreMeta> | undefined;
  /** `false`: a file that is not there or not up to date is refused, and left as it is. */
  readonly migrate?: boolean | undefined;
  /** The file is taken as it is, whatever schema it has up to the latest one; where there is none, it is refused. */
  readonly asIs?: boolean | undefined;
}

interface Step {
  readonly number: number;
  readonly name: string;
}

/** The numbered files, in order: 001_tables.sql brings a file to schema number 1. */
function steps(): readonly Step[] {
  return readdirSync(SCHEMA)
    .filter((name) => /^\d{3}_.*\.sql$/.test(name))
    .sort()
    .map((name) => ({ number: Number(name.slice(0, 3)), name }));
}

/** The schema number that this version of Ebbmark writes. */
export const latestSchema = (): number => steps().at(-1)?.number ?? 0;

/** @throws StoreDamagedError where the number is one this version doesn't know */
export function checkSchemaNumber(number: number, path: string): void {
  const latest = latestSchema();
  if (number <= latest) return;
  throw new StoreDamagedError(
    `${path} was written by a newer Ebbmark (schema ${number}; this version knows up to ${latest}). ` +
      'Use that version or a newer one, or restore the backup from before the upgrade. The file was left as it is.',
  );
}

/**
 * Brings the file to the latest schema, each step in a transaction of its own with its number, so that it can be
 * stopped anywhere. A new file also gets its application_id and its meta rows, all in the first transaction.
 * @throws StoreDamagedError the file is of a newer version; StoreOutdatedError where it is older and may not be changed
 */
export function migrate(db: Database, path: string, upgrade: Upgrade): Migration {
  const { meta = {}, migrate: mayMigrate = true, asIs = false } = upgrade;
  const from = Number(db.pragma('user_version', { simple: true }));
  checkSchemaNumber(from, path);
  if (asIs && from > 0) return { from, to: from, applied: [] };
  const todo = steps().filter((step) => step.number > from);
  if (todo.length > 0 && (asIs || !mayMigrate)) throw outdated(path, from);
  for (const step of todo) {
    const sql = readFileSync(fileURLToPath(new URL(step.name, SCHEMA)), 'utf8');
    const apply = db.transaction(() => {
      // For good: later only `ebbmark compact` can change it. Before anything else is written to the file.
      if (step.number === 1) db.pragma('auto_vacuum = INCREMENTAL');
      db.exec(sql);
      if (step.number === 1) initialise(db, { ...EMBEDDED_META, ...meta });
      db.pragma(`user_version = ${step.number}`);
    });
    // What is exclusive from its beginning has written the first page by then.
    if (step.number === 1) apply.deferred();
    else apply.exclusive();
  }
  return { from, to: latestSchema(), applied: todo.map(({ name }) => name) };
}

/** @param from the number of the schema that is there; 0: none */
export const outdated = (path: string, from: number): StoreOutdatedError =>
  new StoreOutdatedError(
    `${path} ${from === 0 ? 'is not there, or is empty' : `has schema ${from}, and this version needs ${latestSchema()}`}; and migrations are off`,
  );

function initialise(db: Database, meta: StoreMeta): void {
  db.pragma(`application_id = ${APPLICATION_ID}`);
  const insert = db.prepare('INSERT INTO meta (name, value) VALUES (?, ?)');
  for (const [name, value] of Object.entries(meta)) {
    if (!Number.isSafeInteger(value) || value < 1)
      throw new RangeError(`meta.${name} is ${value}, not a positive integer`);
    insert.run(name, value);
  }
}

/** What was fixed when the file was created. @throws StoreDamagedError where a value is missing */
export function readMeta(db: Database, path: string): StoreMeta {
  const rows = db.prepare<[], { name: string; value: number }>('SELECT name, value FROM meta').all();
  const found = new Map(rows.map((row) => [row.name, row.value]));
  const value = (name: keyof StoreMeta): number => {
    const number = found.get(name);
    if (number === undefined || number < 1) throw new StoreDamagedError(`${path} is damaged: meta has no ${name}`);
    return number;
  };
  return {
    segmentSize: value('segmentSize'),
    shards: value('shards'),
    messageBuckets: value('messageBuckets'),
    slotMs: value('slotMs'),
  };
}
