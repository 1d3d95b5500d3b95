/**
 * What processes do, as generators that yield each step of the store, and decide by what they are given to decide by.
 * One turn is one run of a generator; what a process remembers between two turns is its memory, a plain value.
 */
import { type EntryChange, FIRST_VERSION, type NewEntry } from '../../src/core/entry.ts';
import { type Checkpoint, type SegmentHeader, segmentEnd, segmentOf, segmentStart } from '../../src/core/log.ts';
import type { PendingMove } from '../../src/core/move.ts';
import type { Decisions } from './decisions.ts';
import { type Answer, DEAD, entryOf, type Lease, newTask, type Op, place, type Row, SIZE } from './table.ts';

const TRIES = 3;
const SETTINGS = { maxAttempts: 2, purgedAt: null, deadRetentionMs: 1_000 };
/** The time at which a lease is over, and one at which it isn't. */
const [EARLY, LATE] = [0, 2];

export interface ProducerMemory {
  readonly kind: 'producer';
  readonly tier: number;
  /** Appended together. */
  readonly uids: readonly string[];
  /** The segment is sealed behind them, as if they were large. */
  readonly seals: boolean;
}
export interface HolderMemory {
  readonly kind: 'holder';
  readonly tier: number;
  readonly term: number;
  /** Turns it has left. */
  readonly turns: number;
  readonly loaded: boolean;
  readonly scan: number;
  readonly completion: number;
  readonly open: readonly number[];
  readonly unseen: { readonly from: number; readonly to: number } | null;
  readonly closed: readonly number[];
  /** It does only this, where it is not left to chance. */
  readonly only?: HolderDeed;
}
export interface WorkerMemory {
  readonly kind: 'worker';
  readonly turns: number;
  readonly deeds: readonly ('ack' | 'extend' | 'nack')[];
  /** Where what it gives back goes. */
  readonly to: number;
}
export type Memory = ProducerMemory | HolderMemory | WorkerMemory;
export type HolderDeed = 'claim' | 'look' | 'raise' | 'clean';

// biome-ignore lint/suspicious/noExplicitAny: what a step answers depends on the step.
export type Steps<T> = Generator<Op, T, any>;

export const holder = (tier: number, term: number, turns: number): HolderMemory => ({
  kind: 'holder',
  tier,
  term,
  turns,
  loaded: false,
  scan: 0,
  completion: 0,
  open: [],
  unseen: null,
  closed: [],
});

/** One turn of a process; what it remembers for the next one, or null where it is at its end. */
export function turn(memory: Memory, by: Decisions): Steps<Memory | null> {
  switch (memory.kind) {
    case 'producer':
      return produce(memory, by);
    case 'holder':
      return hold(memory, by);
    case 'worker':
      return work(memory, by);
  }
}

function* choose<T>(what: string, among: readonly T[]): Steps<T> {
  if (among.length === 1) return among[0]!;
  const nth: number = yield { kind: 'choose', what, among: among.length };
  return among[nth]!;
}

// ── writes whose answers may get lost ───────────────────────────────────────────────────────────────────────────

function* definitely(op: Op): Steps<{ readonly answer: Answer; readonly doubted: boolean }> {
  for (let doubted = false; ; doubted = true) {
    const answer: Answer = yield op;
    if (answer.kind !== 'unknown') return { answer, doubted };
  }
}

type Changed = { readonly applied: true } | { readonly applied: false; readonly rows: Answer['rows'] };

function* change(
  by: Decisions,
  tier: number,
  changes: readonly EntryChange[],
  more: Pick<Extract<Op, { kind: 'change' }>, 'scan' | 'careless'> & { readonly at?: number } = {},
): Steps<Changed> {
  const segment = segmentOf(more.at ?? changes[0]!.id, SIZE);
  const { scan, careless } = more;
  const { answer, doubted } = yield* definitely({
    kind: 'change',
    tier,
    segment,
    changes,
    ...(scan === undefined ? {} : { scan }),
    ...(careless ? { careless } : {}),
  });
  if (answer.kind === 'applied') return { applied: true };
  const heads = answer.rows.map((row) => entryOf(row.id, row));
  if (doubted && by.changeLanded({ changes, ...(scan === undefined ? {} : { scan }) }, heads, answer.header)) {
    return { applied: true };
  }
  return { applied: false, rows: answer.rows };
}

/** Appends entries together; the first one's id, or null: nobody knows, or there is no room left in the model. */
function* append(by: Decisions, tier: number, entries: readonly NewEntry[], seals = false): Steps<number | null> {
  const mark: Checkpoint = yield { kind: 'mark', tier };
  let segment = segmentOf(mark.completion, SIZE);
  for (let tries = 0; tries < TRIES; ) {
    let header: SegmentHeader | null = yield { kind: 'segment', tier, segment };
    if (header === null && segment > 0 && (yield { kind: 'segment', tier, segment: segment - 1 }) === null) {
      segment = 0;
      header = yield { kind: 'segment', tier, segment };
    }
    while (header !== null && header.nextId >= segmentEnd(segment, SIZE)) {
      header = yield { kind: 'segment', tier, segment: ++segment };
    }
    const next = header?.nextId ?? null;
    const { firstId, fits } = by.planAppend({ segment, next }, entries.length, SIZE);
    if (firstId + entries.length > by.mostIds) return null;
    const some = fits ? entries : [];
    const op: Op = {
      kind: 'append',
      tier,
      segment,
      expectNext: next,
      firstId,
      entries: some,
      seal: !fits || seals,
    };
    const outcome = yield* outcomeOf(by, op, firstId, some);
    if (outcome === 'applied' && fits) return firstId;
    if (outcome === 'unclear') return null;
    if (outcome === 'refused') tries++;
  }
  return null;
}

function* outcomeOf(
  by: Decisions,
  op: Extract<Op, { kind: 'append' }>,
  firstId: number,
  entries: readonly NewEntry[],
): Steps<'applied' | 'refused' | 'unclear'> {
  if (!by.repeatsUnknown) return ((yield op) as Answer).kind === 'applied' ? 'applied' : 'refused';
  const { answer, doubted } = yield* definitely(op);
  if (answer.kind === 'applied') return 'applied';
  if (!doubted || entries.length === 0) return 'refused';
  const { tier, segment } = op;
  const rows: ReturnType<typeof entryOf>[] = [];
  for (let id = firstId; id < firstId + entries.length; id++) {
    const row: Row | null = yield { kind: 'row', tier, id };
    if (row !== null) rows.push(entryOf(id, row));
  }
  const header: SegmentHeader | null = rows.length < entries.length ? yield { kind: 'segment', tier, segment } : null;
  const landing = by.appendLanding(entries, firstId, rows, header);
  return landing === 'landed' ? 'applied' : landing;
}

// ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** Whether the entry is elsewhere now. */
function* move(by: Decisions, tier: number, id: number, row: Row, to: number, attempt: number): Steps<boolean> {
  const entry = by.pendingEntry(entryOf(id, row), place(tier, id), { placedAt: 0, attempt });
  const at = yield* append(by, to, [entry]);
  if (at === null) return false;
  return yield* settleMove(by, {
    uid: row.uid,
    place: place(to, at),
    origin: place(tier, id),
    originVersion: row.version,
  });
}

const pendingAt = (tier: number, id: number, row: Row): PendingMove => ({
  uid: row.uid,
  place: place(tier, id),
  origin: row.origin!,
  originVersion: row.originVersion!,
});

/** The second and third step of a move: commits where that may still be done, and marks by what the origin says. */
function* settleMove(by: Decisions, pending: PendingMove): Steps<boolean> {
  const { uid, origin, originVersion, place: dest } = pending;
  const commit = yield* change(by, origin.tier, [
    { id: origin.id, expect: { uid, version: originVersion }, set: by.commitPatch(dest, 0, null, false) },
  ]);
  const found = commit.applied ? undefined : commit.rows[0];
  const step = by.verdictOf(
    pending,
    commit.applied ? commit : { applied: false, row: found === undefined ? null : entryOf(found.id, found) },
  );
  yield* change(by, dest.tier, [
    { id: dest.id, expect: { uid, version: FIRST_VERSION }, set: by.verdictPatch(step, 0) },
  ]);
  return step === 'mark-ready';
}

// ── a producer, and a worker ────────────────────────────────────────────────────────────────────────────────────

function* produce({ tier, uids, seals }: ProducerMemory, by: Decisions): Steps<null> {
  const id = yield* append(by, tier, uids.map(newTask), seals);
  if (id === null) return null;
  for (const uid of uids) yield { kind: 'acked', uid };
  return null;
}

function* work(memory: WorkerMemory, by: Decisions): Steps<WorkerMemory | null> {
  const lease: Lease = yield { kind: 'take' };
  const { tier, id, uid, leaseId } = lease;
  const deed = yield* choose('deed', memory.deeds);
  if (deed !== 'ack') {
    const row: Row | null = yield { kind: 'row', tier, id };
    const holds = row?.status === 'leased' && row.leaseId === leaseId;
    if (deed === 'nack') {
      if (holds) yield* move(by, tier, id, row, memory.to, row.attempt + 1);
      return again(memory);
    }
    if (holds) {
      const set = { status: 'leased', version: row.version + 1, updatedAt: 0 } as const;
      yield* change(by, tier, [{ id, expect: { uid, version: row.version }, set }]);
    }
  }
  const { expect, careless } = by.ackOf(leaseId);
  const acked = yield* change(by, tier, [{ id, expect, set: by.donePatch(null, 0) }], { careless });
  const good = acked.applied || acked.rows.some((row) => row.status === 'done' && row.leaseId === leaseId);
  if (good) yield { kind: 'told', uid, leaseId };
  return again(memory);
}

const again = <M extends { readonly turns: number }>(memory: M): M | null =>
  memory.turns <= 1 ? null : { ...memory, turns: memory.turns - 1 };

// ── who hands out, scans and trims ──────────────────────────────────────────────────────────────────────────────

function* hold(memory: HolderMemory, by: Decisions): Steps<HolderMemory | null> {
  if (!memory.loaded) return yield* load(memory, by);
  const seen = memory.unseen?.from ?? memory.scan;
  const completion = by.completionOf(memory.open[0] ?? null, seen);
  const deeds: HolderDeed[] = ['claim'];
  if (memory.open.length > 0) deeds.push('look');
  if (completion > memory.completion) deeds.push('raise');
  if (memory.completion > 0 || closable(memory, by).length > 0) deeds.push('clean');
  const deed = memory.only ?? (yield* choose('deed', deeds));
  switch (deed) {
    case 'claim':
      return yield* claim(memory, by);
    case 'look':
      return memory.open.length === 0 ? again(memory) : yield* look(memory, by);
    case 'raise':
      yield { kind: 'advance', tier: memory.tier, mark: { scan: memory.scan, completion, trimmed: 0 } };
      return again({ ...memory, completion: Math.max(completion, memory.completion) });
    case 'clean':
      return yield* clean(memory, by);
  }
}

const closable = ({ completion, unseen, scan, open, closed }: HolderMemory, by: Decisions): readonly number[] =>
  by.closableSegments(completion, unseen?.from ?? scan, open, SIZE).filter((segment) => !closed.includes(segment));

function* load(memory: HolderMemory, by: Decisions): Steps<HolderMemory> {
  const { tier } = memory;
  const mark: Checkpoint = yield { kind: 'mark', tier };
  let scan = Math.max(mark.scan, mark.completion);
  for (;;) {
    const segment = segmentOf(scan, SIZE);
    const header: SegmentHeader | null = yield { kind: 'segment', tier, segment };
    if (header === null) break;
    scan = Math.max(scan, header.scan);
    if (header.nextId < segmentEnd(segment, SIZE) || scan < by.entriesEnd(header)) break;
    scan = segmentEnd(segment, SIZE);
  }
  const open = yield* openBetween(by, tier, mark.completion, scan);
  return { ...memory, loaded: true, scan, completion: mark.completion, open };
}

/** What is handed out, or has to be looked at, in a range of ids; closed segments hold nothing of it. */
function* openBetween(by: Decisions, tier: number, from: number, to: number): Steps<readonly number[]> {
  const open: number[] = [];
  for (let segment = segmentOf(from, SIZE); segmentStart(segment, SIZE) < to; segment++) {
    const header: SegmentHeader | null = yield { kind: 'segment', tier, segment };
    if (header === null) break;
    if (header.closed) continue;
    const end = Math.min(to, segmentEnd(segment, SIZE));
    const first = Math.max(from, segmentStart(segment, SIZE));
    const rows: Answer['rows'] = yield { kind: 'rows', tier, from: first, to: end };
    open.push(...rows.filter((row) => by.mustBeChecked(entryOf(row.id, row))).map(({ id }) => id));
  }
  return open;
}

function* claim(memory: HolderMemory, by: Decisions): Steps<HolderMemory | null> {
  const { tier, term, scan } = memory;
  const segment = segmentOf(scan, SIZE);
  const header: SegmentHeader | null = yield { kind: 'segment', tier, segment };
  if (header === null) return again(memory);
  const seen = memory.unseen?.from ?? scan;
  const unseen = by.unseenUpTo(scan, seen, header.scan);
  if (unseen !== null || header.scan > scan)
    return again({ ...memory, scan: header.scan, unseen: unseen ?? memory.unseen });
  if (memory.unseen !== null) {
    const { from, to } = memory.unseen;
    const open = yield* openBetween(by, tier, from, to);
    return again({ ...memory, unseen: null, open: sorted([...memory.open, ...open]) });
  }
  if (scan >= by.entriesEnd(header)) {
    const full = header.nextId >= segmentEnd(segment, SIZE);
    return again(full ? { ...memory, scan: segmentEnd(segment, SIZE) } : memory);
  }
  if (by.isDeposed(term, header.term)) return null;
  const row: Row | null = yield { kind: 'row', tier, id: scan };
  if (row === null) return again(memory);
  const entry = entryOf(scan, row);
  const decision = by.decideClaim(entry, { now: EARLY, purgedAt: null, message: undefined });
  if (decision.kind === 'resolve') {
    yield* settleMove(by, pendingAt(tier, scan, row));
    return again(memory);
  }
  const leaseId = `${term}/${tier}/${scan}/${memory.turns}`;
  const takes = decision.kind === 'claim';
  const expect = { uid: row.uid, version: row.version };
  const set = by.leasePatch(entry, { leaseId, worker: null, leaseUntil: 1 }, 0);
  const taken = yield* change(by, tier, takes ? [{ id: scan, expect, set }] : [], {
    at: scan,
    scan: { from: scan, to: scan + 1, seenTerm: header.term, term },
  });
  if (!taken.applied) return again(memory);
  if (takes) yield { kind: 'grant', lease: { tier, id: scan, uid: row.uid, leaseId } };
  const noted = takes || by.mustBeChecked(entry) ? [scan] : [];
  return again({ ...memory, scan: scan + 1, open: sorted([...memory.open, ...noted]) });
}

const sorted = (ids: readonly number[]): readonly number[] => [...new Set(ids)].sort((a, b) => a - b);

function* look(memory: HolderMemory, by: Decisions): Steps<HolderMemory | null> {
  const { tier } = memory;
  const id = yield* choose('open', memory.open);
  const closed = again({ ...memory, open: memory.open.filter((one) => one !== id) });
  const row: Row | null = yield { kind: 'row', tier, id };
  if (row === null) return closed;
  const now = row.status === 'leased' ? yield* choose('now', [LATE, EARLY]) : LATE;
  const decision = by.decideScan(entryOf(id, row), SETTINGS, now);
  switch (decision.kind) {
    case 'open':
      return again(memory);
    case 'settled':
      return closed;
    case 'moved': {
      const dest: Row | null = yield { kind: 'row', tier: row.dest!.tier, id: row.dest!.id };
      if (dest?.uid === row.uid && dest.status === 'pending') {
        yield* settleMove(by, pendingAt(row.dest!.tier, row.dest!.id, dest));
      }
      return closed;
    }
    case 'resolve':
      yield* settleMove(by, pendingAt(tier, id, row));
      return again(memory);
    case 'end':
      throw new Error('nothing expires in the model');
    default: {
      const to = decision.kind === 'bury' ? DEAD : tier;
      return (yield* move(by, tier, id, row, to, decision.attempt)) ? closed : again(memory);
    }
  }
}

/** Closes what can be closed, and deletes what was settled, as late or as soon as may be. */
function* clean(memory: HolderMemory, by: Decisions): Steps<HolderMemory | null> {
  const { tier, completion } = memory;
  const done: number[] = [];
  for (const segment of closable(memory, by)) {
    if ((yield { kind: 'close', tier, segment }) === 'applied') done.push(segment);
  }
  const closed = [...memory.closed, ...done];
  const behind = segmentOf(completion, SIZE);
  for (const segment of [...Array(behind + 1).keys(), ...closed]) {
    const end = segmentEnd(segment, SIZE);
    const to = closed.includes(segment) ? end : Math.min(end, completion);
    if (to <= segmentStart(segment, SIZE)) continue;
    const forgets = !by.keepsHeaders && to === end;
    yield { kind: 'trim', tier, segment, to, ...(forgets ? { header: true } : {}) };
  }
  return again({ ...memory, closed });
}
