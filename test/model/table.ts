/**
 * What a store keeps of logs, as a value that can be written down as text, and what its verbs do to it: each one step,
 * under the conditions that `src/store/store.ts` promises.
 */
import type { Entry, EntryChange, EntryPatch, NewEntry, Place } from '../../src/core/entry.ts';
import { FIRST_VERSION } from '../../src/core/entry.ts';
import { type Checkpoint, type SegmentHeader, segmentEnd, segmentOf, segmentStart } from '../../src/core/log.ts';

/** Ids of one segment. */
export const SIZE = 2;
export const TOPIC = 't';
export const DEAD = 10;

/** What the protocol looks at of an entry; all else is as in `BLANK`. */
export interface Row {
  readonly uid: string;
  readonly status: Entry['status'];
  readonly version: number;
  readonly hops: number;
  readonly attempt: number;
  readonly leaseId?: string | null;
  readonly dest?: Place;
  readonly origin?: Place;
  readonly originVersion?: number;
}
interface Segment {
  header: SegmentHeader;
  readonly rows: Record<number, Row>;
}
interface LogState {
  readonly segments: Record<number, Segment>;
  mark: Checkpoint;
}
export interface Lease {
  readonly tier: number;
  readonly id: number;
  readonly uid: string;
  readonly leaseId: string;
}

export interface State {
  readonly logs: Record<number, LogState>;
  /** Enqueues that were acknowledged. */
  readonly acked: string[];
  /** How often a task was completed. */
  readonly done: Record<string, number>;
  /** Under which lease a task's completion was acknowledged. */
  readonly told: Record<string, string[]>;
  /** Leases that were handed out, and that no worker has taken up. */
  readonly leases: Lease[];
  /** Writes whose senders went on, and that may still be carried out. */
  readonly late: Op[];
  /** How many more answers may get lost. */
  doubts: number;
  /** What no step may ever do, done. */
  broken?: string;
}

export type Op =
  | { readonly kind: 'segment'; readonly tier: number; readonly segment: number }
  | { readonly kind: 'row'; readonly tier: number; readonly id: number }
  /** A range of ids of one segment. */
  | { readonly kind: 'rows'; readonly tier: number; readonly from: number; readonly to: number }
  | { readonly kind: 'mark'; readonly tier: number }
  | {
      readonly kind: 'append';
      readonly tier: number;
      readonly segment: number;
      readonly expectNext: number | null;
      readonly firstId: number;
      readonly entries: readonly NewEntry[];
      readonly seal: boolean;
    }
  | {
      readonly kind: 'change';
      readonly tier: number;
      readonly segment: number;
      readonly changes: readonly EntryChange[];
      readonly scan?: { readonly from: number; readonly to: number; readonly seenTerm: number; readonly term: number };
      /** Wrong: whatever stands there is overwritten. */
      readonly careless?: boolean;
    }
  | { readonly kind: 'close'; readonly tier: number; readonly segment: number }
  | {
      readonly kind: 'trim';
      readonly tier: number;
      readonly segment: number;
      readonly to: number;
      readonly header?: boolean;
    }
  | { readonly kind: 'advance'; readonly tier: number; readonly mark: Checkpoint }
  // What is told to others.
  | { readonly kind: 'acked'; readonly uid: string }
  | { readonly kind: 'grant'; readonly lease: Lease }
  | { readonly kind: 'take' }
  | { readonly kind: 'told'; readonly uid: string; readonly leaseId: string }
  /** Not a step of the store: whatever may come, comes. */
  | { readonly kind: 'choose'; readonly what: string; readonly among: number };

export interface Answer {
  readonly kind: 'applied' | 'conflict' | 'unknown';
  readonly rows: readonly (Row & { readonly id: number })[];
  readonly header: SegmentHeader | null;
}
/** Ops whose answers may get lost. */
export const CONDITIONAL: ReadonlySet<Op['kind']> = new Set(['append', 'change']);

export const place = (tier: number, id: number): Place => ({ topic: TOPIC, tier, id });
const NOTHING: Omit<Answer, 'kind'> = { rows: [], header: null };

function logAt({ logs }: State, tier: number): LogState {
  logs[tier] ??= { segments: {}, mark: { scan: 0, completion: 0, trimmed: 0 } };
  return logs[tier];
}

/** Carries out an operation; the state is changed in place. */
export function carryOut(state: State, op: Op): unknown {
  const log = 'tier' in op ? logAt(state, op.tier) : null;
  switch (op.kind) {
    case 'segment':
      return log!.segments[op.segment]?.header ?? null;
    case 'row':
      return log!.segments[segmentOf(op.id, SIZE)]?.rows[op.id] ?? null;
    case 'rows': {
      const rows = log!.segments[segmentOf(op.from, SIZE)]?.rows ?? {};
      return Object.entries(rows).flatMap(([id, row]) =>
        Number(id) >= op.from && Number(id) < op.to ? [{ id: Number(id), ...row }] : [],
      );
    }
    case 'mark':
      return log!.mark;
    case 'append':
      return append(log!, op);
    case 'change':
      return change(state, log!, op);
    case 'close': {
      const segment = log!.segments[op.segment];
      if (segment?.header.nextId !== segmentEnd(op.segment, SIZE)) return 'conflict';
      segment.header = { ...segment.header, closed: true };
      return 'applied';
    }
    case 'trim': {
      const segment = log!.segments[op.segment];
      for (const id of Object.keys(segment?.rows ?? {})) if (Number(id) < op.to) delete segment!.rows[Number(id)];
      if (op.header) delete log!.segments[op.segment];
      return 'applied';
    }
    case 'advance':
      log!.mark = {
        scan: Math.max(log!.mark.scan, op.mark.scan),
        completion: Math.max(log!.mark.completion, op.mark.completion),
        trimmed: 0,
      };
      return null;
    case 'acked':
      state.acked.push(op.uid);
      return null;
    case 'grant':
      state.leases.push(op.lease);
      return null;
    case 'take':
      return state.leases.shift() ?? null;
    case 'told':
      state.told[op.uid] = [...new Set([...(state.told[op.uid] ?? []), op.leaseId])];
      return null;
    case 'choose':
      throw new Error('a choice is not a step of the store');
  }
}

function append(log: LogState, op: Extract<Op, { kind: 'append' }>): Answer {
  const { segment, expectNext, firstId, entries, seal } = op;
  const stored = log.segments[segment];
  if ((stored?.header.nextId ?? null) !== expectNext) return { kind: 'conflict', ...NOTHING };
  const behind = firstId + entries.length;
  const before = stored?.header ?? {
    scan: segmentStart(segment, SIZE),
    term: 0,
    closed: false,
    bytes: 0,
    sealedAt: null,
  };
  const header: SegmentHeader = {
    ...before,
    nextId: seal ? segmentEnd(segment, SIZE) : behind,
    sealedAt: seal ? behind : before.sealedAt,
  };
  if (stored === undefined) log.segments[segment] = { header, rows: {} };
  else stored.header = header;
  for (const [nth, { uid, status, hops, attempt, origin, originVersion }] of entries.entries()) {
    const moved = origin === null ? {} : { origin, originVersion: originVersion! };
    log.segments[segment]!.rows[firstId + nth] = { uid, status, version: FIRST_VERSION, hops, attempt, ...moved };
  }
  return { kind: 'applied', ...NOTHING };
}

function change(state: State, log: LogState, op: Extract<Op, { kind: 'change' }>): Answer {
  const { segment, changes, scan, careless } = op;
  const stored = log.segments[segment];
  const header = stored?.header ?? null;
  const holds =
    careless === true ||
    changes.every(({ id, expect }) => {
      const row = stored?.rows[id];
      if (row === undefined) return false;
      return 'leaseId' in expect
        ? row.status === 'leased' && row.leaseId === expect.leaseId
        : row.uid === expect.uid && row.version === expect.version;
    });
  const admits = scan === undefined || (header !== null && header.scan === scan.from && header.term === scan.seenTerm);
  if (!holds || !admits) {
    const rows = changes.flatMap(({ id }) => (stored?.rows[id] === undefined ? [] : [{ id, ...stored.rows[id] }]));
    return { kind: 'conflict', rows, header };
  }
  for (const { id, set } of changes) {
    const before = stored!.rows[id];
    if (before === undefined) continue;
    if (set.version <= before.version && before.status !== set.status)
      state.broken ??= `Q3: ${id} kept version ${before.version}`;
    if (set.status === 'done') state.done[before.uid] = (state.done[before.uid] ?? 0) + 1;
    stored!.rows[id] = patched(before, set);
  }
  if (scan !== undefined) {
    if (scan.term < header!.term) state.broken ??= `Q9: claimed in under term ${header!.term}, then ${scan.term}`;
    if (scan.to < header!.scan) state.broken ??= `Q4: the scan cursor fell to ${scan.to}`;
    stored!.header = { ...header!, scan: scan.to, term: scan.term };
  }
  return { kind: 'applied', ...NOTHING };
}

function patched(row: Row, { status, version, leaseId, dest }: EntryPatch): Row {
  return {
    ...row,
    status,
    version,
    ...(leaseId === undefined ? {} : { leaseId }),
    ...(dest === undefined || dest === null ? {} : { dest }),
  };
}

/** When a lease ends; whoever looks at it chooses whether that is past. */
export const LEASE_UNTIL = 1;

const BLANK = {
  messageId: null,
  payload: '',
  metadata: null,
  priority: 5,
  maxAttempts: null,
  history: null,
  enqueuedAt: 0,
  expiresAt: null,
  dueAt: null,
  target: null,
  placedAt: 0,
  supersedes: null,
  taskId: 'x',
  worker: null,
  result: null,
  progress: null,
  reason: null,
  // All writes are made in the same millisecond: nobody can tell his own by it.
  updatedAt: 0,
};

/** A row as production code sees it. */
export function entryOf(id: number, row: Row): Entry {
  const leased = row.status === 'leased';
  return {
    ...BLANK,
    id,
    uid: row.uid,
    status: row.status,
    version: row.version,
    hops: row.hops,
    attempt: row.attempt,
    leaseId: row.leaseId ?? null,
    leasedAt: leased ? 0 : null,
    leaseUntil: leased ? LEASE_UNTIL : null,
    dest: row.dest ?? null,
    origin: row.origin ?? null,
    originVersion: row.originVersion ?? null,
  };
}

/** A task as an enqueue appends it. */
export const newTask = (uid: string): NewEntry => ({
  ...BLANK,
  uid,
  taskId: null,
  attempt: 0,
  hops: 0,
  origin: null,
  originVersion: null,
  status: 'ready',
});
