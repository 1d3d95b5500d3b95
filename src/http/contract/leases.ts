/** Leases: take tasks, settle them. */
import Type, { type TProperties } from 'typebox';
import {
  DELAY_MS,
  LEASE_MS,
  LEASE_TASKS,
  LEASE_TOPICS,
  SETTLE_ITEMS,
  TIERS,
  TOPIC_BYTES,
  WAIT_MS,
  WORKER_BYTES,
} from '../../core/bounds.ts';
import type { LeaseOrder } from '../../queue/api.ts';
import { AnyJson, Count, Ms, Nullable, OneOf, Strict, Strings, Time } from './schema.ts';
import { Task } from './tasks.ts';

const ORDERS: readonly LeaseOrder[] = ['fair', 'priority'];

const LeaseMs = Ms(LEASE_MS.min, LEASE_MS.max, {
  description: "How long the lease lasts from now, in milliseconds; the topic's when absent.",
});

export const LeaseBody = Strict(
  {
    topics: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: TOPIC_BYTES + 1, examples: ['mail.example.org'] }), {
        minItems: 1,
        maxItems: LEASE_TOPICS,
        description: 'Names, or prefixes that end with `*`; all topics when absent.',
        examples: [['mail.example.org', 'crawl/*']],
      }),
    ),
    max: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: LEASE_TASKS,
        description: 'Tasks at the most; 1 when absent.',
        examples: [10],
      }),
    ),
    maxPerTopic: Type.Optional(
      Type.Integer({ minimum: 1, maximum: LEASE_TASKS, description: 'Tasks of one topic at the most.', examples: [1] }),
    ),
    priorities: Type.Optional(
      Type.Array(Type.Integer({ minimum: 0, maximum: TIERS - 1, examples: [9] }), {
        minItems: 1,
        maxItems: TIERS,
        uniqueItems: true,
        description: 'Only these tiers.',
        examples: [[9, 8]],
      }),
    ),
    order: Type.Optional(
      OneOf(ORDERS, {
        description:
          '`fair` (the default) goes round the topics; `priority` takes the highest tier of all topics first.',
      }),
    ),
    waitMs: Type.Optional(
      Ms(0, WAIT_MS, { description: 'How long to wait for a first task; 0 when absent.', examples: [10_000] }),
    ),
    leaseMs: Type.Optional(LeaseMs),
    worker: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: WORKER_BYTES,
        description: 'Who works on it, for people to read.',
        examples: ['worker-1'],
      }),
    ),
  },
  { examples: [{ topics: ['mail.example.org'], max: 10, waitMs: 10_000 }] },
);

export const LeasedTask = Strict({
  topic: Type.String(),
  id: Type.String(),
  messageId: Nullable(Type.String()),
  payload: Task.properties.payload,
  payloadBase64: Task.properties.payloadBase64,
  metadata: Strings(),
  priority: Type.Integer(),
  attempt: Count({ description: '1 for the first delivery.' }),
  progress: AnyJson({ description: 'What an earlier attempt saved; null where none did.' }),
  enqueuedAt: Time(),
  leaseId: Type.String({ description: 'The fence: whoever settles shows it. Opaque.' }),
  leaseUntil: Time(),
});
export const LeaseAnswer = Strict(
  { tasks: Type.Array(LeasedTask) },
  { description: 'What was leased; empty where nothing is ready.' },
);

const LEASE_ID = 'kq0Zr1dB3mSxTn7uVw9yAg.5.0.mail.example.org';
const LeaseId = Type.String({
  minLength: 1,
  maxLength: 1024,
  description: 'As a lease gave it.',
  examples: [LEASE_ID],
});

const items = <P extends TProperties>(properties: P) =>
  Type.Optional(
    Type.Array(Strict({ leaseId: LeaseId, ...properties }), {
      maxItems: SETTLE_ITEMS,
      examples: [[{ leaseId: LEASE_ID }]],
    }),
  );

export const SettleBody = Strict(
  {
    ack: items({
      result: Type.Optional(AnyJson({ description: 'Kept with the task for its retention; at most 256 KiB.' })),
    }),
    nack: items({
      delayMs: Type.Optional(
        Ms(0, DELAY_MS.max, {
          description: "When it is tried again; the topic's backoff for this attempt when absent, 0 for at once.",
          examples: [5000],
        }),
      ),
      reason: Type.Optional(
        Type.String({
          description: 'For people to read; cut at 1,024 characters.',
          examples: ['503 from upstream'],
        }),
      ),
      dead: Type.Optional(
        Type.Boolean({ description: 'To the dead letters, whatever attempts are left.', examples: [true] }),
      ),
    }),
    extend: items({
      leaseMs: Ms(LEASE_MS.min, LEASE_MS.max, {
        description: 'How long the lease lasts from now, in milliseconds; required.',
      }),
    }),
    progress: items({ position: AnyJson({ description: 'What the next attempt should know; at most 64 KiB.' }) }),
    release: items({}),
  },
  { examples: [{ ack: [{ leaseId: LEASE_ID }] }] },
);

export const SettleItem = Strict({
  leaseId: Type.String(),
  ok: Type.Boolean(),
  leaseUntil: Type.Optional(Time()),
  code: Type.Optional(
    Type.String({
      description:
        'Why it was refused: `lease-lost`, `lease-invalid`, `run-limit` (extend), `result-too-large` (ack, progress), or `invalid-input`.',
    }),
  ),
  detail: Type.Optional(Type.String()),
});
const SettleItems = Type.Array(SettleItem);
/** The lists of the request, in the same order. */
export const SettleAnswer = Strict({
  ack: SettleItems,
  nack: SettleItems,
  extend: SettleItems,
  progress: SettleItems,
  release: SettleItems,
});
