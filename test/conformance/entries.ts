import { describe, expect, it } from 'vitest';
import { PAYLOAD_BYTES } from '../../src/core/bounds.ts';
import type { LogAddress } from '../../src/core/entry.ts';
import type { Append } from '../../src/store/store.ts';
import {
  append,
  asAppended,
  claims,
  definite,
  doneSet,
  entry,
  fullEntry,
  headOf,
  leaseSet,
  range,
  readAll,
  SEGMENT,
  type StoreUnderTest,
  settlements,
  uniqueLog,
  uniqueTopic,
} from './harness.ts';

const APPLIED = { kind: 'applied' };
const CONFLICT = { kind: 'conflict' };

const appendOf = (log: LogAddress, changed: Partial<Append>): Append => ({
  log,
  segment: 0,
  expectNext: null,
  firstId: 0,
  entries: [entry(0)],
  bytes: 1,
  seal: false,
  ...changed,
});

export function appendConformance(store: StoreUnderTest): void {
  describe('append', () => {
    it('finds nothing in a log that has nothing', async () => {
      const log = uniqueLog('empty');
      expect(await store().readSegment(log, 0)).toBeNull();
      expect(await store().readSegment(log, 0, true)).toBeNull();
      expect(await store().readEntries({ log, from: 0, to: SEGMENT, limit: 10 })).toEqual([]);
      expect(await store().readHeads({ log, from: 0, to: SEGMENT, limit: 10, serial: true })).toEqual([]);
    });

    it('gives ids from the first one on, and makes the header', async () => {
      const log = uniqueLog('first');
      const entries = range(0, 3).map((i) => entry(i));
      expect(await definite(() => store().append(appendOf(log, { entries, bytes: 321 })))).toEqual(APPLIED);
      expect(await store().readSegment(log, 0)).toEqual({
        nextId: 3,
        bytes: 321,
        scan: 0,
        term: 0,
        sealedAt: null,
        closed: false,
      });
      expect(await readAll(store(), log)).toEqual(entries.map(asAppended));
    });

    it('goes on where the segment ends', async () => {
      const log = uniqueLog('goes-on');
      await append(store(), log, [entry(0), entry(1)]);
      const more = appendOf(log, { expectNext: 2, firstId: 2, entries: [entry(2)], bytes: 9 });
      expect(await definite(() => store().append(more))).toEqual(APPLIED);
      expect((await readAll(store(), log)).map(({ id, uid }) => [id, uid])).toEqual([
        [0, 'uid-0'],
        [1, 'uid-1'],
        [2, 'uid-2'],
      ]);
      expect(await store().readSegment(log, 0)).toMatchObject({ nextId: 3, bytes: 9 });
    });

    it.each([
      { name: 'no segment, where there is one', expectNext: null, firstId: 0 },
      { name: 'an earlier end', expectNext: 1, firstId: 1 },
      { name: 'a later end', expectNext: 3, firstId: 3 },
    ])('conflicts and writes nothing where it expects $name', async ({ expectNext, firstId }) => {
      const log = uniqueLog('conflict');
      await append(store(), log, [entry(0), entry(1)]);
      const before = [await store().readSegment(log, 0), await readAll(store(), log)];
      const late = appendOf(log, { expectNext, firstId, entries: [entry('late')], bytes: 99 });
      expect(await store().append(late)).toEqual(CONFLICT);
      expect([await store().readSegment(log, 0, true), await readAll(store(), log)]).toEqual(before);
    });

    it('conflicts where it expects a segment that is not there', async () => {
      const log = uniqueLog('absent');
      expect(await store().append(appendOf(log, { expectNext: 0 }))).toEqual(CONFLICT);
      expect(await store().readSegment(log, 0, true)).toBeNull();
      expect(await readAll(store(), log)).toEqual([]);
    });

    it('conflicts when it is repeated', async () => {
      const log = uniqueLog('repeat');
      const once = appendOf(log, { entries: [entry(0), entry(1)] });
      expect(await definite(() => store().append(once))).toEqual(APPLIED);
      expect(await store().append(once)).toEqual(CONFLICT);
      expect(await readAll(store(), log)).toHaveLength(2);
    });

    it('keeps every part of an entry', async () => {
      const log = uniqueLog('parts');
      const entries = [
        fullEntry('full'),
        entry('plain'),
        entry('near', { origin: { ...log, id: 7 }, originVersion: 1 }),
      ];
      await append(store(), log, entries);
      const read = await readAll(store(), log);
      expect(read).toEqual(entries.map(asAppended));
      const heads = await store().readHeads({ log, from: 0, to: SEGMENT, limit: 10 });
      expect(heads).toEqual(read.map(headOf));
    });

    it('gives every entry the same shape', async () => {
      const log = uniqueLog('shape');
      await append(store(), log, [fullEntry('full'), entry('plain')]);
      const [full, plain] = await readAll(store(), log);
      expect(Object.keys(plain!)).toEqual(Object.keys(full!));
    });

    it.each([
      ['JSON text', '{"a":[1,2,{"b":null}]}'],
      ['JSON text with escapes', '"\\u0000\\ud83d\\ude00\\n"'],
      ['JSON text beyond ASCII', '"žluťoučký 🐎 漢字"'],
      ['a JSON number', '1.50'],
      ['an empty JSON string', '""'],
      ['bytes', new Uint8Array([0, 1, 2, 253, 254, 255])],
      ['bytes that look like JSON', new TextEncoder().encode('{"a":1}')],
      ['no bytes', new Uint8Array(0)],
      ['a Buffer', Buffer.from('6869', 'hex')],
      ['part of a larger buffer', new Uint8Array([9, 9, 1, 2, 9]).subarray(2, 4)],
    ])('tells payloads apart: %s', async (_, payload) => {
      const log = uniqueLog('payload');
      await append(store(), log, [entry(0, { payload })]);
      const [read] = await readAll(store(), log);
      if (typeof payload === 'string') expect(read!.payload).toBe(payload);
      else {
        expect(read!.payload).toBeInstanceOf(Uint8Array);
        expect(Buffer.isBuffer(read!.payload)).toBe(false);
        expect([...(read!.payload as Uint8Array)]).toEqual([...payload]);
      }
    });

    it('keeps bytes as they were, whatever is done to those that were given or read', async () => {
      const log = uniqueLog('bytes');
      const given = new Uint8Array([1, 2, 3]);
      await append(store(), log, [entry(0, { payload: given })]);
      given.fill(9);
      const [read] = await readAll(store(), log);
      expect([...(read!.payload as Uint8Array)]).toEqual([1, 2, 3]);
      (read!.payload as Uint8Array).fill(8);
      const [again] = await readAll(store(), log);
      expect([...(again!.payload as Uint8Array)]).toEqual([1, 2, 3]);
    });

    it('keeps payloads of the largest size, text and bytes', async () => {
      const log = uniqueLog('large');
      const text = JSON.stringify('é'.repeat(PAYLOAD_BYTES / 2 - 1));
      const bytes = new Uint8Array(PAYLOAD_BYTES).map((_, i) => (i * 31) % 256);
      await append(store(), log, [entry(0, { payload: text }), entry(1, { payload: bytes })]);
      const [first, second] = await readAll(store(), log);
      expect(first!.payload === text).toBe(true);
      expect(Buffer.compare(second!.payload as Uint8Array, bytes)).toBe(0);
    });

    it.each([
      ['emoji', 'tópic 🐌 漢字'],
      ['a control character', '\u0001slot/3'],
      ['slashes and quotes', `a/b//c'd"e;--%_*?`],
      ['trailing blanks', 'name  '],
      ['255 bytes', 'ü'.repeat(109)],
    ])('takes topics with %s', async (_, name) => {
      const log = { topic: `${name}${uniqueTopic('')}`, tier: 3 };
      const other = { topic: `${log.topic} `, tier: 3 };
      await append(store(), log, [entry(0, { messageId: name, origin: { ...log, id: 4 }, originVersion: 2 })]);
      expect(await readAll(store(), log)).toMatchObject([{ messageId: name, origin: { ...log, id: 4 } }]);
      expect(await readAll(store(), other)).toEqual([]);
    });

    it('keeps logs apart: topics, tiers, letter case', async () => {
      const topic = uniqueTopic('Apart');
      const logs = [
        { topic, tier: 0 },
        { topic, tier: 1 },
        { topic: topic.toLowerCase(), tier: 0 },
        { topic, tier: 7_000_000_000 },
      ];
      for (const [i, log] of logs.entries()) await append(store(), log, [entry(i)]);
      for (const [i, log] of logs.entries()) expect(await readAll(store(), log)).toMatchObject([{ uid: `uid-${i}` }]);
    });

    it('fills a segment and goes on in the next', async () => {
      const log = uniqueLog('fill');
      await append(
        store(),
        log,
        range(0, 200).map((i) => entry(i)),
      );
      await append(
        store(),
        log,
        range(200, SEGMENT).map((i) => entry(i)),
      );
      expect(await store().readSegment(log, 0)).toMatchObject({ nextId: SEGMENT, sealedAt: null });
      expect(await store().readSegment(log, 1)).toBeNull();
      expect(await append(store(), log, [entry(SEGMENT)], { segment: 1 })).toBe(SEGMENT);
      expect(await store().readSegment(log, 1)).toMatchObject({ nextId: SEGMENT + 1, scan: SEGMENT, term: 0 });
      expect((await readAll(store(), log)).map(({ id }) => id)).toEqual(range(0, SEGMENT));
      expect((await readAll(store(), log, 1)).map(({ id }) => id)).toEqual([SEGMENT]);
    });

    it('seals a segment behind its entries', async () => {
      const log = uniqueLog('seal');
      await append(store(), log, [entry(0)]);
      await append(store(), log, [entry(1), entry(2)], { seal: true });
      expect(await store().readSegment(log, 0)).toMatchObject({ nextId: SEGMENT, sealedAt: 3 });
      expect(await readAll(store(), log)).toHaveLength(3);
      for (const expectNext of [null, 3]) {
        const late = appendOf(log, { expectNext, firstId: expectNext ?? 0, entries: [entry('late')] });
        expect(await store().append(late)).toEqual(CONFLICT);
      }
    });

    it('seals a segment without adding to it', async () => {
      const log = uniqueLog('seal-alone');
      await append(store(), log, [entry(0)]);
      await append(store(), log, [], { seal: true });
      expect(await store().readSegment(log, 0)).toMatchObject({ nextId: SEGMENT, sealedAt: 1 });
      expect(await readAll(store(), log)).toHaveLength(1);
    });

    it('reads ranges and limits in the order of ids', async () => {
      const log = uniqueLog('ranges');
      await append(
        store(),
        log,
        range(0, 20).map((i) => entry(i)),
      );
      const ids = async (from: number, to: number, limit: number) => {
        const entries = await store().readEntries({ log, from, to, limit });
        const heads = await store().readHeads({ log, from, to, limit });
        expect(heads).toEqual(entries.map(headOf));
        return entries.map(({ id }) => id);
      };
      expect(await ids(0, SEGMENT, 100)).toEqual(range(0, 20));
      expect(await ids(5, 9, 100)).toEqual([5, 6, 7, 8]);
      expect(await ids(5, SEGMENT, 3)).toEqual([5, 6, 7]);
      expect(await ids(19, 20, 1)).toEqual([19]);
      expect(await ids(20, SEGMENT, 10)).toEqual([]);
      expect(await ids(7, 7, 10)).toEqual([]);
    });

    it('lets exactly one of 50 racing appends win each round, and leaves no gap', async () => {
      const log = uniqueLog('race');
      for (let round = 0; round < 5; round++) {
        const expectNext = (await store().readSegment(log, 0, true))?.nextId ?? null;
        const firstId = expectNext ?? 0;
        const outcomes = await Promise.all(
          range(0, 50).map((racer) => {
            const entries = [entry(`${round}/${racer}/0`), entry(`${round}/${racer}/1`)];
            return definite(() => store().append(appendOf(log, { expectNext, firstId, entries })));
          }),
        );
        const applied = outcomes.flatMap(({ kind }, racer) => (kind === 'applied' ? [racer] : []));
        const rows = (await readAll(store(), log)).filter(({ id }) => id >= firstId);
        const winner = rows[0]!.uid.split('/')[1];
        expect(rows.map(({ id, uid }) => [id, uid])).toEqual([
          [firstId, `uid-${round}/${winner}/0`],
          [firstId + 1, `uid-${round}/${winner}/1`],
        ]);
        // A winner whose answer got lost reads a conflict when it repeats, so none may know, but never another one.
        expect(applied.filter((racer) => String(racer) !== winner)).toEqual([]);
        expect(applied.length).toBeLessThanOrEqual(1);
      }
      expect((await readAll(store(), log)).map(({ id }) => id)).toEqual(range(0, 10));
    });

    it('appends to many logs at once', async () => {
      const topic = uniqueTopic('many');
      const logs = range(0, 40).map((tier) => ({ topic, tier }));
      await Promise.all(logs.map((log) => append(store(), log, [entry(log.tier)])));
      const read = await Promise.all(logs.map((log) => readAll(store(), log)));
      expect(read.map(([first]) => first?.uid)).toEqual(range(0, 40).map((i) => `uid-${i}`));
    });
  });
}

export function trimConformance(store: StoreUnderTest): void {
  const settled = async (log: LogAddress, from: number, to: number) => {
    const ids = range(from, to);
    const segment = Math.floor(from / SEGMENT);
    await append(
      store(),
      log,
      ids.map((i) => entry(i)),
      { segment },
    );
    const claim = { log, segment, changes: claims(ids, leaseSet('L')) };
    const settle = { log, segment, changes: settlements(ids, 'L', doneSet()) };
    expect(await definite(() => store().change(claim))).toEqual(APPLIED);
    expect(await definite(() => store().change(settle))).toEqual(APPLIED);
  };

  describe('dropSegment', () => {
    it('deletes a header whose next id is as read, and what is appended then begins anew', async () => {
      const log = uniqueLog('dropped');
      await append(store(), log, [entry(0), entry(1)]);
      expect(await store().trim(log, 0, 0, 2)).toEqual(APPLIED);
      expect(await store().dropSegment(log, 0, 1)).toEqual(CONFLICT);
      expect(await store().readSegment(log, 0, true)).toMatchObject({ nextId: 2 });
      expect(await definite(() => store().dropSegment(log, 0, 2))).toEqual(APPLIED);
      expect(await store().readSegment(log, 0, true)).toBeNull();
      expect(await store().dropSegment(log, 0, 2)).toEqual(CONFLICT);
      await append(store(), log, [entry(2)]);
      expect(await store().readHeads({ log, from: 0, to: SEGMENT, limit: 10 })).toMatchObject([{ id: 0 }]);
    });
  });

  describe('closeSegment', () => {
    it('closes a full segment, and one that was sealed', async () => {
      const [full, sealed] = [uniqueLog('full'), uniqueLog('sealed')];
      await append(
        store(),
        full,
        range(0, SEGMENT).map((i) => entry(i)),
      );
      await append(store(), sealed, [entry(0)], { seal: true });
      for (const log of [full, sealed]) {
        expect(await definite(() => store().closeSegment(log, 0))).toEqual(APPLIED);
        expect(await store().readSegment(log, 0)).toMatchObject({ closed: true, nextId: SEGMENT });
      }
    });

    it('may be repeated', async () => {
      const log = uniqueLog('twice');
      await append(store(), log, [entry(0)], { seal: true });
      expect(await definite(() => store().closeSegment(log, 0))).toEqual(APPLIED);
      expect(await definite(() => store().closeSegment(log, 0))).toEqual(APPLIED);
    });

    it('conflicts where the segment is not full, or not there', async () => {
      const log = uniqueLog('not-full');
      await append(store(), log, [entry(0)]);
      expect(await store().closeSegment(log, 0)).toEqual(CONFLICT);
      expect(await store().closeSegment(log, 1)).toEqual(CONFLICT);
      expect(await store().readSegment(log, 0, true)).toMatchObject({ closed: false });
      expect(await store().readSegment(log, 1, true)).toBeNull();
    });
  });

  describe('trim', () => {
    it('deletes a range and keeps the header', async () => {
      const log = uniqueLog('trim');
      await settled(log, 0, 20);
      const header = await store().readSegment(log, 0);
      expect(await definite(() => store().trim(log, 0, 5, 15))).toEqual(APPLIED);
      expect((await readAll(store(), log)).map(({ id }) => id)).toEqual([...range(0, 5), ...range(15, 20)]);
      expect(await store().readSegment(log, 0)).toEqual(header);
    });

    it('deletes a whole segment, and no more', async () => {
      const log = uniqueLog('trim-all');
      await settled(log, 0, SEGMENT);
      await settled(log, SEGMENT, SEGMENT + 3);
      expect(await definite(() => store().trim(log, 0, 0, SEGMENT))).toEqual(APPLIED);
      expect(await readAll(store(), log)).toEqual([]);
      expect(await readAll(store(), log, 1)).toHaveLength(3);
      expect(await store().readSegment(log, 0)).toMatchObject({ nextId: SEGMENT });
    });

    it('lets no late writer take a trimmed segment for a new one', async () => {
      const log = uniqueLog('trim-late');
      await settled(log, 0, 4);
      expect(await definite(() => store().trim(log, 0, 0, 4))).toEqual(APPLIED);
      expect(await store().append(appendOf(log, {}))).toEqual(CONFLICT);
      expect(await append(store(), log, [entry(4)])).toBe(4);
      expect((await readAll(store(), log)).map(({ id }) => id)).toEqual([4]);
    });

    it('may be repeated, and finds nothing then', async () => {
      const log = uniqueLog('trim-twice');
      await settled(log, 0, 3);
      for (let i = 0; i < 2; i++) expect(await definite(() => store().trim(log, 0, 0, 3))).toEqual(APPLIED);
      expect(await readAll(store(), log)).toEqual([]);
    });
  });
}
