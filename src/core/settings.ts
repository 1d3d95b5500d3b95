/** A topic's settings, with what they are when nobody set them. */
export interface TopicSettings {
  /** How long a lease lasts that doesn't ask for another time, in milliseconds. */
  readonly leaseMs: number;
  /** Deliveries before a task goes to the dead letters. */
  readonly maxAttempts: number;
  /** No extension reaches beyond this time after the lease was handed out, in milliseconds; null: no bound. */
  readonly maxRunMs: number | null;
  /** Delay before the second attempt, in milliseconds; doubles with every further one. */
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
  /** Tasks leased at the same time; null: no limit. */
  readonly maxInFlight: number | null;
  /** Least time between two leases, in milliseconds; null: no limit. */
  readonly minIntervalMs: number | null;
  /** Least time between a settlement and the next lease, in milliseconds; null: no limit. */
  readonly cooldownMs: number | null;
  /** `tasks` per `perMs` milliseconds, up to `burst` at once; null: no limit. */
  readonly rate: RateSettings | null;
  /** Milliseconds since 1970 before which nothing is leased; null: not blocked. */
  readonly blockedUntil: number | null;
  /** How long a settled task can be looked at, in milliseconds. */
  readonly retentionMs: number;
  /** How long a dead letter waits for a redrive, in milliseconds. */
  readonly deadRetentionMs: number;
  /** How long after its settlement a message id keeps its task; null: for ever. */
  readonly dedupWindowMs: number | null;
  /**
   * Maps wider priorities onto tiers: a priority p belongs to the tier of the last band whose `from` is ≤ p.
   * For example [1, 101, 1001] puts 1–100 on tier 0, 101–1000 on tier 1, and the rest on tier 2. Null: priorities 0–9.
   */
  readonly bands: readonly number[] | null;
  /** Without priorities: spread tasks over so many tiers, leased in turn; null: off. */
  readonly buckets: number | null;
  /** How many turns the topic has in each round of a lease that goes over several topics. */
  readonly weight: number;
  /**
   * Of so many percent of the leases, the tier that was served longest ago comes first, so that low ones are not starved;
   * null: always the highest.
   */
  readonly tierShare: number | null;
  /** Tasks that may wait, ready or delayed, before new ones are refused; null: no quota. */
  readonly maxWaiting: number | null;
  /** The same in bytes, as `entryBytes` counts them; null: no quota. */
  readonly maxWaitingBytes: number | null;
  readonly paused: boolean;
  /** Tasks enqueued up to this time are purged; set by a purge only. */
  readonly purgedAt: number | null;
}

export interface RateSettings {
  readonly tasks: number;
  readonly perMs: number;
  readonly burst: number;
}

export const DEFAULT_SETTINGS: TopicSettings = {
  leaseMs: 30_000,
  maxAttempts: 5,
  maxRunMs: null,
  backoffMs: 1_000,
  maxBackoffMs: 3_600_000,
  maxInFlight: null,
  minIntervalMs: null,
  cooldownMs: null,
  rate: null,
  blockedUntil: null,
  retentionMs: 3_600_000,
  deadRetentionMs: 14 * 86_400_000,
  dedupWindowMs: 86_400_000,
  bands: null,
  buckets: null,
  weight: 1,
  tierShare: null,
  maxWaiting: null,
  maxWaitingBytes: null,
  paused: false,
  purgedAt: null,
};

/** Reads what was stored; settings that were never set have their defaults. */
export const parseSettings = (text: string | null): TopicSettings =>
  text === null ? DEFAULT_SETTINGS : { ...DEFAULT_SETTINGS, ...(JSON.parse(text) as Partial<TopicSettings>) };
