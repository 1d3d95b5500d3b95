/** Delays, attempts, and what is said of a topic as a whole. */
import type { TaskState } from '../../../src/queue/api.ts';
import { type Facts, type Grant, inOrder, isOrderUnknown, name, type TaskFacts } from './facts.ts';

const UNSETTLED: ReadonlySet<TaskState> = new Set(['ready', 'delayed', 'leased']);

/** No task is handed out before its time. */
export function neverEarly(facts: Facts): readonly string[] {
  const violations: string[] = [];
  const tolerance = facts.history.clockErrorMs;
  const redriven = redrivenTopics(facts);
  for (const task of facts.tasks.values()) {
    if (task.reschedules.length > 0 || redriven.has(task.topic) || wasReplaced(facts, task)) continue;
    const grants = inOrder(facts, task.grants);
    const accepted = task.attempts.find(({ fate }) => fate === 'accepted');
    const delayMs = accepted?.sent.input.delayMs;
    if (accepted !== undefined && delayMs !== undefined) {
      const due = accepted.call.began.clock + delayMs;
      const early = grants.find(({ claimedAt }) => claimedAt < due - tolerance);
      if (early !== undefined) {
        violations.push(
          `early: ${task.id} was due at ${due}, and handed out at ${early.claimedAt} (${name(early.call)})`,
        );
      }
    }
    for (const [nth, grant] of grants.entries()) {
      const next = grants[nth + 1];
      const back = onlyNack(grant);
      if (
        next === undefined ||
        back?.delayMs == null ||
        isOrderUnknown(facts, grant, next) ||
        next.claimedAt >= back.call.began.clock + back.delayMs - tolerance
      )
        continue;
      violations.push(
        `early: ${task.id} was to wait ${back.delayMs} ms from ${back.call.began.clock}, and was handed out at ${next.claimedAt} (${name(next.call)})`,
      );
    }
  }
  return violations;
}

const redrivenTopics = (facts: Facts): ReadonlySet<string> =>
  new Set(facts.calls('redrive').map(({ args }) => args.topic));

/** The nack that ended a lease, where nothing else can have. */
function onlyNack({ settlements }: Grant) {
  const endings = settlements.filter(({ ending, ok }) => ending && ok !== false);
  return endings.length === 1 && endings[0]!.kind === 'nack' && endings[0]!.ok === true ? endings[0] : null;
}

const wasReplaced = (facts: Facts, task: TaskFacts): boolean =>
  task.attempts.some(
    ({ messageId, topic }) =>
      messageId !== null &&
      facts.attempts.some(
        (other) => other.topic === topic && other.messageId === messageId && other.sent.input.onDuplicate === 'replace',
      ),
  );

/** Every delivery counts once, and a release not at all. */
export function attemptsCount(facts: Facts): readonly string[] {
  const violations: string[] = [];
  const redriven = redrivenTopics(facts);
  for (const task of facts.tasks.values()) {
    const accepted = task.attempts.find(({ fate }) => fate === 'accepted');
    const most = accepted?.sent.input.maxAttempts ?? facts.settings(task.topic).maxAttempts;
    const grants = inOrder(facts, task.grants);
    for (const [nth, grant] of grants.entries()) {
      const { attempt } = grant.task;
      const say = (what: string) =>
        violations.push(`attempts: ${task.id} came as attempt ${attempt} (${name(grant.call)}), ${what}`);
      if (accepted !== undefined && attempt > most) say(`and has ${most}`);
      if (redriven.has(task.topic)) continue;
      const before = grants[nth - 1];
      if (before !== undefined && isOrderUnknown(facts, before, grant)) continue;
      const released = before?.settlements.some(({ kind, ok }) => kind === 'release' && ok !== false) ?? false;
      const least = before === undefined ? 1 : before.task.attempt + (released ? 0 : 1);
      if (attempt < least) say(`after attempt ${before?.task.attempt ?? 0}`);
      const nacked = before?.settlements.some(({ kind, ok }) => kind === 'nack' && ok !== false) ?? false;
      const exact = before === undefined ? 1 : before.task.attempt + (released && !nacked ? 0 : 1);
      // A delivery whose answer was lost counts as well, and nobody saw it.
      if (facts.history.calm && attempt > exact) say(`and ${exact} was next`);
    }
  }
  return violations;
}

/** `drained` says so only when nothing is ready, delayed or leased. */
export function drainedIsDrained(facts: Facts): readonly string[] {
  const redriven = redrivenTopics(facts);
  return facts.calls('drained').flatMap((call) => {
    if (call.answer?.kind !== 'ok' || !call.answer.value || redriven.has(call.args.topic)) return [];
    for (const task of facts.tasks.values()) {
      const accepted = task.attempts.find(({ fate }) => fate === 'accepted');
      if (task.topic !== call.args.topic || accepted === undefined || accepted.call.ended!.at >= call.began.at)
        continue;
      const later = task.grants.find((grant) => grant.call.began.at > call.ended!.at);
      if (later !== undefined)
        return [
          `drained: ${name(call)} said so of ${task.topic}, and then ${task.id} was handed out (${name(later.call)})`,
        ];
    }
    return [];
  });
}

/**
 * When everything was worked off, nothing counts as waiting or leased, and dead is who is listed as dead. A task that nobody
 * was told of may be found only now: whether one that is listed may still wait, other rules say.
 */
export function countsReturn(facts: Facts): readonly string[] {
  return facts.calls('counts').flatMap((call) => {
    if (call.began.at < facts.history.quietFrom || call.answer?.kind !== 'ok') return [];
    const { ready, delayed, leased, dead } = call.answer.value;
    const list = facts
      .calls('list')
      .find(({ args, began }) => args.topic === call.args.topic && args.state === null && began.at > call.ended!.at);
    const listed = list?.answer?.kind === 'ok' ? list.answer.value.map(({ state }) => state) : null;
    const listedDead = listed?.filter((state) => state === 'dead').length ?? dead;
    const unsettled = listed?.filter((state) => UNSETTLED.has(state)).length ?? 0;
    if (ready + delayed + leased <= unsettled && dead === listedDead) return [];
    return [
      `counts: ${name(call)} told ${JSON.stringify(call.answer.value)} of ${call.args.topic}, where ${unsettled} are not settled and ${listedDead} dead`,
    ];
  });
}
