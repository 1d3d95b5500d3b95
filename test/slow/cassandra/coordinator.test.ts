/**
 * Every write of a partition goes to one node, the same for all servers, and to the next replica when that is down. Seen
 * in the coordinator that the driver names with each answer; on three nodes where they can be started, else on one.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import cassandra from 'cassandra-driver';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { messageIdKey } from '../../../src/core/message.ts';
import { openCassandraStore } from '../../../src/store/cassandra/store.ts';
import type { Store } from '../../../src/store/store.ts';
import { append, claims, definite, doneSet, entry, leaseSet, range, settlements } from '../../conformance/harness.ts';
import { databaseAt, type TestDatabase, testDatabase } from '../../support/cassandra/database.ts';
import { jarsFault } from '../../support/cassandra/jars.ts';
import { type CassandraNode, startCluster } from '../../support/cassandra/node.ts';

const hasNodes = (await jarsFault()) === null;
const single = hasNodes ? null : await testDatabase();

describe.skipIf(!hasNodes && single === null)('the coordinator of a partition', () => {
  let directory: string | null = null;
  let nodes: readonly CassandraNode[] = [];
  let database: TestDatabase;
  let address: string;
  const stores: Store[] = [];
  beforeAll(async () => {
    if (hasNodes) {
      directory = await mkdtemp(join(tmpdir(), 'ebbmark-three-'));
      const cluster = await startCluster(directory, 3);
      nodes = cluster.nodes;
      database = databaseAt(cluster.options.map((node) => `${node.address}:${node.cqlPort}`).join(','));
    } else database = single!;
    address = database.newAddress();
    for (let i = 0; i < 2; i++) stores.push(await openCassandraStore({ address }));
  }, 600_000);
  afterEach(() => {
    vi.restoreAllMocks();
  });
  afterAll(async () => {
    await Promise.all(stores.map((store) => store.close()));
    if (nodes.length === 0) await database?.drop(address);
    await Promise.all(nodes.map((node) => node.stop()));
    if (directory !== null) await rm(directory, { recursive: true });
  });

  /** The coordinators that answered while `act` ran; measurements of the clock, which ask every node, aside. */
  async function coordinatorsOf(act: () => Promise<unknown>): Promise<readonly string[]> {
    const asked: string[] = [];
    const { execute, batch } = cassandra.Client.prototype;
    const spied = (original: typeof execute | typeof batch) =>
      async function (this: cassandra.Client, ...args: unknown[]): Promise<cassandra.types.ResultSet> {
        const sent = Reflect.apply(original, this, args) as Promise<cassandra.types.ResultSet>;
        const result = await sent;
        if (!String(args[0]).includes('FROM system.local')) asked.push(result.info.queriedHost);
        return result;
      };
    vi.spyOn(cassandra.Client.prototype, 'execute').mockImplementation(spied(execute) as typeof execute);
    vi.spyOn(cassandra.Client.prototype, 'batch').mockImplementation(spied(batch) as typeof batch);
    await act();
    vi.restoreAllMocks();
    return asked;
  }

  /** Everything that is done to a segment, by both servers in turn. */
  const life = (topic: string) => async (): Promise<void> => {
    const log = { topic, tier: 5 };
    for (let i = 0; i < 4; i++) {
      const store = stores[i % 2]!;
      const first = await append(
        store,
        log,
        range(i * 3, i * 3 + 3).map((n) => entry(n)),
      );
      const ids = range(first, first + 3);
      await definite(() => store.change({ log, segment: 0, changes: claims(ids, leaseSet(`L${i}`)) }));
      await definite(() => store.change({ log, segment: 0, changes: settlements(ids, `L${i}`, doneSet()) }));
      await definite(() => store.trim(log, 0, first, first + 3));
    }
  };

  it('is one for all that is done to a segment, by all servers', async () => {
    const used = new Set<string>();
    for (let i = 0; i < 12; i++) {
      const asked = await coordinatorsOf(life(`topic ${i}`));
      expect(asked.length).toBeGreaterThan(16);
      expect(new Set(asked).size, `coordinators of topic ${i}`).toBe(1);
      used.add(asked[0]!);
    }
    // And not one for everything: partitions are spread over the nodes.
    if (nodes.length === 3) expect(used.size).toBe(3);
  });

  it('is one for the message rows of a bucket', async () => {
    for (let bucket = 0; bucket < 4; bucket++) {
      const asked = await coordinatorsOf(async () => {
        for (let i = 0; i < 6; i++) {
          const store = stores[i % 2]!;
          const key = messageIdKey(`id-${i}`);
          const place = { topic: 'm', tier: 5, id: i };
          const row = { key, uid: `u${i}`, place, hops: 0, status: 'live', enqueuedAt: 1, settledAt: null } as const;
          await definite(() => store.writeMessages('m', bucket, [{ expect: { absent: true }, row, ttlMs: null }], 1));
        }
      });
      expect(new Set(asked).size).toBe(1);
    }
  });

  it('is the next replica while the first is down, and the first again when it is back', async ({ skip }) => {
    if (nodes.length < 3) skip('this takes three nodes');
    const [usual] = await coordinatorsOf(life('failing over'));
    const node = nodes.find((one) => usual!.startsWith(`${one.address}:`))!;
    node.kill('SIGSTOP');
    try {
      const log = { topic: 'failing over', tier: 5 };
      const outcomes: string[] = [];
      // The first tries find out: they are left without an answer, and are not known to have failed.
      const asked = await coordinatorsOf(async () => {
        for (let i = 0; i < 3; i++) {
          const header = await stores[0]!.readSegment(log, 0);
          const next = { log, segment: 0, expectNext: header!.nextId, firstId: header!.nextId, bytes: 1, seal: false };
          const outcome = await definite(() => stores[0]!.append({ ...next, entries: [entry(`paused ${i}`)] }));
          outcomes.push(outcome.kind);
        }
      });
      expect(outcomes.filter((kind) => kind === 'applied').length).toBeGreaterThanOrEqual(2);
      expect(asked).not.toContain(usual);
      expect(new Set(asked).size).toBe(1);
    } finally {
      node.kill('SIGCONT');
    }
    await expect
      .poll(
        async () => (await coordinatorsOf(() => stores[0]!.readSegment({ topic: 'failing over', tier: 5 }, 0)))[0],
        {
          timeout: 60_000,
          interval: 500,
        },
      )
      .toBe(usual);
  });
});
