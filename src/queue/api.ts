/**
 * The queue as programs see it, in process and behind HTTP alike. Times are milliseconds since 1970 by the store's
 * clock, durations milliseconds. Every call may reject with a QueueError whose `code` is one of core/errors.ts;
 * the codes named below are those particular to the call.
 */
import type { TopicSettings } from '../core/settings.ts';
import type { Snapshot, StoreSpace } from '../store/store.ts';
import type { QueueMeasures } from './measures.ts';

export type { CallMeasures, Distribution, QueueMeasures } from './measures.ts';

/** Any JSON value, or bytes. */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | { readonly [key: string]: JsonValue };
export type TaskPayload = JsonValue | Uint8Array;

export type OnDuplicate = 'keep' | 'again' | 'replace';

export interface TaskInput {
  /** At most 256 KiB as JSON text or bytes. */
  readonly payload: TaskPayload;
  /** 0–9, 9 first, 5 when absent; or any integer where the topic has bands. */
  readonly priority?: number;
  /** The producer's own id: within the dedup window a topic has at most one task with it. At most 2,048 bytes. */
  readonly messageId?: string;
  /** Not before this long from now. Not together with `runAt`. */
  readonly delayMs?: number;
  /** Not before this time. */
  readonly runAt?: number;
  /** Expires when it was not completed this long after its enqueue. */
  readonly ttlMs?: number;
  /**
   * Strings by name, handed to the worker unchanged; 8 KiB in all. Where the caller is in a trace, `traceparent` and
   * `tracestate` are put beside them, unless they have them already.
   */
  readonly metadata?: Readonly<Record<string, string>>;
  /** Deliveries before the dead letters; the topic's when absent. */
  readonly maxAttempts?: number;
  /**
   * What a known message id gets: `keep` its task as it is (the default), `again` a new task if the old one is
   * settled, `replace` the payload and priority of a task that still waits.
   */
  readonly onDuplicate?: OnDuplicate;
}

export type EnqueueResult =
  | { readonly id: string; readonly deduplicated: boolean }
  /** This one was refused; the others are not affected. */
  | { readonly id: null; readonly deduplicated: false; readonly code: string; readonly detail: string };

export interface EnqueueOptions {
  /**
   * Makes a retry of this call safe for tasks without a message id: they get one made of this key and their place in
   * the call.
   */
  readonly idempotencyKey?: string;
}

export type LeaseOrder = 'fair' | 'priority';

export interface LeaseRequest {
  /** Names, or prefixes that end with `*`; all topics when absent. */
  readonly topics?: readonly string[];
  /** Tasks at the most; 1 when absent, 1,000 at the most. */
  readonly max?: number;
  /** Tasks of one topic at the most. */
  readonly maxPerTopic?: number;
  /** Only these tiers (0–9). */
  readonly priorities?: readonly number[];
  /** `fair` (the default) goes round the topics; `priority` takes the highest tier of all topics first. */
  readonly order?: LeaseOrder;
  /** How long to wait for a first task; 0 when absent, 60,000 at the most. */
  readonly waitMs?: number;
  /** How long the lease lasts; the topic's when absent. */
  readonly leaseMs?: number;
  /** Who works on it, for people to read. */
  readonly worker?: string;
  /** Ends the wait; the call then answers with what it has. */
  readonly signal?: AbortSignal;
}

export interface LeasedTask {
  readonly topic: string;
  readonly id: string;
  readonly messageId: string | null;
  readonly payload: TaskPayload;
  readonly metadata: Readonly<Record<string, string>>;
  readonly priority: number;
  /** 1 for the first delivery. */
  readonly attempt: number;
  /** What an earlier attempt saved with `progress`; null where none did. */
  readonly progress: JsonValue;
  readonly enqueuedAt: number;
  /** The fence: whoever settles shows it. Opaque. */
  readonly leaseId: string;
  readonly leaseUntil: number;
}

export interface SettleRequest {
  readonly ack?: readonly { readonly leaseId: string; readonly result?: JsonValue }[];
  readonly nack?: readonly {
    readonly leaseId: string;
    /** When absent: the topic's backoff for this attempt. 0: at once. */
    readonly delayMs?: number;
    readonly reason?: string;
    /** To the dead letters, whatever attempts are left. */
    readonly dead?: boolean;
  }[];
  readonly extend?: readonly { readonly leaseId: string; readonly leaseMs: number }[];
  readonly progress?: readonly { readonly leaseId: string; readonly position: JsonValue }[];
  /** Gives a task back unworked; the attempt does not count. */
  readonly release?: readonly { readonly leaseId: string }[];
}

export type SettleItem =
  | { readonly leaseId: string; readonly ok: true; readonly leaseUntil?: number }
  | { readonly leaseId: string; readonly ok: false; readonly code: string; readonly detail: string };

/** The lists of the request, in the same order. */
export interface SettleResult {
  readonly ack: readonly SettleItem[];
  readonly nack: readonly SettleItem[];
  readonly extend: readonly SettleItem[];
  readonly progress: readonly SettleItem[];
  readonly release: readonly SettleItem[];
}

export const TASK_STATES = ['ready', 'delayed', 'leased', 'done', 'dead', 'expired', 'cancelled'] as const;
export type TaskState = (typeof TASK_STATES)[number];

export interface AttemptInfo {
  readonly attempt: number;
  readonly worker: string | null;
  readonly leasedAt: number;
  readonly endedAt: number | null;
  /** null while it runs. */
  readonly outcome: 'done' | 'nack' | 'dead' | 'lapsed' | 'released' | 'cancelled' | null;
  readonly reason: string | null;
}

export interface TaskInfo {
  readonly topic: string;
  readonly id: string;
  readonly messageId: string | null;
  readonly state: TaskState;
  readonly priority: number;
  readonly payload: TaskPayload;
  readonly metadata: Readonly<Record<string, string>>;
  /** Deliveries so far. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** The last twenty, oldest first. */
  readonly attempts: readonly AttemptInfo[];
  readonly progress: JsonValue;
  /** What the ack brought; null where it brought none. */
  readonly result: JsonValue;
  readonly enqueuedAt: number;
  /** When a delayed one is due. */
  readonly dueAt: number | null;
  readonly expiresAt: number | null;
  readonly leaseUntil: number | null;
  readonly settledAt: number | null;
  /** Why it is dead, or was cancelled or expired. */
  readonly reason: string | null;
}

export interface TaskPage {
  readonly tasks: readonly TaskInfo[];
  /** Where the next page begins; absent at the end. A page may be short, or empty, and still have a next. */
  readonly after?: string;
}

export interface ListRequest {
  readonly state?: TaskState;
  readonly after?: string;
  /** 100 when absent, 1,000 at the most. */
  readonly limit?: number;
}

export interface TopicCounts {
  readonly ready: number;
  readonly delayed: number;
  readonly leased: number;
  readonly dead: number;
}

export interface TopicInfo {
  readonly topic: string;
  readonly counts: TopicCounts;
  readonly settings: TopicSettings;
}

export interface TopicSummary {
  readonly topic: string;
  readonly counts: TopicCounts;
  readonly paused: boolean;
}

/** A topic that is busy, as the server that schedules it knows it. */
export interface BusyTopic extends TopicSummary {
  /** Bytes of what waits; estimated where the topic has no quota of them. */
  readonly waitingBytes: number;
  /** Workers that got a task of it within a minute, or wait for one; calls that name no worker count as one each. */
  readonly subscribers: number;
  /** Lease calls that wait for a task of it, among others. */
  readonly idle: number;
}

export interface TopicPage {
  readonly topics: readonly TopicSummary[];
  readonly after?: string;
}

export interface PriorityCursors {
  /** The tier; `dead` for the dead letters. */
  readonly priority: number | 'dead';
  readonly nextId: number;
  /** How far tasks were handed out. */
  readonly scanCursor: number;
  /** Below this everything is settled. */
  readonly completionCursor: number;
  /** Below this entries were deleted after the retention. */
  readonly trimmed: number;
  /** scanCursor − completionCursor. */
  readonly lag: number;
  readonly ready: number;
  readonly inFlight: number;
  /** How long the oldest ready task waits, in milliseconds; null where none does. */
  readonly oldestReadyMs: number | null;
  /** Segments that hold entries. */
  readonly segments: number;
  /** The entry the completion cursor waits for. */
  readonly heldBy: { readonly entry: number; readonly task: string; readonly leaseUntil: number | null } | null;
}

export interface TopicCursors {
  readonly topic: string;
  readonly priorities: readonly PriorityCursors[];
}

export const OBSTACLES = [
  'no-holder',
  'paused',
  'blocked',
  'in-flight-limit',
  'interval',
  'cooldown',
  'rate',
  'no-ready-task',
  'behind-others',
  'not-due',
  'leased',
  'dead',
  'settled',
] as const;

/** Something that keeps a topic, or a task, from being handed out now. */
export interface Obstacle {
  readonly code: (typeof OBSTACLES)[number];
  /** What it is, in a sentence. */
  readonly detail: string;
  /** When it is over by itself, in milliseconds since 1970; null: that is not known, or never. */
  readonly until: number | null;
  /** What would change it. */
  readonly remedy: string;
  /** Leases that are in the way; the first ten. */
  readonly leases: readonly { readonly id: string; readonly worker: string | null; readonly until: number }[];
}

/** Why a topic, or one of its tasks, is not being handed out just now. */
export interface Explanation {
  readonly topic: string;
  /** The task that was asked about; null: the topic alone was. */
  readonly task: { readonly id: string; readonly state: TaskState } | null;
  /** Nothing is in the way: the next lease that asks for it gets it. */
  readonly servable: boolean;
  readonly obstacles: readonly Obstacle[];
}

/** A change of settings; what is absent stays, null removes a limit or bound. */
export type SettingsPatch = { readonly [K in Exclude<keyof TopicSettings, 'purgedAt'>]?: TopicSettings[K] };

export interface RedriveRequest {
  /** These; all dead letters when absent. */
  readonly ids?: readonly string[];
  /** At most so many, oldest first. */
  readonly limit?: number;
}

export interface RedriveResult {
  readonly redriven: number;
  /** Left where they are: another task owns their message id by now, or they were not dead. */
  readonly refused: readonly { readonly id: string; readonly code: string; readonly detail: string }[];
}

/** What a schedule puts where, and when. */
export interface ScheduleInput {
  /** The topic into which it puts a task at each of its times. */
  readonly topic: string;
  /**
   * A cron pattern: minute, hour, day of the month, month, weekday; or six fields, with seconds first. Names (`MON`, `JAN`),
   * lists, ranges, steps, `L`, `#` and nicknames such as `@daily` are known.
   */
  readonly pattern: string;
  /** The IANA name of the time zone in which the pattern is read; `UTC` when absent. */
  readonly timeZone?: string;
  /** Of each task; at most 256 KiB as JSON text or bytes. */
  readonly payload: TaskPayload;
  readonly priority?: number;
  /**
   * Of each task, which also gets `ebbmark-schedule` (the name of its schedule) and `ebbmark-fired-for` (its time, in
   * ISO 8601); names of one's own don't begin with `ebbmark-`.
   */
  readonly metadata?: Readonly<Record<string, string>>;
  /** Each task expires when it was not completed this long after its enqueue, in milliseconds. */
  readonly ttlMs?: number;
  readonly maxAttempts?: number;
  /**
   * A firing that is late by more than this, in milliseconds, because no server ran, is passed over where a later one is
   * due, and counted as missed: the last one is always made up for. 60,000 when absent, a day at the most.
   */
  readonly catchUpMs?: number;
}

export interface ScheduleSummary {
  readonly name: string;
  readonly topic: string;
  readonly pattern: string;
  readonly timeZone: string;
  /** null: the topic's default. */
  readonly priority: number | null;
  readonly ttlMs: number | null;
  readonly maxAttempts: number | null;
  readonly catchUpMs: number;
  readonly createdAt: number;
  /** When it was last changed; firings change nothing. */
  readonly updatedAt: number;
  /** Up to this time it has fired. */
  readonly firedUpTo: number;
  /** Its first firing after that; null: there is none. */
  readonly nextAt: number | null;
  /** The time of the last firing that was enqueued, and the id of its task; null before the first. */
  readonly lastFiredFor: number | null;
  readonly lastTask: string | null;
  /** Firings that were enqueued. */
  readonly fired: number;
  /** Firings that were passed over; of one outage no more than 100 are counted. */
  readonly missed: number;
  /** Why the last firing was refused; null: it was not. */
  readonly refusal: string | null;
}

export interface ScheduleInfo extends ScheduleSummary {
  readonly payload: TaskPayload;
  readonly metadata: Readonly<Record<string, string>>;
  /** Its next three times from now. */
  readonly next: readonly number[];
}

export interface SchedulePage {
  readonly schedules: readonly ScheduleSummary[];
  /** Where the next page begins; absent at the end. */
  readonly after?: string;
}

/** A copy of the whole store, as it was when it was asked for, to be read piece by piece. */
export type Backup = Snapshot;

export interface QueueStatus {
  readonly startedAt: number;
  readonly store: string;
  /** What the store takes of the disk; null where a database sees to that itself, or it was not reached yet. */
  readonly space: StoreSpace | null;
  /** Topics that have work or recently settled tasks in memory here. */
  readonly activeTopics: number;
  /** Shards of topics that this server schedules. */
  readonly shards: { readonly held: number; readonly of: number };
  /** Servers that take part on this store, this one included. */
  readonly servers: number;
  readonly ready: number;
  readonly delayed: number;
  readonly leased: number;
  readonly dead: number;
  /**
   * How long the ready task that has waited longest has waited, at the most, in milliseconds; null: none is ready. Where
   * more than a thousand topics are active, it is known from the last `busiest()`.
   */
  readonly oldestReadyMs: number | null;
  /** Lease calls that wait. */
  readonly waiting: number;
  readonly enqueued: number;
  readonly deduplicated: number;
  /** Tasks that found no room in their topic, or in the store. */
  readonly refused: number;
  readonly delivered: number;
  readonly redelivered: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly deadLettered: number;
  readonly expired: number;
  /** Tasks that schedules have put into topics, and firings that were passed over. */
  readonly firings: number;
  readonly firingsMissed: number;
  /** Writes whose outcome was unknown at first, by how they came out; see `Resolution` in environment.ts. */
  readonly unknown: {
    readonly applied: number;
    readonly landed: number;
    readonly refused: number;
    readonly open: number;
  };
  readonly lastScanAt: number | null;
}

export interface Readiness {
  readonly ready: boolean;
  /** What is amiss; empty when ready. */
  readonly reasons: readonly string[];
}

export interface Queue {
  /**
   * Puts one or many tasks into a topic, which needs no creation. Resolves once every accepted task is on disk.
   * Atomic per log and chunk of 200; a result per task, in order: where one was refused, its `id` is null. New tasks for
   * which there is no room are refused with `topic-full` or `store-full`; known message ids get their tasks all the same.
   * @throws QueueError `invalid-input` or `topic-invalid` where the call as a whole is malformed (nothing was
   *   written); `store-unavailable`, `outcome-unknown`, `shutting-down`
   */
  enqueue(topic: string, tasks: readonly TaskInput[], options?: EnqueueOptions): Promise<readonly EnqueueResult[]>;
  /** The same for one task; rejects where that is refused. */
  enqueue(topic: string, task: TaskInput, options?: EnqueueOptions): Promise<EnqueueResult>;

  /** Leases up to `max` ready tasks, waiting up to `waitMs` for the first. Empty when there is none. */
  lease(request?: LeaseRequest): Promise<readonly LeasedTask[]>;

  /** Settles, extends, saves: a result per item; an item refused with `lease-lost` affects no other. */
  settle(request: SettleRequest): Promise<SettleResult>;

  /** @throws QueueError `task-not-found`. With `waitMs`, waits until the task is settled, and then answers in any case. */
  task(
    topic: string,
    id: string,
    options?: { readonly waitMs?: number; readonly signal?: AbortSignal },
  ): Promise<TaskInfo>;
  /** The task that owns a message id. @throws QueueError `task-not-found` */
  taskByMessageId(topic: string, messageId: string): Promise<TaskInfo>;
  tasks(topic: string, request?: ListRequest): Promise<TaskPage>;
  /** Cancels a task that is not settled; a worker that has it loses its lease. @throws QueueError `task-not-found`, `task-settled` */
  cancel(topic: string, id: string, reason?: string): Promise<TaskInfo>;
  /** Changes priority or due time of a waiting task. @throws QueueError `task-not-found`, `task-settled`, `task-leased` */
  reschedule(
    topic: string,
    id: string,
    change: { readonly priority?: number; readonly delayMs?: number; readonly runAt?: number },
  ): Promise<TaskInfo>;

  /** @throws QueueError `topic-not-found` where nothing was ever put or set */
  topic(topic: string): Promise<TopicInfo>;
  /** Changes settings; acknowledged once leases follow them. */
  configure(topic: string, patch: SettingsPatch): Promise<TopicInfo>;
  pause(topic: string): Promise<TopicInfo>;
  resume(topic: string): Promise<TopicInfo>;
  /** Cancels all tasks of the topic that were enqueued before and wait; leased ones finish, and are not retried. */
  purge(topic: string): Promise<void>;
  redrive(topic: string, request?: RedriveRequest): Promise<RedriveResult>;
  /** Active topics in the order of their names. */
  topics(request?: { readonly after?: string; readonly limit?: number; readonly prefix?: string }): Promise<TopicPage>;
  cursors(topic: string): Promise<TopicCursors>;
  /**
   * Why the topic, or the task of this id, is not being handed out just now, and what would change that.
   * @throws QueueError `topic-not-found`, `task-not-found`
   */
  why(topic: string, id?: string): Promise<Explanation>;
  /** Runs the completion scanner over the topic now. */
  scan(topic: string): Promise<TopicCursors>;
  /** Resolves to true once nothing of the topic is ready, delayed or leased; false when `timeoutMs` is over first. */
  drained(topic: string, options?: { readonly timeoutMs?: number; readonly signal?: AbortSignal }): Promise<boolean>;

  /**
   * Makes the schedule of this name, or changes it as a whole: one task at each time of its pattern from now on, exactly
   * once, whatever servers die meanwhile. A change keeps up to when it has fired; what was due before fires first, as it
   * was. Setting what is set already changes nothing.
   * @throws QueueError `invalid-input`, `topic-invalid`, `payload-too-large`; `outcome-unknown`, after which the same call
   *   is safe; `not-holder`
   */
  setSchedule(name: string, schedule: ScheduleInput): Promise<ScheduleInfo>;
  /** @throws QueueError `schedule-not-found` */
  schedule(name: string): Promise<ScheduleInfo>;
  /** Schedules in an order of the store's own. `after` is the name of the last one before, `limit` 100 when absent, 1,000 at the most. */
  schedules(request?: { readonly after?: string; readonly limit?: number }): Promise<SchedulePage>;
  /** Ends a schedule; tasks that it has enqueued stay. @throws QueueError `schedule-not-found` */
  deleteSchedule(name: string): Promise<void>;

  /**
   * A copy of an embedded store, while the queue goes on: all that was acknowledged before this call is in it. Read it
   * without delay, and close it: writes collect in the store's log meanwhile, and it is given up (`store-unavailable`)
   * where that would grow too long. `saveBackup` makes a file of it.
   * @throws QueueError `unsupported` where the store is no file; `busy` while another one is read
   */
  backup(): Promise<Backup>;

  /** Counts of this server, and of the shards that it schedules. Costs the same however many topics there are. */
  status(): QueueStatus;
  /** How long its work takes, and how much of it there is, since the start. */
  measures(): QueueMeasures;
  /**
   * The topics with most tasks, the busiest first, of the shards that this server schedules, as a second ago at the
   * earliest. Looks at all topics for it, in slices.
   */
  busiest(): Promise<readonly BusyTopic[]>;
  readiness(): Promise<Readiness>;

  /** Refuses new work, ends waits, finishes what runs, and lets go of the store. Idempotent. */
  stop(): Promise<void>;
}
