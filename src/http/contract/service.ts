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
      limitBytes: Nullable(
        Count({ description: 'How much may be in use before new tasks are refused; null: no bound.' }),
      ),
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
  refused: Count({ description: 'Tasks that found no room in their topic, or in the store.' }),
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

const BusyTopic = Strict({
  ...TopicPage.properties.topics.items.properties,
  waitingBytes: Count({ description: 'Of what waits; estimated where the topic has no quota of them.' }),
  subscribers: Count({
    description: 'Workers that got a task of it within a minute, or wait for one.',
  }),
  idle: Count({ description: 'Lease calls that wait for a task of it, among others.' }),
});

const Use = Strict({ now: Count(), limit: Count() });
const BudgetUsage = Strict({
  connections: Use,
  tasks: Use,
  memory: Strict({ input: Use, rest: Use }, { description: 'Bytes.' }),
  refused: Type.Record(Type.String(), Count(), { description: 'Requests that were refused, by why.' }),
});

/** `/status` for programs. */
export const StatusAnswer = Strict({
  version: Type.String(),
  uptimeMs: Count(),
  queue: QueueStatus,
  topics: Type.Array(BusyTopic, { description: 'The busiest, of the shards that this server schedules.' }),
  budgets: Type.Optional(BudgetUsage),
  logLinesDropped: Type.Optional(
    Count({ description: 'Lines of the log that found no room, since nobody read what was written before.' }),
  ),
});
