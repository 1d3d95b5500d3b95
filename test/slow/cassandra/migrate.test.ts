import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { besideOf, files, latestSchema } from '../../../src/store/cassandra/migrate.ts';
import {
  type CassandraOptions,
  migrateCassandraStore,
  openCassandraStore,
} from '../../../src/store/cassandra/store.ts';
import type { Store } from '../../../src/store/store.ts';
import { range } from '../../conformance/harness.ts';
import { keyspaceOf, type TestDatabase, testDatabase } from '../../support/cassandra/database.ts';

const found = await testDatabase();

describe.skipIf(found === null)('the schema on Cassandra', () => {
  let database: TestDatabase;
  const stores: Store[] = [];
  const addresses = new Set<string>();
  const open = async (options: CassandraOptions): Promise<Store> => {
    addresses.add(options.address.split('?')[0]!);
    const store = await openCassandraStore(options);
    stores.push(store);
    return store;
  };
  /** Reads or changes the keyspace past the store. */
  const query = async (address: string, cql: string) => {
    const client = await database.connect();
    const { rows } = await client.execute(cql.replaceAll('KEYSPACE', keyspaceOf(address)), []);
    await client.shutdown();
    return rows;
  };
  beforeAll(() => {
    database = found!;
  });
  afterEach(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
    for (const address of addresses) await database.drop(address);
    addresses.clear();
  });

  it('is made by four at once, once', async () => {
    const address = database.newAddress();
    const logged: object[] = [];
    const log = { info: (fields: object) => logged.push(fields), warn: () => {} };
    const opened = await Promise.all([1, 2, 3, 4].map(() => open({ address, meta: { segmentSize: 123 }, log })));
    for (const store of opened) expect(store.meta.segmentSize).toBe(123);
    expect(logged.filter((fields) => 'file' in fields)).toHaveLength(latestSchema());
    const rows = await query(address, "SELECT number FROM KEYSPACE.schema_version WHERE part = 'ebbmark'");
    expect(rows.map(({ number }) => number)).toEqual(range(1, latestSchema() + 1));
    const clock = opened[0]!.now();
    expect(Math.abs(clock - Date.now())).toBeLessThan(5_000);
  });

  it('keeps what was fixed, whatever a later server asks for', async () => {
    const address = database.newAddress();
    await open({ address, meta: { segmentSize: 50, messageBuckets: 3 } });
    const again = await open({ address, meta: { segmentSize: 60, messageBuckets: 9 } });
    expect(again.meta).toMatchObject({ segmentSize: 50, messageBuckets: 3, shards: 256 });
  });

  it('goes on where a migration was cut off', async () => {
    const address = database.newAddress();
    await open({ address });
    for (const number of range(1, latestSchema() + 1)) {
      await query(
        address,
        `DELETE FROM KEYSPACE.schema_version WHERE part = 'ebbmark' AND number = ${number} IF EXISTS`,
      );
    }
    await query(address, 'DROP TABLE KEYSPACE.shard');
    const store = await open({ address });
    expect(await store.readShards()).toEqual(new Map());
    const rows = await query(address, "SELECT number FROM KEYSPACE.schema_version WHERE part = 'ebbmark'");
    expect(rows).toHaveLength(latestSchema());
  });

  it('is not touched where it is newer than this version', async () => {
    const address = database.newAddress();
    await open({ address });
    await query(
      address,
      `INSERT INTO KEYSPACE.schema_version (part, number) VALUES ('ebbmark', ${latestSchema() + 1}) IF NOT EXISTS`,
    );
    await expect(open({ address })).rejects.toMatchObject({
      name: 'StoreDamagedError',
      message: expect.stringContaining(
        `newer Ebbmark (schema ${latestSchema() + 1}; this version knows up to ${latestSchema()})`,
      ),
    });
  });

  it('lets a server start that does not know its newest files, where each of them says so', async () => {
    const address = database.newAddress();
    await open({ address });
    const [first, second] = [latestSchema() + 1, latestSchema() + 2];
    const record = async (number: number, beside: number) => {
      await query(
        address,
        `INSERT INTO KEYSPACE.schema_version (part, number, name) VALUES ('ebbmark-beside', ${number}, '${beside}') IF NOT EXISTS`,
      );
      await query(
        address,
        `INSERT INTO KEYSPACE.schema_version (part, number, name) VALUES ('ebbmark', ${number}, 'x') IF NOT EXISTS`,
      );
    };
    await record(first, latestSchema());
    const warned: object[] = [];
    const log = { info: () => {}, warn: (fields: object) => warned.push(fields) };
    expect(await (await open({ address, log })).readTopic('t')).toBeNull();
    expect(warned).toContainEqual(expect.objectContaining({ schema: first, known: latestSchema() }));
    expect(await (await open({ address, migrate: false })).readTopic('t')).toBeNull();
    expect(await migrateCassandraStore({ address })).toEqual({ from: first, to: first, applied: [] });
    // One that only those may share who know the file before it.
    await record(second, first);
    await expect(open({ address })).rejects.toThrow('cannot be shared with this one');
  });

  it('records who may work beside each file', async () => {
    const address = database.newAddress();
    await open({ address });
    const rows = await query(address, "SELECT number, name FROM KEYSPACE.schema_version WHERE part = 'ebbmark-beside'");
    expect(rows.map(({ number, name }) => [number, name])).toEqual(
      files()
        .filter(({ number }) => number > 0)
        .map((step) => [step.number, String(besideOf(step))]),
    );
  });

  it('is not made where that is off', async () => {
    const address = database.newAddress();
    await expect(open({ address, migrate: false })).rejects.toThrow(/migrations are off.*ebbmark migrate/);
    await open({ address });
    expect(await (await open({ address, migrate: false })).readTopic('t')).toBeNull();
  });

  it('takes no more copies than there are nodes', async () => {
    const address = database.newAddress('replication=99');
    await expect(open({ address })).rejects.toThrow(/99 is not at most the number of nodes/);
  });

  it('refuses a server at another level of consistency', async () => {
    const address = database.newAddress();
    await open({ address });
    await expect(open({ address: `${address}?consistency=global` })).rejects.toThrow(/all servers must use the same/);
  });

  it('says which datacenters there are, where the one that is named is not', async () => {
    await expect(open({ address: database.newAddress('dc=elsewhere') })).rejects.toThrow(
      /"elsewhere" is not one of the datacenters/,
    );
  });

  it('is damaged where a number is missing', async () => {
    const address = database.newAddress();
    await open({ address });
    await query(address, "DELETE FROM KEYSPACE.meta WHERE name = 'slotMs' IF EXISTS");
    await expect(open({ address })).rejects.toMatchObject({ name: 'StoreDamagedError' });
  });
});
