/** Q5, Q7 and Q8: who is ready is handed out, highest first, and nobody starves. Only for histories in which all was calm. */
import type { Call } from '../history.ts';
import { type Facts, name } from './facts.ts';
import { openTopics, type Ready, readyStretches } from './readiness.ts';

/** "As known to the topic's server, within a second." */
const KNOWN_AFTER_MS = 1_000;
/** Where all is calm, whoever hands out knows of a task much sooner; a topic that is passed by is seen only while others last. */
const KNOWN_WHEN_CALM_MS = 150;

/** Q7: inside a topic, a lease takes from the highest tier that has something. */
export function highestFirst(facts: Facts): readonly string[] {
  if (!facts.history.calm) return [];
  const violations: string[] = [];
  const ready = readyStretches(facts);
  for (const grant of facts.grants) {
    const settings = facts.settings(grant.topic);
    if (settings.bands !== null || settings.buckets !== null || settings.tierShare !== null) continue;
    const { call } = grant;
    const passed = ready.find(
      (other) =>
        other.task.topic === grant.topic &&
        other.priority > grant.task.priority &&
        (call.args.priorities === undefined || call.args.priorities.includes(other.priority)) &&
        other.from + KNOWN_AFTER_MS < call.began.at &&
        other.to > call.ended!.at,
    );
    if (passed !== undefined) {
      violations.push(
        `Q7: ${name(call)} got ${grant.task.id} of priority ${grant.task.priority}, while ${passed.task.id} of priority ${passed.priority} was ready since ${passed.from.toFixed(0)}`,
      );
    }
  }
  return violations;
}

/** Q8: as leases go round, a topic that has something is served before others are again and again. */
export function nobodyStarves(facts: Facts): readonly string[] {
  if (!facts.history.calm) return [];
  const open = openTopics(facts);
  // Each server begins its leases with another holder in turn, and clients take now this server and now that; and some
  // calls are under way at the same time.
  const turns = [...facts.history.settings.values()].reduce((sum, { weight }) => sum + weight, 0);
  const most = facts.history.servers * (turns + 4);
  const leases = facts
    .calls('lease')
    .filter((call) => served(call).length > 0)
    .sort((a, b) => a.ended!.at - b.ended!.at);
  return readyStretches(facts).flatMap(({ task, from, to }) => {
    if (!open.has(task.topic)) return [];
    // In a row: each time its topic has its turn, a task may still have to wait for those above it.
    let passedBy: Call<'lease'>[] = [];
    for (const call of leases) {
      if (call.ended!.at >= to) break;
      if (served(call).some(({ topic }) => topic === task.topic)) passedBy = [];
      else if (goesRound(call) && call.began.at > from + KNOWN_WHEN_CALM_MS) passedBy.push(call);
      if (passedBy.length <= most) continue;
      return [
        `Q8: ${passedBy.length} leases passed ${task.topic} by while ${task.id} was ready in it (${name(passedBy[0]!)} …)`,
      ];
    }
    return [];
  });
}

const served = (call: Call<'lease'>) => (call.answer?.kind === 'ok' ? call.answer.value : []);

/** It takes of any topic whose turn it is. */
const goesRound = ({ args }: Call<'lease'>): boolean =>
  args.topics === undefined && args.priorities === undefined && args.order !== 'priority';

/**
 * Nobody waits in vain: a lease that ends empty had nothing to get. In time (delayed tasks at most two ticks late, stalled
 * ones within two seconds of their lease's end), whatever else is long in coming (Q5).
 */
export function nobodyWaitsInVain(facts: Facts): readonly string[] {
  if (!facts.history.calm) return [];
  const ready = readyStretches(facts);
  return facts.calls('lease').flatMap((call) => {
    if (call.answer?.kind !== 'ok' || call.answer.value.length > 0) return [];
    const missed = ready.find(
      (one) => one.from + KNOWN_AFTER_MS < call.ended!.at && one.to > call.ended!.at && asksFor(facts, call, one),
    );
    if (missed === undefined) return [];
    const { task, from, why } = missed;
    return [
      `Q5: ${name(call)} got nothing at ${call.ended!.at.toFixed(0)}, though ${task.id} of ${task.topic} was ready since ${from.toFixed(0)} (${why})`,
    ];
  });
}

function asksFor(facts: Facts, { args }: Call<'lease'>, { task, priority }: Ready): boolean {
  const { bands, buckets } = facts.settings(task.topic);
  if (args.priorities !== undefined && (bands !== null || buckets !== null || !args.priorities.includes(priority)))
    return false;
  return (
    args.topics === undefined ||
    args.topics.some((text) => (text.endsWith('*') ? task.topic.startsWith(text.slice(0, -1)) : text === task.topic))
  );
}

/** A lease holds only what it asked for, and no more of it. */
export function asAsked(facts: Facts): readonly string[] {
  return facts.calls('lease').flatMap((call) => {
    if (call.answer?.kind !== 'ok') return [];
    const { args } = call;
    const got = call.answer.value;
    const faults: string[] = [];
    if (got.length > (args.max ?? 1)) faults.push(`${got.length} tasks`);
    const perTopic = new Map<string, number>();
    for (const { topic } of got) perTopic.set(topic, (perTopic.get(topic) ?? 0) + 1);
    for (const [topic, count] of perTopic) {
      if (count > (args.maxPerTopic ?? Number.POSITIVE_INFINITY)) faults.push(`${count} tasks of ${topic}`);
      const asked =
        args.topics === undefined ||
        args.topics.some((text) => (text.endsWith('*') ? topic.startsWith(text.slice(0, -1)) : text === topic));
      if (!asked) faults.push(`tasks of ${topic}`);
    }
    return faults.map((fault) => `lease: ${name(call)} got ${fault}, and had not asked for that`);
  });
}
