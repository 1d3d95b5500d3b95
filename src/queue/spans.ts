/** What a queue that is called in this process tells of itself as spans: by programs that embed it, and by the server. */
import { SpanKind } from '@opentelemetry/api';
import { parseLeaseToken } from '../core/lease-token.ts';
import { type Outcome, received, type SettleName, sending, settling, tracerOfQueue } from '../telemetry/spans.ts';
import type { EnqueueResult, LeasedTask, SettleRequest, SettleResult, TaskInput } from './api.ts';

const ENDINGS = ['ack', 'nack', 'release'] as const;

/** @param enqueue is given the tasks with the context that they are created in */
export function tellEnqueue<
  I extends TaskInput | readonly TaskInput[],
  R extends EnqueueResult | readonly EnqueueResult[],
>(topic: string, input: I, enqueue: (input: I) => Promise<R>): Promise<R> {
  const by = tracerOfQueue();
  if (by === null) return enqueue(input);
  const isBatch = Array.isArray(input);
  const tasks: readonly TaskInput[] = isBatch ? input : [input as TaskInput];
  return sending(
    by,
    { topic, tasks, isBatch, kindOtherwise: SpanKind.INTERNAL },
    (carried) => enqueue((isBatch ? carried : carried[0]) as I),
    (answer) => enqueued(Array.isArray(answer) ? answer : [answer as EnqueueResult]),
  );
}

export function tellLease(lease: () => Promise<readonly LeasedTask[]>): Promise<readonly LeasedTask[]> {
  const by = tracerOfQueue();
  if (by === null) return lease();
  const askedAt = Date.now();
  return lease().then((tasks) => {
    received(by, tasks, askedAt);
    return tasks;
  });
}

/** What keeps a lease, and ends none, is not told. */
export function tellSettle(request: SettleRequest, settle: () => Promise<SettleResult>): Promise<SettleResult> {
  const by = tracerOfQueue();
  if (by === null) return settle();
  const kinds = ENDINGS.filter((kind) => Array.isArray(request?.[kind]) && request[kind].length > 0);
  if (kinds.length === 0) return settle();
  const items = kinds.flatMap((kind) => request[kind] ?? []);
  const topics = items.flatMap((item) =>
    typeof item?.leaseId === 'string' ? (parseLeaseToken(item.leaseId)?.place.topic ?? []) : [],
  );
  const name: SettleName = kinds.length === 1 ? kinds[0]! : 'settle';
  return settling(by, { name, topics, count: items.length, tasks: [] }, settle, (answer) =>
    settled(kinds.flatMap((kind) => answer[kind])),
  );
}

const enqueued = (results: readonly EnqueueResult[]): Outcome => {
  const [first] = results;
  if (first === undefined) return {};
  if (results.every(({ id }) => id === null)) return { error: 'code' in first ? first.code : '_OTHER' };
  return results.length === 1 ? { id: first.id ?? undefined } : {};
};

/** Wrong where all were refused. */
const settled = (items: SettleResult['ack']): Outcome => {
  const [first] = items;
  const isRefused = first !== undefined && !first.ok && items.every(({ ok }) => !ok);
  return isRefused ? { error: first.code } : {};
};
