/** The audit on a keyspace that a queue works on: it finds nothing there, but what was damaged, and mends that. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { auditStore } from '../../../src/audit/audit.ts';
import { openQueue, type Queue } from '../../../src/index.ts';
import { openCassandraStore } from '../../../src/store/cassandra/store.ts';
import type { Store } from '../../../src/store/store.ts';
import { testDatabase } from '../../support/cassandra/database.ts';

const database = await testDatabase();

describe.skipIf(database === null)('an audit on Cassandra', () => {
  let address: string;
  let queue: Queue;
  let store: Store;
  beforeAll(async () => {
    address = database!.newAddress('replication=1');
    queue = await openQueue({ store: address });
    store = await openCassandraStore({ address });
  });
  afterAll(async () => {
    await queue?.stop();
    await store?.close();
    await database?.drop(address);
  });

  it('finds nothing while tasks come and go', async () => {
    let busy = true;
    const work = async (topic: string): Promise<void> => {
      for (let round = 0; busy; round++) {
        const named = Array.from({ length: 10 }, (_, nth) => ({ payload: nth, messageId: `${round}-${nth}` }));
        await queue.enqueue(topic, [...named, { payload: 'large'.repeat(1_000) }, { payload: 1, delayMs: 500 }]);
        const tasks = await queue.lease({ topics: [topic], max: 12 });
        const leases = tasks.map(({ leaseId }) => ({ leaseId }));
        await queue.settle({ ack: leases.slice(0, 8), nack: leases.slice(8), release: [] });
      }
    };
    const works = ['a', 'b', 'c'].map(work);
    try {
      for (let times = 0; times < 3; times++) expect((await auditStore(store)).rules).toEqual([]);
    } finally {
      busy = false;
      await Promise.all(works);
    }
    const report = await auditStore(store);
    expect(report).toMatchObject({ found: 0, entries: expect.any(Number) });
    expect(report.entries).toBeGreaterThan(30);
    expect(report.messages).toBeGreaterThan(30);
  });

  it('finds what nobody would find, and a repair lets the holder deliver it', async () => {
    const log = { topic: 'damaged', tier: 5 };
    const [given] = await queue.enqueue('a', [{ payload: 'from' }]);
    expect(given!.id).not.toBeNull();
    const [model] = await store.readEntries({ log: { topic: 'a', tier: 5 }, from: 0, to: 1, limit: 1 });
    const entry = { ...model!, uid: '01ARZ3NDEKTSV4RRFFQ69G5FAV', status: 'ready' as const, messageId: null, hops: 0 };
    const fresh = { ...entry, origin: null, originVersion: null, attempt: 0, history: null, payload: '"lost"' };
    const append = { log, segment: 0, expectNext: null, firstId: 0, entries: [fresh], bytes: 1, seal: false };
    expect(await store.append(append)).toEqual({ kind: 'applied' });
    const looks = { looksAfterMs: [200, 200] };
    const found = await auditStore(store, looks);
    expect(found.rules.map(({ rule, found }) => [rule, found])).toEqual([['unrecorded-log', 1]]);
    const repaired = await auditStore(store, { ...looks, repair: true });
    expect(repaired).toMatchObject({ found: 1, mended: 1 });
    const [task] = await queue.lease({ topics: ['damaged'], waitMs: 10_000 });
    expect(task).toMatchObject({ payload: 'lost' });
    await queue.settle({ ack: [{ leaseId: task!.leaseId }] });
    expect((await auditStore(store, looks)).rules).toEqual([]);
  });
});
