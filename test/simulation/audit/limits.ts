/** Q9: the limits of a topic hold over all servers, also across a failover. */
import type { TopicSettings } from '../../../src/core/settings.ts';
import type { AnyCall } from '../history.ts';
import { type Facts, type Grant, name, surelyHeldUntil } from './facts.ts';

/** The values that a setting may have had at some time in a stretch of the simulation's time. */
function valuesOf<K extends keyof TopicSettings>(
  facts: Facts,
  topic: string,
  key: K,
  from: number,
  to: number,
): readonly TopicSettings[K][] {
  let values: TopicSettings[K][] = [facts.settings(topic)[key]];
  // What a call set may come into force at any time until its end; where nobody was told of that, later still.
  const underWay: { readonly value: TopicSettings[K]; readonly until: number }[] = [];
  for (const call of facts.calls('configure')) {
    const { patch } = call.args;
    if (call.args.topic !== topic || !(key in patch) || call.began.at > to) continue;
    const value = (patch as Partial<TopicSettings>)[key] as TopicSettings[K];
    const isTold = call.answer?.kind === 'ok';
    const late = underWay.flatMap((one) => (one.until > call.began.at ? [one.value] : []));
    values = isTold && call.ended!.at < from ? [value, ...late] : [...values, value];
    underWay.push({ value, until: isTold ? call.ended!.at : call.began.at + SET_LATE_MS });
  }
  return values;
}

/** How late what a call set may come into force that nobody was told the end of: as long as writes may be in doubt. */
const SET_LATE_MS = 30_000;

/** A limit that was in force for certain: the loosest of those it may have been; null: perhaps none. */
function strictest(values: readonly (number | null)[], looser: (a: number, b: number) => number): number | null {
  let least: number | null = null;
  for (const value of values) {
    if (value === null) return null;
    least = least === null ? value : looser(least, value);
  }
  return least;
}

export function limitsHold(facts: Facts): readonly string[] {
  const byTopic = new Map<string, Grant[]>();
  for (const grant of facts.grants) byTopic.set(grant.topic, [...(byTopic.get(grant.topic) ?? []), grant]);
  const violations: string[] = [];
  for (const [topic, grants] of byTopic) {
    grants.sort((a, b) => a.claimedAt - b.claimedAt);
    for (const [key, check] of CHECKS) {
      if (isEverSet(facts, topic, key)) violations.push(...check(facts, topic, grants));
    }
  }
  return violations;
}

/** Whether the topic had this limit at any time. */
const isEverSet = (facts: Facts, topic: string, key: Limit): boolean =>
  Boolean(facts.settings(topic)[key]) ||
  facts.calls('configure').some(({ args }) => args.topic === topic && Boolean(args.patch[key]));

/** How old settings may be that a server knows of a topic of another's shard, its reading of them included. */
const SETTINGS_KNOWN_MS = 10_000;

/** A clock may gain so much of the time that passes. */
const MOST_DRIFT = 0.01;

/**
 * How much time can have passed until a lease at the most, as the server saw it: limits go by a clock that nobody sets.
 * Null where two servers saw it, whose clocks differ.
 * @param since the call in which it began
 * @param at by the clock of its server
 */
function passedMost({ history }: Facts, since: AnyCall, at: number, grant: Grant): number | null {
  // Times are told in whole milliseconds.
  if (history.clockErrorMs === 0) return grant.claimedAt - at + 1;
  if (since.server !== grant.call.server) return null;
  return (grant.call.ended!.at - since.began.at) * (1 + MOST_DRIFT);
}

/** Whether the clocks of two moments can be compared. */
const comparable = ({ history }: Facts, a: number, b: number): boolean =>
  history.clockErrorMs === 0 || (history.servers === 1 && a === b);

function inFlight(facts: Facts, topic: string, grants: readonly Grant[]): readonly string[] {
  return grants.flatMap((grant) => {
    const { call } = grant;
    const most = strictest(valuesOf(facts, topic, 'maxInFlight', call.began.at, call.ended!.at), Math.max);
    if (most === null) return [];
    const others = grants.filter((other) => other.call !== call && surelyHeldAt(facts, other, grant));
    const together = grants.filter((other) => other.call === call && other.claimedAt === grant.claimedAt).length;
    if (others.length + together <= most) return [];
    return [`Q9: ${name(call)} got a task of ${topic}, which had ${others.length} in flight and may have ${most}`];
  });
}

function surelyHeldAt(facts: Facts, held: Grant, at: Grant): boolean {
  if (held.call.ended!.at >= at.call.began.at || surelyHeldUntil(held) <= at.claimedAt) return false;
  if (!comparable(facts, held.call.server, at.call.server)) return false;
  const task = facts.task(held.topic, held.task.id);
  const ended = held.settlements.some(
    ({ ending, ok, call }) => ending && ok !== false && call.began.at < at.call.ended!.at,
  );
  return !ended && !task.cancels.some(({ began }) => began.at < at.call.ended!.at);
}

function intervals(facts: Facts, topic: string, grants: readonly Grant[]): readonly string[] {
  return grants.flatMap((grant, nth) => {
    const before = grants[nth - 1];
    if (before === undefined) return [];
    const passed = passedMost(facts, before.call, before.claimedAt, grant);
    const from = Math.min(before.call.began.at, grant.call.began.at);
    const least = strictest(valuesOf(facts, topic, 'minIntervalMs', from, grant.call.ended!.at), Math.min);
    if (passed === null || least === null || passed > least) return [];
    return [
      `Q9: ${name(grant.call)} got a task of ${topic} less than ${passed} ms after ${name(before.call)}, at least ${least} ms apart`,
    ];
  });
}

function rates(facts: Facts, topic: string, grants: readonly Grant[]): readonly string[] {
  for (const [first, grant] of grants.entries()) {
    for (let last = first + 1; last < grants.length; last++) {
      const end = grants[last]!;
      const passed = passedMost(facts, grant.call, grant.claimedAt, end);
      if (passed === null) break;
      const from = Math.min(grant.call.began.at, end.call.began.at);
      const values = valuesOf(facts, topic, 'rate', from, end.call.ended!.at);
      // A rate that was changed meanwhile says nothing of the stretch as a whole.
      const [rate] = values;
      if (values.length !== 1 || rate === null || rate === undefined) break;
      const most = rate.burst + (passed * rate.tasks) / rate.perMs + 1e-6;
      if (last - first + 1 > most) {
        return [
          `Q9: ${topic} gave ${last - first + 1} tasks in less than ${passed} ms, from ${name(grant.call)} to ${name(end.call)}; ${most.toFixed(2)} were allowed`,
        ];
      }
    }
  }
  return [];
}

/** The calls by which tasks were settled for certain, where it is known when. */
const settlementsOf = (grants: readonly Grant[]): readonly AnyCall[] =>
  grants.flatMap(({ settlements }) => {
    // One that is repeated settles nothing any more. Where the first one failed, or its answer was lost, it is not known
    // since when it was settled.
    const first = settlements.find(({ ending, ok }) => ending && ok !== false);
    return first?.ok === true && first.call.ended !== null ? [first.call as AnyCall] : [];
  });

function cooldowns(facts: Facts, topic: string, grants: readonly Grant[]): readonly string[] {
  const settlements = settlementsOf(grants);
  return grants.flatMap((grant) => {
    const { call } = grant;
    for (const settled of settlements) {
      if (settled.ended!.at >= call.began.at) continue;
      const passed = passedMost(facts, settled, settled.began.clock, grant);
      if (passed === null) continue;
      // A server that does not schedule the topic learns of new settings within some seconds; until then it acknowledges a
      // settlement before the one that does has heard of it.
      const since = settled.began.at - (facts.history.servers > 1 ? SETTINGS_KNOWN_MS : 0);
      const least = strictest(valuesOf(facts, topic, 'cooldownMs', since, call.ended!.at), Math.min);
      if (least === null || passed > least) continue;
      return [
        `Q9: ${name(call)} got a task of ${topic} less than ${passed} ms after ${name(settled)}; the cooldown is ${least} ms`,
      ];
    }
    return [];
  });
}

function pauses(facts: Facts, topic: string, grants: readonly Grant[]): readonly string[] {
  return grants.flatMap(({ call }) =>
    valuesOf(facts, topic, 'paused', call.began.at, call.ended!.at).every((paused) => paused)
      ? [`Q9: ${name(call)} got a task of ${topic}, which was paused`]
      : [],
  );
}

type Limit = 'maxInFlight' | 'minIntervalMs' | 'cooldownMs' | 'rate' | 'paused';
type Check = (facts: Facts, topic: string, grants: readonly Grant[]) => readonly string[];
const CHECKS: readonly (readonly [Limit, Check])[] = [
  ['maxInFlight', inFlight],
  ['minIntervalMs', intervals],
  ['rate', rates],
  ['cooldownMs', cooldowns],
  ['paused', pauses],
];
