import { describe, expect, it } from 'vitest';
import type { MessageRow } from '../../src/core/message.ts';
import { bucketOf } from '../../src/core/message.ts';
import type { Page, Store } from '../../src/store/store.ts';
import { append, definite, entry, range, type StoreUnderTest, uniqueLog, uniqueShard, uniqueTopic } from './harness.ts';

/** All rows of a table that are of one topic, whatever else is in the store. */
async function scan<T extends { readonly topic: string }>(
  topic: string,
  page: (after: string | null, limit: number) => Promise<Page<T>>,
  limit: number,
): Promise<T[]> {
  const found: T[] = [];
  let after: string | null = null;
  do {
    const { rows, next }: Page<T> = await page(after, limit);
    expect(rows.length).toBeLessThanOrEqual(limit);
    found.push(...rows.filter((row) => row.topic === topic));
    after = next;
  } while (after !== null);
  return found;
}

const LIMITS = [7, 1_000] as const;

export function scanConformance(store: StoreUnderTest): void {
  describe('whole tables, page by page', () => {
    it.each(LIMITS)('tells every segment once, by pages of %i', async (limit) => {
      const { topic } = uniqueLog('scan-segments 🐌');
      const logs = [0, 3, 1_000_000_000_000].map((tier) => ({ topic, tier }));
      for (const log of logs) await append(store(), log, [entry(0), entry(1)]);
      for (const segment of [1, 2]) await append(store(), logs[0]!, [entry(0)], { segment });
      await append(store(), logs[1]!, [entry(2)]);
      await store().trim(logs[2]!, 0, 0, 2);
      const found = await scan(topic, (after, most) => store().scanSegments(after, most), limit);
      const names = found.map(({ tier, segment }) => `${tier}/${segment}`).sort();
      expect(names).toEqual(['0/0', '0/1', '0/2', '1000000000000/0', '3/0']);
    });

    it('leaves out a segment of which nothing is left', async () => {
      const log = uniqueLog('scan-dropped');
      await append(store(), log, [entry(0)]);
      await store().trim(log, 0, 0, 1);
      await definite(() => store().dropSegment(log, 0, 1));
      expect(await scan(log.topic, (after, most) => store().scanSegments(after, most), 1_000)).toEqual([]);
    });

    it.each(LIMITS)('tells every checkpoint once, by pages of %i', async (limit) => {
      const topic = uniqueTopic('scan-checkpoints');
      const marks = range(0, 3).map((tier) => ({
        topic,
        tier,
        checkpoint: { scan: 9, completion: 5 + tier, trimmed: 1 },
      }));
      for (const { tier, checkpoint } of marks) await store().advanceCheckpoint({ topic, tier }, checkpoint, 1);
      const found = await scan(topic, (after, most) => store().scanCheckpoints(after, most), limit);
      expect(found.sort((a, b) => a.tier - b.tier)).toEqual(marks);
    });

    it.each(LIMITS)('tells every message row once and when it goes, by pages of %i', async (limit) => {
      const topic = uniqueTopic('scan-messages');
      const rows = range(0, 10).map((n) => messageRow(topic, n));
      for (const row of rows) await write(store(), topic, row, row.status === 'live' ? null : 3_600_000);
      const found = await scan(topic, (after, most) => store().scanMessages(after, most), limit);
      found.sort((a, b) => (a.row.key < b.row.key ? -1 : 1));
      expect(found.map(({ row }) => row)).toEqual(rows);
      const now = store().now();
      for (const { row, expiresAt } of found) {
        if (row.status === 'live') expect(expiresAt).toBeNull();
        else expect(Math.abs(expiresAt! - now - 3_600_000)).toBeLessThan(60_000);
      }
    });

    it.each(LIMITS)('tells every settings row once, by pages of %i', async (limit) => {
      const topics = range(0, 3).map((n) => uniqueTopic(`scan-topics-${n}`));
      for (const topic of topics) await definite(() => store().writeTopic(topic, null, '{"paused":true}'));
      for (const topic of topics) {
        const found = await scan(topic, (after, most) => store().scanTopics(after, most), limit);
        expect(found).toEqual([{ topic, settings: '{"paused":true}', version: 1 }]);
      }
    });

    it('tells the periods that have rows', async () => {
      const [one, other] = [uniqueShard(), uniqueShard()];
      expect(await store().listPeriods(one)).toEqual([]);
      const rows = range(0, 3).map((n) => ({ topic: `t${n}`, tier: n, at: n }));
      for (const period of [3, 4, 9]) await store().recordActivity(one, period, rows);
      await store().recordActivity(other, 5, rows);
      await store().dropPeriod(one, 4);
      expect([...(await store().listPeriods(one))].sort()).toEqual([3, 9]);
      expect(await store().listPeriods(other)).toEqual([5]);
    });
  });
}

const messageRow = (topic: string, n: number): MessageRow => ({
  key: `mscan ${n}`,
  uid: `u${n}`,
  place: n % 2 === 0 ? { topic, tier: 3, id: n } : { topic: 'elsewhere', tier: 4, id: n },
  hops: n,
  status: n < 5 ? 'live' : 'done',
  enqueuedAt: 1,
  settledAt: n < 5 ? null : 2,
});

async function write(store: Store, topic: string, row: MessageRow, ttlMs: number | null): Promise<void> {
  const bucket = bucketOf(row.key, store.meta.messageBuckets);
  const writes = [{ expect: { absent: true }, row, ttlMs } as const];
  await definite(() => store.writeMessages(topic, bucket, writes, store.now()));
}
