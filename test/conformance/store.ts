/**
 * What every store must do, whatever database it is on. Nothing here knows which: a store's own test file is only a
 * factory. One store serves all tests, and it need not be empty: each test uses topics and shards of its own.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import { changeConformance } from './changes.ts';
import { appendConformance, trimConformance } from './entries.ts';
import {
  append,
  claims,
  definite,
  entry,
  fullEntry,
  leaseSet,
  type Opened,
  type OpenStore,
  readAll,
  SEGMENT,
  type StoreCapabilities,
  uniqueLog,
  uniqueShard,
} from './harness.ts';
import { apiKey, keyConformance } from './keys.ts';
import { messageConformance } from './messages.ts';
import {
  activityConformance,
  checkpointConformance,
  nodeConformance,
  shardConformance,
  topicConformance,
} from './registers.ts';

import { scanConformance } from './scans.ts';
import { schedule, scheduleConformance } from './schedules.ts';

export type { OpenStore, StoreCapabilities } from './harness.ts';

export function storeConformance(name: string, openStore: OpenStore, capabilities: StoreCapabilities = {}): void {
  describe(`store conformance: ${name}`, () => {
    let opened: Opened;
    beforeAll(async () => {
      opened = await openStore({ segmentSize: SEGMENT, slotMs: 500 });
    });
    afterAll(() => opened?.dispose());
    const store = (): Store => opened.store;

    describe('the store itself', () => {
      it('says what it is and what was fixed', () => {
        expect(store().description).toMatch(/\S/);
        expect(store().meta).toMatchObject({ segmentSize: SEGMENT, slotMs: 500 });
        expect(store().meta.shards).toBeGreaterThanOrEqual(1);
        expect(store().meta.messageBuckets).toBeGreaterThanOrEqual(1);
      });

      it('can be reached, and has a clock', async () => {
        await store().ping();
        const [first, second] = [store().now(), store().now()];
        expect(Number.isSafeInteger(first)).toBe(true);
        expect(second).toBeGreaterThanOrEqual(first);
      });
    });

    appendConformance(store);
    changeConformance(store);
    trimConformance(store);
    checkpointConformance(store);
    messageConformance(store);
    topicConformance(store);
    activityConformance(store);
    shardConformance(store);
    nodeConformance(store);
    scheduleConformance(store);
    keyConformance(store);
    scanConformance(store);
    reopenConformance(openStore, capabilities);
  });
}

function reopenConformance(openStore: OpenStore, { noReopen }: StoreCapabilities): void {
  describe.skipIf(noReopen !== undefined)(`reopening${noReopen === undefined ? '' : ` (not: ${noReopen})`}`, () => {
    it('keeps everything, and what was fixed at creation', async () => {
      const opened = await openStore({ segmentSize: 77, slotMs: 125 });
      try {
        const log = uniqueLog('reopen');
        const shard = uniqueShard();
        const { store } = opened;
        await append(store, log, [entry(0), fullEntry('full'), entry(2, { payload: new Uint8Array([1, 2]) })]);
        const scan = { from: 0, to: 1, seenTerm: 0, term: 6 };
        const claim = { log, segment: 0, changes: claims([0], leaseSet('L')), scan };
        expect(await definite(() => store.change(claim))).toEqual({ kind: 'applied' });
        await store.advanceCheckpoint(log, { scan: 3, completion: 2, trimmed: 1 }, 1);
        const key = 'ma 🐌';
        const place = { ...log, id: 0 };
        const row = { key, uid: 'u', place, hops: 0, status: 'live', enqueuedAt: 1, settledAt: null } as const;
        const writes = [{ expect: { absent: true }, row, ttlMs: null }] as const;
        const now = store.now();
        expect(await definite(() => store.writeMessages(log.topic, 0, writes, now))).toEqual({ kind: 'applied' });
        await definite(() => store.writeTopic(log.topic, null, '{"a":1}'));
        await store.recordActivity(shard, 3, [{ ...log, at: 8 }]);
        const shardRow = { holder: 'h', term: 1, version: 1, period: 3, oldestPeriod: 3 };
        await definite(() => store.writeShards([{ shard, expect: null, row: shardRow }]));
        const { name, state, definition } = schedule('kept');
        await definite(() => store.writeSchedule(shard, { name, expect: null, state, definition }));
        await definite(() => store.writeKeys({ expect: 0, put: apiKey(), drop: [] }));

        const everything = async (from: Store) => ({
          meta: from.meta,
          header: await from.readSegment(log, 0, true),
          entries: await readAll(from, log),
          checkpoints: await from.readCheckpoints(log.topic),
          messages: await from.readMessages(log.topic, [key]),
          topic: await from.readTopic(log.topic),
          activity: await from.readActivity(shard, 3, null, 10),
          shard: (await from.readShards()).get(shard),
          schedule: await from.readSchedule(shard, name),
          keys: await from.readKeys(),
        });
        const before = await everything(store);
        expect(before.meta).toMatchObject({ segmentSize: 77, slotMs: 125 });
        expect(before.entries).toHaveLength(3);
        expect(before.keys).toMatchObject({ version: 1, keys: [{ roles: ['produce', 'admin'] }] });
        expect(await everything(await opened.reopen())).toEqual(before);
      } finally {
        await opened.dispose();
      }
    });

    it('finishes what was begun when it closes, and closes once', async () => {
      const opened = await openStore();
      try {
        const log = uniqueLog('close');
        const { store } = opened;
        const first = { log, segment: 0, expectNext: null, firstId: 0, entries: [entry(0)], bytes: 1, seal: false };
        const outcome = store.append(first);
        await Promise.all([store.close(), store.close()]);
        expect(await outcome).toEqual({ kind: 'applied' });
        await store.close();
        await expect(store.readSegment(log, 0)).rejects.toMatchObject({ name: 'StoreUnavailableError' });
        await expect(store.append(first)).rejects.toMatchObject({ name: 'StoreUnavailableError' });
        expect(await readAll(await opened.reopen(), log)).toHaveLength(1);
      } finally {
        await opened.dispose();
      }
    });
  });
}
