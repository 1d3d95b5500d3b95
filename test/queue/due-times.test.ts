import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DueTimes } from '../../src/scheduler/due-times.ts';

const TICK = 25;

describe('due times', () => {
  test('each id is taken once, none early, and none later than a tick', () => {
    const dues = fc.array(fc.integer({ min: 0, max: 2_000 }), { maxLength: 300 });
    fc.assert(
      fc.property(dues, fc.integer({ min: 1, max: 40 }), (times, most) => {
        const due = new DueTimes(TICK, 1_000);
        for (const [id, at] of times.entries()) due.add(id, at);
        const taken: number[] = [];
        for (let now = due.nextAt; now !== null; now = due.nextAt) {
          const some = due.take(now, most);
          expect(some.length).toBeGreaterThan(0);
          expect(some.length).toBeLessThanOrEqual(most);
          for (const id of some) {
            expect(now - times[id]!).toBeGreaterThanOrEqual(0);
            expect(now - times[id]!).toBeLessThan(TICK);
          }
          taken.push(...some);
        }
        expect(due.size).toBe(0);
        expect(taken.sort((a, b) => a - b)).toEqual([...times.keys()]);
      }),
    );
  });

  test('what is due in one tick is taken in the order of ids', () => {
    const due = new DueTimes(TICK, 1_000);
    for (let id = 0; id < 100; id++) due.add(id, 10);
    expect(due.take(TICK - 1, 100)).toEqual([]);
    expect([...due.take(TICK, 60), ...due.take(TICK, 60)]).toEqual(Array.from({ length: 100 }, (_, id) => id));
  });

  test('it keeps what is due first, and what was left out is found again from the cut on', () => {
    const dues = fc.array(fc.integer({ min: 0, max: 500 }), { minLength: 1, maxLength: 400 });
    fc.assert(
      fc.property(dues, fc.integer({ min: 1, max: 50 }), (times, kept) => {
        const due = new DueTimes(TICK, kept);
        for (const [id, at] of times.entries()) due.add(id, at);
        const left = new Set(times.keys());
        for (let rounds = 0; left.size > 0; rounds++) {
          expect(rounds).toBeLessThan(times.length + 1);
          expect(due.size).toBeLessThanOrEqual(kept * 1.1);
          const latest = Math.max(
            ...due.take(Number.MAX_SAFE_INTEGER, kept * 2).map((id) => {
              left.delete(id);
              return times[id]!;
            }),
          );
          // Nothing that was left out is due in an earlier tick than what was kept.
          for (const id of left) expect(Math.ceil(times[id]! / TICK)).toBeGreaterThanOrEqual(Math.ceil(latest / TICK));
          const cut = due.uncut();
          expect(cut === null).toBe(left.size === 0);
          for (const [id, at] of times.entries()) due.add(id, at, cut);
          if (cut === null) break;
        }
        expect(left.size).toBe(0);
      }),
    );
  });
});
