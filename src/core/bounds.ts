/** Every bound of the system in one place, with the relations between them asserted below. */

/** Entries a segment holds; fixed when a store is created. */
export const SEGMENT_SIZE = 10_000;
/** A segment whose payloads and results reach this many bytes is sealed early. */
export const SEGMENT_SEAL_BYTES = 32 * 1024 * 1024;
/** Entries that one conditional batch appends, claims or settles at the most. */
export const BATCH_ENTRIES = 200;
/** Bytes of one conditional batch. */
export const BATCH_BYTES = 1024 * 1024;
/** Bytes of one answer to a lease call. */
export const ANSWER_BYTES = 4 * 1024 * 1024;

export const PAYLOAD_BYTES = 256 * 1024;
export const RESULT_BYTES = PAYLOAD_BYTES;
export const PROGRESS_BYTES = 64 * 1024;
export const METADATA_BYTES = 8 * 1024;
export const MESSAGE_ID_BYTES = 2048;
export const TOPIC_BYTES = 255;
export const WORKER_BYTES = 128;
export const REASON_BYTES = 1024;
/** Earlier attempts an entry remembers. */
export const HISTORY_ATTEMPTS = 20;

export const ENQUEUE_TASKS = 1_000;
export const LEASE_TASKS = 1_000;
export const SETTLE_ITEMS = 1_000;
export const LEASE_TOPICS = 1_000;
export const PAGE_TASKS = 1_000;
export const WAIT_MS = 60_000;

export const LEASE_MS = { min: 100, max: 12 * 3_600_000 } as const;
export const DELAY_MS = { max: 366 * 86_400_000 } as const;
/** Width of a near slot of delayed tasks; fixed when a store is created. */
export const SLOT_MS = 10_000;
/** Near slots that a far slot is as wide as: what is due later than one far slot from now waits in a far one. */
export const NEAR_PER_FAR = 360;
/** A far slot is emptied into near ones so many of their widths before its time: some million entries may be in it. */
export const FAR_LEAD_SLOTS = 12;
/** Delayed tasks are moved together that are due within so many milliseconds; each is late by that much at the most. */
export const DUE_TICK_MS = 25;
/** Due times of one slot that are kept in memory, at 8 bytes each; where there are more, the slot is read again. */
export const DUE_TIMES_KEPT = 200_000;

export const SCHEDULE_PATTERN_CHARACTERS = 256;
export const SCHEDULE_PAGE = 1_000;
/** How late a firing may be and is still enqueued, though a later one is due. */
export const CATCH_UP_MS = { min: 0, max: 86_400_000, default: 60_000 } as const;
/** Firings of a schedule that are enqueued together. */
export const FIRINGS_AT_ONCE = 20;
/** Firings that were missed are counted one by one, at some 60 µs each, up to so many at a time. */
export const MISSED_COUNTED = 100;
/**
 * The message id of a firing is kept for at least so long after its task is settled, whatever the window of its topic:
 * whoever enqueues it again must find it.
 */
export const FIRING_WINDOW_MS = 86_400_000;

/** API keys of a store. All servers hold all of them in memory, some 500 bytes each. */
export const KEYS = 10_000;
export const KEY_PAGE = 1_000;
export const KEY_NAME_BYTES = 128;
export const KEY_DESCRIPTION_BYTES = 1024;
export const KEY_PREFIXES = 100;
export const KEY_RATE = { perSecond: { min: 1, max: 1_000_000 }, burst: { min: 1, max: 1_000_000 } } as const;
/** A key that was revoked, or has expired, is listed for so long. */
export const KEY_KEPT_MS = 30 * 86_400_000;

/** What an embedded store may be told to hold at the most. */
export const MAX_STORE_BYTES = { min: 1024 * 1024, max: Number.MAX_SAFE_INTEGER } as const;

/** Tiers of a topic that leases serve; 9 first. */
export const TIERS = 10;
export const DEFAULT_PRIORITY = 5;

const DAY_MS = 86_400_000;
const LONGEST_MS = 3650 * DAY_MS;
/** Shorter, and a task could be gone before a caller who retries has asked for it. */
const SHORTEST_RETENTION_MS = 300_000;

/** What a topic's settings may be, for HTTP and for callers in process alike. */
export const SETTING_BOUNDS = {
  leaseMs: LEASE_MS,
  maxAttempts: { min: 1, max: 1_000 },
  maxRunMs: { min: LEASE_MS.min, max: LONGEST_MS },
  backoffMs: { min: 0, max: DAY_MS },
  maxBackoffMs: { min: 0, max: 30 * DAY_MS },
  maxInFlight: { min: 1, max: 1_000_000 },
  minIntervalMs: { min: 1, max: DAY_MS },
  cooldownMs: { min: 1, max: DAY_MS },
  rateTasks: { min: 1, max: 1_000_000 },
  ratePerMs: { min: 1, max: DAY_MS },
  rateBurst: { min: 1, max: 1_000_000 },
  blockedUntil: { min: 0, max: Number.MAX_SAFE_INTEGER },
  retentionMs: { min: SHORTEST_RETENTION_MS, max: LONGEST_MS },
  deadRetentionMs: { min: SHORTEST_RETENTION_MS, max: LONGEST_MS },
  dedupWindowMs: { min: 0, max: LONGEST_MS },
  bandFrom: { min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER },
  bands: { min: 1, max: TIERS },
  buckets: { min: 1, max: TIERS },
  weight: { min: 1, max: 1_000 },
  tierShare: { min: 1, max: 50 },
  maxWaiting: { min: 1, max: 1_000_000_000 },
  maxWaitingBytes: { min: 1, max: Number.MAX_SAFE_INTEGER },
} as const;

function assertBounds(): void {
  const hold: readonly (readonly [boolean, string])[] = [
    [PAYLOAD_BYTES + METADATA_BYTES + MESSAGE_ID_BYTES < BATCH_BYTES, 'one task fits into one batch'],
    [BATCH_BYTES < ANSWER_BYTES, 'an answer holds at least one batch'],
    [RESULT_BYTES + PROGRESS_BYTES < BATCH_BYTES, 'one settlement fits into one batch'],
    [BATCH_ENTRIES <= SEGMENT_SIZE, 'a batch fits into a segment'],
    [FAR_LEAD_SLOTS < NEAR_PER_FAR, 'a far slot is emptied into slots that are near'],
    [CATCH_UP_MS.max <= FIRING_WINDOW_MS, 'what is caught up with is not forgotten before'],
    [BATCH_BYTES < SEGMENT_SEAL_BYTES, 'a segment is not sealed by its first batch'],
  ];
  for (const [ok, rule] of hold) if (!ok) throw new Error(`bounds: ${rule}`);
}
assertBounds();
