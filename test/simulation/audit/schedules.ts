/**
 * Each time of a schedule is one task: all from its making until it was last seen, and of those that followed until it was
 * deleted each at the most. Nothing was passed over, for no outage of a simulation lasts for as long as the planner lets it
 * make up for.
 */
import type { LeasedTask, TaskInfo } from '../../../src/queue/api.ts';
import { type Facts, name } from './facts.ts';

export function firedOnce(facts: Facts): readonly string[] {
  const { schedule } = facts.history;
  const made = facts.calls('setSchedule').find(({ answer }) => answer?.kind === 'ok');
  if (schedule === null || made?.answer?.kind !== 'ok') return [];
  const violations: string[] = [];
  const { createdAt } = made.answer.value;
  const firings = firingsIn(facts, schedule.topic);
  for (const [at, ids] of firings) {
    if (ids.size > 1) violations.push(`Q6 schedule: ${at} was fired as ${[...ids].join(' and ')}`);
    if (at % schedule.periodMs !== 0) violations.push(`Q1 schedule: ${at} is none of its times`);
    if (at <= createdAt) violations.push(`Q1 schedule: ${at} was fired, though it was made only at ${createdAt}`);
  }
  for (const call of facts.calls('schedule')) {
    if (call.answer?.kind !== 'ok') continue;
    const { firedUpTo, fired, missed } = call.answer.value;
    const times = timesOf(schedule.periodMs, createdAt, firedUpTo);
    const told = `${name(call)} tells that it has fired up to ${firedUpTo}`;
    // What it was seen to have fired may be with no worker yet; in the end all is.
    const lost = times.filter((at) => !firings.has(at));
    if (lost.length > 0) violations.push(`Q1 schedule: ${told}, and ${lost.join(', ')} was never a task`);
    if (fired !== times.length) violations.push(`Q1 schedule: ${told}, ${fired} times instead of ${times.length}`);
    if (missed > 0) violations.push(`Q1 schedule: ${told}, and has passed over ${missed}`);
  }
  const deleted = facts.calls('deleteSchedule').find(({ answer }) => answer?.kind === 'ok');
  const until = (deleted?.ended?.clock ?? Number.POSITIVE_INFINITY) + facts.history.clockErrorMs;
  for (const at of firings.keys()) {
    if (at > until) violations.push(`Q1 schedule: ${at} was fired, though it was deleted before`);
  }
  return violations;
}

/** The ids of the tasks by the time that they were fired for: as they were delivered, or seen in the end. */
function firingsIn(facts: Facts, topic: string): ReadonlyMap<number, ReadonlySet<string>> {
  const found = new Map<number, Set<string>>();
  const note = ({ id, metadata }: Pick<LeasedTask | TaskInfo, 'id' | 'metadata'>): void => {
    const at = Date.parse(metadata['ebbmark-fired-for']!);
    found.set(at, (found.get(at) ?? new Set()).add(id));
  };
  for (const task of facts.tasks.values()) {
    if (task.topic !== topic) continue;
    for (const { task: delivered } of task.grants) note(delivered);
    for (const { info } of task.seen) if (info !== null) note(info);
  }
  return found;
}

/** Multiples of a period behind one time, up to another. */
function timesOf(periodMs: number, from: number, to: number): number[] {
  const times: number[] = [];
  for (let at = (Math.floor(from / periodMs) + 1) * periodMs; at <= to; at += periodMs) times.push(at);
  return times;
}
