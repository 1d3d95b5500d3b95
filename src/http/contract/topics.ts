/** Topics: counts, settings, cursors, and what an operator does to them. */
import Type from 'typebox';
import { PAGE_TASKS, SETTING_BOUNDS, TOPIC_BYTES, WAIT_MS } from '../../core/bounds.ts';
import { DEFAULT_SETTINGS } from '../../core/settings.ts';
import { OBSTACLES, TASK_STATES } from '../../queue/api.ts';
import { Count, Ms, Nullable, OneOf, Ref, Strict, Time, Within } from './schema.ts';

const D = DEFAULT_SETTINGS;
const B = SETTING_BOUNDS;

const Rate = Strict(
  {
    tasks: Within(B.rateTasks, { examples: [10] }),
    perMs: Within(B.ratePerMs, { examples: [1000] }),
    burst: Within(B.rateBurst, { examples: [10] }),
  },
  {
    description: '`tasks` per `perMs` milliseconds, up to `burst` at once; null: no limit.',
    examples: [{ tasks: 10, perMs: 1000, burst: 10 }],
  },
);

/** What a topic can be told; each with its bounds. */
const settable = {
  leaseMs: Within(B.leaseMs, {
    default: D.leaseMs,
    examples: [30_000],
    description: "How long a lease lasts that doesn't ask for another time, in milliseconds.",
  }),
  maxAttempts: Within(B.maxAttempts, {
    default: D.maxAttempts,
    description: 'Deliveries before a task goes to the dead letters.',
    examples: [5],
  }),
  maxRunMs: Nullable(
    Within(B.maxRunMs, {
      description: 'No extension reaches beyond this time after the lease was handed out; null: no bound.',
      examples: [3_600_000],
    }),
  ),
  backoffMs: Within(B.backoffMs, {
    default: D.backoffMs,
    description: 'Delay before the second attempt, in milliseconds; doubles with every further one.',
    examples: [1000],
  }),
  maxBackoffMs: Within(B.maxBackoffMs, { default: D.maxBackoffMs, examples: [3_600_000] }),
  maxInFlight: Nullable(
    Within(B.maxInFlight, {
      description: 'Tasks leased at the same time; null: no limit.',
      examples: [1],
    }),
  ),
  minIntervalMs: Nullable(
    Within(B.minIntervalMs, { description: 'Least time between two leases; null: no limit.', examples: [1000] }),
  ),
  cooldownMs: Nullable(
    Within(B.cooldownMs, {
      description: 'Least time between a settlement and the next lease; null: no limit.',
      examples: [1000],
    }),
  ),
  rate: Nullable(Rate),
  blockedUntil: Nullable(Time({ description: 'Nothing is leased before this time; null: not blocked.' })),
  retentionMs: Within(B.retentionMs, {
    default: D.retentionMs,
    description: 'How long a settled task can be looked at, in milliseconds; five minutes at least.',
    examples: [3_600_000],
  }),
  deadRetentionMs: Within(B.deadRetentionMs, {
    default: D.deadRetentionMs,
    description: 'How long a dead letter waits for a redrive, in milliseconds.',
    examples: [1_209_600_000],
  }),
  dedupWindowMs: Nullable(
    Within(B.dedupWindowMs, {
      default: D.dedupWindowMs,
      description: 'How long after its settlement a message id keeps its task; null: for ever.',
      examples: [86_400_000],
    }),
  ),
  bands: Type.Unsafe<number[] | null>({
    type: ['array', 'null'],
    items: { type: 'integer', minimum: B.bandFrom.min, maximum: B.bandFrom.max },
    minItems: B.bands.min,
    maxItems: B.bands.max,
    description:
      'Maps wider priorities onto tiers: a priority belongs to the tier of the last band that begins at or below it; ascending. null: priorities 0–9.',
    examples: [[1, 101, 1001]],
  }),
  buckets: Nullable(
    Within(B.buckets, {
      description: 'Without priorities: spread tasks over so many tiers, leased in turn; null: off.',
      examples: [4],
    }),
  ),
  weight: Within(B.weight, {
    default: D.weight,
    description: 'How many turns the topic has in each round of a lease that goes over several topics.',
    examples: [3],
  }),
  tierShare: Nullable(
    Within(B.tierShare, {
      description:
        'Of so many percent of the leases, the tier that was served longest ago comes first, so that low ones are not starved; null: always the highest.',
      examples: [10],
    }),
  ),
  maxWaiting: Nullable(
    Within(B.maxWaiting, {
      description:
        'Tasks that may wait, ready or delayed, before new ones are refused with `topic-full`; null: no quota. Retries, and what was put in already, are never refused.',
      examples: [100_000],
    }),
  ),
  maxWaitingBytes: Nullable(
    Within(B.maxWaitingBytes, {
      description: 'The same in bytes: payload, metadata and message id of each task, and 120 more; null: no quota.',
      examples: [1_073_741_824],
    }),
  ),
  paused: Type.Boolean({ default: D.paused, examples: [true] }),
};

const change = {
  minProperties: 1,
  description: 'A change of settings: what is absent stays, null removes a limit.',
  examples: [{ maxInFlight: 1, cooldownMs: 1000 }],
};

export const SettingsPatch = Type.Partial(Strict(settable), change);

/** So that the settings of an answer can be sent back: their `purgedAt` is taken as it is, and changes nothing. */
export const SettingsBody = Type.Partial(
  Strict({
    ...settable,
    purgedAt: Nullable(Time({ description: 'As an answer gave it, or null; changes nothing.' })),
  }),
  change,
);

export const TopicSettings = Strict({
  ...settable,
  purgedAt: Nullable(Time({ description: 'Tasks enqueued up to this time are purged; set by a purge only.' })),
});

export const TopicCounts = Strict({ ready: Count(), delayed: Count(), leased: Count(), dead: Count() });

const topic = {
  topic: Type.String(),
  counts: TopicCounts,
  settings: TopicSettings,
};
export const Topic = Strict(topic, { $id: 'Topic' });
export const TopicAnswer = Strict({
  ...topic,
  drained: Type.Optional(
    Type.Boolean({ description: 'With `drainedWaitMs`: whether nothing is ready, delayed or leased any more.' }),
  ),
});

export const TopicParams = Type.Object({
  topic: Type.String({ description: 'Percent-encoded.', examples: ['mail.example.org'] }),
});

export const TopicQuery = Strict({
  drainedWaitMs: Type.Optional(
    Ms(0, WAIT_MS, {
      description: 'Waits so long until nothing of the topic is ready, delayed or leased, and answers in any case.',
      examples: [10_000],
    }),
  ),
});

export const TopicsQuery = Strict({
  after: Type.Optional(
    Type.String({ maxLength: 1024, description: 'Where the page begins: `after` of the page before.' }),
  ),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: PAGE_TASKS, description: '100 when absent.', examples: [100] }),
  ),
  prefix: Type.Optional(
    Type.String({
      maxLength: TOPIC_BYTES,
      description: 'Only topics whose name begins with this.',
      examples: ['crawl/'],
    }),
  ),
});

export const TopicPage = Strict({
  topics: Type.Array(Strict({ topic: Type.String(), counts: TopicCounts, paused: Type.Boolean() })),
  after: Type.Optional(Type.String({ description: 'Where the next page begins; absent at the end.' })),
});

export const PriorityCursors = Strict({
  priority: Type.Unsafe<number | 'dead'>({
    type: ['integer', 'string'],
    description: 'The tier; `dead` for the dead letters.',
  }),
  nextId: Count(),
  scanCursor: Count({ description: 'How far tasks were handed out.' }),
  completionCursor: Count({ description: 'Below this everything is settled.' }),
  trimmed: Count({ description: 'Below this entries were deleted after the retention.' }),
  lag: Count({ description: 'scanCursor − completionCursor.' }),
  ready: Count(),
  inFlight: Count(),
  oldestReadyMs: Nullable(Count({ description: 'How long the oldest ready task waits; null where none does.' })),
  segments: Count({ description: 'Segments that hold entries.' }),
  heldBy: Nullable(
    Strict(
      { entry: Count(), task: Type.String(), leaseUntil: Nullable(Time()) },
      { description: 'The entry the completion cursor waits for.' },
    ),
  ),
});
export const Cursors = Strict({ topic: Type.String(), priorities: Type.Array(PriorityCursors) }, { $id: 'Cursors' });
export const CursorsRef = Ref(Cursors);

export const WhyQuery = Strict({
  task: Type.Optional(
    Type.String({ minLength: 1, maxLength: 8192, description: 'A task of the topic; the topic alone when absent.' }),
  ),
});
const Obstacle = Strict({
  code: OneOf(OBSTACLES),
  detail: Type.String({ description: 'What it is, in a sentence.' }),
  until: Nullable(Time({ description: 'When it is over by itself; null where that is not known, or never.' })),
  remedy: Type.String({ description: 'What would change it.' }),
  leases: Type.Array(Strict({ id: Type.String(), worker: Nullable(Type.String()), until: Time() }), {
    description: 'Leases that are in the way; the first ten.',
  }),
});
export const Explanation = Strict(
  {
    topic: Type.String(),
    task: Nullable(Strict({ id: Type.String(), state: OneOf(TASK_STATES) })),
    servable: Type.Boolean({ description: 'Nothing is in the way: the next lease that asks for it gets it.' }),
    obstacles: Type.Array(Obstacle),
  },
  { $id: 'Explanation' },
);

export const RedriveBody = Strict(
  {
    ids: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 8192 }), {
        minItems: 1,
        maxItems: PAGE_TASKS,
        description: 'These; all dead letters when absent.',
      }),
    ),
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 1_000_000_000,
        description: 'At most so many, oldest first.',
        examples: [100],
      }),
    ),
  },
  { examples: [{ limit: 100 }] },
);

export const RedriveAnswer = Strict({
  redriven: Count(),
  refused: Type.Array(Strict({ id: Type.String(), code: Type.String(), detail: Type.String() }), {
    description: 'Left where they are: another task owns their message id by now, or they were not dead.',
  }),
});
