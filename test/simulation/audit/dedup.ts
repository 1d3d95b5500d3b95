/** Q6: until the dedup window after its settlement is over, a message id of a topic has at most one task. */
import type { Call } from '../history.ts';
import { type Attempt, type Facts, name, type TaskFacts, tokenOf } from './facts.ts';

/** Who waits so much longer than it asked for has waited for another server. */
const PASSED_ON_MS = 5_000;

export function oneTaskPerMessageId(facts: Facts): readonly string[] {
  const violations: string[] = [];
  for (const tasks of byMessageId(facts).values()) {
    for (const [nth, task] of tasks.entries()) {
      for (const other of tasks.slice(nth + 1)) {
        violations.push(
          ...bothAlive(facts, task, other),
          ...tooEarly(facts, task, other),
          ...tooEarly(facts, other, task),
        );
      }
    }
  }
  for (const attempt of facts.attempts) {
    const fault = attempt.fate === 'known' ? wronglyKnown(facts, attempt) : null;
    if (fault !== null)
      violations.push(`Q6: ${name(attempt.call)} was answered with ${attempt.id} for ${attempt.messageId}: ${fault}`);
  }
  return violations;
}

/** Tasks that were accepted or delivered, by topic and message id. */
function byMessageId(facts: Facts): ReadonlyMap<string, readonly TaskFacts[]> {
  const found = new Map<string, TaskFacts[]>();
  for (const task of facts.tasks.values()) {
    const messageId = task.grants[0]?.task.messageId ?? acceptedBy(task)?.messageId ?? null;
    if (messageId === null) continue;
    const key = `${task.topic}/${messageId}`;
    found.set(key, [...(found.get(key) ?? []), task]);
  }
  return found;
}

const acceptedBy = (task: TaskFacts): Attempt | undefined => task.attempts.find(({ fate }) => fate === 'accepted');

/** Two tasks of an id that could both be delivered at the same time. */
function bothAlive(facts: Facts, a: TaskFacts, b: TaskFacts): readonly string[] {
  const [one, two] = [aliveFrom(a), aliveFrom(b)];
  if (one === null || two === null) return [];
  const from = Math.max(one, two);
  if (mayBeSettledAt(facts, a) <= from || mayBeSettledAt(facts, b) <= from) return [];
  return [
    `Q6: ${a.id} and ${b.id} of ${a.topic} have the same message id, and were both unsettled at ${from.toFixed(0)}`,
  ];
}

/** Since when a task certainly had its message id: it was acknowledged, or delivered. */
function aliveFrom(task: TaskFacts): number | null {
  const times = task.grants.map(({ call }) => call.ended!.at);
  const accepted = acceptedBy(task);
  if (accepted !== undefined) times.push(accepted.call.ended!.at);
  return times.length === 0 ? null : Math.min(...times);
}

/** The first moment at which a task may have been settled. */
export function mayBeSettledAt(facts: Facts, task: TaskFacts): number {
  const times: number[] = task.cancels.map(({ began }) => began.at);
  for (const call of facts.calls('purge')) if (call.args.topic === task.topic) times.push(call.began.at);
  // Which tries made it is known of those alone that were answered; of others by what was delivered.
  const delivered = task.grants.flatMap(({ task: { payload } }) => facts.byToken.get(tokenOf(payload) ?? -1) ?? []);
  for (const { sent, call } of [...task.attempts, ...delivered]) {
    if (sent.input.ttlMs !== undefined) times.push(call.began.at);
  }
  const { maxAttempts } = facts.settings(task.topic);
  for (const grant of task.grants) {
    const most = task.attempts[0]?.sent.input.maxAttempts ?? maxAttempts;
    // The last attempt ends in the dead letters, by itself or by a nack.
    if (grant.task.attempt >= most) times.push(grant.call.began.at);
    for (const { ok, kind, dead, call } of grant.settlements) {
      if (ok !== false && (kind === 'ack' || dead)) times.push(call.began.at);
    }
  }
  // A delivery whose answer was lost may have been the last.
  if (task.grants.some(({ task: { attempt } }, nth) => attempt > nth + 1) || !facts.history.calm) {
    for (const call of facts.calls('lease'))
      if (call.answer?.kind !== 'ok' || mayBeIncomplete(call)) times.push(call.began.at);
  }
  return Math.min(Number.POSITIVE_INFINITY, ...times);
}

/** Another server may have handed something out for a call, and died, or its answer may have got lost on the way. */
const mayBeIncomplete = ({ args, began, ended }: Call<'lease'>): boolean =>
  ended!.at - began.at > (args.waitMs ?? 0) + PASSED_ON_MS;

/** A second task that was accepted before the window of the first one was over. */
function tooEarly(facts: Facts, first: TaskFacts, second: TaskFacts): readonly string[] {
  const [a, b] = [acceptedBy(first), acceptedBy(second)];
  if (a === undefined || b === undefined || b.sent.input.onDuplicate === 'again' || a.call.ended!.at >= b.call.began.at)
    return [];
  const window = facts.settings(first.topic).dedupWindowMs;
  const acks = first.grants.flatMap(({ settlements }) =>
    settlements.filter(({ kind, ok }) => kind === 'ack' && ok !== false),
  );
  if (acks.length === 0) return [];
  const settledAt = Math.min(...acks.map(({ call }) => call.began.clock));
  if (mayBeSettledAt(facts, first) < Math.min(...acks.map(({ call }) => call.began.at))) return [];
  const isOneClock = facts.history.servers === 1 && a.call.server === b.call.server;
  if (facts.history.clockErrorMs > 0 && !isOneClock) return [];
  if (window !== null && b.call.ended!.clock >= settledAt + window) return [];
  return [
    `Q6: ${name(b.call)} made ${second.id}, though ${first.id} had its message id until ${window === null ? 'for ever' : settledAt + window}`,
  ];
}

function wronglyKnown(facts: Facts, attempt: Attempt): string | null {
  const task = facts.task(attempt.topic, attempt.id!);
  const made = facts.attempts.some(
    (other) =>
      other.topic === attempt.topic &&
      other.messageId === attempt.messageId &&
      other.call.began.at < attempt.call.ended!.at &&
      (other.id === attempt.id ? other.fate === 'accepted' : other.fate === 'doubtful'),
  );
  const repeats = attempt.call.args.tasks.some(
    ({ input }) => input.messageId === attempt.messageId && input !== attempt.sent.input,
  );
  // An id that occurs twice in a call is one task, as the first of them is.
  if (repeats) return null;
  if (!made) return 'nobody enqueued that';
  if (!facts.history.calm) return null;
  const acks = task.grants.flatMap(({ settlements }) =>
    settlements.filter(({ kind, ok }) => kind === 'ack' && ok === true),
  );
  const settledAt = Math.min(Number.POSITIVE_INFINITY, ...acks.map(({ call }) => call.ended!.clock));
  const window = facts.settings(attempt.topic).dedupWindowMs;
  const until =
    attempt.sent.input.onDuplicate === 'again' ? settledAt : settledAt + (window ?? Number.POSITIVE_INFINITY);
  return attempt.call.began.clock > until + 1 ? `that was settled, and its window was over` : null;
}
