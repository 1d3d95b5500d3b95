import type { EntryStatus, Place } from './entry.ts';

/**
 * The row by which a task is found: by its message id, or, for a task without one that has moved, by its uid.
 * It is what makes a message id own at most one task (promise Q6).
 */
export interface MessageRow {
  readonly key: string;
  readonly uid: string;
  /** Where the task's newest entry known here stands; older ones lead on by their `dest`. */
  readonly place: Place;
  /** The moves that led there. */
  readonly hops: number;
  readonly status: MessageStatus;
  readonly enqueuedAt: number;
  /** When it was settled. */
  readonly settledAt: number | null;
}

export type MessageStatus = 'live' | 'done' | 'dead' | 'expired' | 'cancelled';

/** A dead letter can still be redriven, but it is settled as far as dedup goes. */
export const isLive = (status: MessageStatus): boolean => status === 'live';

/** What a row says of a task whose entry ended so; null where the row is not this entry's. */
export const endedStatus = ({ status }: { readonly status: EntryStatus }): MessageStatus | null =>
  status === 'done' || status === 'expired' || status === 'cancelled' ? status : null;

/** The condition of a write; an absent row meets only `absent`. */
export type MessageCondition =
  | { readonly absent: true }
  | {
      readonly uid: string;
      /** The row's status is among these. */
      readonly statusIn?: readonly MessageStatus[];
      /** The row knows of fewer moves than this. */
      readonly hopsBelow?: number;
    };

/** A write of a whole row. */
export interface MessageWrite {
  readonly expect: MessageCondition;
  readonly row: MessageRow;
  /** How long the row stays; null: until it is written again. */
  readonly ttlMs: number | null;
}

/** The key of a task's row, or null where it has none: without a message id, one is written only once it moves. */
export function messageKey(task: {
  readonly messageId: string | null;
  readonly hops: number;
  readonly uid: string;
}): string | null {
  if (task.messageId !== null) return `m${task.messageId}`;
  return task.hops > 0 ? uidKey(task.uid) : null;
}

export const uidKey = (uid: string): string => `u${uid}`;
export const messageIdKey = (messageId: string): string => `m${messageId}`;

const FROM_KEY = 'idempotency-key:';

/** The message id of a task without one, in an enqueue with an idempotency key: a retry finds its task by it. */
export const messageIdFromKey = (key: string, index: number): string => `${FROM_KEY}${key}:${index}`;
export const isFromKey = (messageId: string): boolean => messageId.startsWith(FROM_KEY);

/** The bucket of a key: FNV-1a over its UTF-16 units (http://www.isthe.com/chongo/tech/comp/fnv/), the same on every server. */
export function bucketOf(key: string, buckets: number): number {
  return buckets === 1 ? 0 : fnv1a(key) % buckets;
}

/** The shard of a topic. */
export function shardOf(topic: string, shards: number): number {
  return shards === 1 ? 0 : fnv1a(topic) % shards;
}

function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
