/** What a cluster has to be, and what its operator should know. */
import type { Host } from 'cassandra-driver';
import { invalid } from '../../core/errors.ts';
import type { CassandraAddress } from './address.ts';
import type { Cluster, Row } from './client.ts';
import type { Measurement } from './clock.ts';

/** Told of what is not as it should be; field names like those of the queue's own logger. */
export interface StoreLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}
export const silentLog: StoreLog = { info: () => {}, warn: () => {} };

const OLDEST = [4, 1] as const;
/** Nodes that one measurement of the clock asks; more tell nothing new. */
const CLOCK_NODES = 9;

interface Told {
  readonly host: Host;
  readonly rows: readonly Row[];
  /** Our monotonic clock half-way between question and answer. */
  readonly at: number;
}

/**
 * Asks each node for itself. Those that don't answer are left out: one that is away keeps no server from starting.
 * @throws what the first of them failed with, where none answers
 */
async function askEach(cluster: Cluster, hosts: readonly Host[], query: string): Promise<readonly Told[]> {
  const answers = await Promise.allSettled(
    hosts.map(async (host): Promise<Told> => {
      const before = performance.now();
      const rows = await cluster.rowsOf(host, query);
      return { host, rows, at: (before + performance.now()) / 2 };
    }),
  );
  const told = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  const failed = answers.find((answer) => answer.status === 'rejected');
  if (told.length === 0 && failed !== undefined) throw failed.reason;
  return told;
}

/** @throws QueueError `invalid-input` where a node is older than 4.1 */
export async function checkVersions(cluster: Cluster): Promise<void> {
  for (const { host, rows } of await askEach(cluster, cluster.hosts, 'SELECT release_version FROM system.local')) {
    const version = String(rows[0]?.release_version ?? '');
    const [major = 0, minor = 0] = version.split('.').map(Number);
    if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) continue;
    throw invalid('store', `Cassandra ${version} (${host.address})`, 'Cassandra 4.1 or newer', 'Cassandra 5.0');
  }
}

/**
 * Warns of settings that cost speed or tasks.
 * @param asked the copies that the address names
 */
export async function checkSettings(
  cluster: Cluster,
  asked: CassandraAddress['replication'],
  log: StoreLog,
): Promise<void> {
  const copies = await copiesOf(cluster);
  const wanted = typeof asked === 'number' ? asked : asked?.[cluster.dc];
  if (wanted !== undefined && wanted !== copies) {
    log.warn(
      { keyspace: cluster.keyspace, copies, asked: wanted },
      'the keyspace has another number of copies than the address says; it is changed by ALTER KEYSPACE, then nodetool repair --full',
    );
  }
  for (const { host, rows } of await settingsOf(cluster, log)) {
    const settings = new Map(rows.map((row) => [String(row.name), String(row.value)]));
    const node = host.address;
    const paxos = settings.get('paxos_variant');
    if (paxos !== undefined && !paxos.startsWith('v2')) {
      log.warn(
        { node, paxos_variant: paxos },
        'Paxos v2 is off: every conditional write takes four round trips instead of two; set paxos_variant: v2 in cassandra.yaml',
      );
    }
    if (copies === 1 && settings.get('commitlog_sync') === 'periodic') {
      log.warn(
        { node, keyspace: cluster.keyspace },
        'ONE copy of each task, and a commit log that is synced periodically: what was acknowledged in the last seconds is lost when this node crashes; set commitlog_sync: group, or replicate',
      );
    }
  }
}

async function settingsOf(cluster: Cluster, log: StoreLog): Promise<readonly Told[]> {
  const query = "SELECT name, value FROM system_views.settings WHERE name IN ('paxos_variant', 'commitlog_sync')";
  try {
    return await askEach(cluster, cluster.hosts, query);
  } catch (error) {
    log.warn({ err: error }, "system_views.settings can't be read, so the nodes' settings were not checked");
    return [];
  }
}

/** The replication of the keyspace by datacenter, or null where it is not there. */
export async function replicationOf(cluster: Cluster): Promise<ReadonlyMap<string, number> | null> {
  const [row] = await cluster.rows('SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?', [
    cluster.keyspace,
  ]);
  if (row === undefined) return null;
  const { class: _, ...copies } = row.replication as Readonly<Record<string, string>>;
  return new Map(Object.entries(copies).map(([name, count]) => [name, Number.parseInt(count, 10)]));
}

/** Copies of each row, as seen from this datacenter. */
async function copiesOf(cluster: Cluster): Promise<number> {
  const replication = await replicationOf(cluster);
  return replication?.get(cluster.dc) ?? replication?.get('replication_factor') ?? 0;
}

/** The time of each node, as it told it. @throws where none of them answers */
export async function measureClocks(cluster: Cluster): Promise<readonly Measurement[]> {
  const query = 'SELECT toUnixTimestamp(now()) AS now FROM system.local';
  const told = await askEach(cluster, cluster.hosts.slice(0, CLOCK_NODES), query);
  return told.map(({ rows, at }) => ({ theirs: Number(String(rows[0]?.now)), ours: at }));
}
