/** Problem documents, and what the server says of itself. */
import Type from 'typebox';
import { Count, Nullable, Strict, Time } from './schema.ts';
import { TopicPage } from './topics.ts';

/** RFC 9457. */
export const Problem = Strict(
  {
    type: Type.String({ format: 'uri-reference', examples: ['/docs/errors#lease-lost'] }),
    title: Type.String(),
    status: Type.Integer({ minimum: 400, maximum: 599 }),
    code: Type.String({ description: 'Stable; see /docs/errors.' }),
    detail: Type.String({ description: 'What is particular to this case.' }),
    errors: Type.Optional(
      Type.Array(
        Strict({
          path: Type.String({ description: 'JSON pointer into the part of the request that is wrong.' }),
          message: Type.String({ description: 'The value, the rule, and an example of what would be right.' }),
          code: Type.Optional(
            Type.String({ description: 'Where every task of an enqueue was refused: why this one was.' }),
          ),
        }),
      ),
    ),
  },
  { $id: 'Problem' },
);

/** Where a call takes no query. */
export const NoQuery = Strict({});

/** Where a call takes no body, or an empty object. */
export const NoBody = Strict({}, { examples: [{}] });

export const Health = Strict({ status: Type.Unsafe<'ok'>({ type: 'string', enum: ['ok'] }) });

export const Ready = Strict({
  ready: Type.Boolean(),
  reasons: Type.Array(Type.String(), { description: 'What is amiss; empty when ready.' }),
});

export const QueueStatus = Strict({
  startedAt: Time(),
  store: Type.String(),
  space: Nullable(
    Strict({
      bytes: Count({ description: 'Of the file.' }),
      freeBytes: Count({ description: 'Free in it, after what was deleted.' }),
      logBytes: Count({ description: 'Of the log beside it.' }),
      givesBack: Type.Boolean({ description: 'Whether free space is given back to the disk.' }),
    }),
  ),
  activeTopics: Count({ description: 'Of the shards that this server schedules.' }),
  shards: Strict({ held: Count(), of: Count() }, { description: 'Shards of topics that this server schedules.' }),
  servers: Count({ description: 'Servers that take part on the store, this one included.' }),
  ready: Count(),
  delayed: Count(),
  leased: Count(),
  dead: Count(),
  oldestReadyMs: Nullable(
    Count({
      description: 'How long the ready task that has waited longest has waited, at the most; null: none is ready.',
    }),
  ),
  waiting: Count({ description: 'Lease calls that wait.' }),
  enqueued: Count(),
  deduplicated: Count(),
  delivered: Count(),
  redelivered: Count(),
  succeeded: Count(),
  failed: Count(),
  deadLettered: Count(),
  expired: Count(),
  firings: Count({ description: 'Tasks that schedules have put into topics.' }),
  firingsMissed: Count({ description: 'Firings of schedules that were passed over.' }),
  unknown: Strict(
    { applied: Count(), landed: Count(), refused: Count(), open: Count() },
    { description: 'Writes whose outcome was unknown at first, by how they came out.' },
  ),
  lastScanAt: Nullable(Time()),
});

/** `/status` for programs. */
export const StatusAnswer = Strict({
  version: Type.String(),
  uptimeMs: Count(),
  queue: QueueStatus,
  topics: TopicPage.properties.topics,
});
