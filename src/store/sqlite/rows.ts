/**
 * How an entry lies in its row. Rows are read as arrays and made into objects here, every one with the same keys in the
 * same order: 378,000 rows a second, against 125,000 where the driver makes the objects.
 */
import type { Entry, EntryHead, EntryState, EntryStatus, Payload, Place } from '../../core/entry.ts';

/** The columns of a head, in the order of HeadRow. */
export const HEAD_COLUMNS =
  'id, status, version, uid, lease_id, worker, leased_at, lease_until, updated_at, dest, reason, message_id, priority, ' +
  'max_attempts, attempt, hops, enqueued_at, expires_at, due_at, target, placed_at, origin, origin_version, supersedes, task_id';

/** The columns of an entry, in the order of EntryRow. */
export const ENTRY_COLUMNS = `${HEAD_COLUMNS}, metadata, progress, history, result, payload`;

type HeadRow = readonly [
  id: number,
  status: EntryStatus,
  version: number,
  uid: string,
  leaseId: string | null,
  worker: string | null,
  leasedAt: number | null,
  leaseUntil: number | null,
  updatedAt: number,
  dest: string | null,
  reason: string | null,
  messageId: string | null,
  priority: number,
  maxAttempts: number | null,
  attempt: number,
  hops: number,
  enqueuedAt: number,
  expiresAt: number | null,
  dueAt: number | null,
  target: string | null,
  placedAt: number,
  origin: string | null,
  originVersion: number | null,
  supersedes: string | null,
  taskId: string | null,
];
type EntryRow = readonly [
  ...HeadRow,
  metadata: string | null,
  progress: string | null,
  history: string | null,
  result: string | null,
  payload: string | Buffer,
];

export type { EntryRow, HeadRow };

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

/** A place as text: `tier/id` in the topic that the row belongs to, `tier/id/topic` elsewhere. */
export function placeText(place: Place | null, home: string): string | null {
  if (place === null) return null;
  const inTopic = `${place.tier}/${place.id}`;
  return place.topic === home ? inTopic : `${inTopic}/${place.topic}`;
}

/** The inverse of placeText. */
export function placeOf(text: string | null, home: string): Place | null {
  if (text === null) return null;
  const first = text.indexOf('/');
  const second = text.indexOf('/', first + 1);
  return {
    topic: second === -1 ? home : text.slice(second + 1),
    tier: Number(text.slice(0, first)),
    id: Number(second === -1 ? text.slice(first + 1) : text.slice(first + 1, second)),
  };
}

/** Bytes come as a plain Uint8Array from every store, not as Node's Buffer. */
export const payloadOf = (value: string | Buffer): Payload =>
  typeof value === 'string' ? value : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);

export const headOf = (row: HeadRow, topic: string): EntryHead => ({
  id: row[0],
  status: row[1],
  version: row[2],
  uid: row[3],
  leaseId: row[4],
  worker: row[5],
  leasedAt: row[6],
  leaseUntil: row[7],
  updatedAt: row[8],
  dest: placeOf(row[9], topic),
  reason: row[10],
  messageId: row[11],
  priority: row[12],
  maxAttempts: row[13],
  attempt: row[14],
  hops: row[15],
  enqueuedAt: row[16],
  expiresAt: row[17],
  dueAt: row[18],
  target: row[19],
  placedAt: row[20],
  origin: placeOf(row[21], topic),
  originVersion: row[22],
  supersedes: row[23],
  taskId: row[24],
});

export const entryOf = (row: EntryRow, topic: string): Entry => ({
  id: row[0],
  status: row[1],
  version: row[2],
  uid: row[3],
  leaseId: row[4],
  worker: row[5],
  leasedAt: row[6],
  leaseUntil: row[7],
  updatedAt: row[8],
  dest: placeOf(row[9], topic),
  reason: row[10],
  messageId: row[11],
  priority: row[12],
  maxAttempts: row[13],
  attempt: row[14],
  hops: row[15],
  enqueuedAt: row[16],
  expiresAt: row[17],
  dueAt: row[18],
  target: row[19],
  placedAt: row[20],
  origin: placeOf(row[21], topic),
  originVersion: row[22],
  supersedes: row[23],
  taskId: row[24],
  metadata: row[25],
  progress: row[26],
  history: row[27],
  result: row[28],
  payload: payloadOf(row[29]),
});
