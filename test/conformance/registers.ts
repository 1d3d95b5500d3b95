import { describe, expect, it } from 'vitest';
import type { ActivityRow, NodeRow, ShardRow } from '../../src/store/store.ts';
import { definite, range, type StoreUnderTest, uniqueLog, uniqueShard, uniqueTopic } from './harness.ts';

const APPLIED = { kind: 'applied' };
const CONFLICT = { kind: 'conflict' };

export function checkpointConformance(store: StoreUnderTest): void {
  describe('checkpoints', () => {
    it('are none at first', async () => {
      expect(await store().readCheckpoints(uniqueTopic('none'))).toEqual(new Map());
    });

    it('are read for all tiers of a topic', async () => {
      const topic = uniqueTopic('tiers');
      const marks = new Map([0, 5, 10].map((tier) => [tier, { scan: tier + 9, completion: tier, trimmed: 0 }]));
      for (const [tier, checkpoint] of marks) await store().advanceCheckpoint({ topic, tier }, checkpoint, 1);
      const read = await store().readCheckpoints(topic);
      expect(new Map([...read].sort(([a], [b]) => a - b))).toEqual(marks);
    });

    it('never fall, each mark on its own', async () => {
      const log = uniqueLog('marks');
      const advance = async (scan: number, completion: number, trimmed: number) => {
        await store().advanceCheckpoint(log, { scan, completion, trimmed }, 1);
        const mark = (await store().readCheckpoints(log.topic)).get(log.tier)!;
        return [mark.scan, mark.completion, mark.trimmed];
      };
      expect(await advance(10, 5, 2)).toEqual([10, 5, 2]);
      expect(await advance(10, 5, 2)).toEqual([10, 5, 2]);
      expect(await advance(9, 4, 1)).toEqual([10, 5, 2]);
      expect(await advance(12, 4, 1)).toEqual([12, 5, 2]);
      expect(await advance(3, 8, 1)).toEqual([12, 8, 2]);
      expect(await advance(3, 1, 7)).toEqual([12, 8, 7]);
      expect(await advance(20, 19, 18)).toEqual([20, 19, 18]);
    });

    it('stand at the highest of many at once', async () => {
      const log = uniqueLog('at-once');
      await Promise.all(
        range(0, 20).map((i) => store().advanceCheckpoint(log, { scan: i + 1, completion: 20 - i, trimmed: i % 7 }, i)),
      );
      expect((await store().readCheckpoints(log.topic)).get(log.tier)).toEqual({
        scan: 20,
        completion: 20,
        trimmed: 6,
      });
    });
  });
}

export function topicConformance(store: StoreUnderTest): void {
  describe('topics', () => {
    it('are written under the version that was read', async () => {
      const topic = uniqueTopic('settings 🐌');
      expect(await store().readTopic(topic)).toBeNull();
      expect(await definite(() => store().writeTopic(topic, null, '{"a":"\\u0000🐌"}'))).toEqual(APPLIED);
      expect(await store().readTopic(topic)).toEqual({ settings: '{"a":"\\u0000🐌"}', version: 1 });
      expect(await definite(() => store().writeTopic(topic, 1, '{"a":2}'))).toEqual(APPLIED);
      expect(await store().readTopic(topic)).toEqual({ settings: '{"a":2}', version: 2 });
    });

    it('conflict under any other version', async () => {
      const topic = uniqueTopic('settings');
      expect(await store().writeTopic(topic, 1, '{}')).toEqual(CONFLICT);
      expect(await store().readTopic(topic)).toBeNull();
      await definite(() => store().writeTopic(topic, null, '{"a":1}'));
      await definite(() => store().writeTopic(topic, 1, '{"a":2}'));
      for (const version of [null, 1, 3]) expect(await store().writeTopic(topic, version, '{}')).toEqual(CONFLICT);
      expect(await store().readTopic(topic)).toEqual({ settings: '{"a":2}', version: 2 });
    });
  });
}

export function shardConformance(store: StoreUnderTest): void {
  const row = (changed: Partial<ShardRow> = {}): ShardRow => ({
    holder: 'one',
    term: 1,
    version: 1,
    period: 4,
    oldestPeriod: 2,
    ...changed,
  });
  const read = async (shard: number, serial?: boolean) => (await store().readShards(serial)).get(shard);
  const write = (shard: number, expect: number | null, next: ShardRow) =>
    definite(() => store().writeShards([{ shard, expect, row: next }]));

  describe('shards', () => {
    it('are written under the version that was read', async () => {
      const shard = uniqueShard();
      expect(await read(shard)).toBeUndefined();
      expect(await write(shard, null, row())).toEqual(APPLIED);
      expect(await read(shard)).toEqual(row());
      const next = row({ holder: null, term: 2, version: 2, period: 5, oldestPeriod: 3 });
      expect(await write(shard, 1, next)).toEqual(APPLIED);
      expect(await read(shard, true)).toEqual(next);
    });

    it('conflict under any other version', async () => {
      const shard = uniqueShard();
      expect(await store().writeShards([{ shard, expect: 1, row: row({ version: 2 }) }])).toEqual(CONFLICT);
      expect(await read(shard, true)).toBeUndefined();
      await write(shard, null, row());
      await write(shard, 1, row({ version: 2 }));
      for (const expectVersion of [null, 1, 3]) {
        const late = row({ holder: 'late', version: (expectVersion ?? 0) + 1 });
        expect(await store().writeShards([{ shard, expect: expectVersion, row: late }])).toEqual(CONFLICT);
      }
      expect(await read(shard, true)).toEqual(row({ version: 2 }));
    });

    it('are written several at once, all or none', async () => {
      const shards = range(0, 70).map(uniqueShard);
      const rows = shards.map((shard) => ({ shard, expect: null, row: row() }));
      expect(await definite(() => store().writeShards(rows))).toEqual(APPLIED);
      const next = shards.map((shard, nth) => ({
        shard,
        expect: nth === 40 ? 7 : 1,
        row: row({ holder: 'two', version: 2 }),
      }));
      expect(await store().writeShards(next)).toEqual(CONFLICT);
      const found = await store().readShards(true);
      expect(shards.map((shard) => found.get(shard)?.holder)).toEqual(shards.map(() => 'one'));
    });

    it('have one winner of a takeover', async () => {
      const shard = uniqueShard();
      await write(shard, null, row());
      const outcomes = await Promise.all(
        range(0, 20).map((i) => write(shard, 1, row({ holder: `h${i}`, term: 2, version: 2 }))),
      );
      const { holder } = (await read(shard, true))!;
      const told = outcomes.flatMap(({ kind }, i) => (kind === 'applied' ? [`h${i}`] : []));
      expect(told.length).toBeLessThanOrEqual(1);
      expect(told.filter((winner) => winner !== holder)).toEqual([]);
    });
  });
}

export function nodeConformance(store: StoreUnderTest): void {
  const node = (changed: Partial<NodeRow>): NodeRow => ({
    id: `node-${uniqueShard()}`,
    beat: 1,
    address: 'http://127.0.0.1:8080',
    secret: 's',
    holds: true,
    ...changed,
  });
  const read = async (id: string) => (await store().readNodes()).filter((one) => one.id === id);

  describe('nodes', () => {
    it('are written again and again, and dropped', async () => {
      const first = node({});
      await store().writeNode(first);
      expect(await read(first.id)).toEqual([first]);
      const next = { ...first, beat: 2 ** 40, address: null, holds: false };
      await store().writeNode(next);
      expect(await read(first.id)).toEqual([next]);
      const other = node({});
      await store().writeNode(other);
      await store().dropNode(first.id);
      await store().dropNode(first.id);
      expect(await read(first.id)).toEqual([]);
      expect(await read(other.id)).toEqual([other]);
      await store().dropNode(other.id);
    });
  });
}

export function activityConformance(store: StoreUnderTest): void {
  const pages = async (shard: number, period: number, limit: number): Promise<ActivityRow[]> => {
    const rows: ActivityRow[] = [];
    let after: string | null = null;
    do {
      const page = await store().readActivity(shard, period, after, limit);
      expect(page.rows.length).toBeLessThanOrEqual(limit);
      rows.push(...page.rows);
      if (rows.length > 5_000) throw new Error('the cursor does not come to an end');
      after = page.next;
    } while (after !== null);
    return rows;
  };
  const names = (rows: readonly ActivityRow[]): string[] =>
    [...new Set(rows.map(({ topic, tier }) => `${tier}/${topic}`))].sort();

  describe('activity', () => {
    it('is none at first', async () => {
      expect(await store().readActivity(uniqueShard(), 0, null, 10)).toEqual({ rows: [], next: null });
    });

    it('can be read from a time on', async () => {
      const shard = uniqueShard();
      const rows = [1_000, 2_000, 3_000].map((at) => ({ topic: `t${at}`, tier: 5, at }));
      await store().recordActivity(shard, 1, rows);
      expect((await store().readActivity(shard, 1, 2_000, 10)).rows.map(({ at }) => at)).toEqual([2_000, 3_000]);
      expect((await store().readActivity(shard, 1, 3_001, 10)).rows).toEqual([]);
    });

    it('is recorded once however often it is written', async () => {
      const shard = uniqueShard();
      const row = { topic: 'a', tier: 5, at: 1_700_000_000_000 };
      for (let i = 0; i < 3; i++) await store().recordActivity(shard, 1, [row]);
      expect(await pages(shard, 1, 10)).toEqual([row]);
    });

    it.each([1, 3, 7, 25, 100])('is read in pages of %i, each row once, in the same order', async (limit) => {
      const shard = uniqueShard();
      const rows = range(0, 25).map((i) => ({ topic: `t${i % 9} 🐌/'\u0001`, tier: i % 5, at: 1_000 + (i % 4) }));
      await store().recordActivity(shard, 3, rows);
      const read = await pages(shard, 3, limit);
      expect(names(read)).toEqual(names(rows));
      expect(read).toEqual(await pages(shard, 3, 1_000));
      expect(new Set(read.map((row) => JSON.stringify(row))).size).toBe(read.length);
    });

    it('keeps shards and periods apart, and drops one period alone', async () => {
      const [one, other] = [uniqueShard(), uniqueShard()];
      const rows = (topic: string) => [{ topic, tier: 1, at: 5 }];
      await store().recordActivity(one, 1, rows('a'));
      await store().recordActivity(one, 2, rows('b'));
      await store().recordActivity(other, 1, rows('c'));
      await store().dropPeriod(one, 1);
      await store().dropPeriod(one, 1);
      expect(await pages(one, 1, 10)).toEqual([]);
      expect(names(await pages(one, 2, 10))).toEqual(['1/b']);
      expect(names(await pages(other, 1, 10))).toEqual(['1/c']);
    });

    it('drops a long period', async () => {
      const shard = uniqueShard();
      await store().recordActivity(
        shard,
        1,
        range(0, 1_500).map((i) => ({ topic: `t${i}`, tier: 1, at: i })),
      );
      expect(await pages(shard, 1, 400)).toHaveLength(1_500);
      await store().dropPeriod(shard, 1);
      expect(await pages(shard, 1, 10)).toEqual([]);
    });

    it('takes nothing to record', async () => {
      await store().recordActivity(uniqueShard(), 1, []);
    });
  });
}
