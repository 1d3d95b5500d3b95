/** Q1: what was acknowledged is delivered until it is settled, and nothing comes out of nowhere. */
import type { TaskInfo } from '../../../src/queue/api.ts';
import { type Attempt, type Facts, type Grant, name, type TaskFacts, tokenOf } from './facts.ts';

const SETTLED = new Set(['done', 'dead', 'expired', 'cancelled']);

/** Every delivery is of a task that somebody sent, as it was sent, under the id that its enqueue was answered with. */
export function nothingFromNowhere(facts: Facts): readonly string[] {
  return facts.grants.flatMap((grant) => {
    // Nobody sent those of a schedule; see schedules.ts.
    if (grant.topic === facts.history.schedule?.topic) return [];
    const fault = strangeness(facts, grant);
    return fault === null ? [] : [`Q1 nowhere: ${name(grant.call)} got ${grant.task.id} of ${grant.topic}: ${fault}`];
  });
}

function strangeness(facts: Facts, grant: Grant): string | null {
  const { task } = grant;
  const token = tokenOf(task.payload);
  if (token === null) return `a payload that nobody sent: ${JSON.stringify(task.payload)}`;
  const tries = (facts.byToken.get(token) ?? []).filter(
    (attempt) => attempt.topic === grant.topic && attempt.call.began.at < grant.call.ended!.at,
  );
  if (tries.length === 0) return `token ${token} was never sent there`;
  const possible = tries.filter((attempt) => mayHave(facts, attempt, task.id));
  if (possible.length === 0) {
    return `token ${token} was ${tries.map(({ fate, id }) => `${fate} ${id ?? ''}`).join(', ')}`;
  }
  const { input } = possible[0]!.sent;
  if (JSON.stringify(task.metadata) !== JSON.stringify(input.metadata ?? {})) return 'other metadata than was sent';
  if (task.messageId !== possible[0]!.messageId) return `message id ${task.messageId}`;
  const facted = facts.task(grant.topic, task.id);
  if (facted.reschedules.length === 0 && task.priority !== (input.priority ?? task.priority)) return 'another priority';
  return null;
}

/** Whether a try may have made, or changed, the task of this id. */
function mayHave(facts: Facts, attempt: Attempt, id: string): boolean {
  switch (attempt.fate) {
    case 'accepted':
      return attempt.id === id;
    case 'refused':
      return false;
    case 'doubtful':
      return true;
    case 'known':
      // It was due before its call ended, and had its turn before the one that is told of.
      if (
        attempt.call.ended!.clock >=
        attempt.call.began.clock + (attempt.sent.input.delayMs ?? Number.POSITIVE_INFINITY)
      )
        return true;
      // Replaced what the task held; or it is what an earlier try of the same one, that was in doubt, had made.
      return (
        attempt.id === id &&
        (attempt.sent.input.onDuplicate === 'replace' ||
          facts.byToken.get(attempt.sent.token)!.some(({ fate }) => fate === 'doubtful'))
      );
  }
}

/** Whatever was acknowledged is settled in the end, in a way that somebody asked for. */
export function nothingLost(facts: Facts): readonly string[] {
  const violations: string[] = [];
  for (const task of facts.tasks.values()) {
    const accepted = task.attempts.find(({ fate }) => fate === 'accepted');
    if (accepted === undefined && task.grants.length === 0) continue;
    // Where nobody was told of it, it may have been found only by whoever looked; from its delivery on it counts.
    const delivered = Math.min(...task.grants.map(({ call }) => call.ended!.at));
    for (const { call, info } of task.seen) {
      if (accepted === undefined && call.began.at < delivered) continue;
      const fault =
        info === null ? unseen(facts, task, call.began.clock) : unjustified(facts, task, info, call.ended!.at);
      if (fault !== null) {
        violations.push(
          `Q1 loss: ${task.id} of ${task.topic} (${accepted === undefined ? 'delivered' : name(accepted.call)}): ${fault}`,
        );
        break;
      }
    }
    if (
      accepted !== undefined &&
      task.seen.length === 0 &&
      facts.calls('list').some(({ began }) => began.at >= facts.history.quietFrom)
    ) {
      violations.push(
        `Q1 loss: ${task.id} of ${task.topic} (${name(accepted.call)}) was nowhere to be seen at the end`,
      );
    }
  }
  return violations;
}

/**
 * A task that cannot be found any more was completed longer ago than the retention. One that was cancelled or expired
 * while it waited for its time is forgotten with its time slot; nothing else is promised.
 */
function unseen(facts: Facts, task: TaskFacts, clock: number): string | null {
  const { retentionMs } = facts.settings(task.topic);
  const settled =
    endings(task, 'ack').some(({ call }) => call.began.clock <= clock - retentionMs) ||
    task.cancels.some(({ began }) => began.clock <= clock) ||
    facts.calls('purge').some(({ args, began }) => args.topic === task.topic && began.clock <= clock) ||
    task.attempts.some(({ sent, call }) => (sent.input.ttlMs ?? Number.POSITIVE_INFINITY) + call.began.clock <= clock);
  return settled ? null : 'it cannot be found, and nothing settled it so long ago';
}

/** @param at when it was seen so: a redrive that failed may yet be carried out, and what follows does not count */
function unjustified(facts: Facts, task: TaskFacts, info: TaskInfo, at: number): string | null {
  if (!SETTLED.has(info.state)) return `it is still ${info.state}`;
  const acks = endings(task, 'ack').filter(({ call }) => call.began.at < at);
  const good = acks.filter(({ ok }) => ok === true);
  if (good.length > 0 && info.state !== 'done')
    return `it was acknowledged (${name(good[0]!.call)}), and yet it is ${info.state}`;
  const cancelled = task.cancels.find((call) => call.answer?.kind === 'ok');
  if (cancelled !== undefined && info.state !== 'cancelled')
    return `it was cancelled (${name(cancelled)}), and yet it is ${info.state}`;
  switch (info.state) {
    case 'done': {
      const results = (good.length > 0 ? good : acks.filter(({ ok }) => ok !== false)).map(({ result }) =>
        JSON.stringify(result ?? null),
      );
      if (results.length === 0) return 'it is done, and nobody acknowledged it';
      return results.includes(JSON.stringify(info.result))
        ? null
        : `it has the result ${JSON.stringify(info.result)}, and none of its acks had`;
    }
    case 'dead':
      return info.attempt >= info.maxAttempts || endings(task, 'nack').some(({ dead, ok }) => dead && ok !== false)
        ? null
        : `it is dead after ${info.attempt} of ${info.maxAttempts} attempts`;
    case 'expired':
      return info.expiresAt !== null && info.settledAt! >= info.expiresAt ? null : 'it expired before its time';
    default:
      return task.cancels.length > 0 || wasPurged(facts, task, info)
        ? null
        : 'it is cancelled, and nobody cancelled it';
  }
}

const wasPurged = (facts: Facts, task: TaskFacts, info: TaskInfo): boolean =>
  facts
    .calls('purge')
    .some(
      (call) =>
        call.args.topic === task.topic &&
        (call.answer?.kind === 'ok' ? call.ended!.clock : Number.POSITIVE_INFINITY) >= info.enqueuedAt,
    );

const endings = (task: TaskFacts, kind: 'ack' | 'nack') =>
  task.grants.flatMap(({ settlements }) => settlements.filter((one) => one.kind === kind));
