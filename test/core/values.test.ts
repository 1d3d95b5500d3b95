import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { backoffMs } from '../../src/core/backoff.ts';
import { TIERS } from '../../src/core/bounds.ts';
import { invalid, QueueError, show } from '../../src/core/errors.ts';
import { formatLeaseToken, parseLeaseToken } from '../../src/core/lease-token.ts';
import { afterLease, afterSettle, gateOf, hasLimits, type LimitState, tokensAt } from '../../src/core/limits.ts';
import {
  entriesEnd,
  farLog,
  isFarTopic,
  isSlotTopic,
  logKey,
  nearLog,
  nearLogOf,
  segmentEnd,
  segmentOf,
  segmentStart,
  shardOfLog,
  slotTimes,
  waitingLog,
} from '../../src/core/log.ts';
import { bucketOf, isLive, messageIdKey, messageKey, shardOf, uidKey } from '../../src/core/message.ts';
import { checkTopic, isWellFormed, topicNameFault, utf8Bytes } from '../../src/core/names.ts';
import { defaultPriority, priorityFault, tierOf } from '../../src/core/priority.ts';
import { DEFAULT_SETTINGS, parseSettings } from '../../src/core/settings.ts';
import { formatTaskId, parseTaskId, taskIdOf } from '../../src/core/task-id.ts';

const UID = '01ARZ3NDEKTSV4RRFFQ69G5FAV';
const topic = fc
  .string({ minLength: 1, maxLength: 40, unit: 'grapheme' })
  .filter((name) => topicNameFault(name) === null);

describe('segments and slots', () => {
  test('every id is in one segment, between its start and its end', () => {
    fc.assert(
      fc.property(fc.nat(), fc.integer({ min: 1, max: 10_000 }), (id, size) => {
        const segment = segmentOf(id, size);
        expect(id).toBeGreaterThanOrEqual(segmentStart(segment, size));
        expect(id).toBeLessThan(segmentEnd(segment, size));
        expect(segmentEnd(segment, size)).toBe(segmentStart(segment + 1, size));
      }),
    );
  });

  const due = {
    now: fc.integer({ min: 0, max: 2 ** 41 }),
    inMs: fc.integer({ min: 1, max: 366 * 86_400_000 }),
    slotMs: fc.integer({ min: 1, max: 60_000 }),
  };

  test('a delayed task waits in a slot of its shard whose time it is when it is due', () => {
    fc.assert(
      fc.property(topic, due.now, due.inMs, due.slotMs, (name, now, inMs, slotMs) => {
        const log = waitingLog(name, now + inMs, now, { shards: 8, slotMs });
        const { from, to } = slotTimes(log, slotMs);
        expect(from).toBeLessThanOrEqual(now + inMs);
        expect(to).toBeGreaterThan(now + inMs);
        expect(shardOfLog(log.topic, 8)).toBe(shardOf(name, 8));
        expect(to - from).toBe(isFarTopic(log.topic) ? 360 * slotMs : slotMs);
      }),
    );
  });

  test('what is due within one far slot from now waits in a near one, and none in a far one that is being emptied', () => {
    fc.assert(
      fc.property(topic, due.now, due.inMs, due.slotMs, (name, now, inMs, slotMs) => {
        const log = waitingLog(name, now + inMs, now, { shards: 8, slotMs });
        if (inMs <= 360 * slotMs) expect(isFarTopic(log.topic)).toBe(false);
        if (!isFarTopic(log.topic)) return;
        const times = slotTimes(log, slotMs);
        expect(times.opensAt).toBeGreaterThan(now);
        // By the time it is emptied, each goes on to a near slot that is not over.
        const near = slotTimes(nearLogOf(name, now + inMs, { shards: 8, slotMs }), slotMs);
        expect(near.overAt).toBeGreaterThan(times.opensAt);
        expect(times.from).toBeLessThanOrEqual(near.from);
      }),
    );
  });

  test('a sealed segment ends where its entries do', () => {
    const header = { nextId: 100, bytes: 0, scan: 0, term: 0, sealedAt: null, closed: false };
    expect(entriesEnd(header)).toBe(100);
    expect(entriesEnd({ ...header, sealedAt: 40 })).toBe(40);
  });

  test('slots are no users’ topics', () => {
    for (const { topic: name } of [nearLog(3, 9), farLog(3, 9)]) {
      expect(isSlotTopic(name)).toBe(true);
      expect(topicNameFault(name)).toBe('free of control characters');
    }
    expect([isFarTopic(nearLog(3, 9).topic), isFarTopic(farLog(3, 9).topic)]).toEqual([false, true]);
    fc.assert(fc.property(topic, (name) => !isSlotTopic(name)));
    expect(logKey({ topic: 'a/1', tier: 2 })).not.toBe(logKey({ topic: '1', tier: 2 }));
  });
});

describe('names and keys', () => {
  test('a task id is read as it was written, for any message id', () => {
    fc.assert(
      fc.property(
        topic,
        fc.string({ minLength: 1, unit: 'grapheme' }),
        fc.nat({ max: 10 }),
        fc.nat(),
        (name, messageId, tier, id) => {
          const place = { topic: name, tier, id };
          expect(parseTaskId(formatTaskId({ uid: UID, messageId: null }, place), name, 1)).toEqual({ uid: UID, place });
          expect(parseTaskId(formatTaskId({ uid: UID, messageId }, place), name, 1)).toEqual({ uid: UID, messageId });
          for (const slotLog of [nearLog, farLog]) {
            const slot = { ...slotLog(shardOf(name, 8), 7_183_998_092), id };
            const text = formatTaskId({ uid: UID, messageId: null }, slot);
            expect(parseTaskId(text, name, 8)).toEqual({ uid: UID, place: slot });
          }
          expect(taskIdOf({ uid: UID, messageId: null, taskId: 'kept' }, place)).toBe('kept');
        },
      ),
    );
  });

  test('what is no task id or lease token is none, and nothing throws', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(parseTaskId(text, 't', 1)).toBeNull();
        expect(parseLeaseToken(text)).toBeNull();
      }),
    );
    for (const text of [
      `${UID}`,
      `${UID}.5`,
      `${UID}.5.`,
      `${UID}.05.1`,
      `${UID}.5.1.2`,
      `${UID}.s.1`,
      `${UID}.l.1`,
      `${UID}.x1.1`,
      `${UID}.100.1`,
      `${UID}~`,
      `${UID}~*`,
      `${UID}x5.1`,
    ]) {
      expect(parseTaskId(text, 't', 1)).toBeNull();
    }
    const id = 'A'.repeat(22);
    for (const text of [`${id}.5.1.`, `${id}.5`, `${id}.5.1`, `${id}.x.1.t`, `${id}.100.1.t`, `${id}x5.1.t`])
      expect(parseLeaseToken(text)).toBeNull();
  });

  test('a lease token is read as it was written, for any topic', () => {
    fc.assert(
      fc.property(topic, fc.nat({ max: 10 }), fc.nat(), (name, tier, id) => {
        const leaseId = 'Aa0_-'.repeat(5).slice(0, 22);
        const place = { topic: name, tier, id };
        expect(parseLeaseToken(formatLeaseToken(leaseId, place))).toEqual({ leaseId, place });
      }),
    );
  });

  test('UTF-8 is counted, and what is not well formed is found', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        if (isWellFormed(text)) expect(utf8Bytes(text)).toBe(Buffer.byteLength(text, 'utf8'));
        expect(isWellFormed(text)).toBe(Buffer.from(text, 'utf8').toString('utf8') === text);
      }),
    );
    expect(isWellFormed('\ud800')).toBe(false);
    expect(isWellFormed('a\udc00')).toBe(false);
  });

  test('each rule of a topic’s name is named', () => {
    const faults = ['', 'x'.repeat(256), 'a\u0000b', 'a*', '.', '..', '\ud800', 7].map((name) => topicNameFault(name));
    expect(faults.every((fault) => fault !== null)).toBe(true);
    expect(new Set(faults).size).toBe(7);
    expect(topicNameFault('x'.repeat(255))).toBeNull();
    expect(() => checkTopic('a*')).toThrow(QueueError);
    expect(checkTopic('mail')).toBe('mail');
    expect(checkTopic('mail')).toBe('mail');
  });

  test('keys of message ids and of uids never meet; buckets and shards are stable and in range', () => {
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 1, max: 300 }), (text, count) => {
        expect(messageIdKey(text)).not.toBe(uidKey(text));
        expect(bucketOf(text, count)).toBe(bucketOf(text, count));
        for (const nth of [bucketOf(text, count), shardOf(text, count)]) {
          expect(nth).toBeGreaterThanOrEqual(0);
          expect(nth).toBeLessThan(count);
        }
      }),
    );
    expect(messageKey({ uid: UID, messageId: 'x', hops: 0 })).toBe('mx');
    expect(messageKey({ uid: UID, messageId: null, hops: 0 })).toBeNull();
    expect(messageKey({ uid: UID, messageId: null, hops: 1 })).toBe(`u${UID}`);
    expect([isLive('live'), isLive('dead')]).toEqual([true, false]);
  });

  test('an input error names the value, the rule and an example', () => {
    const error = invalid('/priority', 10, 'from 0 to 9', '5');
    expect(error.detail).toBe('/priority: 10 is not from 0 to 9; for example: 5');
    expect(error.issues).toEqual([{ path: '/priority', message: '10 is not from 0 to 9; for example: 5' }]);
    expect(show('x'.repeat(200)).length).toBe(78);
    expect(show(10n)).toBe('10n');
    expect(show(undefined)).toBe('undefined');
  });
});

describe('priorities', () => {
  const bands = fc
    .uniqueArray(fc.integer({ min: -1_000, max: 1_000 }), { minLength: 1, maxLength: TIERS })
    .map((list) => list.sort((a, b) => a - b));

  test('a tier is one of ten; a higher priority is never on a lower tier', () => {
    fc.assert(
      fc.property(
        fc.option(bands),
        fc.integer({ min: -2_000, max: 2_000 }),
        fc.integer({ min: -2_000, max: 2_000 }),
        (list, a, b) => {
          const settings = { bands: list, buckets: null };
          const [low, high] = [Math.min(a, b), Math.max(a, b)];
          const tiers = [tierOf(low, settings, 0), tierOf(high, settings, 0)];
          expect(tiers[0]).toBeLessThanOrEqual(tiers[1]!);
          for (const tier of tiers) expect(tier >= 0 && tier < TIERS).toBe(true);
        },
      ),
    );
  });

  test('a band begins where it says', () => {
    fc.assert(
      fc.property(bands, (list) => {
        for (const [tier, from] of list.entries()) expect(tierOf(from, { bands: list, buckets: null }, 0)).toBe(tier);
        expect(priorityFault(list[0]! - 1, { bands: list })).not.toBeNull();
        expect(priorityFault(defaultPriority({ bands: list }), { bands: list })).toBeNull();
      }),
    );
  });

  test('what is no priority is named', () => {
    for (const value of [-1, 10, 1.5, Number.NaN, '5', null])
      expect(priorityFault(value, { bands: null })).not.toBeNull();
    expect(priorityFault(9, { bands: null })).toBeNull();
    expect(defaultPriority({ bands: null })).toBe(5);
  });

  test('buckets take turns', () => {
    const settings = { bands: null, buckets: 3 };
    expect([0, 1, 2, 3].map((turn) => tierOf(9, settings, turn))).toEqual([0, 1, 2, 0]);
  });
});

test('backoff doubles up to its cap, and half of it is random', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 2_000 }),
      fc.integer({ min: 0, max: 100_000 }),
      fc.double({ min: 0, max: 0.999, noNaN: true }),
      (attempt, base, random) => {
        const settings = { backoffMs: base, maxBackoffMs: 3_600_000 };
        const full = Math.min(3_600_000, base * 2 ** Math.min(attempt - 1, 40));
        const delay = backoffMs(attempt, settings, random);
        expect(delay).toBeGreaterThanOrEqual(Math.floor(full / 2));
        expect(delay).toBeLessThanOrEqual(Math.ceil(full));
      },
    ),
  );
});

describe('limits', () => {
  const limits = fc.record({
    paused: fc.boolean(),
    blockedUntil: fc.option(fc.nat({ max: 3_000 })),
    maxInFlight: fc.option(fc.integer({ min: 1, max: 5 })),
    minIntervalMs: fc.option(fc.integer({ min: 1, max: 500 })),
    cooldownMs: fc.option(fc.integer({ min: 1, max: 500 })),
    rate: fc.option(
      fc.record({
        tasks: fc.integer({ min: 1, max: 5 }),
        perMs: fc.integer({ min: 1, max: 500 }),
        burst: fc.integer({ min: 1, max: 5 }),
      }),
    ),
  });

  test('the gate opens when it says, and not before', () => {
    fc.assert(
      fc.property(
        limits,
        fc.nat({ max: 1_000 }),
        fc.nat({ max: 1_000 }),
        fc.nat({ max: 4 }),
        fc.nat({ max: 1_000 }),
        (settings, lease, settle, inFlight, now) => {
          const state: LimitState = { lastLeaseAt: lease, lastSettledAt: settle, tokens: 0, refilledAt: 0 };
          const gate = gateOf(state, inFlight, settings, now);
          expect(hasLimits(settings) || gate.allowed === Number.POSITIVE_INFINITY).toBe(true);
          if (gate.allowed > 0 || gate.nextAt === null) return;
          expect(gate.nextAt).toBeGreaterThan(now);
          expect(gateOf(state, inFlight, settings, gate.nextAt - 1).allowed).toBe(0);
          expect(gateOf(state, inFlight, settings, gate.nextAt).allowed).toBeGreaterThan(0);
        },
      ),
    );
  });

  test('the gate of a rate opens at the same millisecond whenever it is asked', () => {
    fc.assert(
      fc.property(
        fc.record({
          tasks: fc.integer({ min: 1, max: 50 }),
          perMs: fc.integer({ min: 1, max: 100_000 }),
          burst: fc.integer({ min: 1, max: 5 }),
        }),
        fc.double({ min: -3, max: 0.999, noNaN: true }),
        fc.double({ min: 0, max: 0.999, noNaN: true }),
        (rate, tokens, part) => {
          const settings = { ...DEFAULT_SETTINGS, rate };
          const state: LimitState = { lastLeaseAt: 0, lastSettledAt: 0, tokens, refilledAt: 1_000 };
          const { nextAt } = gateOf(state, 0, settings, 1_000);
          const between = 1_000 + Math.floor(((nextAt ?? 0) - 1_000) * part);
          expect(gateOf(state, 0, settings, between)).toEqual({ allowed: 0, nextAt });
          expect(gateOf(state, 0, settings, (nextAt ?? 0) - 1).allowed).toBe(0);
          expect(gateOf(state, 0, settings, nextAt ?? 0).allowed).toBeGreaterThan(0);
        },
      ),
      { numRuns: 1_000 },
    );
  });

  test('a topic that takes all that it may never exceeds a limit', () => {
    fc.assert(
      fc.property(
        limits,
        fc.array(fc.record({ wait: fc.nat({ max: 300 }), settle: fc.nat({ max: 3 }) }), { maxLength: 60 }),
        (settings, steps) => {
          let state: LimitState = {
            lastLeaseAt: -10_000,
            lastSettledAt: -10_000,
            tokens: 0,
            refilledAt: 0,
          };
          let now = 0;
          let inFlight = 0;
          let taken = 0;
          for (const { wait, settle } of steps) {
            now += wait;
            const settled = Math.min(settle, inFlight);
            inFlight -= settled;
            if (settled > 0) state = afterSettle(state, now);
            const gate = gateOf(state, inFlight, settings, now);
            const count = Math.min(gate.allowed, 7);
            if (count === 0) continue;
            expect(settings.paused).toBe(false);
            if (settings.blockedUntil !== null) expect(now).toBeGreaterThanOrEqual(settings.blockedUntil);
            if (settings.minIntervalMs !== null)
              expect(now - state.lastLeaseAt).toBeGreaterThanOrEqual(settings.minIntervalMs);
            if (settings.cooldownMs !== null)
              expect(now - state.lastSettledAt).toBeGreaterThanOrEqual(settings.cooldownMs);
            state = afterLease(state, settings, count, now);
            taken += count;
            inFlight += count;
            if (settings.maxInFlight !== null) expect(inFlight).toBeLessThanOrEqual(settings.maxInFlight);
            if (settings.rate !== null) {
              expect(taken).toBeLessThanOrEqual((now * settings.rate.tasks) / settings.rate.perMs + 1e-6);
              expect(tokensAt(state, settings.rate, now)).toBeGreaterThanOrEqual(0);
            }
          }
        },
      ),
    );
  });

  test('an empty lease uses up nothing', () => {
    const state: LimitState = { lastLeaseAt: 5, lastSettledAt: 5, tokens: 2, refilledAt: 5 };
    expect(afterLease(state, DEFAULT_SETTINGS, 0, 100)).toBe(state);
  });
});

test('settings that were never set have their defaults', () => {
  expect(parseSettings(null)).toBe(DEFAULT_SETTINGS);
  expect(parseSettings('{"leaseMs": 7}')).toEqual({ ...DEFAULT_SETTINGS, leaseMs: 7 });
});
