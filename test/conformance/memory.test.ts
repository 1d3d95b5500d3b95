/** The store of the simulator, and of `ebbmark/testing`. */

import { MemoryStore } from '../../src/store/memory/store.ts';
import { Tables } from '../../src/store/memory/tables.ts';
import type { StoreMeta } from '../../src/store/store.ts';
import { storeConformance } from './store.ts';

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
