import { describe, expect, it } from 'vitest';
import { BATCH_ENTRIES, RESULT_BYTES } from '../../src/core/bounds.ts';
import { type EntryChange, FINAL_VERSION, FIRST_VERSION, type LogAddress } from '../../src/core/entry.ts';
import type { SegmentChange } from '../../src/store/store.ts';
import {
  append,
  asAppended,
  claims,
  definite,
  doneSet,
  entry,
  headOf,
  leaseSet,
  range,
  readAll,
  SEGMENT,
  type StoreUnderTest,
  settlements,
  uniqueLog,
} from './harness.ts';

const APPLIED = { kind: 'applied' };

export function changeConformance(store: StoreUnderTest): void {
  const filled = async (name: string, count: number): Promise<LogAddress> => {
    const log = uniqueLog(name);
    await append(
      store(),
      log,
      range(0, count).map((i) => entry(i)),
    );
    return log;
  };
  const change = (log: LogAddress, changes: readonly EntryChange[], scan?: SegmentChange['scan']) =>
    definite(() => store().change({ log, segment: 0, changes, ...(scan === undefined ? {} : { scan }) }));
  const heads = (log: LogAddress) => store().readHeads({ log, from: 0, to: SEGMENT, limit: SEGMENT, serial: true });

  describe('change', () => {
    it('claims by uid and version, and changes only what is named', async () => {
      const log = await filled('claim', 3);
      const set = leaseSet('L');
      expect(await change(log, claims([0, 1], set))).toEqual(APPLIED);
      expect(await readAll(store(), log)).toEqual([
        { ...asAppended(entry(0), 0), ...set },
        { ...asAppended(entry(1), 1), ...set },
        asAppended(entry(2), 2),
      ]);
    });

    it('settles by lease, keeping the lease id', async () => {
      const log = await filled('settle', 3);
      await change(log, claims([0, 1, 2], leaseSet('L')));
      expect(await change(log, settlements([0, 2], 'L', doneSet({ result: '{"ok":true}' })))).toEqual(APPLIED);
      expect(await readAll(store(), log)).toMatchObject([
        { status: 'done', version: FINAL_VERSION, leaseId: 'L', result: '{"ok":true}', worker: 'worker-1' },
        { status: 'leased', version: FIRST_VERSION + 1, result: null },
        { status: 'done', leaseId: 'L' },
      ]);
    });

    it('sets each part of the state, and sets it back to null', async () => {
      const log = await filled('parts', 2);
      const set = {
        status: 'moved',
        version: FINAL_VERSION,
        updatedAt: 9,
        leaseId: 'L2',
        worker: 'w 🐌',
        leasedAt: 7,
        leaseUntil: 8,
        dest: { topic: 'else/where', tier: 10, id: 77 },
        result: '"r"',
        progress: '{"p":1}',
        reason: 'because',
      } as const;
      const expect0 = { uid: 'uid-0', version: FIRST_VERSION };
      expect(await change(log, [{ id: 0, expect: expect0, set }])).toEqual(APPLIED);
      const dest = { ...log, id: 12 };
      const near = { ...set, dest, status: 'leased', version: 2 } as const;
      expect(await change(log, [{ id: 1, expect: { uid: 'uid-1', version: 1 }, set: near }])).toEqual(APPLIED);
      expect(await readAll(store(), log)).toMatchObject([set, near]);
      const none = {
        leaseId: null,
        worker: null,
        leasedAt: null,
        leaseUntil: null,
        dest: null,
        result: null,
        progress: null,
        reason: null,
      };
      const back = { status: 'leased', version: 3, updatedAt: 10, ...none } as const;
      expect(await change(log, [{ id: 1, expect: { leaseId: 'L2' }, set: back }])).toEqual(APPLIED);
      expect((await readAll(store(), log))[1]).toMatchObject(back);
    });

    it('keeps the largest results', async () => {
      const log = await filled('result', 1);
      const result = JSON.stringify('r'.repeat(RESULT_BYTES - 2));
      await change(log, claims([0], leaseSet('L')));
      expect(await change(log, settlements([0], 'L', doneSet({ result })))).toEqual(APPLIED);
      expect((await readAll(store(), log))[0]!.result === result).toBe(true);
    });

    it.each([
      { name: 'another uid', expect: { uid: 'uid-x', version: FIRST_VERSION } },
      { name: 'an earlier version', expect: { uid: 'uid-1', version: FIRST_VERSION - 1 } },
      { name: 'a later version', expect: { uid: 'uid-1', version: FIRST_VERSION + 1 } },
      { name: 'a lease, where there is none', expect: { leaseId: 'L' } },
    ])('conflicts on $name, writes nothing, and tells the rows', async ({ expect: condition }) => {
      const log = await filled('conflict', 3);
      const before = await readAll(store(), log);
      const changes = claims([0, 1, 2], leaseSet('L')).map((one) =>
        one.id === 1 ? { ...one, expect: condition } : one,
      );
      expect(await change(log, changes)).toEqual({
        kind: 'conflict',
        rows: before.map(headOf),
        header: await store().readSegment(log, 0),
      });
      expect(await readAll(store(), log)).toEqual(before);
    });

    it.each([
      { name: 'another lease', leaseId: 'L', status: 'leased', asked: 'M' },
      { name: 'the same lease, settled', leaseId: 'L', status: 'done', asked: 'L' },
      { name: 'the same lease, cancelled', leaseId: 'L', status: 'cancelled', asked: 'L' },
    ] as const)('conflicts on $name', async ({ leaseId, status, asked }) => {
      const log = await filled('lease', 1);
      await change(log, claims([0], leaseSet(leaseId, { status })));
      const before = await heads(log);
      const outcome = await change(log, settlements([0], asked, doneSet()));
      expect(outcome).toMatchObject({ kind: 'conflict', rows: before });
      expect(await heads(log)).toEqual(before);
    });

    it('never creates a row, and does not tell rows that are not there', async () => {
      const log = await filled('missing', 2);
      const set = leaseSet('L');
      for (const missing of [
        { id: 2, expect: { uid: 'uid-2', version: FIRST_VERSION }, set },
        { id: 2, expect: { leaseId: 'L' }, set },
      ]) {
        const outcome = await change(log, [...claims([1], set), missing]);
        expect(outcome).toMatchObject({ kind: 'conflict', rows: [{ id: 1, status: 'ready' }] });
      }
      expect((await heads(log)).map(({ id, status }) => [id, status])).toEqual([
        [0, 'ready'],
        [1, 'ready'],
      ]);
    });

    it('conflicts on everything in a segment that is not there', async () => {
      const log = uniqueLog('nowhere');
      expect(await change(log, claims([0], leaseSet('L')))).toEqual({ kind: 'conflict', rows: [], header: null });
      expect(await store().readSegment(log, 0, true)).toBeNull();
    });

    it('changes rows anywhere in the segment, in any order, each in its own way', async () => {
      const log = await filled('scattered', 30);
      const ids = [17, 3, 4, 29, 5, 0];
      const changes = ids.map((id) => claims([id], leaseSet(`L${id}`, { worker: `w${id}` }))[0]!);
      expect(await change(log, changes)).toEqual(APPLIED);
      for (const { id, status, leaseId, worker } of await heads(log)) {
        if (ids.includes(id)) expect([status, leaseId, worker]).toEqual(['leased', `L${id}`, `w${id}`]);
        else expect([status, leaseId, worker]).toEqual(['ready', null, null]);
      }
    });

    it('takes a whole batch, and refuses it for its last row', async () => {
      const log = await filled('batch', BATCH_ENTRIES);
      const ids = range(0, BATCH_ENTRIES);
      expect(await change(log, claims(ids, leaseSet('L')))).toEqual(APPLIED);
      const settle = settlements(ids, 'L', doneSet());
      const spoilt = [...settle.slice(0, -1), { ...settle.at(-1)!, expect: { leaseId: 'M' } }];
      expect(await change(log, spoilt)).toMatchObject({ kind: 'conflict' });
      expect((await heads(log)).every(({ status }) => status === 'leased')).toBe(true);
      expect(await change(log, settle)).toEqual(APPLIED);
      expect((await heads(log)).every(({ status }) => status === 'done')).toBe(true);
    });

    it('lets one of two claimers win, on every row', async () => {
      const log = await filled('two', 20);
      const outcomes = await Promise.all(['A', 'B'].map((lease) => change(log, claims(range(0, 20), leaseSet(lease)))));
      const owners = new Set((await heads(log)).map(({ leaseId }) => leaseId));
      expect(owners.size).toBe(1);
      const told = outcomes.flatMap(({ kind }, i) => (kind === 'applied' ? ['AB'[i]] : []));
      expect(told.filter((lease) => !owners.has(lease!))).toEqual([]);
    });

    it('makes at most one settlement count', async () => {
      const log = await filled('settle-race', 1);
      await change(log, claims([0], leaseSet('L')));
      const outcomes = await Promise.all(
        range(0, 20).map((i) => change(log, settlements([0], 'L', doneSet({ result: String(i) })))),
      );
      const told = outcomes.flatMap(({ kind }, i) => (kind === 'applied' ? [String(i)] : []));
      const [row] = await readAll(store(), log);
      expect(row!.status).toBe('done');
      expect(told.filter((result) => result !== row!.result)).toEqual([]);
    });
  });

  describe('change of the scan cursor', () => {
    it('moves with the rows, and takes the term', async () => {
      const log = await filled('scan', 5);
      const scan = { from: 0, to: 3, seenTerm: 0, term: 4 };
      expect(await change(log, claims([0, 1, 2], leaseSet('L')), scan)).toEqual(APPLIED);
      expect(await store().readSegment(log, 0)).toMatchObject({ scan: 3, term: 4, nextId: 5 });
      expect(await change(log, [], { from: 3, to: 5, seenTerm: 4, term: 4 })).toEqual(APPLIED);
      expect(await store().readSegment(log, 0)).toMatchObject({ scan: 5, term: 4 });
    });

    it('takes the term alone', async () => {
      const log = await filled('term', 1);
      expect(await change(log, [], { from: 0, to: 0, seenTerm: 0, term: 9 })).toEqual(APPLIED);
      expect(await store().readSegment(log, 0)).toMatchObject({ scan: 0, term: 9 });
    });

    it.each([
      { name: 'the cursor stands elsewhere', from: 1, to: 3, seenTerm: 0, term: 1 },
      { name: 'the term is another', from: 0, to: 3, seenTerm: 1, term: 2 },
    ])('conflicts where $name, and leaves the rows too', async ({ name: _, ...scan }) => {
      const log = await filled('scan-conflict', 5);
      const before = [await readAll(store(), log), await store().readSegment(log, 0)];
      const outcome = await change(log, claims([0, 1], leaseSet('L')), scan);
      expect(outcome).toMatchObject({ kind: 'conflict', header: before[1] });
      expect([await readAll(store(), log), await store().readSegment(log, 0, true)]).toEqual(before);
    });

    it('stays where a row conflicts', async () => {
      const log = await filled('scan-stays', 2);
      const changes = [...claims([0], leaseSet('L')), { ...claims([1], leaseSet('L'))[0]!, expect: { leaseId: 'L' } }];
      const outcome = await change(log, changes, { from: 0, to: 2, seenTerm: 0, term: 1 });
      expect(outcome).toMatchObject({ kind: 'conflict', header: { scan: 0, term: 0 } });
      expect(await store().readSegment(log, 0, true)).toMatchObject({ scan: 0, term: 0 });
    });

    it('takes the term of a segment that has no entries yet; the first append goes on from there', async () => {
      const log = uniqueLog('term-first');
      expect(await change(log, [], { from: 0, to: 0, seenTerm: 0, term: 3 })).toEqual(APPLIED);
      expect(await store().readSegment(log, 0)).toMatchObject({ nextId: 0, scan: 0, term: 3 });
      expect(await change(log, [], { from: 0, to: 0, seenTerm: 0, term: 2 })).toMatchObject({ kind: 'conflict' });
      expect(await append(store(), log, [entry(0)])).toBe(0);
      expect(await store().readSegment(log, 0)).toMatchObject({ nextId: 1, scan: 0, term: 3 });
    });

    it('starts at the first id of a later segment', async () => {
      const log = uniqueLog('later');
      await append(store(), log, [entry(SEGMENT)], { segment: 1 });
      const scan = { from: SEGMENT, to: SEGMENT + 1, seenTerm: 0, term: 1 };
      const changes = claims([SEGMENT], leaseSet('L'));
      expect(await definite(() => store().change({ log, segment: 1, changes, scan }))).toEqual(APPLIED);
      expect(await store().readSegment(log, 1)).toMatchObject({ scan: SEGMENT + 1, term: 1 });
    });
  });
}
