import { FIRINGS_AT_ONCE, MISSED_COUNTED } from './bounds.ts';
import type { Payload } from './entry.ts';

/** What a schedule puts where, and when; as its owner wrote it. */
export interface ScheduleDefinition {
  readonly topic: string;
  /** A cron pattern of five fields, or of six with seconds first. */
  readonly pattern: string;
  /** The IANA name of the zone in which the pattern is read. */
  readonly timeZone: string;
  readonly payload: Payload;
  /** Strings by name, as JSON text. */
  readonly metadata: string | null;
  /** null: the topic's default. */
  readonly priority: number | null;
  readonly ttlMs: number | null;
  readonly maxAttempts: number | null;
  /** A firing that is late by more than this, in milliseconds, is passed over where a later one is due. */
  readonly catchUpMs: number;
}

/** How far a schedule has come. */
export interface ScheduleState {
  /** A ULID, given when it was created: one that is deleted and made again is another one. */
  readonly incarnation: string;
  /** Counts the changes of the row; with the incarnation, the condition of each. */
  readonly version: number;
  readonly createdAt: number;
  /** When its definition was last changed. */
  readonly updatedAt: number;
  /** All its firings up to this time were enqueued, or passed over. */
  readonly firedUpTo: number;
  /** Its first firing after that, by the rules of its time zone as they were known then; null: there is none. */
  readonly nextAt: number | null;
  /** The time of the last firing that was enqueued, and the id of its task. */
  readonly lastFiredFor: number | null;
  readonly lastTask: string | null;
  /** Firings enqueued, and passed over. */
  readonly fired: number;
  readonly missed: number;
  /** Why the last firing was refused, if it was. */
  readonly refusal: string | null;
}

export interface ScheduleRow extends ScheduleDefinition, ScheduleState {
  readonly name: string;
}

/** The definition in a row, whatever else came along. */
export const definitionOf = (row: ScheduleDefinition): ScheduleDefinition => ({
  topic: row.topic,
  pattern: row.pattern,
  timeZone: row.timeZone,
  payload: row.payload,
  metadata: row.metadata,
  priority: row.priority,
  ttlMs: row.ttlMs,
  maxAttempts: row.maxAttempts,
  catchUpMs: row.catchUpMs,
});

/** The state in a row, whatever else came along. */
export const stateOf = (row: ScheduleState): ScheduleState => ({
  incarnation: row.incarnation,
  version: row.version,
  createdAt: row.createdAt,
  updatedAt: row.updatedAt,
  firedUpTo: row.firedUpTo,
  nextAt: row.nextAt,
  lastFiredFor: row.lastFiredFor,
  lastTask: row.lastTask,
  fired: row.fired,
  missed: row.missed,
  refusal: row.refusal,
});

/** A schedule without what may be large. */
export type ScheduleHead = Omit<ScheduleRow, 'payload' | 'metadata'>;

/** When a pattern fires, in milliseconds since 1970. */
export interface Timetable {
  /** The first time after this one; null: there is none. */
  next(after: number): number | null;
  /** The last time before this one. */
  previous(before: number): number | null;
}

/** What of a schedule is due. */
export interface DueFirings {
  /** To be enqueued now, in this order. */
  readonly times: readonly number[];
  /** Passed over; not counted further than MISSED_COUNTED. */
  readonly missed: number;
  /** The first firing behind them; it may be due as well. */
  readonly nextAt: number | null;
}

/**
 * Decides which firings are enqueued: each that is late by no more than `catchUpMs`, and where all are later than that,
 * the last one.
 */
export function dueFirings(
  { firedUpTo, catchUpMs }: Pick<ScheduleRow, 'firedUpTo' | 'catchUpMs'>,
  timetable: Timetable,
  now: number,
): DueFirings {
  const since = now - catchUpMs;
  let at = timetable.next(firedUpTo);
  let last: number | null = null;
  let missed = 0;
  while (at !== null && at < since) {
    if (missed === MISSED_COUNTED) {
      last = timetable.previous(since);
      at = timetable.next(since - 1);
      break;
    }
    missed++;
    last = at;
    at = timetable.next(at);
  }
  const times: number[] = [];
  for (; at !== null && at <= now && times.length < FIRINGS_AT_ONCE; at = timetable.next(at)) times.push(at);
  if (times.length > 0 || last === null) return { times, missed, nextAt: at };
  return { times: [last], missed: missed - 1, nextAt: at };
}

/** Metadata that each task of a schedule has beside its own: the schedule's name, and for when it was fired (ISO 8601). */
export const SCHEDULE_METADATA = { name: 'ebbmark-schedule', firedFor: 'ebbmark-fired-for' } as const;

/** The message id of a firing: the same for whoever enqueues it, and however often. */
export const firingId = ({ name, incarnation }: Pick<ScheduleRow, 'name' | 'incarnation'>, at: number): string =>
  `${FIRING}${name}:${incarnation}:${at}`;

const FIRING = 'schedule:';
const FIRING_ID = /:[0-9A-HJKMNP-TV-Z]{26}:\d+$/;

/** Whether a message id is that of a firing. */
export const isFiringId = (messageId: string): boolean => messageId.startsWith(FIRING) && FIRING_ID.test(messageId);
