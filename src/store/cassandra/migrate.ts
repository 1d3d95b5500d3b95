/**
 * Brings a keyspace to the latest schema. Safe when it is run twice, by two at once, or is stopped anywhere:
 *
 * 1. The keyspace and the table of versions are made where they aren't there. All changes of the schema go to one node,
 *    the same for everyone, for two nodes that make one table at the same time make two of it.
 * 2. A lock, a row with a time to live, is taken conditionally; who doesn't get it waits until it is free.
 * 3. Under it each file that is newer than the version is applied, statement by statement; each says IF NOT EXISTS. Then
 *    its number is recorded, conditionally, and the lock is given back.
 *
 * Servers of two versions work on one keyspace while a cluster is upgraded, one server after the other. A file that only
 * adds what servers of the version before never look at says so in a comment, `-- beside: N`: programs that know files up
 * to N may go on, and start, on a keyspace that has it. That is recorded before the file's own number, for programs that
 * do not have the file. A file that says nothing, or changes what is there, shuts out all that do not know it.
 */
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { invalid } from '../../core/errors.ts';
import { type Migration, StoreDamagedError, type StoreMeta, StoreUnavailableError } from '../store.ts';
import type { Access, CassandraAddress } from './address.ts';
import { replicationOf, type StoreLog } from './checks.ts';
import { Cluster, type Row } from './client.ts';
import { decided } from './conditional.ts';
import { DEFAULT_META, initialise } from './meta.ts';

/** The same from `src` and from `dist`, which lie side by side. */
const SCHEMA = new URL('../../../schema/cassandra/', import.meta.url);

const PART = 'ebbmark';
/** Where it is recorded which programs may work beside a file: a row a file, their number as its name. */
const BESIDE_PART = 'ebbmark-beside';
/** The row of the lock, below every number of a file. */
const LOCK = 0;
/** How long the lock is held by somebody who died; no step takes that long. */
const LOCK_SECONDS = 60;
const LOCK_POLL_MS = 250;
/** How often a keyspace that was just made is looked for. */
const CONNECT_TRIES = 40;
/** Copies in a datacenter where nobody said how many. */
const COPIES = 3;

interface Step {
  readonly number: number;
  readonly name: string;
}

/** The numbered files, in order. Number 0 makes the table of versions and has none itself. */
export function files(): readonly Step[] {
  return readdirSync(SCHEMA)
    .filter((name) => /^\d{3}_.*\.cql$/.test(name))
    .sort()
    .map((name) => ({ number: Number(name.slice(0, 3)), name }));
}

/** The schema number that this version of Ebbmark writes. */
export const latestSchema = (): number => files().at(-1)?.number ?? 0;

/** The statements of a file, without comments. No statement holds a semicolon or two dashes in a string. */
function statementsOf({ name }: Step): readonly string[] {
  return readFileSync(new URL(name, SCHEMA), 'utf8')
    .replace(/--.*$/gm, '')
    .split(';')
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '');
}

/** The oldest schema whose programs may work on a keyspace that has this file: its own where it says nothing. */
export function besideOf({ number, name }: Step): number {
  const said = /^-- beside: (\d+)\b/m.exec(readFileSync(new URL(name, SCHEMA), 'utf8'));
  return said === null ? number : Number(said[1]);
}

/**
 * The number of the keyspace's schema, 0 where there is none. It may be a newer one than this version's, if each file
 * that this version does not know lets its programs work beside it.
 * @throws StoreDamagedError where one doesn't
 */
export async function schemaNumber(cluster: Cluster): Promise<number> {
  const { keyspace } = cluster;
  const [table] = await cluster.rows(
    'SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?',
    [keyspace, 'schema_version'],
  );
  if (table === undefined) return 0;
  const rows = await cluster
    .rows(`SELECT number FROM ${keyspace}.schema_version WHERE part = ?`, [PART], { serial: true })
    .catch(unlessBeingMade<readonly Row[]>([]));
  const number = Math.max(0, ...rows.map((row) => row.number as number));
  const latest = latestSchema();
  if (number <= latest) return number;
  const besides = await cluster.rows(
    `SELECT number, name FROM ${keyspace}.schema_version WHERE part = ?`,
    [BESIDE_PART],
    { serial: true },
  );
  const letsIn = new Map(besides.map((row) => [row.number as number, Number(row.name)]));
  const newer = rows.map((row) => row.number as number).filter((one) => one > latest);
  // Compared this way round, what cannot be read lets nobody in.
  if (newer.every((one) => (letsIn.get(one) ?? one) <= latest)) return number;
  throw new StoreDamagedError(
    `${cluster.name} was written by a newer Ebbmark (schema ${number}; this version knows up to ${latest}), and cannot be shared with this one. ` +
      'Use that version or a newer one. The keyspace was left as it is.',
  );
}

/** Another process makes the table, or the keyspace, just now: a node lists it a moment before it can be used. */
const unlessBeingMade =
  <T>(otherwise: T) =>
  (error: unknown): T => {
    if (error instanceof Error && /(?:table|keyspace) \S+ does not exist/i.test(error.message)) return otherwise;
    throw error;
  };

async function connectInKeyspace(address: CassandraAddress, access: Access): Promise<Cluster> {
  for (let left = CONNECT_TRIES - 1; ; left--) {
    const connecting = Cluster.connect(address, access, true);
    const cluster = await (left > 0 ? connecting.catch(unlessBeingMade(null)) : connecting);
    if (cluster !== null) return cluster;
    await wait(LOCK_POLL_MS);
  }
}

export interface MigrationContext {
  readonly address: CassandraAddress;
  readonly access: Access;
  /** For a keyspace that is filled now; an existing one keeps what it was created with. */
  readonly meta: Partial<StoreMeta>;
  readonly log: StoreLog;
}

/**
 * @returns what was done here; another process that was at it at the same time may have done the rest
 * @throws StoreUnavailableError, StoreDamagedError; QueueError `invalid-input` where the replication can't be had
 */
export async function migrate(cluster: Cluster, migration: MigrationContext): Promise<Migration> {
  const { address, access, log } = migration;
  const to = latestSchema();
  const from = await schemaNumber(cluster);
  if (from >= to) return { from, to: from, applied: [] };
  await createKeyspace(cluster, address, log);
  const inKeyspace = await connectInKeyspace(address, access);
  try {
    for (const step of files().filter(({ number }) => number === LOCK)) await apply(inKeyspace, step);
    const token = randomUUID();
    while (!(await lock(cluster, token).catch(unlessBeingMade(false)))) {
      if ((await schemaNumber(cluster)) >= to) return { from, to, applied: [] };
      await wait(LOCK_POLL_MS);
    }
    try {
      return { from, to, applied: await applyAll(cluster, inKeyspace, token, migration) };
    } finally {
      await unlock(cluster, token);
    }
  } finally {
    await inKeyspace.close();
  }
}

async function applyAll(
  cluster: Cluster,
  inKeyspace: Cluster,
  token: string,
  { address, meta, log }: MigrationContext,
): Promise<readonly string[]> {
  const applied: string[] = [];
  const from = await schemaNumber(cluster);
  for (const step of files()) {
    if (step.number <= from) continue;
    if (!(await extend(cluster, token)))
      throw new StoreUnavailableError(`${cluster.name}: the lock of the migration was lost`);
    await apply(inKeyspace, step);
    if (step.number === 1) await initialise(cluster, address, { ...DEFAULT_META, ...meta });
    await recordBeside(cluster, step);
    await record(cluster, step);
    log.info({ keyspace: cluster.keyspace, file: step.name }, 'applied to the schema');
    applied.push(step.name);
  }
  return applied;
}

async function apply(inKeyspace: Cluster, step: Step): Promise<void> {
  for (const statement of statementsOf(step)) await inKeyspace.define(statement);
}

async function createKeyspace(cluster: Cluster, address: CassandraAddress, log: StoreLog): Promise<void> {
  if ((await replicationOf(cluster)) !== null) return;
  const copies = copiesFor(cluster, address);
  const options = Object.entries(copies).map(([dc, count]) => `, '${dc}': ${count}`);
  log.info({ keyspace: cluster.keyspace, replication: copies }, 'creating the keyspace');
  if (address.replication === null && Object.values(copies).some((count) => count < COPIES)) {
    log.warn(
      { keyspace: cluster.keyspace, replication: copies },
      'fewer than three copies of each task, because there are not more nodes now; say how many there should be (replication=3), or change it later (ALTER KEYSPACE, then nodetool repair --full)',
    );
  }
  await cluster.define(
    `CREATE KEYSPACE IF NOT EXISTS ${cluster.keyspace} WITH replication = {'class': 'NetworkTopologyStrategy'${options.join('')}}`,
  );
}

/** Copies by datacenter; never more than there are nodes to hold them, or no quorum would ever be reached. */
function copiesFor(cluster: Cluster, { replication }: CassandraAddress): Readonly<Record<string, number>> {
  const nodes = (dc: string): number => cluster.hosts.filter((host) => host.datacenter === dc).length;
  if (replication === null) return { [cluster.dc]: Math.min(COPIES, nodes(cluster.dc)) };
  const copies = typeof replication === 'number' ? { [cluster.dc]: replication } : replication;
  for (const [dc, count] of Object.entries(copies)) {
    const most = nodes(dc);
    // Nodes of other datacenters may be out of sight where only the own one is asked.
    if (dc === cluster.dc && count > most) {
      throw invalid('replication', count, `at most the number of nodes in ${dc} that are up`, `replication=${most}`);
    }
  }
  return copies;
}

const lock = (cluster: Cluster, token: string): Promise<boolean> =>
  decided(
    cluster,
    {
      query: `INSERT INTO ${cluster.keyspace}.schema_version (part, number, name) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?`,
      params: [PART, LOCK, token, LOCK_SECONDS],
    },
    token,
  );

const extend = (cluster: Cluster, token: string): Promise<boolean> =>
  decided(cluster, {
    query: `UPDATE ${cluster.keyspace}.schema_version USING TTL ? SET name = ? WHERE part = ? AND number = ? IF name = ?`,
    params: [LOCK_SECONDS, token, PART, LOCK, token],
  });

const unlock = (cluster: Cluster, token: string): Promise<boolean> =>
  decided(cluster, {
    query: `DELETE FROM ${cluster.keyspace}.schema_version WHERE part = ? AND number = ? IF name = ?`,
    params: [PART, LOCK, token],
  });

const record = (cluster: Cluster, { number, name }: Step): Promise<boolean> =>
  decided(cluster, {
    query: `INSERT INTO ${cluster.keyspace}.schema_version (part, number, name, applied_at) VALUES (?, ?, ?, toTimestamp(now())) IF NOT EXISTS`,
    params: [PART, number, name],
  });

const recordBeside = (cluster: Cluster, step: Step): Promise<boolean> =>
  decided(cluster, {
    query: `INSERT INTO ${cluster.keyspace}.schema_version (part, number, name) VALUES (?, ?, ?) IF NOT EXISTS`,
    params: [BESIDE_PART, step.number, String(besideOf(step))],
  });
