import { TIERS } from './bounds.ts';
import type { LogAddress } from './entry.ts';

/** The tier of a topic's dead letters, which leases skip. */
export const DEAD_TIER = TIERS;

/** Names beginning with this belong to the queue itself; users' names hold no control characters. */
const RESERVED = '\u0001';

/** The log of the tasks of a shard that are due within one time slot. Its tier is the slot's number. */
export const slotLog = (shard: number, slot: number): LogAddress => ({ topic: `${RESERVED}slot/${shard}`, tier: slot });
export const isSlotTopic = (topic: string): boolean => topic.startsWith(`${RESERVED}slot/`);
/** The shard to which a log of a time slot belongs. */
export const shardOfSlot = (topic: string): number => Number(topic.slice(topic.indexOf('/') + 1));
export const slotOf = (dueAt: number, slotMs: number): number => Math.floor(dueAt / slotMs);
/** When every task of the slot is due, in milliseconds: a slot is moved only as a whole, so none comes early. */
export const slotEnd = (slot: number, slotMs: number): number => (slot + 1) * slotMs;

/** A log's name as a key for maps. */
export const logKey = (log: LogAddress): string => `${log.tier}/${log.topic}`;

export const segmentOf = (id: number, size: number): number => Math.floor(id / size);
export const segmentStart = (segment: number, size: number): number => segment * size;
export const segmentEnd = (segment: number, size: number): number => (segment + 1) * size;

/** What a segment says of itself, beside its entries. */
export interface SegmentHeader {
  /** The next id given in this segment; its end when it is full. */
  readonly nextId: number;
  /** Bytes appended. */
  readonly bytes: number;
  /** How far entries of this segment were handed out. */
  readonly scan: number;
  /** The term of the holder that claimed last. */
  readonly term: number;
  /** Where the entries of a segment stop that was sealed before it was full. */
  readonly sealedAt: number | null;
  /** Everything in it is final, and agreed with the message rows. */
  readonly closed: boolean;
}

/** Where a segment's entries stop: from here to its end nothing is missing, there just is nothing. */
export const entriesEnd = (header: Pick<SegmentHeader, 'nextId' | 'sealedAt'>): number =>
  header.sealedAt ?? header.nextId;

/** How far a log was handed out and settled; a hint of where to start reading, copied from what the segments say. */
export interface Checkpoint {
  readonly scan: number;
  readonly completion: number;
  /** Below this, entries were deleted after the retention. */
  readonly trimmed: number;
}
export const EMPTY_CHECKPOINT: Checkpoint = { scan: 0, completion: 0, trimmed: 0 };

/** Where an append of some entries goes: to the segment's next ids, if they fit into it as a whole. */
export function planAppend(
  tail: { readonly segment: number; readonly next: number | null },
  count: number,
  size: number,
): { readonly firstId: number; readonly fits: boolean } {
  const firstId = tail.next ?? segmentStart(tail.segment, size);
  return { firstId, fits: firstId + count <= segmentEnd(tail.segment, size) };
}

/**
 * How far all is settled.
 * @param firstOpen the first id that is not known to be; null: there is none
 * @param seen how far it is known what was handed out
 */
export const completionOf = (firstOpen: number | null, seen: number): number => Math.min(firstOpen ?? seen, seen);

/** Segments above the completion cursor, scanned to their ends, in which nothing is open. */
export function closableSegments(completion: number, seen: number, open: Iterable<number>, size: number): number[] {
  const first = segmentOf(completion, size) + 1;
  const behind = segmentOf(seen, size);
  if (first >= behind) return [];
  const occupied = new Set<number>();
  for (const id of open) occupied.add(segmentOf(id, size));
  return Array.from({ length: behind - first }, (_, nth) => first + nth).filter((segment) => !occupied.has(segment));
}

/**
 * What was handed out, nobody here knows to whom: by a claim in doubt, or one that a predecessor had sent.
 * @param scan the scan cursor as known here; `seen`: up to where it is known what was handed out
 * @param found the cursor that the segment's header shows
 */
export const unseenUpTo = (
  scan: number,
  seen: number,
  found: number,
): { readonly from: number; readonly to: number } | null => (found > scan ? { from: seen, to: found } : null);
