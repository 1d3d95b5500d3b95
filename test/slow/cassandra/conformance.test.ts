import { describe } from 'vitest';
import { openCassandraStore } from '../../../src/store/cassandra/store.ts';
import type { StoreMeta } from '../../../src/store/store.ts';
import { storeConformance } from '../../conformance/store.ts';
import { testDatabase } from '../../support/cassandra/database.ts';

const database = await testDatabase();

describe.skipIf(database === null)('Cassandra', () => {
  storeConformance('Cassandra', async (meta: Partial<StoreMeta> = {}) => {
    const address = database!.newAddress();
    let store = await openCassandraStore({ address, meta });
    return {
      store,
      reopen: async () => {
        await store.close();
        store = await openCassandraStore({ address });
        return store;
      },
      dispose: async () => {
        await store.close();
        await database!.drop(address);
      },
    };
  });
});
