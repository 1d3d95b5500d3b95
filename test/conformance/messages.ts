import { describe, expect, it } from 'vitest';
import {
  bucketOf,
  type MessageCondition,
  type MessageRow,
  type MessageWrite,
  messageIdKey,
  uidKey,
} from '../../src/core/message.ts';
import { definite, range, type StoreUnderTest, uniqueTopic } from './harness.ts';

const APPLIED = { kind: 'applied' };
const ABSENT = { absent: true } as const;

const row = (topic: string, key: string, changed: Partial<MessageRow> = {}): MessageRow => ({
  key,
  uid: `uid of ${key}`,
  place: { topic, tier: 5, id: 3 },
  hops: 0,
  status: 'live',
  enqueuedAt: 1_700_000_000_000,
  settledAt: null,
  ...changed,
});

const write = (row: MessageRow, expect: MessageCondition = ABSENT, ttlMs: number | null = null): MessageWrite => ({
  expect,
  row,
  ttlMs,
});

export function messageConformance(store: StoreUnderTest): void {
  const put = async (topic: string, writes: readonly MessageWrite[]) => {
    const now = store().now();
    const bucket = bucketOf(writes[0]!.row.key, store().meta.messageBuckets);
    return definite(() => store().writeMessages(topic, bucket, writes, now));
  };
  const read = async (topic: string, key: string) => (await store().readMessages(topic, [key], true)).get(key) ?? null;
  /** Keys of one bucket, as one call takes them. */
  const keysOfOneBucket = (count: number): string[] => {
    const keys = range(0, 2_000).map((i) => messageIdKey(`id-${i}`));
    const { messageBuckets } = store().meta;
    const bucket = bucketOf(keys[0]!, messageBuckets);
    return keys.filter((key) => bucketOf(key, messageBuckets) === bucket).slice(0, count);
  };

  describe('messages', () => {
    it('finds nothing where nothing was written', async () => {
      expect(await store().readMessages(uniqueTopic('none'), ['ma', 'ub'])).toEqual(new Map());
      expect(await store().readMessages(uniqueTopic('none'), [])).toEqual(new Map());
    });

    it('writes where there is no row, and reads it back', async () => {
      const topic = uniqueTopic('insert');
      const live = row(topic, 'ma');
      expect(await put(topic, [write(live)])).toEqual(APPLIED);
      expect(await store().readMessages(topic, ['ma', 'mb'])).toEqual(new Map([['ma', live]]));
      expect(await store().readMessages(uniqueTopic('other'), ['ma'])).toEqual(new Map());
    });

    it('keeps every part, and a place in another topic', async () => {
      const topic = uniqueTopic('parts');
      const settled = row(topic, 'ma', {
        place: { topic: '\u0001slot/1', tier: 6_800_000_000, id: 9_007_199_254_740_991 },
        hops: 12,
        status: 'dead',
        settledAt: 1_700_000_009_999,
      });
      expect(await put(topic, [write(settled)])).toEqual(APPLIED);
      expect(await read(topic, 'ma')).toEqual(settled);
    });

    it('rewrites the whole row', async () => {
      const topic = uniqueTopic('rewrite');
      const live = row(topic, 'ma');
      await put(topic, [write(live)]);
      const done = { ...live, status: 'done', settledAt: 5, hops: 2, place: { topic, tier: 0, id: 9 } } as const;
      expect(await put(topic, [write(done, { uid: live.uid }, 60_000)])).toEqual(APPLIED);
      expect(await read(topic, 'ma')).toEqual(done);
      const again = { ...live, uid: 'another' };
      expect(await put(topic, [write(again, { uid: live.uid, statusIn: ['done'] })])).toEqual(APPLIED);
      expect(await read(topic, 'ma')).toEqual(again);
    });

    it.each([
      { name: 'absent', expect: ABSENT },
      { name: 'another uid', expect: { uid: 'x' } },
      { name: 'another status', expect: { uid: 'uid of ma', statusIn: ['done', 'dead'] } },
      { name: 'no status', expect: { uid: 'uid of ma', statusIn: [] } },
      { name: 'fewer hops', expect: { uid: 'uid of ma', hopsBelow: 3 } },
      { name: 'the status but fewer hops', expect: { uid: 'uid of ma', statusIn: ['live'], hopsBelow: 3 } },
    ] satisfies { name: string; expect: MessageCondition }[])('conflicts where it expects $name', async (condition) => {
      const topic = uniqueTopic('conflict');
      const live = row(topic, 'ma', { hops: 3 });
      await put(topic, [write(live)]);
      const attempt = write(row(topic, 'ma', { uid: 'new' }), condition.expect);
      expect(await put(topic, [attempt])).toEqual({ kind: 'conflict', rows: [live] });
      expect(await read(topic, 'ma')).toEqual(live);
    });

    it.each([
      { name: 'the uid', expect: { uid: 'uid of ma' } },
      { name: 'one of several statuses', expect: { uid: 'uid of ma', statusIn: ['dead', 'live'] } },
      { name: 'fewer hops than', expect: { uid: 'uid of ma', hopsBelow: 4 } },
      { name: 'all of them', expect: { uid: 'uid of ma', statusIn: ['live'], hopsBelow: 4 } },
    ] satisfies { name: string; expect: MessageCondition }[])('applies where it expects $name', async (condition) => {
      const topic = uniqueTopic('applies');
      await put(topic, [write(row(topic, 'ma', { hops: 3 }))]);
      const moved = row(topic, 'ma', { hops: 4, place: { topic, tier: 5, id: 8 } });
      expect(await put(topic, [write(moved, condition.expect)])).toEqual(APPLIED);
      expect(await read(topic, 'ma')).toEqual(moved);
    });

    it('takes no condition on a row for one that is not there', async () => {
      const topic = uniqueTopic('missing');
      for (const condition of [{ uid: 'uid of ma' }, { uid: 'uid of ma', hopsBelow: 9, statusIn: ['live' as const] }]) {
        expect(await put(topic, [write(row(topic, 'ma'), condition)])).toEqual({ kind: 'conflict', rows: [] });
      }
      expect(await read(topic, 'ma')).toBeNull();
    });

    it('writes all or none, and tells the rows that are there', async () => {
      const topic = uniqueTopic('all');
      const keys = keysOfOneBucket(12);
      const taken = row(topic, keys[5]!, { uid: 'first' });
      await put(topic, [write(taken)]);
      const writes = keys.map((key) => write(row(topic, key)));
      expect(await put(topic, writes)).toEqual({ kind: 'conflict', rows: [taken] });
      expect(await store().readMessages(topic, keys, true)).toEqual(new Map([[keys[5], taken]]));
      const others = writes.filter((one) => one.row.key !== taken.key);
      expect(await put(topic, others)).toEqual(APPLIED);
      expect((await store().readMessages(topic, keys)).size).toBe(12);
    });

    it('mixes conditions in one call', async () => {
      const topic = uniqueTopic('mixed');
      const [a, b, c] = keysOfOneBucket(3) as [string, string, string];
      await put(topic, [write(row(topic, a)), write(row(topic, b, { status: 'done', settledAt: 4 }))]);
      const writes = [
        write(row(topic, a, { status: 'done', settledAt: 7 }), { uid: `uid of ${a}`, statusIn: ['live'] }, 60_000),
        write(row(topic, b, { uid: 'again' }), { uid: `uid of ${b}`, statusIn: ['done'] }),
        write(row(topic, c)),
      ];
      expect(await put(topic, writes)).toEqual(APPLIED);
      const rows = await store().readMessages(topic, [a, b, c]);
      expect([...rows.values()]).toEqual(writes.map((one) => one.row));
    });

    it('reads a row with a time to live before that is over', async () => {
      const topic = uniqueTopic('ttl');
      const done = row(topic, 'ma', { status: 'done', settledAt: 1 });
      expect(await put(topic, [write(done, ABSENT, 3_600_000)])).toEqual(APPLIED);
      expect(await read(topic, 'ma')).toEqual(done);
      expect(await put(topic, [write(row(topic, 'ma', { uid: 'late' }))])).toEqual({ kind: 'conflict', rows: [done] });
    });

    it('leaves rows alone that are not over, when it sweeps', async () => {
      const topic = uniqueTopic('sweep');
      await put(topic, [write(row(topic, 'ma'))]);
      await put(topic, [write(row(topic, 'mb'), ABSENT, 3_600_000)]);
      await store().sweep(store().now(), 100);
      expect((await store().readMessages(topic, ['ma', 'mb'])).size).toBe(2);
    });

    it.each([
      ['emoji', messageIdKey('🐌/漢字')],
      ['an address', messageIdKey('https://example.org/a b?x=\'%3D&y="#/../☃')],
      ['control characters', messageIdKey('a\u0000b\u0001\n')],
      ['trailing blanks', messageIdKey('a ')],
      ['2,048 bytes', messageIdKey('x'.repeat(2048))],
      ['nothing but the prefix', messageIdKey('')],
      ['a uid', uidKey('01ARZ3NDEKTSV4RRFFQ69G5FAV')],
    ])('takes keys with %s', async (_, key) => {
      const topic = uniqueTopic('keys 🐌');
      const live = row(topic, key);
      expect(await put(topic, [write(live)])).toEqual(APPLIED);
      expect(await read(topic, key)).toEqual(live);
      expect(await read(topic, `${key} `)).toBeNull();
      expect(await read(topic, key.slice(0, -1))).toBeNull();
    });

    it('lets one of 30 racing inserts of a key win', async () => {
      const topic = uniqueTopic('race');
      const outcomes = await Promise.all(
        range(0, 30).map((i) => put(topic, [write(row(topic, 'ma', { uid: `uid-${i}` }))])),
      );
      const owner = (await read(topic, 'ma'))!.uid;
      const told = outcomes.flatMap(({ kind }, i) => (kind === 'applied' ? [`uid-${i}`] : []));
      expect(told.length).toBeLessThanOrEqual(1);
      expect(told.filter((uid) => uid !== owner)).toEqual([]);
      for (const outcome of outcomes) {
        if (outcome.kind === 'conflict') expect(outcome.rows).toMatchObject([{ uid: owner }]);
      }
    });
  });
}
