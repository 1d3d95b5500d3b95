import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import type { StoreMeta } from '../../src/store/store.ts';
import { storeConformance } from './store.ts';

storeConformance('SQLite, a file', async (meta: Partial<StoreMeta> = {}) => {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-conformance-'));
  const path = join(directory, 'store.db');
  let store = await openSqliteStore(path, { meta });
  return {
    store,
    reopen: async () => {
      await store.close();
      store = await openSqliteStore(path);
      return store;
    },
    dispose: async () => {
      await store.close();
      await rm(directory, { recursive: true });
    },
  };
});

storeConformance(
  'SQLite, in memory',
  async (meta: Partial<StoreMeta> = {}) => {
    const store = await openSqliteStore(':memory:', { meta });
    return { store, reopen: async () => store, dispose: () => store.close() };
  },
  { noReopen: 'what is in memory goes with the process' },
);
