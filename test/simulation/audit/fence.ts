/** Q2 and Q3: one valid lease at a time, and only it settles, once. */
import {
  type Facts,
  type Grant,
  inOrder,
  isOrderUnknown,
  name,
  type Settlement,
  surelyHeldUntil,
  type TaskFacts,
} from './facts.ts';

/** A task is handed out again only once its lease was given back, or is over. */
export function oneLease(facts: Facts): readonly string[] {
  const violations: string[] = [];
  for (const task of facts.tasks.values()) {
    const grants = inOrder(facts, task.grants);
    for (const [nth, later] of grants.entries()) {
      const earlier = grants[nth - 1];
      if (earlier === undefined || mayBeOver(facts, earlier, later)) continue;
      if (isOrderUnknown(facts, earlier, later) && mayBeOver(facts, later, earlier)) continue;
      violations.push(
        `Q2: ${task.id} of ${task.topic} went to ${later.call.actor} (${name(later.call)}) while ${earlier.call.actor} held it (${name(earlier.call)})`,
      );
    }
  }
  return violations;
}

function mayBeOver(facts: Facts, earlier: Grant, later: Grant): boolean {
  if (surelyHeldUntil(earlier) <= later.claimedAt) return true;
  // By another server's clock it may be over: the clocks of two servers differ, which is allowed to shorten a lease.
  const isOneClock = facts.history.servers === 1 && earlier.call.server === later.call.server;
  if (!isOneClock && facts.history.clockErrorMs > 0) {
    if (surelyHeldUntil(earlier) - facts.history.clockErrorMs <= later.claimedAt) return true;
  }
  return earlier.settlements.some(
    ({ kind, ok, call }) =>
      (kind === 'nack' || kind === 'release') && ok !== false && call.began.at < later.call.ended!.at,
  );
}

/** Whoever lost the lease is refused: the task went on, ended, or was cancelled. */
export function fenced(facts: Facts): readonly string[] {
  const violations: string[] = [];
  for (const task of facts.tasks.values()) {
    const accepted = task.grants.flatMap((grant) =>
      grant.settlements.filter(({ ok }) => ok === true).map((settlement) => ({ grant, settlement })),
    );
    for (const { grant, settlement } of accepted) {
      const fault = staleness(facts, task, grant, settlement);
      if (fault !== null) {
        violations.push(
          `Q3: ${settlement.kind} in ${name(settlement.call)} of ${task.id} was accepted, though ${fault}`,
        );
      }
    }
    violations.push(...settledOnce(task));
  }
  return violations;
}

/** Of two leases that two servers handed out, their clocks may tell the order wrong. */
const cameAfter = ({ history }: Facts, later: Grant, earlier: Grant): boolean =>
  history.clockErrorMs > 0 ? later.call.began.at > earlier.call.ended!.at : later.claimedAt > earlier.claimedAt;

function staleness(facts: Facts, task: TaskFacts, grant: Grant, settlement: Settlement): string | null {
  const { call } = settlement;
  const next = task.grants.find(
    (other) => other !== grant && cameAfter(facts, other, grant) && other.call.ended!.at < call.began.at,
  );
  const repeated = grant.settlements.some(
    (other) =>
      other !== settlement &&
      other.ending &&
      wayOf(other) === wayOf(settlement) &&
      other.ok !== false &&
      other.call.began.at < call.ended!.at,
  );
  if (repeated && settlement.ending) return null;
  if (next !== undefined) return `${next.call.actor} had got it meanwhile (${name(next.call)})`;
  const cancelled = task.cancels.find((one) => one.answer?.kind === 'ok' && one.ended!.at < call.began.at);
  if (cancelled !== undefined) return `it had been cancelled (${name(cancelled)})`;
  const ended = grant.settlements.find(
    (other) => other !== settlement && other.ending && other.ok === true && other.call.ended!.at < call.began.at,
  );
  return ended === undefined ? null : `its lease had ended by ${ended.kind} in ${name(ended.call)}`;
}

/** One lease ends in one way, and an ack ends the task. */
function settledOnce(task: TaskFacts): readonly string[] {
  const violations: string[] = [];
  for (const { settlements } of task.grants) {
    const ways = new Set(settlements.filter(({ ending, ok }) => ending && ok === true).map(wayOf));
    if (ways.size > 1) violations.push(`Q3: a lease of ${task.id} ended by ${[...ways].join(' and by ')}`);
  }
  const acked = task.grants.filter(({ settlements }) =>
    settlements.some(({ kind, ok }) => kind === 'ack' && ok === true),
  );
  if (acked.length > 1) violations.push(`Q3: ${task.id} was acknowledged under ${acked.length} leases`);
  const ack = acked[0]?.settlements.find(({ kind, ok }) => kind === 'ack' && ok === true);
  const after = ack && task.grants.find((grant) => grant.call.began.at > ack.call.ended!.at);
  if (ack && after)
    violations.push(
      `Q3: ${task.id} was handed out (${name(after.call)}) after it was acknowledged (${name(ack.call)})`,
    );
  return violations;
}

/** Nack and release both move the task on; a repeated one is answered as the first was, whichever that was. */
const wayOf = ({ kind }: Settlement): string => (kind === 'ack' ? 'ack' : 'giving it back');
