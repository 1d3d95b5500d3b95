/**
 * The move protocol, explored: several processes carry one move to an end, each may stop anywhere, and the origin's
 * holder may settle or extend meanwhile. Whatever the order, the task has one live entry, or was settled once.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Entry, FINAL_VERSION, FIRST_VERSION, isFinal, type Place } from '../../src/core/entry.ts';
import { commitPatch, nextMoveStep, pendingEntry, verdictPatch } from '../../src/core/move.ts';

const ORIGIN: Place = { topic: 't', tier: 5, id: 0 };
const origin: Entry = {
  id: 0,
  uid: '01ARZ3NDEKTSV4RRFFQ69G5FAV',
  messageId: null,
  payload: '1',
  metadata: null,
  priority: 5,
  maxAttempts: null,
  attempt: 0,
  hops: 0,
  history: null,
  enqueuedAt: 1,
  expiresAt: null,
  dueAt: null,
  target: null,
  placedAt: 1,
  origin: null,
  originVersion: null,
  supersedes: null,
  taskId: null,
  status: 'leased',
  version: 2,
  leaseId: 'L',
  worker: null,
  leasedAt: 1,
  leaseUntil: 10,
  updatedAt: 1,
  dest: null,
  result: null,
  progress: null,
  reason: null,
};

type Row = Pick<Entry, 'status' | 'version' | 'dest' | 'uid'>;

/** What a process does in one atomic step; several moves of the same entry run at once, one a destination. */
type Step =
  | { readonly kind: 'append' | 'commit' | 'mark'; readonly dest: number }
  | { readonly kind: 'ack' | 'extend' | 'trim' };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constantFrom('append' as const, 'commit' as const, 'mark' as const), dest: fc.nat({ max: 2 }) }),
  fc.record({ kind: fc.constantFrom('ack' as const, 'extend' as const, 'trim' as const) }),
);

describe('moves', () => {
  test('in any order of any steps there is one live entry, or one settlement', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        let source: Row | null = { ...origin };
        const dests = new Map<number, Row & { readonly saw: number }>();
        let settled = 0;
        const placeOf = (id: number): Place => ({ topic: 't', tier: 5, id: id + 1 });
        const decide = (id: number) =>
          nextMoveStep(
            { place: placeOf(id), uid: origin.uid, origin: ORIGIN, originVersion: dests.get(id)!.saw },
            source,
          );
        for (const one of steps) {
          if (one.kind === 'append' && source !== null && !isFinal(source.status) && !dests.has(one.dest)) {
            const made = pendingEntry({ ...origin, version: source.version }, ORIGIN, { placedAt: 2 });
            dests.set(one.dest, {
              status: made.status,
              version: FIRST_VERSION,
              dest: null,
              uid: made.uid,
              saw: made.originVersion!,
            });
          }
          if (one.kind === 'commit' && dests.get(one.dest)?.status === 'pending' && decide(one.dest) === 'commit') {
            source = { ...source!, ...commitPatch(placeOf(one.dest), 3, null, false) };
          }
          const pending = one.kind === 'mark' ? dests.get(one.dest) : undefined;
          if (one.kind === 'mark' && pending?.status === 'pending') {
            const verdict = decide(one.dest);
            if (verdict !== 'commit') dests.set(one.dest, { ...pending, ...verdictPatch(verdict, 4) });
          }
          if (one.kind === 'ack' && source?.status === 'leased') {
            source = { ...source, status: 'done', version: FINAL_VERSION };
            settled++;
          }
          if (one.kind === 'extend' && source?.status === 'leased') source = { ...source, version: source.version + 1 };
          // An origin is trimmed only once it is final and the destination it names is no longer pending.
          const named = source?.status === 'moved' ? dests.get(source.dest!.id - 1) : undefined;
          if (one.kind === 'trim' && source !== null && isFinal(source.status) && named?.status !== 'pending')
            source = null;

          const live =
            [...dests.values()].filter(({ status }) => status === 'ready').length +
            (source?.status === 'leased' ? 1 : 0);
          expect(live + settled).toBeLessThanOrEqual(1);
          // Nothing is lost: what is neither live nor settled is on its way to the destination that the origin names.
          if (live + settled === 0) expect(named?.status).toBe('pending');
        }
        // Whoever comes last finishes every move, with the same verdict.
        for (const [id, pending] of dests) {
          if (pending.status !== 'pending') continue;
          if (decide(id) === 'commit') source = { ...source!, ...commitPatch(placeOf(id), 5, null, true) };
          const verdict = decide(id);
          expect(verdict).not.toBe('commit');
          if (verdict !== 'commit') dests.set(id, { ...pending, ...verdictPatch(verdict, 6) });
        }
        const live =
          [...dests.values()].filter(({ status }) => status === 'ready').length + (source?.status === 'leased' ? 1 : 0);
        expect(live + settled).toBe(1);
      }),
      { numRuns: 2_000 },
    );
  });

  test('an origin of another task, or gone, means that the move did not happen', () => {
    const move = { place: { topic: 't', tier: 5, id: 1 }, uid: origin.uid, origin: ORIGIN, originVersion: 2 };
    expect(nextMoveStep(move, null)).toBe('mark-void');
    expect(nextMoveStep(move, { ...origin, uid: 'other' })).toBe('mark-void');
  });

  test('a moved task keeps its id, and counts its moves', () => {
    const once = pendingEntry(origin, ORIGIN, { placedAt: 2 });
    const twice = pendingEntry(
      { ...origin, ...once, id: 7 },
      { ...ORIGIN, id: 7 },
      { placedAt: 3, dueAt: 9, target: 't' },
    );
    expect(once.taskId).toBe(`${origin.uid}.5.0`);
    expect(twice).toMatchObject({ taskId: once.taskId, hops: 2, dueAt: 9, target: 't', status: 'pending' });
  });
});
