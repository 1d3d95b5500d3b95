/** Each rule by a store that breaks it, and what a repair makes of that. */
import { describe, expect, test } from 'vitest';
import { type AuditOptions, auditStore } from '../../src/audit/audit.ts';
import { RULES, type RuleName } from '../../src/audit/rules.ts';
import { MemoryStore } from '../../src/store/memory/store.ts';
import { DAMAGES } from './support/damage.ts';
import { Hand, LOG, NOW } from './support/hand.ts';

const audit = (hand: Hand, options: AuditOptions = {}) => auditStore(new MemoryStore(hand.tables), options);
const rulesOf = ({ rules }: { readonly rules: readonly { readonly rule: string }[] }) => rules.map(({ rule }) => rule);

test('a log in use breaks none', async () => {
  expect(await audit(Hand.inUse())).toEqual({
    store: 'memory',
    segments: 1,
    entries: 3,
    messages: 0,
    rules: [],
    found: 0,
    mended: 0,
  });
});

test('an empty store breaks none', async () => {
  expect(await audit(new Hand())).toMatchObject({ found: 0 });
});

for (const rule of Object.keys(RULES) as RuleName[]) {
  describe(rule, () => {
    test.each(DAMAGES[rule].map((damage) => [damage.what, damage] as const))('%s', async (_, { apply, mends }) => {
      const hand = Hand.inUse();
      apply(hand);
      const report = await audit(hand);
      expect(rulesOf(report), JSON.stringify(report.rules)).toEqual([rule]);
      expect(report.mended).toBe(0);

      const repaired = await audit(hand, { repair: true });
      expect(rulesOf(repaired)).toEqual([rule]);
      for (const { did, left } of repaired.rules[0]!.examples) {
        expect([typeof did, typeof left].sort()).toEqual(['object', 'string']);
      }
      hand.now += 1_000;
      const again = await audit(hand);
      if (mends) {
        expect(repaired.mended).toBe(repaired.found);
        expect(again.rules, JSON.stringify(again.rules)).toEqual([]);
      } else {
        expect(repaired.mended).toBeLessThan(repaired.found);
        expect(rulesOf(again)).toEqual([rule]);
      }
    });
  });
}

describe('what is no fault', () => {
  const OTHER = { topic: 't', tier: 4 };
  const cases: readonly (readonly [string, (hand: Hand) => void])[] = [
    [
      'a checkpoint that was not written yet',
      (hand) => {
        hand.tables.checkpoints.clear();
      },
    ],
    [
      'a front that was trimmed, and no checkpoint that says so yet',
      (hand) => {
        hand.remove(LOG, 0);
      },
    ],
    [
      'a pending entry whose move was never made',
      (hand) => {
        hand.put(OTHER, 0, 'pending', { origin: { ...LOG, id: 2 }, originVersion: 1, uid: 'uid-t-5-2', hops: 1 });
      },
    ],
    [
      'a row that is behind the entry that was just settled',
      (hand) => {
        hand.put(LOG, 1, 'done', { messageId: 'm' });
        hand.header(LOG, 0, { nextId: 3 });
        hand.row('t', { key: 'mm', uid: 'uid-t-5-1', place: { ...LOG, id: 1 } }, null);
      },
    ],
    [
      'a second task of a message id that was not met yet',
      (hand) => {
        hand.put(LOG, 1, 'leased', { messageId: 'm', leaseId: 'L', leaseUntil: NOW + 1 });
        hand.put(LOG, 2, 'ready', { messageId: 'm' });
        hand.row('t', { key: 'mm', uid: 'uid-t-5-1', place: { ...LOG, id: 1 } }, null);
      },
    ],
    [
      'a dead letter whose message id another task has by now',
      (hand) => {
        const dead = { topic: 't', tier: 10 };
        hand.put(dead, 0, 'ready', { messageId: 'm', attempt: 5, hops: 5 });
        hand.record(dead);
        hand.put(LOG, 2, 'ready', { messageId: 'm' });
        hand.row('t', { key: 'mm', uid: 'uid-t-5-2', place: { ...LOG, id: 2 } }, null);
      },
    ],
    [
      'an idle log that nobody knows of any more',
      (hand) => {
        hand.header(OTHER, 0, { nextId: 4, scan: 4 });
        hand.checkpoint(OTHER, { scan: 4, completion: 4, trimmed: 4 });
      },
    ],
    [
      'the rest of a sealed segment',
      (hand) => {
        hand.header(LOG, 0, { nextId: 10, sealedAt: 3 });
      },
    ],
  ];
  test.each(cases)('%s', async (_, apply) => {
    const hand = Hand.inUse();
    apply(hand);
    expect((await audit(hand)).rules).toEqual([]);
  });
});

describe('on a store that servers work on', () => {
  const shared = (hand: Hand) => new MemoryStore(hand.tables, { exclusive: false });

  test('what was only a race is not told', async () => {
    const hand = Hand.inUse();
    hand.unrecord();
    const pauses: number[] = [];
    const pause = async (ms: number) => {
      pauses.push(ms);
      hand.record(LOG);
    };
    expect(await auditStore(shared(hand), { pause })).toMatchObject({ found: 0 });
    expect(pauses).toHaveLength(1);
  });

  test('what stays is told once it has stood every look', async () => {
    const hand = Hand.inUse();
    hand.unrecord();
    const pauses: number[] = [];
    const pause = async (ms: number) => void pauses.push(ms);
    expect(rulesOf(await auditStore(shared(hand), { pause }))).toEqual(['unrecorded-log']);
    expect(pauses).toEqual([1_000, 5_000, 15_000]);
  });

  test('one and the same entry, and not another one in its place, has to stand there', async () => {
    const hand = Hand.inUse();
    hand.header(LOG, 0, { closed: true });
    const pause = async () => {
      hand.put(LOG, 1, 'leased', { uid: 'another', leaseId: 'L', leaseUntil: NOW + 1 });
      hand.header(LOG, 0, { nextId: 3 });
    };
    const [rule] = (await auditStore(shared(hand), { pause })).rules;
    expect(rule!.examples.map(({ id }) => id)).toEqual([2]);
  });

  test('a healthy one is not waited for', async () => {
    const pause = () => Promise.reject(new Error('no need'));
    expect(await auditStore(shared(Hand.inUse()), { pause })).toMatchObject({ found: 0 });
  });
});

test('of each rule so many examples are told, and how many there are', async () => {
  const hand = Hand.inUse();
  for (let tier = 0; tier < 4; tier++) hand.put({ topic: 'u', tier }, 0, 'ready');
  const [rule] = (await audit(hand, { limit: 2 })).rules;
  expect(rule).toMatchObject({ rule: 'unrecorded-log', group: 'lost', found: 4, mended: 0 });
  expect(rule!.examples).toHaveLength(2);
});
