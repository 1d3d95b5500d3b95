/** The simulator's store is held to what every store is held to. */
import type { StoreMeta } from '../../src/store/store.ts';
import { storeConformance } from '../conformance/store.ts';
import { MemoryStore } from './memory-store.ts';
import { Tables } from './tables.ts';

const META: StoreMeta = { segmentSize: 1_000, shards: 2, messageBuckets: 4, slotMs: 250 };

storeConformance('memory', async (meta: Partial<StoreMeta> = {}) => {
  const tables = new Tables({ ...META, ...meta }, Date.now);
  let store = new MemoryStore(tables);
  return {
    store,
    reopen: async () => {
      await store.close();
      store = new MemoryStore(tables);
      return store;
    },
    dispose: () => store.close(),
  };
});
