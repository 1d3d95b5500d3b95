/** How an entry and its segment's header lie in their rows. */
import type { Entry, EntryHead, EntryState, EntryStatus, Payload, Place } from '../../core/entry.ts';
import type { SegmentHeader } from '../../core/log.ts';
import type { Row } from './client.ts';
import { numberOf, numberOrNull } from './values.ts';

/** The id of the row that says what its segment says of itself. */
export const HEADER_ID = -1;
/** The id of the row with the payload of an entry, where that stands apart; its own inverse. */
export const bodyId = (id: number): number => -2 - id;

export const HEADER_COLUMNS = 'next_id, bytes, scan, term, sealed_at, closed';

export const HEAD_COLUMNS =
  'id, status, version, uid, lease_id, worker, leased_at, lease_until, updated_at, dest, reason, message_id, priority, ' +
  'max_attempts, attempt, hops, enqueued_at, expires_at, due_at, target, placed_at, origin, origin_version, supersedes, task_id';

export const ENTRY_COLUMNS = `${HEAD_COLUMNS}, metadata, progress, history, result, payload, payload_bytes`;

/** The column of each part of an entry's state. */
export const STATE_COLUMNS: Readonly<Record<keyof EntryState, string>> = {
  status: 'status',
  version: 'version',
  leaseId: 'lease_id',
  worker: 'worker',
  leasedAt: 'leased_at',
  leaseUntil: 'lease_until',
  updatedAt: 'updated_at',
  dest: 'dest',
  result: 'result',
  progress: 'progress',
  reason: 'reason',
};

/** Parts of the state that are numbers of 64 bits. */
export const STATE_TIMES: ReadonlySet<keyof EntryState> = new Set(['leasedAt', 'leaseUntil', 'updatedAt']);

/** A place as text: `tier/id` in the topic that the row belongs to, `tier/id/topic` elsewhere. */
export function placeText(place: Place, home: string): string {
  const inTopic = `${place.tier}/${place.id}`;
  return place.topic === home ? inTopic : `${inTopic}/${place.topic}`;
}

/** The inverse of placeText. */
export function placeOf(text: string, home: string): Place {
  const first = text.indexOf('/');
  const second = text.indexOf('/', first + 1);
  return {
    topic: second === -1 ? home : text.slice(second + 1),
    tier: Number(text.slice(0, first)),
    id: Number(second === -1 ? text.slice(first + 1) : text.slice(first + 1, second)),
  };
}

const textOrNull = (value: unknown): string | null => value as string | null;
const placeOrNull = (value: unknown, home: string): Place | null =>
  value === null ? null : placeOf(value as string, home);

/** The header in its row, or null where the row is none. */
export function headerOf(row: Row | undefined): SegmentHeader | null {
  if (row === undefined || row.next_id === null) return null;
  return {
    nextId: numberOf(row.next_id),
    bytes: numberOf(row.bytes),
    scan: numberOf(row.scan),
    term: numberOf(row.term),
    sealedAt: numberOrNull(row.sealed_at),
    closed: row.closed === true,
  };
}

export function headOf(row: Row, topic: string): EntryHead {
  const enqueuedAt = numberOf(row.enqueued_at);
  const placedAt = numberOrNull(row.placed_at) ?? enqueuedAt;
  return {
    id: numberOf(row.id),
    status: row.status as EntryStatus,
    version: row.version as number,
    uid: row.uid as string,
    leaseId: textOrNull(row.lease_id),
    worker: textOrNull(row.worker),
    leasedAt: numberOrNull(row.leased_at),
    leaseUntil: numberOrNull(row.lease_until),
    updatedAt: numberOrNull(row.updated_at) ?? placedAt,
    dest: placeOrNull(row.dest, topic),
    reason: textOrNull(row.reason),
    messageId: textOrNull(row.message_id),
    priority: row.priority as number,
    maxAttempts: row.max_attempts as number | null,
    attempt: (row.attempt as number | null) ?? 0,
    hops: (row.hops as number | null) ?? 0,
    enqueuedAt,
    expiresAt: numberOrNull(row.expires_at),
    dueAt: numberOrNull(row.due_at),
    target: textOrNull(row.target),
    placedAt,
    origin: placeOrNull(row.origin, topic),
    originVersion: row.origin_version as number | null,
    supersedes: textOrNull(row.supersedes),
    taskId: textOrNull(row.task_id),
  };
}

export const entryOf = (row: Row, topic: string, payload: Payload): Entry => ({
  ...headOf(row, topic),
  metadata: textOrNull(row.metadata),
  progress: textOrNull(row.progress),
  history: textOrNull(row.history),
  result: textOrNull(row.result),
  payload,
});

/** The payload in a row, or null where it stands apart. Bytes are copied: the driver's belong to a whole answer. */
export function payloadOf(row: Row): Payload | null {
  const text = row.payload;
  if (text !== null) return text as string;
  const bytes = row.payload_bytes;
  return bytes === null ? null : new Uint8Array(bytes as Buffer);
}
