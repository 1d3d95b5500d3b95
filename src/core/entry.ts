/**
 * An entry is one row of a log: a task as it was placed there. A task has one live entry at a time, and a new
 * one each time it moves (retry, delay, dead letter, redrive).
 *
 *            append                claim                 ack
 *   ────────────────────▶ ready ─────────▶ leased ────────────────▶ done
 *                          │  ▲               │ nack, release, lease over
 *     append (move)        │  │ the origin    │ (commit names the new entry)
 *   ────────▶ pending ─────┼──┘ says so       ▼
 *                │         ├──────────────▶ moved    the task goes on at `dest`
 *                │         ├──────────────▶ expired | cancelled | duplicate
 *                └─────────┼──────────────▶ void     the move did not happen
 *                          └ leased ──────▶ cancelled | expired    expired only once its lease is over
 *
 * Every change raises `version`; a final one sets it to FINAL_VERSION, so that an ack needs no version to be
 * read first and a condition on an earlier version, once false, stays false (promise Q3).
 */
export type EntryStatus =
  | 'ready'
  | 'leased'
  | 'pending'
  | 'moved'
  | 'void'
  | 'done'
  | 'duplicate'
  | 'expired'
  | 'cancelled';

/** The version of every entry in a final state. */
export const FINAL_VERSION = 2_147_483_647;

/** The version an entry is appended with. */
export const FIRST_VERSION = 1;

const FINAL: ReadonlySet<EntryStatus> = new Set(['moved', 'void', 'done', 'duplicate', 'expired', 'cancelled']);

/** Whether no transition leads out of this status. */
export const isFinal = (status: EntryStatus): boolean => FINAL.has(status);

const TRANSITIONS: Readonly<Record<EntryStatus, readonly EntryStatus[]>> = {
  ready: ['leased', 'moved', 'expired', 'cancelled', 'duplicate'],
  leased: ['leased', 'done', 'moved', 'cancelled', 'expired'],
  pending: ['ready', 'void'],
  moved: [],
  void: [],
  done: [],
  duplicate: [],
  expired: [],
  cancelled: [],
};

/** Whether an entry may go from one status to another in one conditional change. */
export const mayBecome = (from: EntryStatus, to: EntryStatus): boolean => TRANSITIONS[from].includes(to);

/** The version an entry gets by a change to `status`, after it was seen at `seen`. */
export const versionAfter = (status: EntryStatus, seen: number): number => (isFinal(status) ? FINAL_VERSION : seen + 1);

/** A log: the sequence of entries of one topic and tier. */
export interface LogAddress {
  readonly topic: string;
  readonly tier: number;
}

/** Where an entry stands. */
export interface Place extends LogAddress {
  readonly id: number;
}

/** A payload: a string is JSON text, bytes are bytes. */
export type Payload = string | Uint8Array;

/** What an entry says of its task; written by the append and never changed. */
export interface EntryTask {
  /** The ULID given at enqueue, kept through all moves. */
  readonly uid: string;
  readonly messageId: string | null;
  readonly payload: Payload;
  /** JSON text of an object of strings. */
  readonly metadata: string | null;
  /** As the producer gave it; the tier follows from it and the topic's bands. */
  readonly priority: number;
  readonly maxAttempts: number | null;
  /** Deliveries before this entry. */
  readonly attempt: number;
  /** Moves before this entry. */
  readonly hops: number;
  /** JSON text: earlier attempts, newest last. */
  readonly history: string | null;
  readonly enqueuedAt: number;
  readonly expiresAt: number | null;
  /** For an entry of a time slot: when the task is due; null elsewhere. */
  readonly dueAt: number | null;
  /** For an entry of a time slot: the topic it goes to; null elsewhere. */
  readonly target: string | null;
  /** When this entry was appended. */
  readonly placedAt: number;
  /** For an entry made by a move: where it came from and the origin's version as seen. */
  readonly origin: Place | null;
  readonly originVersion: number | null;
  /** For an `again` entry: the uid of the settled task whose message row it takes over. */
  readonly supersedes: string | null;
  /** For an entry made by a move: the task's id as its enqueue was answered; null where it follows from the place. */
  readonly taskId: string | null;
}

/** What changes while an entry lives. */
export interface EntryState {
  readonly status: EntryStatus;
  readonly version: number;
  readonly leaseId: string | null;
  readonly worker: string | null;
  /** When the current lease was handed out. */
  readonly leasedAt: number | null;
  readonly leaseUntil: number | null;
  readonly updatedAt: number;
  readonly dest: Place | null;
  /** JSON text. */
  readonly result: string | null;
  /** JSON text: the worker's saved position; goes along with a move. */
  readonly progress: string | null;
  /** Why it ended or moved. */
  readonly reason: string | null;
}

/** A row of a log. */
export interface Entry extends EntryTask, EntryState {
  readonly id: number;
}

/** What is appended: all but the id, which the write gives. */
export type NewEntry = EntryTask & Pick<EntryState, 'status' | 'progress' | 'reason'>;

/** An entry as the store tells it where only its state was asked for, without payload and metadata. */
export type EntryHead = Omit<Entry, 'payload' | 'metadata' | 'history' | 'result' | 'progress'>;

/** A change of an entry's state; what is absent stays. */
export type EntryPatch = Partial<EntryState> & Pick<EntryState, 'status' | 'version' | 'updatedAt'>;

/** The condition of a change; each names the row, so that an absent row never meets it. */
export type EntryCondition =
  | { readonly uid: string; readonly version: number }
  /** Leased under this lease. */
  | { readonly leaseId: string };

/** One conditional change of one entry. */
export interface EntryChange {
  readonly id: number;
  readonly expect: EntryCondition;
  readonly set: EntryPatch;
}

/** The change of an entry that is handed out. */
export const leasePatch = (
  seen: Pick<EntryState, 'version'>,
  lease: { readonly leaseId: string; readonly worker: string | null; readonly leaseUntil: number },
  now: number,
): EntryPatch => ({ status: 'leased', version: seen.version + 1, ...lease, leasedAt: now, updatedAt: now });

/**
 * The change of an entry whose task was completed. What is leased has no result yet: where none is brought, nothing is
 * written, for a null would be a tombstone a task.
 */
export const donePatch = (result: string | null, now: number): EntryPatch => ({
  status: 'done',
  version: FINAL_VERSION,
  updatedAt: now,
  ...(result === null ? {} : { result }),
});

/** Bytes an entry takes of its segment's budget. */
export function entryBytes(entry: Pick<EntryTask, 'payload' | 'metadata' | 'messageId' | 'history'>): number {
  const payload = typeof entry.payload === 'string' ? entry.payload.length : entry.payload.byteLength;
  return 120 + payload + (entry.metadata?.length ?? 0) + (entry.messageId?.length ?? 0) + (entry.history?.length ?? 0);
}

export const bytesOf = (entries: readonly Parameters<typeof entryBytes>[0][]): number =>
  entries.reduce((sum, entry) => sum + entryBytes(entry), 0);

export const samePlace = (a: Place | null, b: Place | null): boolean =>
  a !== null && b !== null && a.id === b.id && a.tier === b.tier && a.topic === b.topic;
