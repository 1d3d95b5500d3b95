import { FAR_LEAD_SLOTS, NEAR_PER_FAR, TIERS } from './bounds.ts';
import type { LogAddress } from './entry.ts';
import { shardOf } from './message.ts';

/** The tier of a topic's dead letters, which leases skip. */
export const DEAD_TIER = TIERS;

/** Names beginning with this belong to the queue itself; users' names hold no control characters. */
const RESERVED = '\u0001';

const NEAR = `${RESERVED}slot/`;
const FAR = `${RESERVED}later/`;

/** What of a store says where delayed tasks wait: its shards, and the width of a near slot in milliseconds. */
export interface SlotMeta {
  readonly shards: number;
  readonly slotMs: number;
}

/** The log of the tasks of a shard that are due within one near time slot. Its tier is the slot's number. */
export const nearLog = (shard: number, slot: number): LogAddress => ({ topic: `${NEAR}${shard}`, tier: slot });
/** The same for a far slot, in which tasks wait until it is about to begin, and go on to near ones then. */
export const farLog = (shard: number, slot: number): LogAddress => ({ topic: `${FAR}${shard}`, tier: slot });
export const isFarTopic = (topic: string): boolean => topic.startsWith(FAR);
export const isSlotTopic = (topic: string): boolean => topic.startsWith(NEAR) || isFarTopic(topic);

/** Width of a far slot in milliseconds. */
const farMs = (slotMs: number): number => slotMs * NEAR_PER_FAR;

/**
 * Where a task of a topic waits until it is due: in a near slot what is due soon, else in a far one, so that a year of
 * delayed tasks is some thousand logs. Nothing is put into a far slot that is being emptied already.
 *
 * @param dueAt, now milliseconds since 1970, by the store's clock
 */
export function waitingLog(topic: string, dueAt: number, now: number, meta: SlotMeta): LogAddress {
  const far = farMs(meta.slotMs);
  const isSoon = dueAt - now <= far + FAR_LEAD_SLOTS * meta.slotMs;
  return isSoon ? nearLogOf(topic, dueAt, meta) : farLog(shardOf(topic, meta.shards), Math.floor(dueAt / far));
}

/** The near slot of a due time: where a task of a far slot goes on to. */
export const nearLogOf = (topic: string, dueAt: number, meta: SlotMeta): LogAddress =>
  nearLog(shardOf(topic, meta.shards), Math.floor(dueAt / meta.slotMs));

/** When what is in a slot of delayed tasks is seen to, in milliseconds since 1970. */
export interface SlotTimes {
  /** From when on its tasks are due. */
  readonly from: number;
  /** By when all of them are. */
  readonly to: number;
  /** From when on it is read: a near one, to know what is due when; a far one, to be emptied into near ones. */
  readonly opensAt: number;
  /** Once nothing is in it any more, it may go from then on: nobody who is in time puts anything into it. */
  readonly overAt: number;
}

export function slotTimes({ topic, tier }: LogAddress, slotMs: number): SlotTimes {
  const isFar = isFarTopic(topic);
  const width = isFar ? farMs(slotMs) : slotMs;
  const from = tier * width;
  const to = from + width;
  return isFar
    ? { from, to, opensAt: from - FAR_LEAD_SLOTS * slotMs, overAt: from }
    : { from, to, opensAt: from - slotMs / 2, overAt: to };
}

/** The shard that a log belongs to. */
export const shardOfLog = (topic: string, shards: number): number =>
  isSlotTopic(topic) ? Number(topic.slice(topic.indexOf('/') + 1)) : shardOf(topic, shards);

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
