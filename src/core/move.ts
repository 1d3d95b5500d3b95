/**
 * The move: the one way in which an entry changes place (retry, stalled lease, delay, due timer, dead letter,
 * redrive, change of priority), exactly once, though no transaction spans two partitions.
 *
 * 1. append, at the destination, an entry that is `pending` and names its origin and the origin's version as seen;
 * 2. commit, on the origin: `moved` to that place, if uid and version are as seen;
 * 3. mark the entry `ready` if the origin says it moved there, else `void`.
 *
 * Who may stop where? Before the commit nothing has happened: the origin lives on, and the pending entry, met by a
 * claimer, a scanner or a timer, is either committed by them (same condition) or void. After the commit the origin
 * is final and names the one pending entry that lives; whoever meets that marks it ready. The verdict cannot change:
 * versions only grow, so a commit that failed once fails always. An origin that is gone was trimmed, and before a
 * moved entry is passed its destination is made ready; so a pending entry without an origin is void.
 */
import {
  type Entry,
  type EntryHead,
  type EntryPatch,
  FINAL_VERSION,
  FIRST_VERSION,
  isFinal,
  type NewEntry,
  type Place,
  samePlace,
} from './entry.ts';
import { taskIdOf } from './task-id.ts';

/** What a pending entry says of its origin. */
export interface PendingMove {
  readonly place: Place;
  readonly uid: string;
  readonly origin: Place;
  readonly originVersion: number;
}

/** The next step for a pending entry, from what its origin is now (null: it is gone). */
export type MoveStep = 'commit' | 'mark-ready' | 'mark-void';

export function nextMoveStep(
  move: PendingMove,
  origin: Pick<EntryHead, 'uid' | 'status' | 'version' | 'dest'> | null,
): MoveStep {
  if (origin === null || origin.uid !== move.uid) return 'mark-void';
  if (origin.status === 'moved') return samePlace(origin.dest, move.place) ? 'mark-ready' : 'mark-void';
  return !isFinal(origin.status) && origin.version === move.originVersion ? 'commit' : 'mark-void';
}

/**
 * The commit's change of the origin. The lease id stays on the row where its holder gave the task back, so that he is
 * answered the same when he asks again; from everybody else the task was taken (promise Q3).
 */
export const commitPatch = (dest: Place, at: number, reason: string | null, byHolder: boolean): EntryPatch => ({
  status: 'moved',
  version: FINAL_VERSION,
  updatedAt: at,
  dest,
  reason,
  ...(byHolder ? {} : { leaseId: null }),
});

/** What becomes of a pending entry, by how the commit on its origin went. */
export function verdictOf(
  move: PendingMove,
  commit: { readonly applied: true } | { readonly applied: false; readonly row: Parameters<typeof nextMoveStep>[1] },
): 'mark-ready' | 'mark-void' {
  if (commit.applied) return 'mark-ready';
  const step = nextMoveStep(move, commit.row);
  // The commit was refused, so its condition was not met; versions only grow, so it never will be.
  return step === 'commit' ? 'mark-void' : step;
}

/** The verdict's change of the pending entry. */
export const verdictPatch = (step: 'mark-ready' | 'mark-void', at: number): EntryPatch =>
  step === 'mark-ready'
    ? { status: 'ready', version: FIRST_VERSION + 1, updatedAt: at }
    : { status: 'void', version: FINAL_VERSION, updatedAt: at };

/** What differs at the destination. */
export type MoveChanges = Partial<
  Pick<
    NewEntry,
    'payload' | 'metadata' | 'priority' | 'attempt' | 'history' | 'progress' | 'dueAt' | 'target' | 'reason'
  >
> & { readonly placedAt: number };

/** The pending entry that a move appends for an origin as it was read. */
export function pendingEntry(origin: Entry, at: Place, changes: MoveChanges): NewEntry {
  return {
    uid: origin.uid,
    messageId: origin.messageId,
    payload: origin.payload,
    metadata: origin.metadata,
    priority: origin.priority,
    maxAttempts: origin.maxAttempts,
    attempt: origin.attempt,
    history: origin.history,
    enqueuedAt: origin.enqueuedAt,
    expiresAt: origin.expiresAt,
    progress: origin.progress,
    supersedes: origin.supersedes,
    taskId: taskIdOf(origin, at),
    dueAt: null,
    target: null,
    reason: null,
    ...changes,
    hops: origin.hops + 1,
    status: 'pending',
    origin: at,
    originVersion: origin.version,
  };
}
