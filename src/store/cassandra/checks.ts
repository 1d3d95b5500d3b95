/** What a cluster has to be, and what its operator should know. */
import type { Host } from 'cassandra-driver';
import { invalid } from '../../core/errors.ts';
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

/** @throws QueueError `invalid-input` where a node is older than 4.1 */
export async function checkVersions(cluster: Cluster): Promise<void> {
  for (const host of cluster.hosts) {
    const rows = await cluster.rowsOf(host, 'SELECT release_version FROM system.local');
    const version = String(rows[0]?.release_version ?? '');
    const [major = 0, minor = 0] = version.split('.').map(Number);
    if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) continue;
    throw invalid('store', `Cassandra ${version} (${host.address})`, 'Cassandra 4.1 or newer', 'Cassandra 5.0');
  }
}

/** Warns of settings of nodes that cost speed or tasks. */
export async function checkSettings(cluster: Cluster, log: StoreLog): Promise<void> {
  const copies = await copiesOf(cluster);
  for (const host of cluster.hosts) {
    const settings = await settingsOf(cluster, host, log);
    if (settings === null) return;
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

async function settingsOf(cluster: Cluster, host: Host, log: StoreLog): Promise<ReadonlyMap<string, string> | null> {
  const query = "SELECT name, value FROM system_views.settings WHERE name IN ('paxos_variant', 'commitlog_sync')";
  try {
    const rows = await cluster.rowsOf(host, query);
    return new Map(rows.map((row) => [String(row.name), String(row.value)]));
  } catch (error) {
    log.warn(
      { node: host.address, err: error },
      "system_views.settings can't be read, so the nodes' settings were not checked",
    );
    return null;
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

/** Asks the nodes for their time; those that don't answer are left out. */
export async function measureClocks(cluster: Cluster): Promise<readonly Measurement[]> {
  const answers = await Promise.allSettled(
    cluster.hosts.slice(0, CLOCK_NODES).map(async (host) => {
      const before = performance.now();
      const rows = await cluster.rowsOf(host, 'SELECT toUnixTimestamp(now()) AS now FROM system.local');
      return { theirs: timeOf(rows[0]), ours: (before + performance.now()) / 2 };
    }),
  );
  const measured = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  const failed = answers.find((answer) => answer.status === 'rejected');
  if (measured.length === 0 && failed?.status === 'rejected') throw failed.reason;
  return measured;
}

const timeOf = (row: Row | undefined): number => Number(String(row?.now));
