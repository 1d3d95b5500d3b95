import { Cron } from 'croner';
import { LRUCache } from 'lru-cache';
import { SCHEDULE_PATTERN_CHARACTERS } from '../core/bounds.ts';
import { invalid } from '../core/errors.ts';
import type { Timetable } from '../core/schedule.ts';

/** Parsed patterns, which many schedules share. */
const timetables = new LRUCache<string, Timetable>({ max: 1_000 });

/**
 * When a cron pattern fires in a time zone. Where its clocks are set forward, what names a time that is left out fires right
 * behind the gap; where they are set back, what names a time that comes twice fires the first time. A pattern with a
 * wildcard or a step in its seconds, minutes or hours follows the clock instead: every half hour is every half hour.
 *
 * @throws QueueError `invalid-input` where either is none, or the pattern never fires
 */
export function timetableOf(pattern: unknown, timeZone: unknown): Timetable {
  const key = `${timeZone} ${pattern}`;
  let timetable = timetables.get(key);
  if (timetable === undefined) {
    timetable = parse(pattern, checkTimeZone(timeZone));
    timetables.set(key, timetable);
  }
  return timetable;
}

function parse(pattern: unknown, timezone: string): Timetable {
  if (typeof pattern !== 'string') throw notAPattern(pattern, 'it is no string');
  if (pattern.length > SCHEDULE_PATTERN_CHARACTERS) {
    throw notAPattern(pattern, `it has more than ${SCHEDULE_PATTERN_CHARACTERS} characters`);
  }
  let cron: Cron;
  try {
    cron = new Cron(pattern, { timezone, mode: '5-or-6-parts', fixedTimeRule: 'no-wildcard', paused: true });
  } catch (error) {
    throw notAPattern(pattern, (error as Error).message.replace(/^CronPattern: /, ''));
  }
  // The parser takes a date as well.
  if (cron.getOnce() !== null) throw notAPattern(pattern, 'it is a date');
  if (cron.nextRun() === null) throw notAPattern(pattern, 'there is no such day');
  return {
    next: (after) => cron.nextRun(new Date(after))?.getTime() ?? null,
    previous: (before) => cron.previousRuns(1, new Date(before))[0]?.getTime() ?? null,
  };
}

const notAPattern = (pattern: unknown, why: string) =>
  invalid(
    '/pattern',
    pattern,
    `a cron pattern of five fields (minute, hour, day, month, weekday), or six with seconds first (${why})`,
    '"30 8 * * MON-FRI"',
  );

/** An offset is taken for a name by some versions of Node and not by others. */
function checkTimeZone(timeZone: unknown): string {
  if (typeof timeZone === 'string' && /^[A-Za-z]/.test(timeZone)) {
    try {
      new Intl.DateTimeFormat('en', { timeZone });
      return timeZone;
    } catch {
      // Told below.
    }
  }
  throw invalid('/timeZone', timeZone, 'the IANA name of a time zone', '"Europe/Berlin"');
}
