/** Input as callers give it, checked against the rules and the topic's settings, and made into what is stored. */
import {
  CATCH_UP_MS,
  DELAY_MS,
  LEASE_MS,
  LEASE_TASKS,
  LEASE_TOPICS,
  MESSAGE_ID_BYTES,
  METADATA_BYTES,
  PAYLOAD_BYTES,
  REASON_BYTES,
  TIERS,
  WAIT_MS,
  WORKER_BYTES,
} from '../core/bounds.ts';
import type { Payload } from '../core/entry.ts';
import { invalid, QueueError } from '../core/errors.ts';
import { checkFields, TASK_FIELDS } from '../core/fields.ts';
import { jsonText } from '../core/json.ts';
import { checkSelector, checkTopic, isWellFormed, topicNameFault, utf8Bytes } from '../core/names.ts';
import { integer, optionalInteger } from '../core/numbers.ts';
import { defaultPriority, priorityFault } from '../core/priority.ts';
import { SCHEDULE_METADATA, type ScheduleDefinition } from '../core/schedule.ts';
import type { TopicSettings } from '../core/settings.ts';
import { timetableOf } from '../scheduler/cron.ts';
import type { JsonValue, LeaseOrder, LeaseRequest, OnDuplicate, ScheduleInput, TaskInput } from './api.ts';

/** A task that keeps the rules. */
export interface CheckedTask {
  readonly payload: Payload;
  readonly metadata: string | null;
  readonly priority: number;
  readonly messageId: string | null;
  readonly dueAt: number | null;
  readonly expiresAt: number | null;
  readonly maxAttempts: number | null;
  readonly onDuplicate: OnDuplicate;
}

/** @throws QueueError where the task breaks a rule */
export function checkTask(input: TaskInput, settings: TopicSettings, now: number, path: string): CheckedTask {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    throw invalid(path, input, 'a task object', '{"payload": {"url": "https://example.org/"}}');
  }
  checkFields(input, path, 'a task', TASK_FIELDS, '{"payload": 1}');
  const priority = input.priority ?? defaultPriority(settings);
  const fault = priorityFault(priority, settings);
  if (fault) throw invalid(`${path}/priority`, priority, fault, String(defaultPriority(settings)));
  const dueAt = checkDue(input, now, path);
  const ttlMs = optionalInteger(input.ttlMs, `${path}/ttlMs`, 1, DELAY_MS.max);
  if (ttlMs !== null && dueAt !== null && dueAt >= now + ttlMs) {
    throw invalid(`${path}/ttlMs`, ttlMs, `longer than the delay (${dueAt - now} ms)`, String(dueAt - now + 60_000));
  }
  return {
    payload: encodePayload(input.payload, `${path}/payload`, PAYLOAD_BYTES),
    metadata: encodeMetadata(input.metadata, `${path}/metadata`),
    priority,
    messageId: input.messageId === undefined ? null : checkMessageId(input.messageId, `${path}/messageId`),
    dueAt: dueAt !== null && dueAt > now ? dueAt : null,
    expiresAt: ttlMs === null ? null : now + ttlMs,
    maxAttempts: optionalInteger(input.maxAttempts, `${path}/maxAttempts`, 1, 1_000),
    onDuplicate: checkOnDuplicate(input.onDuplicate, `${path}/onDuplicate`),
  };
}

/** The time a task is due, from `delayMs` or `runAt`; null where neither is given. */
export function checkDue(
  input: { readonly delayMs?: number | undefined; readonly runAt?: number | undefined },
  now: number,
  path: string,
): number | null {
  const delayMs = optionalInteger(input.delayMs, `${path}/delayMs`, 0, DELAY_MS.max);
  const runAt = optionalInteger(input.runAt, `${path}/runAt`, 0, now + DELAY_MS.max);
  if (delayMs !== null && runAt !== null) {
    throw invalid(`${path}/runAt`, runAt, 'given together with delayMs: one of the two', '{"delayMs": 60000}');
  }
  return delayMs !== null ? now + delayMs : runAt;
}

function checkOnDuplicate(value: unknown, path: string): OnDuplicate {
  if (value === undefined) return 'keep';
  if (value === 'keep' || value === 'again' || value === 'replace') return value;
  throw invalid(path, value, 'one of "keep", "again", "replace"', '"keep"');
}

export function checkMessageId(value: unknown, path: string): string {
  if (typeof value !== 'string' || value.length === 0)
    throw invalid(path, value, 'a string of at least one character', '"order-17"');
  if (!isWellFormed(value)) throw invalid(path, value, 'well-formed Unicode', '"order-17"');
  if (utf8Bytes(value) > MESSAGE_ID_BYTES) {
    throw invalid(path, `${utf8Bytes(value)} bytes`, `at most ${MESSAGE_ID_BYTES} bytes long`, 'a hash of the long id');
  }
  return value;
}

/** JSON text or bytes of a payload. */
export function encodePayload(value: unknown, path: string, maxBytes: number): Payload {
  if (value instanceof Uint8Array) {
    if (value.byteLength > maxBytes) throw tooLarge(path, value.byteLength, maxBytes);
    return value;
  }
  return encodeJson(value, path, maxBytes);
}

/** JSON text of a value. @throws QueueError where it has none, or is too large */
export function encodeJson(value: unknown, path: string, maxBytes: number): string {
  const text = jsonText(value, path);
  // A UTF-16 unit is at most three bytes: most texts need no count.
  if (text.length * 3 > maxBytes) {
    const bytes = utf8Bytes(text);
    if (bytes > maxBytes) throw tooLarge(path, bytes, maxBytes);
  }
  return text;
}

const tooLarge = (path: string, bytes: number, maxBytes: number): QueueError => {
  const message = `${bytes} bytes is not at most ${maxBytes} bytes; for example: store it elsewhere and enqueue its address`;
  return new QueueError('payload-too-large', `${path}: ${message}`, [{ path, message }]);
};

function encodeMetadata(value: unknown, path: string): string | null {
  if (value === undefined || value === null) return null;
  const example = '{"traceparent": "00-…"}';
  if (typeof value !== 'object' || Array.isArray(value)) throw invalid(path, value, 'an object of strings', example);
  for (const [name, text] of Object.entries(value)) {
    if (typeof text !== 'string') throw invalid(`${path}/${name}`, text, 'a string', example);
  }
  const text = JSON.stringify(value);
  if (utf8Bytes(text) > METADATA_BYTES) {
    throw invalid(path, `${utf8Bytes(text)} bytes`, `at most ${METADATA_BYTES} bytes as JSON`, example);
  }
  return text;
}

export function checkCount(list: unknown, path: string, most: number, example: string): void {
  if (!Array.isArray(list)) throw invalid(path, list, 'an array', example);
  if (list.length > most) throw invalid(path, `${list.length} items`, `at most ${most} items`, 'several calls');
}

export function checkReason(value: unknown, path: string): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value !== 'string') throw invalid(path, value, 'a string', '"host unreachable"');
  return value.slice(0, REASON_BYTES).replace(/[\ud800-\udbff]$/, '');
}

/** A schedule may be called whatever a topic may. */
export function checkScheduleName(name: unknown, path = '/name'): string {
  const fault = topicNameFault(name);
  if (fault !== null)
    throw invalid(path, name, fault.replace(', which stands for a prefix in a lease', ''), '"nightly-report"');
  return name as string;
}

const SCHEDULE_FIELDS = new Set([
  'topic',
  'pattern',
  'timeZone',
  'payload',
  'priority',
  'metadata',
  'ttlMs',
  'maxAttempts',
  'catchUpMs',
]);
/** What the names of metadata begin with that the queue gives. */
const OWN_METADATA = 'ebbmark-';

/** The topic that a schedule is for; the rest of it is checked against that one's settings. */
export function checkScheduleTopic(input: ScheduleInput): string {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    const example = '{"topic": "reports", "pattern": "30 8 * * MON-FRI", "payload": {"kind": "daily"}}';
    throw invalid('', input, 'a schedule object', example);
  }
  return checkTopic(input.topic);
}

/** @throws QueueError where the schedule, or a task of it, breaks a rule */
export function checkSchedule(
  name: string,
  input: ScheduleInput,
  settings: TopicSettings,
  now: number,
): ScheduleDefinition {
  checkFields(input, '', 'a schedule', SCHEDULE_FIELDS, '"pattern"');
  const { topic, pattern, timeZone = 'UTC', catchUpMs, ...taskInput } = input;
  timetableOf(pattern, timeZone);
  const task = checkTask(taskInput, settings, now, '');
  for (const own of Object.keys(input.metadata ?? {})) {
    if (own.startsWith(OWN_METADATA)) {
      throw invalid(`/metadata/${own}`, own, `a name that does not begin with ${OWN_METADATA}`, '"traceparent"');
    }
  }
  const given = { [SCHEDULE_METADATA.name]: name, [SCHEDULE_METADATA.firedFor]: new Date(now).toISOString() };
  encodeMetadata({ ...input.metadata, ...given }, '/metadata');
  return {
    topic,
    pattern,
    timeZone,
    payload: task.payload,
    metadata: task.metadata,
    priority: input.priority ?? null,
    ttlMs: input.ttlMs ?? null,
    maxAttempts: task.maxAttempts,
    catchUpMs: optionalInteger(catchUpMs, '/catchUpMs', CATCH_UP_MS.min, CATCH_UP_MS.max) ?? CATCH_UP_MS.default,
  };
}

/** A lease request that keeps the rules. */
export interface CheckedLease {
  readonly names: readonly string[] | null;
  readonly prefixes: readonly string[];
  readonly max: number;
  readonly maxPerTopic: number;
  /** null: all. */
  readonly tiers: ReadonlySet<number> | null;
  readonly order: LeaseOrder;
  readonly waitMs: number;
  readonly leaseMs: number | null;
  readonly worker: string | null;
}

const LEASE_FIELDS: ReadonlySet<string> = new Set<keyof LeaseRequest>([
  'topics',
  'max',
  'maxPerTopic',
  'priorities',
  'order',
  'waitMs',
  'leaseMs',
  'worker',
  'signal',
]);

/** Of a caller; servers of another version may ask for what is not known here. */
export function checkLeaseFields(request: LeaseRequest): void {
  if (typeof request !== 'object' || request === null) {
    throw invalid('', request, 'a lease request', '{"topics": ["mail.example.org"], "max": 10}');
  }
  checkFields(request, '', 'a lease request', LEASE_FIELDS, '{"topics": ["mail.example.org"]}');
}

export function checkLease(request: LeaseRequest): CheckedLease {
  const { topics, worker, order } = request;
  if (topics !== undefined) checkCount(topics, '/topics', LEASE_TOPICS, '["mail.example.org", "crawl/*"]');
  const selected = topics?.map((topic, index) => checkSelector(topic, `/topics/${index}`));
  if (worker !== undefined && (typeof worker !== 'string' || utf8Bytes(worker) > WORKER_BYTES)) {
    throw invalid('/worker', worker, `a string of at most ${WORKER_BYTES} bytes`, '"crawler-7"');
  }
  if (order !== undefined && order !== 'fair' && order !== 'priority') {
    throw invalid('/order', order, 'one of "fair", "priority"', '"fair"');
  }
  if (request.priorities !== undefined) {
    checkCount(request.priorities, '/priorities', TIERS, '[9, 8]');
    for (const [index, tier] of request.priorities.entries()) integer(tier, `/priorities/${index}`, 0, TIERS - 1);
  }
  return {
    names: selected === undefined ? null : unique(selected.filter((one) => !one.prefix)),
    prefixes: selected === undefined ? [''] : unique(selected.filter((one) => one.prefix)),
    max: optionalInteger(request.max, '/max', 1, LEASE_TASKS) ?? 1,
    maxPerTopic: optionalInteger(request.maxPerTopic, '/maxPerTopic', 1, LEASE_TASKS) ?? Number.POSITIVE_INFINITY,
    tiers: request.priorities === undefined ? null : new Set(request.priorities),
    order: order ?? 'fair',
    waitMs: optionalInteger(request.waitMs, '/waitMs', 0, WAIT_MS) ?? 0,
    leaseMs: optionalInteger(request.leaseMs, '/leaseMs', LEASE_MS.min, LEASE_MS.max),
    worker: worker ?? null,
  };
}

const unique = (selectors: readonly { readonly text: string }[]): readonly string[] => [
  ...new Set(selectors.map(({ text }) => text)),
];

export const decodeJson = (text: string | null): JsonValue => (text === null ? null : (JSON.parse(text) as JsonValue));
