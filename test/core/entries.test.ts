import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HISTORY_ATTEMPTS, REASON_BYTES } from '../../src/core/bounds.ts';
import { decideClaim } from '../../src/core/claim.ts';
import {
  type Entry,
  type EntryStatus,
  entryBytes,
  FINAL_VERSION,
  FIRST_VERSION,
  isFinal,
  mayBecome,
  type Place,
  samePlace,
  versionAfter,
} from '../../src/core/entry.ts';
import { parseHistory, withAttempt } from '../../src/core/history.ts';
import { decideDead, decideScan, failedAttempt } from '../../src/core/scan.ts';
import { DEFAULT_SETTINGS } from '../../src/core/settings.ts';

const STATUSES: readonly EntryStatus[] = [
  'ready',
  'leased',
  'pending',
  'moved',
  'void',
  'done',
  'duplicate',
  'expired',
  'cancelled',
];
const status = fc.constantFrom(...STATUSES);
const place: fc.Arbitrary<Place> = fc.record({
  topic: fc.string({ minLength: 1 }),
  tier: fc.integer({ min: 0, max: 10 }),
  id: fc.nat(),
});
const time = fc.integer({ min: 0, max: 2_000 });

const entry: fc.Arbitrary<Entry> = fc.record({
  id: fc.nat(),
  uid: fc.constantFrom('a', 'b'),
  messageId: fc.option(fc.string()),
  payload: fc.constant('1'),
  metadata: fc.constant(null),
  priority: fc.integer({ min: 0, max: 9 }),
  maxAttempts: fc.option(fc.integer({ min: 1, max: 10 })),
  attempt: fc.integer({ min: 0, max: 12 }),
  hops: fc.nat({ max: 5 }),
  history: fc.constant(null),
  enqueuedAt: time,
  expiresAt: fc.option(time),
  dueAt: fc.constant(null),
  target: fc.constant(null),
  placedAt: time,
  origin: fc.option(place),
  originVersion: fc.option(fc.nat()),
  supersedes: fc.option(fc.constantFrom('a', 'b', 'c')),
  taskId: fc.constant(null),
  status,
  version: fc.integer({ min: FIRST_VERSION, max: 100 }),
  leaseId: fc.constant(null),
  worker: fc.constant(null),
  leasedAt: fc.option(time),
  leaseUntil: fc.option(time),
  updatedAt: time,
  dest: fc.option(place),
  result: fc.constant(null),
  progress: fc.constant(null),
  reason: fc.constant(null),
});

describe('states', () => {
  test('nothing leads out of a final state, and every other one leads to an end', () => {
    for (const from of STATUSES) {
      const to = STATUSES.filter((next) => mayBecome(from, next));
      if (isFinal(from)) expect(to).toEqual([]);
      else expect(to.some(isFinal)).toBe(true);
    }
  });

  test('a version only grows, and a final one is the highest: a condition that became false stays false', () => {
    fc.assert(
      fc.property(fc.array(status, { maxLength: 20 }), (steps) => {
        let now: EntryStatus = 'pending';
        let version = FIRST_VERSION;
        for (const next of steps) {
          if (!mayBecome(now, next)) continue;
          const raised = versionAfter(next, version);
          expect(raised).toBeGreaterThan(version);
          if (isFinal(next)) expect(raised).toBe(FINAL_VERSION);
          [now, version] = [next, raised];
        }
      }),
    );
  });

  test('a place equals itself and no other', () => {
    fc.assert(
      fc.property(place, place, (a, b) => {
        expect(samePlace(a, { ...a })).toBe(true);
        expect(samePlace(a, b)).toBe(a.topic === b.topic && a.tier === b.tier && a.id === b.id);
        expect(samePlace(a, null)).toBe(false);
      }),
    );
  });

  test('bytes of an entry grow with what it holds', () => {
    fc.assert(
      fc.property(fc.string(), fc.uint8Array(), (text, bytes) => {
        const base = { metadata: null, messageId: null, history: null };
        expect(entryBytes({ ...base, payload: text })).toBe(entryBytes({ ...base, payload: '' }) + text.length);
        expect(entryBytes({ ...base, payload: bytes })).toBe(entryBytes({ ...base, payload: '' }) + bytes.length);
        expect(entryBytes({ payload: '', metadata: text, messageId: text, history: text })).toBe(
          entryBytes({ ...base, payload: '' }) + 3 * text.length,
        );
      }),
    );
  });
});

describe('decisions', () => {
  const message = fc.option(
    fc.record({
      key: fc.constant('mx'),
      uid: fc.constantFrom('a', 'b', 'c'),
      place,
      hops: fc.nat(),
      status: fc.constantFrom('live' as const, 'done' as const, 'dead' as const),
      enqueuedAt: time,
      settledAt: fc.option(time),
    }),
  );

  test('a claim ends, hands out or passes, and each change it asks for is a transition', () => {
    fc.assert(
      fc.property(entry, message, time, fc.option(time), (one, row, now, purgedAt) => {
        const decision = decideClaim(one, { now, purgedAt, message: one.messageId === null ? undefined : row });
        if (decision.kind === 'end') expect(mayBecome(one.status, decision.status)).toBe(true);
        if (decision.kind === 'claim' || decision.kind === 'own') {
          expect(mayBecome(one.status, 'leased')).toBe(true);
          expect(one.expiresAt === null || one.expiresAt > now).toBe(true);
        }
        if (one.status === 'pending') expect(decision.kind).toBe('resolve');
        else if (one.status !== 'ready') expect(decision.kind).toBe('pass');
        // Nothing is handed out whose message id belongs to another task (Q6).
        if (decision.kind === 'claim' && one.messageId !== null) expect(row?.uid).toBe(one.uid);
      }),
    );
  });

  test('the scanner leaves a lease that runs, and nothing else, as it is', () => {
    fc.assert(
      fc.property(entry, time, fc.option(time), (one, now, purgedAt) => {
        const decision = decideScan(one, { ...DEFAULT_SETTINGS, purgedAt }, now);
        expect(decision.kind === 'open').toBe(
          one.status === 'leased' && one.leaseUntil !== null && one.leaseUntil > now,
        );
        if (decision.kind === 'settled' || decision.kind === 'moved') expect(isFinal(one.status)).toBe(true);
        if (decision.kind === 'requeue' || decision.kind === 'bury') {
          expect(mayBecome(one.status, 'moved')).toBe(true);
          expect(decision.attempt).toBe(one.attempt + (one.status === 'leased' ? 1 : 0));
        }
        if (decision.kind === 'end') expect(mayBecome(one.status, decision.status)).toBe(true);
      }),
    );
  });

  test('attempts run out exactly at the limit', () => {
    fc.assert(
      fc.property(entry, (one) => {
        const failed = failedAttempt(one, DEFAULT_SETTINGS, 'no');
        const limit = one.maxAttempts ?? DEFAULT_SETTINGS.maxAttempts;
        expect(failed).toEqual({
          kind: one.attempt + 1 < limit ? 'requeue' : 'bury',
          attempt: one.attempt + 1,
          reason: 'no',
        });
      }),
    );
  });

  test('a dead letter waits for its retention, whatever its time to live', () => {
    fc.assert(
      fc.property(entry, time, (one, now) => {
        const decision = decideDead(one, { deadRetentionMs: 500, purgedAt: null }, now);
        if (one.status === 'ready') {
          expect(decision.kind).toBe(one.placedAt + 500 > now ? 'open' : 'end');
        } else expect(['resolve', 'moved', 'settled']).toContain(decision.kind);
      }),
    );
  });

  test('a dead letter of before a purge is cancelled', () => {
    const [one] = fc.sample(entry, 1);
    const dead = { ...one!, status: 'ready' as const, enqueuedAt: 10 };
    expect(decideDead(dead, { deadRetentionMs: 500, purgedAt: 10 }, 11)).toMatchObject({
      kind: 'end',
      status: 'cancelled',
    });
  });
});

describe('history', () => {
  test('keeps the newest attempts, in order, with reasons cut short', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ maxLength: 3_000 }), { minLength: 1, maxLength: 40 }), (reasons) => {
        let history: string | null = null;
        for (const [attempt, reason] of reasons.entries()) {
          history = withAttempt(history, { attempt, worker: 'w', leasedAt: 1 }, { at: 2, outcome: 'nack', reason });
        }
        const kept = parseHistory(history);
        expect(kept.length).toBe(Math.min(reasons.length, HISTORY_ATTEMPTS));
        expect(kept.at(-1)).toMatchObject({ attempt: reasons.length, reason: reasons.at(-1)!.slice(0, REASON_BYTES) });
        expect(kept.map(({ attempt }) => attempt)).toEqual(
          [...kept].map(({ attempt }) => attempt).sort((a, b) => a - b),
        );
      }),
      { numRuns: 30 },
    );
  });

  test('an entry that was never delivered adds nothing', () => {
    expect(
      withAttempt(null, { attempt: 0, worker: null, leasedAt: null }, { at: 1, outcome: 'lapsed', reason: null }),
    ).toBeNull();
    expect(parseHistory(null)).toEqual([]);
  });
});
