/** Tasks: enqueue, look at, list, cancel, reschedule. */
import Type from 'typebox';
import { DELAY_MS, ENQUEUE_TASKS, MESSAGE_ID_BYTES, PAGE_TASKS, PAYLOAD_BYTES, WAIT_MS } from '../../core/bounds.ts';
import { type OnDuplicate, TASK_STATES } from '../../queue/api.ts';
import { AnyJson, Count, Ms, Nullable, OneOf, Ref, Strict, Strings, Time } from './schema.ts';

/** Base64 of RFC 4648, section 4, with padding. */
const BASE64 = '^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$';

export const payloadOrBytes = {
  payload: Type.Optional(
    AnyJson({
      description:
        'Any JSON value, at most 256 KiB as text. A number that a 64-bit float does not hold (beyond ±1.8e308, or an integer beyond 2^53 that would lose digits) is refused: send it as a text.',
      examples: [{ url: 'https://example.org/' }],
    }),
  ),
  payloadBase64: Type.Optional(
    Type.String({
      description: 'Instead of `payload`: bytes, as base64 with padding.',
      contentEncoding: 'base64',
      pattern: BASE64,
      // A little above the queue's own limit, so that the queue says what is too large.
      maxLength: Math.ceil((PAYLOAD_BYTES * 2) / 3) * 4,
      examples: ['AP8='],
    }),
  ),
};

export const ONE_PAYLOAD = [{ required: ['payload'] }, { required: ['payloadBase64'] }];

const Priority = Type.Integer({
  minimum: Number.MIN_SAFE_INTEGER,
  maximum: Number.MAX_SAFE_INTEGER,
  description: '0–9, 9 first, 5 when absent; or any integer where the topic has bands.',
  examples: [5],
});
const DelayMs = Ms(0, DELAY_MS.max, {
  description: 'Not before this long from now, in milliseconds.',
  examples: [5000],
});
const RunAt = Time({
  description: 'Not before this time, in milliseconds since 1970; at most 366 days ahead. Not together with `delayMs`.',
  // A plausible one: an hour after the server's start.
  examples: [Math.ceil(Date.now() / 3_600_000 + 1) * 3_600_000],
});
const ON_DUPLICATE: readonly OnDuplicate[] = ['keep', 'again', 'replace'];

export const TaskInput = Strict(
  {
    ...payloadOrBytes,
    priority: Type.Optional(Priority),
    messageId: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: MESSAGE_ID_BYTES,
        description:
          "The producer's own id: within the dedup window a topic has at most one task with it. At most 2,048 bytes.",
        examples: ['https://example.org/'],
      }),
    ),
    delayMs: Type.Optional(DelayMs),
    runAt: Type.Optional(RunAt),
    ttlMs: Type.Optional(
      Ms(1, DELAY_MS.max, {
        description: 'Expires when it was not completed this long after its enqueue.',
        examples: [86_400_000],
      }),
    ),
    metadata: Type.Optional(
      Strings({
        description:
          'Strings by name, handed to the worker unchanged; 8 KiB in all. `traceparent` and `tracestate` of the request are put beside them, unless they have them already.',
        examples: [{ traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' }],
      }),
    ),
    maxAttempts: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 1_000,
        description: "Deliveries before the dead letters; the topic's when absent.",
        examples: [5],
      }),
    ),
    onDuplicate: Type.Optional(
      OneOf(ON_DUPLICATE, {
        description:
          'What a known message id gets: `keep` its task as it is (the default), `again` a new task if the old one is settled, `replace` the payload and priority of a task that still waits.',
      }),
    ),
  },
  { $id: 'TaskInput', oneOf: ONE_PAYLOAD, examples: [{ payload: { url: 'https://example.org/' } }] },
);

export const EnqueueBody = Strict(
  {
    tasks: Type.Array(Ref(TaskInput), {
      minItems: 1,
      maxItems: ENQUEUE_TASKS,
      examples: [[{ payload: { url: 'https://example.org/' } }]],
    }),
  },
  { examples: [{ tasks: [{ payload: { url: 'https://example.org/' } }] }] },
);

export const EnqueueHeaders = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      pattern: '^[\\x21-\\x7e]{1,255}$',
      title: '1 to 255 visible ASCII characters',
      description:
        'Makes a retry of this call safe for tasks without a message id: they get one made of this key and their place in the call.',
      examples: ['2f1c8a'],
    }),
  ),
  traceparent: Type.Optional(
    Type.String({
      description:
        'The trace that this call belongs to (W3C Trace Context). Goes into the metadata of each task that has none of its own, with `tracestate`, so that workers can go on with it; ignored where it breaks the rules.',
      examples: ['00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'],
    }),
  ),
  tracestate: Type.Optional(Type.String({ description: 'What goes with `traceparent`.' })),
});

/** One flat shape for what was taken and what was refused: a union would cost a validation per item. */
export const EnqueueItem = Strict({
  id: Type.Unsafe<string | null>({ type: ['string', 'null'], description: 'null where this task was refused.' }),
  deduplicated: Type.Boolean({ description: 'Whether the message id was known, and this is its task.' }),
  code: Type.Optional(Type.String({ description: 'Why this one was refused; the others are not affected.' })),
  detail: Type.Optional(Type.String()),
});
export const EnqueueAnswer = Strict(
  { tasks: Type.Array(EnqueueItem) },
  { description: 'A result per task, in order; a null `id` is a refusal.' },
);

export const AttemptInfo = Strict({
  attempt: Count(),
  worker: Nullable(Type.String()),
  leasedAt: Time(),
  endedAt: Nullable(Time()),
  outcome: Type.Unsafe<'done' | 'nack' | 'dead' | 'lapsed' | 'released' | 'cancelled' | null>({
    type: ['string', 'null'],
    enum: ['done', 'nack', 'dead', 'lapsed', 'released', 'cancelled', null],
    description: 'null while it runs.',
  }),
  reason: Nullable(Type.String()),
});

export const Task = Strict(
  {
    topic: Type.String(),
    id: Type.String(),
    messageId: Nullable(Type.String()),
    state: OneOf(TASK_STATES),
    priority: Type.Integer(),
    ...payloadOrBytes,
    metadata: Strings(),
    attempt: Count({ description: 'Deliveries so far.' }),
    maxAttempts: Count(),
    attempts: Type.Array(AttemptInfo, { description: 'The last twenty, oldest first.' }),
    progress: AnyJson(),
    result: AnyJson({ description: 'What the ack brought; null where it brought none.' }),
    enqueuedAt: Time(),
    dueAt: Nullable(Time({ description: 'When a delayed one is due.' })),
    expiresAt: Nullable(Time()),
    leaseUntil: Nullable(Time()),
    settledAt: Nullable(Time()),
    reason: Nullable(Type.String({ description: 'Why it is dead, or was cancelled or expired.' })),
  },
  { $id: 'Task' },
);

export const TaskPage = Strict({
  tasks: Type.Array(Ref(Task)),
  after: Type.Optional(
    Type.String({
      description:
        'Where the next page begins; absent at the end. A page may be short, or empty, and still have a next.',
    }),
  ),
});

export const TaskParams = Type.Object({
  topic: Type.String({ description: 'Percent-encoded.', examples: ['mail.example.org'] }),
  id: Type.String({ description: 'As an enqueue gave it.' }),
});

export const TaskQuery = Strict({
  waitMs: Type.Optional(
    Ms(0, WAIT_MS, {
      description: 'Waits so long until the task is settled, and answers in any case.',
      examples: [10_000],
    }),
  ),
});

export const CancelQuery = Strict({
  reason: Type.Optional(
    Type.String({ maxLength: 1024, description: 'For people to read.', examples: ['no longer wanted'] }),
  ),
});

export const RescheduleBody = Strict(
  {
    priority: Type.Optional(Priority),
    delayMs: Type.Optional(DelayMs),
    runAt: Type.Optional(RunAt),
  },
  { minProperties: 1, examples: [{ priority: 9 }] },
);

export const ListQuery = Strict({
  state: Type.Optional(OneOf(TASK_STATES, { description: 'Only tasks in this state.' })),
  after: Type.Optional(
    Type.String({ maxLength: 8192, description: 'Where the page begins: `after` of the page before.' }),
  ),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: PAGE_TASKS, description: '100 when absent.', examples: [100] }),
  ),
  messageId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: MESSAGE_ID_BYTES,
      description: 'The task that owns this message id, alone. Not together with the others.',
    }),
  ),
});
