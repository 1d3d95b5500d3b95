/** Cassandra as a place for the bench's tasks: nodes that are up, or one that is started for it. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Cluster } from '../src/store/cassandra/client.ts';
import { dockerFault, startContainer } from '../test/support/cassandra/docker.ts';
import { startCluster } from '../test/support/cassandra/node.ts';
import { built, type Place } from './place.ts';

export interface CassandraPlace extends Place {
  /** A connection with the store's own settings of the driver, to the keyspace of an address that fresh() gave. */
  connect(address: string): Promise<Cluster>;
}

/** A node of this size shares two cores and a few gigabytes with the bench. */
const HEAP_MB = 1024;

export async function openCassandra(store: string, progress: (text: string) => void): Promise<CassandraPlace> {
  const given = store === 'cassandra' ? null : partsOf(store);
  const started = given === null ? await startOne(progress) : null;
  const hosts = given?.hosts ?? started?.hosts ?? '';
  const parameters = given?.parameters ?? 'replication=1';
  const addresses: string[] = [];
  return {
    fresh: () => {
      const keyspace = `bench_${randomBytes(6).toString('hex')}`;
      const address = `cassandra://${hosts}/${keyspace}${parameters === '' ? '' : `?${parameters}`}`;
      addresses.push(address);
      return address;
    },
    connect,
    clear: async () => {
      // A node of our own goes with all it holds.
      if (started !== null) await started.stop();
      else for (const address of addresses) await drop(address);
    },
  };
}

function partsOf(store: string): { readonly hosts: string; readonly parameters: string } {
  const match = /^cassandra:\/\/([^/?]+)\/?(?:\?(.*))?$/.exec(store);
  if (match === null) {
    throw new Error(
      `--store: "${store}" is not the address of nodes, without a keyspace: the bench makes its own; for example: cassandra://127.0.0.1:9042`,
    );
  }
  return { hosts: match[1]!, parameters: match[2] ?? '' };
}

/** In the same two ways as the tests have. */
async function startOne(progress: (text: string) => void): Promise<{ readonly hosts: string; stop(): Promise<void> }> {
  progress('starting a Cassandra node');
  if ((await dockerFault()) === null) return startContainer();
  const folder = mkdtempSync(join(tmpdir(), 'ebbmark-bench-'));
  const clear = () => rmSync(folder, { recursive: true, force: true });
  try {
    const { nodes, options } = await startCluster(folder, 1, { heapMb: HEAP_MB });
    const stop = async () => {
      await nodes[0]?.stop();
      clear();
    };
    return { hosts: `${options[0]!.address}:${options[0]!.cqlPort}`, stop };
  } catch (error) {
    clear();
    throw error;
  }
}

async function connect(address: string): Promise<Cluster> {
  const client = await built<typeof import('../src/store/cassandra/client.ts')>('store/cassandra/client.js');
  const addresses = await built<typeof import('../src/store/cassandra/address.ts')>('store/cassandra/address.js');
  return client.Cluster.connect(addresses.parseCassandraAddress(address), addresses.readAccess({}));
}

async function drop(address: string): Promise<void> {
  const cluster = await connect(address);
  try {
    await cluster.define(`DROP KEYSPACE IF EXISTS ${cluster.keyspace}`);
  } finally {
    await cluster.close();
  }
}
