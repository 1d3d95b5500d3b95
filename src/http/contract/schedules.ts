/** Schedules: set, look at, list, delete. */
import Type from 'typebox';
import { CATCH_UP_MS, SCHEDULE_PAGE, SCHEDULE_PATTERN_CHARACTERS, TOPIC_BYTES } from '../../core/bounds.ts';
import { Count, Nullable, Ref, Strict, Strings, Time, Within } from './schema.ts';
import { ONE_PAYLOAD, payloadOrBytes, TaskInput } from './tasks.ts';

const { priority, metadata, ttlMs, maxAttempts } = TaskInput.properties;

const PATTERN = {
  description:
    'A cron pattern: minute, hour, day of the month, month, weekday; or six fields, with seconds first. Names, lists, ranges, steps, `L`, `#` and nicknames such as `@daily` are known.',
  examples: ['30 8 * * MON-FRI'],
};
const TIME_ZONE = {
  description: 'The IANA name of the time zone in which the pattern is read; `UTC` when absent.',
  examples: ['Europe/Berlin'],
};

export const ScheduleBody = Strict(
  {
    topic: Type.String({
      maxLength: TOPIC_BYTES,
      description: 'The topic into which it puts a task at each of its times.',
      examples: ['reports'],
    }),
    pattern: Type.String({ minLength: 1, maxLength: SCHEDULE_PATTERN_CHARACTERS, ...PATTERN }),
    timeZone: Type.Optional(Type.String({ minLength: 1, maxLength: 64, ...TIME_ZONE })),
    ...payloadOrBytes,
    priority,
    metadata,
    ttlMs,
    maxAttempts,
    catchUpMs: Type.Optional(
      Within(CATCH_UP_MS, {
        description:
          'A firing that is late by more than this, because no server ran, is passed over where a later one is due, and counted as missed: the last one is always made up for. 60,000 when absent.',
        examples: [CATCH_UP_MS.default],
      }),
    ),
  },
  {
    oneOf: ONE_PAYLOAD,
    examples: [
      { topic: 'reports', pattern: '30 8 * * MON-FRI', timeZone: 'Europe/Berlin', payload: { kind: 'daily' } },
    ],
  },
);

const summary = {
  name: Type.String(),
  topic: Type.String(),
  pattern: Type.String(PATTERN),
  timeZone: Type.String(),
  priority: Nullable(Type.Integer({ description: "null: the topic's default." })),
  ttlMs: Nullable(Count()),
  maxAttempts: Nullable(Count()),
  catchUpMs: Count(),
  createdAt: Time(),
  updatedAt: Time({ description: 'When it was last changed; firings change nothing.' }),
  firedUpTo: Time({ description: 'Up to this time it has fired.' }),
  nextAt: Nullable(Time({ description: 'Its first firing after that; null: there is none.' })),
  lastFiredFor: Nullable(
    Time({ description: 'The time of the last firing that was enqueued; null before the first.' }),
  ),
  lastTask: Nullable(Type.String({ description: 'The id of its task.' })),
  fired: Count({ description: 'Firings that were enqueued.' }),
  missed: Count({
    description: 'Firings that were passed over; of one outage no more than 100 are counted.',
  }),
  refusal: Nullable(Type.String({ description: 'Why the last firing was refused; null: it was not.' })),
};
export const ScheduleSummary = Strict(summary, { $id: 'ScheduleSummary' });

export const Schedule = Strict(
  {
    ...summary,
    ...payloadOrBytes,
    metadata: Strings(),
    next: Type.Array(Time(), { description: 'Its next three times from now.' }),
  },
  { $id: 'Schedule' },
);

export const SchedulePage = Strict({
  schedules: Type.Array(Ref(ScheduleSummary)),
  after: Type.Optional(Type.String({ description: 'Where the next page begins; absent at the end.' })),
});

export const ScheduleParams = Type.Object({
  name: Type.String({ description: 'Percent-encoded.', examples: ['nightly-report'] }),
});

export const SchedulesQuery = Strict({
  after: Type.Optional(
    Type.String({ maxLength: TOPIC_BYTES, description: 'Where the page begins: `after` of the page before.' }),
  ),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: SCHEDULE_PAGE, description: '100 when absent.', examples: [100] }),
  ),
});
