/**
 * What must not be in a store at rest, rule by rule: pure functions of what was read (see read.ts). A process may have
 * died anywhere, so what the queue finds and mends by itself is no fault: a lease that is over, a move half done in a
 * log that a holder will look at, a row behind the entry that the scanner has still to pass.
 */
import { isExpired, isPurged } from '../core/claim.ts';
import { type EntryHead, isFinal, type LogAddress, type Place, samePlace } from '../core/entry.ts';
import { type Checkpoint, entriesEnd, type SegmentHeader, segmentEnd, segmentStart, slotTimes } from '../core/log.ts';
import { isLive, type MessageRow, type MessageStatus } from '../core/message.ts';
import type { ScheduleHead } from '../core/schedule.ts';
import type { TopicSettings } from '../core/settings.ts';
import { timetableOf } from '../scheduler/cron.ts';

/** `lost`: nobody would find it; `disorder`: what must not be; `left over`: it only takes space. */
export type RuleGroup = 'lost' | 'disorder' | 'left over';

export const RULES = {
  'unrecorded-log': ['lost', 'tasks wait in a log that no activity row names, so that no server finds them'],
  'row-of-ended-task': ['lost', 'a message row is live, and its task is final or gone: its id is held for nobody'],
  'unowned-entry': ['lost', 'a leased task has a message id and no row that says so'],
  'missed-arrival': ['lost', 'an entry was passed as moved, and where it went nothing is ready'],
  'missing-entries': ['lost', 'ids were given out, and neither trimmed nor sealed, and nothing stands there'],
  'missing-header': ['lost', 'a segment was written to, and has no header'],
  'sleeping-schedule': ['lost', 'a schedule says that it fires no more, and its pattern does: no server wakes it'],
  'cursor-order': ['disorder', 'trimmed ≤ completion ≤ scan ≤ next id does not hold'],
  'open-below-completion': ['disorder', 'an entry below the completion cursor is not final'],
  'open-in-closed-segment': ['disorder', 'an entry of a closed segment is not final'],
  'checkpoint-ahead': ['disorder', 'a checkpoint says that more was handed out than the segment does'],
  'scan-skips-segment': ['disorder', 'a segment was handed out from before the one in front of it was done'],
  'entry-beyond-next-id': ['disorder', 'an entry stands where its segment has given out no id yet'],
  'two-live-entries': ['disorder', 'a task has two entries that can be leased or settled'],
  'two-live-tasks': ['disorder', 'a task was handed out, and its message id belongs to another live one'],
  'row-settled-early': ['disorder', 'a message row says that its task has ended, and it waits or is leased'],
  'orphaned-pending': ['disorder', 'a pending entry below the scan cursor has no origin any more'],
  'term-ahead': ['disorder', 'a segment knows a higher term than the row of the scheduler'],
  'unreadable-settings': ['disorder', 'settings of a topic are not JSON'],
  'unreadable-schedule': ['disorder', 'the pattern or the time zone of a schedule cannot be read: it does not fire'],
  'entry-below-trimmed': ['left over', 'an entry stands below the mark up to which all was deleted'],
  'untended-log': ['left over', 'settled entries of a log that no activity row names: nobody deletes them'],
  'old-slot': ['left over', 'the header of a time slot that is over, and that no activity row names'],
  'deleted-period': ['left over', 'activity rows of a period that was deleted'],
  'endless-row': ['left over', 'the row of a settled task whose window is over, and that never goes'],
} as const satisfies Record<string, readonly [RuleGroup, string]>;

export type RuleName = keyof typeof RULES;

/** What broke a rule; what stands in it tells it from any other. */
export interface Fault {
  readonly rule: RuleName;
  readonly topic: string;
  readonly tier: number | null;
  readonly id: number | null;
  readonly uid: string | null;
  /** Of a message row; the name of a schedule. */
  readonly key: string | null;
  readonly detail: string;
}

export type LogKind = 'tier' | 'dead' | 'slot';

interface LogFacts {
  readonly log: LogAddress;
  readonly kind: LogKind;
  readonly checkpoint: Checkpoint;
  readonly now: number;
}

export interface EntryFacts extends LogFacts {
  readonly head: EntryHead;
  readonly header: SegmentHeader | null;
  readonly settings: Pick<TopicSettings, 'purgedAt'>;
  /** The message row of its key; undefined where it was not looked up. */
  readonly row: MessageRow | null | undefined;
  /** The row does not know of the last move yet, and is brought up before the origin of that is passed. */
  readonly rowIsBehind: boolean;
  /** Of a pending entry: what stands where it came from. */
  readonly origin: EntryHead | null;
  /** Of a moved entry: what stands where it went. */
  readonly dest: { readonly head: EntryHead | null; readonly wasGiven: boolean } | null;
}

/** Ids that have entries, from the trimmed mark on. */
export interface Ids {
  readonly first: number | null;
  readonly last: number | null;
  /** Ids between the first and the last that have none: the first such stretch. */
  readonly hole: { readonly from: number; readonly to: number } | null;
}

export interface SegmentFacts extends LogFacts {
  readonly segment: number;
  readonly size: number;
  readonly header: SegmentHeader | null;
  /** The header of the segment before; null where there is none. */
  readonly before: SegmentHeader | null;
  /** Nothing is left of the segment before, or this is the first. */
  readonly beforeIsEmpty: boolean;
  readonly ids: Ids;
  readonly entries: number;
  readonly firstLive: EntryHead | null;
  readonly live: number;
  readonly final: number;
  readonly recorded: boolean;
  /** The term of the scheduler. */
  readonly term: number;
  readonly slotMs: number;
}

export interface CheckpointFacts extends LogFacts {
  readonly size: number;
  /** The header of the segment in which the scan cursor stands, and of the one before. */
  readonly header: SegmentHeader | null;
  readonly before: SegmentHeader | null;
}

/** How the task of a message row is. */
export type TaskState =
  | { readonly kind: 'alive' }
  | { readonly kind: 'gone'; readonly place: Place }
  | {
      readonly kind: 'final';
      readonly place: Place;
      readonly status: EntryHead['status'];
      readonly updatedAt: number;
      /** The cursor has passed it, so that nobody looks at it any more. */
      readonly passed: boolean;
    };

export interface RowFacts {
  readonly topic: string;
  readonly row: MessageRow;
  readonly expiresAt: number | null;
  /** How long a row like this one stays; null: for ever. */
  readonly ttlMs: number | null;
  readonly now: number;
  /** Looked up for live rows. */
  readonly task: TaskState | null;
}

/** After its time, and after all that may still be under way for it, a slot is let go within this. */
const SLOT_LET_GO_MS = 600_000;

/** Whether an entry can be leased or settled, or will be: a pending one counts where its origin has moved to it. */
export function isWaiting({ log, head, origin }: Pick<EntryFacts, 'log' | 'head' | 'origin'>): boolean {
  if (head.status === 'ready' || head.status === 'leased') return true;
  return head.status === 'pending' && origin?.uid === head.uid && samePlace(origin.dest, { ...log, id: head.id });
}

// ── entries ───────────────────────────────────────────────────────────────────────────────────────────────────────

const ENTRY_RULES: readonly [RuleName, (facts: EntryFacts) => string | null][] = [
  ['open-below-completion', openBelowCompletion],
  ['open-in-closed-segment', openInClosedSegment],
  ['entry-below-trimmed', entryBelowTrimmed],
  ['entry-beyond-next-id', entryBeyondNextId],
  ['missed-arrival', missedArrival],
  ['orphaned-pending', orphanedPending],
  ['unowned-entry', unownedEntry],
  ['two-live-tasks', twoLiveTasks],
  ['row-settled-early', rowSettledEarly],
];

const NONE: readonly Fault[] = [];

export function entryFaults(facts: EntryFacts): readonly Fault[] {
  let faults: Fault[] | null = null;
  for (const [rule, judge] of ENTRY_RULES) {
    const detail = judge(facts);
    if (detail === null) continue;
    const { log, head } = facts;
    faults ??= [];
    faults.push({ rule, ...log, id: head.id, uid: head.uid, key: null, detail });
  }
  return faults ?? NONE;
}

function openBelowCompletion({ head, checkpoint }: EntryFacts): string | null {
  return !isFinal(head.status) && head.id < checkpoint.completion
    ? `${head.status} below the completion cursor ${checkpoint.completion}`
    : null;
}

function openInClosedSegment({ head, header, checkpoint }: EntryFacts): string | null {
  return header?.closed && !isFinal(head.status) && head.id >= checkpoint.completion
    ? `${head.status} in a closed segment`
    : null;
}

function entryBelowTrimmed({ head, checkpoint }: EntryFacts): string | null {
  return isFinal(head.status) && head.id < checkpoint.trimmed
    ? `${head.status} below the trimmed mark ${checkpoint.trimmed}`
    : null;
}

function entryBeyondNextId({ head, header }: EntryFacts): string | null {
  return header !== null && head.id >= entriesEnd(header) ? `the next id is ${entriesEnd(header)}` : null;
}

function missedArrival(facts: EntryFacts): string | null {
  const { head, dest } = facts;
  if (head.status !== 'moved' || dest === null) return null;
  const to = placeText(head.dest!);
  if (dest.head === null) return dest.wasGiven ? null : `moved to ${to}, which was never given out`;
  const waits = dest.head.uid === head.uid && dest.head.status === 'pending';
  return waits && isPassed(facts) ? `moved to ${to}, which is still pending` : null;
}

function orphanedPending({ head, kind, header, origin }: EntryFacts): string | null {
  if (head.status !== 'pending' || kind !== 'tier' || header === null || head.id >= header.scan) return null;
  return origin?.uid === head.uid ? null : `its origin ${placeText(head.origin!)} is gone`;
}

function unownedEntry({ head, kind, row }: EntryFacts): string | null {
  if (kind !== 'tier' || head.status !== 'leased' || head.messageId === null || row === undefined) return null;
  if (row === null) return 'it has no row';
  return row.uid !== head.uid && !isLive(row.status) ? `its row is that of ${row.uid}, ${row.status}` : null;
}

function twoLiveTasks({ head, kind, row, settings, now }: EntryFacts): string | null {
  if (kind === 'dead' || head.messageId === null || !row || row.uid === head.uid || !isLive(row.status)) return null;
  // One that was never handed out may be second, and ends as a duplicate when it is met; so may what was purged.
  const wasFirst = head.status === 'leased' || (head.attempt > 0 && staysReady(head, settings, now));
  return wasFirst ? `its message id belongs to ${row.uid}` : null;
}

function rowSettledEarly({ head, kind, row, rowIsBehind, settings, now }: EntryFacts): string | null {
  if (kind === 'dead' || !row || row.uid !== head.uid || isLive(row.status) || rowIsBehind) return null;
  return head.status === 'leased' || staysReady(head, settings, now)
    ? `${head.status}, and its row ${row.status}`
    : null;
}

const staysReady = (head: EntryHead, { purgedAt }: Pick<TopicSettings, 'purgedAt'>, now: number): boolean =>
  head.status === 'ready' && !isPurged(head, purgedAt) && !isExpired(head, now);

const isPassed = ({ head, header, checkpoint }: EntryFacts): boolean =>
  head.id < checkpoint.completion || header?.closed === true;

// ── segments ──────────────────────────────────────────────────────────────────────────────────────────────────────

const SEGMENT_RULES: readonly [RuleName, (facts: SegmentFacts) => string | null][] = [
  ['missing-header', missingHeader],
  ['cursor-order', scanOutside],
  ['checkpoint-ahead', checkpointAhead],
  ['scan-skips-segment', scanSkipsSegment],
  ['missing-entries', missingEntries],
  ['term-ahead', termAhead],
  ['unrecorded-log', unrecordedLog],
  ['untended-log', untendedLog],
  ['old-slot', oldSlot],
];

export const segmentFaults = (facts: SegmentFacts): readonly Fault[] =>
  SEGMENT_RULES.flatMap(([rule, judge]) => {
    const detail = judge(facts);
    if (detail === null) return [];
    const { log, segment } = facts;
    return [{ rule, ...log, id: null, uid: null, key: null, detail: `segment ${segment}: ${detail}` }];
  });

function missingHeader({ header, entries }: SegmentFacts): string | null {
  return header === null && entries > 0 ? `${entries} entries, and no header` : null;
}

function scanOutside({ header, segment, size }: SegmentFacts): string | null {
  if (header === null) return null;
  const start = segmentStart(segment, size);
  if (header.scan < start || header.scan > entriesEnd(header)) {
    return `scan ${header.scan} is not from ${start} to ${entriesEnd(header)}`;
  }
  return header.nextId < start || header.nextId > segmentEnd(segment, size) || entriesEnd(header) > header.nextId
    ? `next id ${header.nextId}, sealed at ${header.sealedAt}`
    : null;
}

/** Dead letters are not handed out, and slots have no checkpoint: their headers' cursor stands still. */
function checkpointAhead({ kind, header, checkpoint }: SegmentFacts): string | null {
  if (kind !== 'tier' || header === null) return null;
  const said = Math.min(checkpoint.scan, entriesEnd(header));
  return said > header.scan ? `scan ${header.scan}, and the checkpoint says ${checkpoint.scan}` : null;
}

function scanSkipsSegment({ kind, header, before, segment, size }: SegmentFacts): string | null {
  const start = segmentStart(segment, size);
  if (kind !== 'tier' || segment === 0 || header === null || header.scan <= start) return null;
  if (before === null) return 'the segment before has no header';
  return before.nextId < start || before.scan < entriesEnd(before)
    ? `scan ${header.scan}, and that of the segment before is ${before.scan} of ${entriesEnd(before)}`
    : null;
}

function missingEntries(facts: SegmentFacts): string | null {
  const { header, ids, segment, size, checkpoint } = facts;
  if (header === null) return null;
  const start = Math.max(segmentStart(segment, size), checkpoint.trimmed);
  const end = entriesEnd(header);
  if (start >= end) return null;
  const first = ids.first ?? end;
  if (first > start && !mayBeTrimmed(facts, first)) return idsText(start, first);
  if (ids.hole !== null) return idsText(ids.hole.from, ids.hole.to);
  return ids.last !== null && ids.last + 1 < end ? idsText(ids.last + 1, end) : null;
}

/** Whether all below an id may have been deleted as settled, which the checkpoint says a little later. */
function mayBeTrimmed({ kind, header, beforeIsEmpty }: SegmentFacts, to: number): boolean {
  if (header!.closed) return true;
  return beforeIsEmpty && (kind !== 'tier' || to <= header!.scan);
}

function termAhead({ header, term }: SegmentFacts): string | null {
  return header !== null && header.term > term ? `term ${header.term}, and the scheduler's is ${term}` : null;
}

function unrecordedLog({ live, firstLive, recorded }: SegmentFacts): string | null {
  return live > 0 && !recorded ? `${live} wait, the first at ${firstLive!.id} (${firstLive!.uid})` : null;
}

function untendedLog({ live, final, recorded }: SegmentFacts): string | null {
  return live === 0 && final > 0 && !recorded ? `${final} settled entries` : null;
}

function oldSlot({ kind, log, header, live, final, recorded, slotMs, now }: SegmentFacts): string | null {
  if (kind !== 'slot' || header === null || recorded || live > 0 || final > 0) return null;
  const over = slotTimes(log, slotMs).overAt;
  return over + SLOT_LET_GO_MS < now ? `it was over at ${new Date(over).toISOString()}` : null;
}

// ── checkpoints, rows, the rest ───────────────────────────────────────────────────────────────────────────────────

export function checkpointFaults(facts: CheckpointFacts): readonly Fault[] {
  const { log } = facts;
  const fault = (rule: RuleName, detail: string): Fault[] => [
    { rule, ...log, id: null, uid: null, key: null, detail: `checkpoint: ${detail}` },
  ];
  const { scan, completion, trimmed } = facts.checkpoint;
  if (trimmed > completion || completion > scan) {
    return fault('cursor-order', `trimmed ${trimmed}, completion ${completion}, scan ${scan}`);
  }
  const { header, before, size } = facts;
  if (scan === 0 || facts.kind === 'slot') return [];
  if (header !== null) return scan > header.nextId ? fault('cursor-order', behind(scan, header.nextId)) : [];
  if (before === null) return fault('missing-header', `scan ${scan}, and no header there`);
  return before.nextId < scan || scan % size !== 0 ? fault('cursor-order', behind(scan, before.nextId)) : [];
}

const behind = (scan: number, nextId: number): string => `scan ${scan} is behind the next id ${nextId}`;

export function rowFaults({ topic, row, expiresAt, ttlMs, now, task }: RowFacts): readonly Fault[] {
  const fault = (rule: RuleName, detail: string): Fault[] => [
    { rule, topic, tier: null, id: null, uid: row.uid, key: row.key, detail },
  ];
  if (isLive(row.status)) {
    if (task === null || task.kind === 'alive') return [];
    if (task.kind === 'gone') return fault('row-of-ended-task', `nothing of it stands at ${placeText(task.place)}`);
    return task.passed ? fault('row-of-ended-task', `${task.status} at ${placeText(task.place)}`) : [];
  }
  if (expiresAt !== null || ttlMs === null || row.settledAt === null || row.settledAt + ttlMs > now) return [];
  return fault('endless-row', `${row.status} since ${new Date(row.settledAt).toISOString()}`);
}

/** How the row of a task that ended so is to be settled. */
export const rowStatusOf = (task: TaskState): Exclude<MessageStatus, 'live' | 'dead'> =>
  task.kind === 'final' && (task.status === 'expired' || task.status === 'cancelled') ? task.status : 'done';

export function settingsFaults(topic: string, settings: string): readonly Fault[] {
  try {
    JSON.parse(settings);
    return [];
  } catch (error) {
    const detail = (error as Error).message;
    return [{ rule: 'unreadable-settings', topic, tier: null, id: null, uid: null, key: null, detail }];
  }
}

export function scheduleFaults({ name, topic, pattern, timeZone, firedUpTo, nextAt }: ScheduleHead): readonly Fault[] {
  const at = { topic, tier: null, id: null, uid: null, key: name };
  try {
    const next = timetableOf(pattern, timeZone).next(firedUpTo);
    if (nextAt !== null || next === null) return [];
    return [{ ...at, rule: 'sleeping-schedule', detail: `it fires at ${next}` }];
  } catch (error) {
    return [{ ...at, rule: 'unreadable-schedule', detail: (error as Error).message }];
  }
}

export function periodFaults(shard: number, period: number, oldest: number): readonly Fault[] {
  if (period >= oldest) return [];
  const detail = `period ${period} of shard ${shard}; the oldest that was not deleted is ${oldest}`;
  return [{ rule: 'deleted-period', topic: '', tier: null, id: null, uid: null, key: null, detail }];
}

/** @param places where live entries of one task stand */
export function doubleFaults(uid: string, places: readonly Place[]): readonly Fault[] {
  if (places.length < 2) return [];
  const { topic, tier, id } = places[0]!;
  const detail = `live at ${places.map(placeText).join(' and ')}`;
  return [{ rule: 'two-live-entries', topic, tier, id, uid, key: null, detail }];
}

export const placeText = ({ topic, tier, id }: Place): string => `${topic}:${tier} ${id}`;
const idsText = (from: number, to: number): string => (to - from === 1 ? `id ${from}` : `ids ${from} to ${to - 1}`);
