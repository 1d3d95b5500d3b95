/**
 * The Cassandra that tests run against:
 *
 * 1. the one that EBBMARK_TEST_CASSANDRA names (`host:port`, several with commas, then `?dc=…` where needed);
 * 2. else one in Docker, where an engine answers;
 * 3. else one from Maven's jars, where there are Java 17 (or 11) and Maven.
 *
 * Where there is none of them the tests say so and are skipped, but in CI they fail.
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import cassandra from 'cassandra-driver';
import { dockerFault } from './docker.ts';
import { jarsFault } from './jars.ts';

export interface TestDatabase {
  /** The address of a keyspace that nobody else uses. */
  newAddress(parameters?: string): string;
  /** Removes the keyspace of an address. */
  drop(address: string): Promise<void>;
  /** A connection of the driver itself, to look at what is there or to disturb it. */
  connect(): Promise<cassandra.Client>;
}

const KEEPER = fileURLToPath(new URL('keeper.ts', import.meta.url));
const POLL_MS = 100;

/** The database, or null where there is none; tests are skipped then. */
export async function testDatabase(): Promise<TestDatabase | null> {
  const given = process.env.EBBMARK_TEST_CASSANDRA;
  if (given !== undefined && given !== '') return databaseAt(given);
  const docker = await dockerFault();
  const jars = docker === null ? null : await jarsFault();
  if (docker === null || jars === null) return databaseAt(await keptHosts());
  const ways =
    'No Cassandra to test against. It can be had in three ways: an address in EBBMARK_TEST_CASSANDRA ' +
    `(127.0.0.1:9042); Docker (here ${docker}); Java 17 and Maven (here ${jars}).`;
  if (process.env.CI) throw new Error(`${ways} In CI one of them has to be there.`);
  console.warn(`${ways} These tests are skipped.`);
  return null;
}

/** Starts the keeper, or waits for the one that another test file of this run has started. */
async function keptHosts(): Promise<string> {
  const runner = process.ppid;
  const directory = join(tmpdir(), `ebbmark-cassandra-${runner}`);
  const isFirst = await mkdir(directory).then(
    () => true,
    () => false,
  );
  if (isFirst) {
    const args = ['--import', 'tsx', KEEPER, directory, String(runner)];
    spawn(process.execPath, args, { detached: true, stdio: 'ignore' }).unref();
  }
  for (;;) {
    const ready = await readFile(join(directory, 'ready.json'), 'utf8').catch(() => null);
    if (ready !== null) return (JSON.parse(ready) as { hosts: string }).hosts;
    const failed = await readFile(join(directory, 'failed.txt'), 'utf8').catch(() => null);
    if (failed !== null) throw new Error(failed);
    await wait(POLL_MS);
  }
}

/** @param given hosts with their ports, then perhaps `?` and parameters of the address */
export function databaseAt(given: string): TestDatabase {
  const [hosts = '', common] = given.split('?');
  return {
    newAddress: (parameters) => {
      const query = [common, parameters].filter((part) => part !== undefined).join('&');
      return `cassandra://${hosts}/test_${randomBytes(8).toString('hex')}${query === '' ? '' : `?${query}`}`;
    },
    drop: async (address) => {
      const client = await connect(hosts);
      await client.execute(`DROP KEYSPACE IF EXISTS ${keyspaceOf(address)}`, [], { readTimeout: 60_000 });
      await client.shutdown();
    },
    connect: () => connect(hosts),
  };
}

export const keyspaceOf = (address: string): string => /\/([a-z0-9_]+)(?:\?|$)/.exec(address)![1]!;

async function connect(hosts: string): Promise<cassandra.Client> {
  const loadBalancing = new cassandra.policies.loadBalancing.RoundRobinPolicy();
  const port = Number(hosts.split(':').at(-1));
  const client = new cassandra.Client({
    contactPoints: hosts.split(','),
    protocolOptions: { port },
    policies: { loadBalancing },
  });
  await client.connect();
  return client;
}
