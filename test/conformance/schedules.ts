import { describe, expect, it } from 'vitest';
import type { ScheduleDefinition, ScheduleState } from '../../src/core/schedule.ts';
import { definite, range, type StoreUnderTest, uniqueShard } from './harness.ts';

const APPLIED = { kind: 'applied' };
const CONFLICT = { kind: 'conflict' };

/** A schedule with every part set, but for what is changed. */
export const schedule = (
  name: string,
  changed: Partial<ScheduleDefinition> = {},
  moved: Partial<ScheduleState> = {},
): { readonly name: string; readonly definition: ScheduleDefinition; readonly state: ScheduleState } => ({
  name,
  definition: {
    topic: 'a/topic 🐌',
    pattern: '30 8 * * MON-FRI',
    timeZone: 'Europe/Berlin',
    payload: '{"n":"\\u0000🐌"}',
    metadata: '{"a":"b"}',
    priority: Number.MAX_SAFE_INTEGER,
    ttlMs: 31_622_400_000,
    maxAttempts: 7,
    catchUpMs: 86_400_000,
    ...changed,
  },
  state: {
    incarnation: '01ARZ3NDEKTSV4RRFFQ69G5FAV',
    version: 1,
    createdAt: 1_700_000_000_000,
    updatedAt: 1_700_000_000_001,
    firedUpTo: 1_700_000_000_002,
    nextAt: 1_700_000_000_003,
    lastFiredFor: 1_700_000_000_004,
    lastTask: '01ARZ3NDEKTSV4RRFFQ69G5FAV.m.order',
    fired: 2 ** 40,
    missed: 3,
    refusal: 'why',
    ...moved,
  },
});

const BARE = { metadata: null, priority: null, ttlMs: null, maxAttempts: null } as const;
const FRESH = { nextAt: null, lastFiredFor: null, lastTask: null, refusal: null } as const;

export function scheduleConformance(store: StoreUnderTest): void {
  type Made = ReturnType<typeof schedule>;
  const create = (shard: number, { name, definition, state }: Made) =>
    definite(() => store().writeSchedule(shard, { name, expect: null, state, definition }));
  const rowOf = ({ name, definition, state }: Made) => ({ name, ...definition, ...state });
  const headOf = (made: Made) => {
    const { payload, metadata, ...head } = rowOf(made);
    return head;
  };

  describe('schedules', () => {
    it.each([
      ['with every part', schedule('full 🐌')],
      ['with no more than there must be', schedule('bare', BARE, FRESH)],
      ['with bytes', schedule('bytes', { payload: new Uint8Array([0, 255, 1]) })],
      ['with no bytes at all', schedule('empty', { payload: new Uint8Array(0) })],
      ['with a large payload', schedule('large', { payload: JSON.stringify('x'.repeat(256 * 1024 - 2)) })],
    ])('are read as they were written: %s', async (_about, made) => {
      const shard = uniqueShard();
      expect(await store().readSchedule(shard, made.name)).toBeNull();
      expect(await create(shard, made)).toEqual(APPLIED);
      expect(await store().readSchedule(shard, made.name)).toEqual(rowOf(made));
      expect(await store().readSchedule(shard, made.name, true)).toEqual(rowOf(made));
      expect(await store().readSchedules(shard, null, 10)).toEqual([headOf(made)]);
    });

    it('are made once: another one of the name conflicts', async () => {
      const shard = uniqueShard();
      await create(shard, schedule('a'));
      expect(await create(shard, schedule('a', { pattern: '* * * * *' }))).toEqual(CONFLICT);
      expect(await store().readSchedule(shard, 'a')).toEqual(rowOf(schedule('a')));
    });

    it('go on without their definition, and are changed with it', async () => {
      const shard = uniqueShard();
      const made = schedule('a', { payload: new Uint8Array([1]) });
      await create(shard, made);
      const state = { ...made.state, ...FRESH, version: 2, firedUpTo: 5, fired: 0 };
      expect(await definite(() => store().writeSchedule(shard, { name: 'a', expect: made.state, state }))).toEqual(
        APPLIED,
      );
      expect(await store().readSchedule(shard, 'a')).toEqual({ ...rowOf(made), ...state });
      const next = schedule('a', { ...BARE, topic: 'other', payload: '1' }, { version: 3 });
      expect(await definite(() => store().writeSchedule(shard, { expect: state, ...next }))).toEqual(APPLIED);
      expect(await store().readSchedule(shard, 'a', true)).toEqual(rowOf(next));
      const back = schedule('a', { payload: new Uint8Array([2]) }, { version: 4 });
      expect(await definite(() => store().writeSchedule(shard, { expect: next.state, ...back }))).toEqual(APPLIED);
      expect(await store().readSchedule(shard, 'a', true)).toEqual(rowOf(back));
    });

    it('conflict under any other version or incarnation, and where they are not there', async () => {
      const shard = uniqueShard();
      const made = schedule('a', {}, { version: 4 });
      const expects = [{ version: 3 }, { version: 5 }, { incarnation: '01ARZ3NDEKTSV4RRFFQ69G5FAW' }];
      for (const wrong of expects) {
        const expectation = { ...made.state, ...wrong };
        const absent = { name: 'a', expect: expectation, state: made.state };
        expect(await store().writeSchedule(shard, absent)).toEqual(CONFLICT);
        expect(await store().writeSchedule(shard, { ...absent, definition: made.definition })).toEqual(CONFLICT);
        expect(await store().writeSchedule(shard, { ...absent, state: null })).toEqual(CONFLICT);
      }
      expect(await store().readSchedule(shard, 'a', true)).toBeNull();
      await create(shard, made);
      for (const wrong of expects) {
        const late = { name: 'a', expect: { ...made.state, ...wrong }, state: { ...made.state, fired: 9 } };
        const changed = { ...late, definition: { ...made.definition, topic: 'late' } };
        expect(await store().writeSchedule(shard, late)).toEqual(CONFLICT);
        expect(await store().writeSchedule(shard, changed)).toEqual(CONFLICT);
        expect(await store().writeSchedule(shard, { ...late, state: null })).toEqual(CONFLICT);
      }
      expect(await store().readSchedule(shard, 'a', true)).toEqual(rowOf(made));
    });

    it('are deleted, and made again as another one', async () => {
      const shard = uniqueShard();
      const made = schedule('a');
      await create(shard, made);
      expect(
        await definite(() => store().writeSchedule(shard, { name: 'a', expect: made.state, state: null })),
      ).toEqual(APPLIED);
      expect(await store().readSchedule(shard, 'a', true)).toBeNull();
      expect(await store().readSchedules(shard, null, 10)).toEqual([]);
      const again = schedule('a', BARE, { ...FRESH, incarnation: '01BX5ZZKBKACTAV9WEVGEMMVRZ' });
      expect(await create(shard, again)).toEqual(APPLIED);
      expect(await store().readSchedule(shard, 'a')).toEqual(rowOf(again));
    });

    it.each([1, 4, 30])('are read shard by shard in the order of their names, by pages of %i', async (limit) => {
      const [shard, other] = [uniqueShard(), uniqueShard()];
      // 😀 is behind ￼ by UTF-8, and before it by UTF-16.
      const names = ['a', 'a b', 'aa', 'b', 'ä', '\ufffc', '😀', ...range(0, 5).map((n) => `n${n}`)];
      for (const name of names) await create(shard, schedule(name));
      await create(other, schedule('elsewhere'));
      const read: string[] = [];
      for (let after: string | null = null; ; after = read.at(-1)!) {
        const page = await store().readSchedules(shard, after, limit);
        read.push(...page.map(({ name }) => name));
        if (page.length < limit) break;
      }
      const bytes = (text: string): Buffer => Buffer.from(text);
      expect(read).toEqual([...names].sort((a, b) => Buffer.compare(bytes(a), bytes(b))));
    });

    it('have one winner where several go on from the same version', async () => {
      const shard = uniqueShard();
      const made = schedule('a');
      await create(shard, made);
      const outcomes = await Promise.all(
        range(0, 10).map((fired) => {
          const state = { ...made.state, version: 2, fired };
          return definite(() => store().writeSchedule(shard, { name: 'a', expect: made.state, state }));
        }),
      );
      const { fired } = (await store().readSchedule(shard, 'a', true))!;
      const told = outcomes.flatMap(({ kind }, nth) => (kind === 'applied' ? [nth] : []));
      expect(told.length).toBeLessThanOrEqual(1);
      expect(told.filter((winner) => winner !== fired)).toEqual([]);
    });
  });
}
