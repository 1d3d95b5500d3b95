/** Where explorations begin: what is in the tables, and which processes there are. */
import { FINAL_VERSION, FIRST_VERSION } from '../../src/core/entry.ts';
import type { SegmentHeader } from '../../src/core/log.ts';
import { holder, type Memory, type WorkerMemory } from './programs.ts';
import { type Row, SIZE, type State } from './table.ts';

export interface Scenario {
  readonly note: string;
  readonly state: State;
  readonly processes: readonly Memory[];
}

/** How much of each there is. */
export interface Bounds {
  /** Answers that get lost. */
  readonly doubts: number;
  /** Turns of who hands out and scans. */
  readonly turns: number;
  /** Turns of a worker. */
  readonly works: number;
}

const EMPTY: Omit<State, 'doubts'> = { logs: {}, acked: [], done: {}, told: {}, leases: [], late: [] };

const row = (uid: string, status: Row['status'], more: Partial<Row> = {}): Row => ({
  uid,
  status,
  version: status === 'done' || status === 'moved' || status === 'void' ? FINAL_VERSION : FIRST_VERSION,
  hops: 0,
  attempt: 0,
  ...more,
});
const leased = (uid: string, leaseId: string): Row => row(uid, 'leased', { version: FIRST_VERSION + 1, leaseId });

/** A log with these rows in it, handed out up to `scan`. */
function logOf(rows: readonly (Row | null)[], scan: number, term = 1): State['logs'][number] {
  const segments: State['logs'][number]['segments'] = {};
  for (let segment = 0; segment * SIZE < rows.length; segment++) {
    const first = segment * SIZE;
    const some = rows.slice(first, first + SIZE);
    const header: SegmentHeader = {
      nextId: first + some.length,
      bytes: 0,
      scan: Math.min(Math.max(scan, first), first + some.length),
      term: scan > first ? term : 0,
      sealedAt: null,
      closed: false,
    };
    segments[segment] = { header, rows: {} };
    for (const [nth, one] of some.entries()) if (one !== null) segments[segment]!.rows[first + nth] = one;
  }
  return { segments, mark: { scan: 0, completion: 0, trimmed: 0 } };
}

const worker = (turns: number, deeds: WorkerMemory['deeds'], to: number): WorkerMemory => ({
  kind: 'worker',
  turns,
  deeds,
  to,
});
const producer = (uids: readonly string[], seals = false): Memory => ({ kind: 'producer', tier: 1, uids, seals });
const lease = (id: number, uid: string, leaseId: string) => ({ tier: 1, id, uid, leaseId });

export const SCENARIOS: Readonly<Record<string, (bounds: Bounds) => Scenario>> = {
  log: ({ doubts, turns, works }) => ({
    note: 'one log: a producer, a server that hands out and scans, a worker that completes, extends, gives back',
    state: { ...EMPTY, doubts },
    processes: [producer(['a']), holder(1, 1, turns), worker(works, ['ack', 'extend', 'nack'], 1)],
  }),
  writers: ({ doubts, turns }) => ({
    note: 'two producers on one log',
    state: { ...EMPTY, doubts },
    processes: [producer(['a']), producer(['b']), holder(1, 1, Math.min(turns, 3))],
  }),
  across: ({ doubts, turns, works }) => ({
    note: 'a move from one log to another, and two servers that may finish it',
    state: {
      ...EMPTY,
      doubts,
      acked: ['a'],
      logs: { 1: logOf([leased('a', 'x')], 1) },
      leases: [lease(0, 'a', 'x'), lease(0, 'a', 'x')],
    },
    processes: [
      worker(works, ['ack', 'nack'], 2),
      worker(1, ['ack', 'nack'], 2),
      holder(1, 2, turns),
      holder(2, 2, Math.min(turns, 3)),
    ],
  }),
  segments: ({ doubts, turns, works }) => ({
    note: 'full segments: one with a long lease, behind it settled ones that are closed and trimmed; a late producer',
    state: {
      ...EMPTY,
      doubts,
      acked: ['a', 'c'],
      done: { b: 1, d: 1 },
      logs: {
        1: logOf(
          [
            leased('a', 'x'),
            row('b', 'done'),
            leased('c', 'y'),
            row('d', 'done'),
            row('e', 'void'),
            row('c', 'pending', { origin: { topic: 't', tier: 1, id: 2 }, originVersion: FIRST_VERSION + 1, hops: 1 }),
          ],
          5,
        ),
      },
      leases: [lease(2, 'c', 'y'), lease(0, 'a', 'x')],
    },
    processes: [producer(['f']), holder(1, 2, turns + 1), worker(works, ['ack'], 1)],
  }),
  sealing: ({ doubts, turns }) => ({
    note: 'segments that are sealed before they are full, by a large entry and by a pair that does not fit',
    state: { ...EMPTY, doubts, acked: ['z'], logs: { 1: logOf([row('z', 'ready')], 0, 0) } },
    processes: [producer(['a', 'b']), producer(['c'], true), holder(1, 1, turns)],
  }),
  terms: ({ doubts, turns, works }) => ({
    note: 'a server and the one that took over from it: what the first one had sent may land at any time',
    state: {
      ...EMPTY,
      doubts,
      acked: ['a', 'b'],
      logs: { 1: logOf([row('a', 'ready'), row('b', 'ready')], 0, 0) },
    },
    processes: [holder(1, 1, Math.min(turns, 3)), holder(1, 2, turns + 1), worker(works, ['ack'], 1)],
  }),
};
