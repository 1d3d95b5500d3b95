/** What is fixed when a keyspace is filled, kept in its table `meta`. */
import { SEGMENT_SIZE, SLOT_MS } from '../../core/bounds.ts';
import { invalid } from '../../core/errors.ts';
import { StoreDamagedError, type StoreMeta } from '../store.ts';
import type { CassandraAddress } from './address.ts';
import type { Cluster } from './client.ts';
import { decided } from './conditional.ts';

/**
 * 256 shards, so that shares stay even over dozens of servers. Sixteen buckets of message rows: enough for writes of one
 * topic not to wait for each other.
 */
export const DEFAULT_META: StoreMeta = { segmentSize: SEGMENT_SIZE, shards: 256, messageBuckets: 16, slotMs: SLOT_MS };
const META_NAMES = Object.keys(DEFAULT_META) as (keyof StoreMeta)[];
/** Beside the numbers in `meta`: the level of consistency, which all servers must share. */
const LEVEL = 'consistency';

/** Writes it, where it isn't there yet. */
export async function initialise(cluster: Cluster, address: CassandraAddress, meta: StoreMeta): Promise<void> {
  const values: [string, string][] = [[LEVEL, levelOf(cluster, address)]];
  for (const name of META_NAMES) {
    const value = meta[name];
    if (!Number.isSafeInteger(value) || value < 1)
      throw new RangeError(`meta.${name} is ${value}, not a positive integer`);
    values.push([name, String(value)]);
  }
  for (const [name, value] of values) {
    const query = `INSERT INTO ${cluster.keyspace}.meta (name, value) VALUES (?, ?) IF NOT EXISTS`;
    await decided(cluster, { query, params: [name, value] });
  }
}

/** With local quorums, servers in two datacenters would not see each other's writes in time: the datacenter is part of it. */
const levelOf = (cluster: Cluster, { consistency }: CassandraAddress): string =>
  consistency === 'local' ? `local ${cluster.dc}` : 'global';

/**
 * What was fixed when the keyspace was filled.
 * @throws StoreDamagedError where a value is missing; QueueError `invalid-input` where the address says another level
 */
export async function readMeta(cluster: Cluster, address: CassandraAddress): Promise<StoreMeta> {
  const rows = await cluster.rows(`SELECT name, value FROM ${cluster.keyspace}.meta`, []);
  const found = new Map(rows.map((row) => [row.name as string, row.value as string]));
  const value = (name: keyof StoreMeta): number => {
    const number = Number(found.get(name));
    if (Number.isSafeInteger(number) && number >= 1) return number;
    throw new StoreDamagedError(`${cluster.name} is damaged: meta has no ${name}`);
  };
  const level = levelOf(cluster, address);
  const agreed = found.get(LEVEL);
  if (agreed !== undefined && agreed !== level) {
    const how = 'the consistency and datacenter that this keyspace was created with; all servers must use the same';
    throw invalid(
      'consistency',
      level,
      how,
      agreed.startsWith('local ') ? `dc=${agreed.slice(6)}` : 'consistency=global',
    );
  }
  return {
    segmentSize: value('segmentSize'),
    shards: value('shards'),
    messageBuckets: value('messageBuckets'),
    slotMs: value('slotMs'),
  };
}
