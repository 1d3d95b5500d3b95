/** What lies on the disk: no row that outlives its time, no tombstone that need not be, nothing large in the way. */
import type cassandra from 'cassandra-driver';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FINAL_VERSION } from '../../../src/core/entry.ts';
import { bucketOf, type MessageRow } from '../../../src/core/message.ts';
import { INLINE_BYTES } from '../../../src/store/cassandra/entries.ts';
import { openCassandraStore } from '../../../src/store/cassandra/store.ts';
import type { Store } from '../../../src/store/store.ts';
import {
  append,
  claims,
  definite,
  doneSet,
  entry,
  leaseSet,
  range,
  readAll,
  settlements,
  uniqueLog,
} from '../../conformance/harness.ts';
import { keyspaceOf, testDatabase } from '../../support/cassandra/database.ts';

const database = await testDatabase();

describe.skipIf(database === null)('rows on Cassandra', () => {
  let store: Store;
  let client: cassandra.Client;
  let address: string;
  beforeAll(async () => {
    address = database!.newAddress();
    store = await openCassandraStore({ address, meta: { segmentSize: 250 } });
    client = await database!.connect();
  });
  afterAll(async () => {
    await client?.shutdown();
    await store?.close();
    await database?.drop(address);
  });
  const select = async (cql: string, ...params: unknown[]) =>
    (await client.execute(cql.replace('KEYSPACE', keyspaceOf(address)), params, { prepare: true })).rows;
  const rowsOf = (topic: string) =>
    select('SELECT id, payload, payload_bytes FROM KEYSPACE.task WHERE topic = ? ALLOW FILTERING', topic);

  it('keep small payloads in the entry and large ones apart, text and bytes', async () => {
    const log = uniqueLog('apart');
    const small = JSON.stringify('s'.repeat(INLINE_BYTES - 2));
    const large = JSON.stringify('l'.repeat(INLINE_BYTES - 1));
    const bytes = new Uint8Array(INLINE_BYTES + 1).fill(7);
    await append(
      store,
      log,
      [small, large, bytes].map((payload, i) => entry(i, { payload })),
    );
    const rows = await rowsOf(log.topic);
    expect(rows.map((row) => Number(row.id)).sort((a, b) => a - b)).toEqual([-4, -3, -1, 0, 1, 2]);
    const inRow = rows.filter((row) => row.payload !== null || row.payload_bytes !== null).map((row) => Number(row.id));
    expect(inRow.sort((a, b) => a - b)).toEqual([-4, -3, 0]);
    expect((await readAll(store, log)).map(({ payload }) => payload)).toEqual([small, large, bytes]);
    const page = await store.readEntries({ log, from: 1, to: 250, limit: 1 });
    expect(page.map(({ id, payload }) => [id, payload === large])).toEqual([[1, true]]);
  });

  it('are trimmed with the payloads that stand apart, and with no others', async () => {
    const log = uniqueLog('trim-apart');
    const payload = JSON.stringify('x'.repeat(INLINE_BYTES));
    await append(
      store,
      log,
      range(0, 6).map((i) => entry(i, { payload })),
    );
    expect(await definite(() => store.trim(log, 0, 0, 2))).toEqual({ kind: 'applied' });
    expect(await definite(() => store.trim(log, 0, 4, 5))).toEqual({ kind: 'applied' });
    const rows = await rowsOf(log.topic);
    expect(rows.map((row) => Number(row.id)).sort((a, b) => a - b)).toEqual([-7, -5, -4, -1, 2, 3, 5]);
    expect((await readAll(store, log)).map(({ id }) => id)).toEqual([2, 3, 5]);
  });

  it('are settled in one batch, however large their payloads are', async () => {
    const log = uniqueLog('heavy');
    const payload = JSON.stringify('x'.repeat(256 * 1024 - 2));
    for (let at = 0; at < 80; at += 4)
      await append(
        store,
        log,
        range(at, at + 4).map((i) => entry(i, { payload })),
      );
    const ids = range(0, 80);
    const change = (changes: ReturnType<typeof claims>) => definite(() => store.change({ log, segment: 0, changes }));
    expect(await change(claims(ids, leaseSet('L')))).toEqual({ kind: 'applied' });
    expect(await change(settlements(ids, 'L', doneSet()))).toEqual({ kind: 'applied' });
  });

  it('have no tombstones after an enqueue, a claim without a worker and a settlement', async () => {
    const log = uniqueLog('tombstones');
    await append(
      store,
      log,
      range(0, 200).map((i) => entry(i)),
    );
    const ids = range(0, 200);
    await definite(() => store.change({ log, segment: 0, changes: claims(ids, leaseSet('L', { worker: null })) }));
    const done = { status: 'done', version: FINAL_VERSION, updatedAt: 5 } as const;
    await definite(() => store.change({ log, segment: 0, changes: settlements(ids, 'L', done) }));
    expect(await tombstonesRead(log.topic)).toBe(0);
  });

  /** Tombstones that a read of a segment meets, from the read's own trace. */
  async function tombstonesRead(topic: string): Promise<number> {
    const cql = `SELECT * FROM ${keyspaceOf(address)}.task WHERE topic = ? AND tier = ? AND segment = ?`;
    const { info } = await client.execute(cql, [topic, 5, 0], { prepare: true, traceQuery: true });
    for (;;) {
      const session = 'SELECT duration FROM system_traces.sessions WHERE session_id = ?';
      if ((await client.execute(session, [info.traceId], { prepare: true })).rows[0]?.duration) break;
    }
    const events = 'SELECT activity FROM system_traces.events WHERE session_id = ?';
    const { rows } = await client.execute(events, [info.traceId], { prepare: true });
    const counts = rows.flatMap(({ activity }) => /and (\d+) tombstone cells/.exec(activity)?.[1] ?? []);
    expect(counts.length).toBeGreaterThan(0);
    return Math.max(...counts.map(Number));
  }

  describe('message rows', () => {
    const topic = 'messages';
    const row = (key: string, changed: Partial<MessageRow> = {}): MessageRow => ({
      key,
      uid: `uid of ${key}`,
      place: { topic, tier: 5, id: 1 },
      hops: 0,
      status: 'live',
      enqueuedAt: 1,
      settledAt: null,
      ...changed,
    });
    const write = async (row: MessageRow, expect: { uid: string } | { absent: true }, ttlMs: number | null) => {
      const now = store.now();
      const bucket = bucketOf(row.key, store.meta.messageBuckets);
      return definite(() => store.writeMessages(topic, bucket, [{ row, expect, ttlMs }], now));
    };
    const timesToLive = async (key: string) => {
      const bucket = bucketOf(key, store.meta.messageBuckets);
      const columns = ['uid', 'place', 'hops', 'status', 'enqueued_at', 'settled_at'].map((name) => `ttl(${name})`);
      const cql = `SELECT ${columns.join(', ')} FROM KEYSPACE.message WHERE topic = ? AND bucket = ? AND key = ?`;
      const [found] = await select(cql, topic, bucket, key);
      return found === undefined ? null : columns.map((column) => found[column] as number | null);
    };

    it('go as a whole when their time is over, and are absent then', async () => {
      await write(row('ma'), { absent: true }, null);
      const done = row('ma', { status: 'done', settledAt: 2 });
      expect(await write(done, { uid: done.uid }, 1_000)).toEqual({ kind: 'applied' });
      await expect.poll(() => store.readMessages(topic, ['ma'], true), { timeout: 10_000 }).toEqual(new Map());
      expect(await timesToLive('ma')).toBeNull();
      const next = row('ma', { uid: 'next' });
      expect(await write(next, { absent: true }, null)).toEqual({ kind: 'applied' });
      expect((await store.readMessages(topic, ['ma'], true)).get('ma')).toEqual(next);
    });

    it('that go live again have no time to live in any column', async () => {
      const done = row('mb', { status: 'done', settledAt: 2 });
      await write(done, { absent: true }, 60_000);
      const ttls = await timesToLive('mb');
      for (const ttl of ttls!) expect(ttl).toBeGreaterThan(50);
      await write(row('mb', { uid: 'again' }), { uid: done.uid }, null);
      expect(await timesToLive('mb')).toEqual([null, null, null, null, null, null]);
      expect((await store.readMessages(topic, ['mb'])).get('mb')).toEqual(row('mb', { uid: 'again' }));
    });

    it('stay for good where Cassandra cannot count to their end', async () => {
      await write(row('mc', { status: 'done', settledAt: 2 }), { absent: true }, 30 * 365 * 86_400_000);
      expect(await timesToLive('mc')).toEqual([null, null, null, null, null, null]);
    });
  });
});
