/**
 * Says whether a history of calls and answers keeps the promises. It shares no code with the queue and knows nothing of
 * how the queue works: only what was asked, what was answered, and when.
 */
import { cursorsGrow } from './audit/cursors.ts';
import { oneTaskPerMessageId } from './audit/dedup.ts';
import { Facts } from './audit/facts.ts';
import { fenced, oneLease } from './audit/fence.ts';
import { limitsHold } from './audit/limits.ts';
import { nothingFromNowhere, nothingLost } from './audit/loss.ts';
import { asAsked, highestFirst, nobodyStarves, nobodyWaitsInVain } from './audit/order.ts';
import { firedOnce } from './audit/schedules.ts';
import { attemptsCount, countsReturn, drainedIsDrained, neverEarly } from './audit/times.ts';
import type { History } from './history.ts';

/** Each rule returns what broke it. */
const RULES: readonly ((facts: Facts) => readonly string[])[] = [
  nothingFromNowhere,
  nothingLost,
  oneLease,
  fenced,
  cursorsGrow,
  oneTaskPerMessageId,
  highestFirst,
  nobodyStarves,
  nobodyWaitsInVain,
  asAsked,
  limitsHold,
  neverEarly,
  attemptsCount,
  drainedIsDrained,
  countsReturn,
  firedOnce,
];

export function audit(history: History): readonly string[] {
  const facts = new Facts(history);
  return RULES.flatMap((rule) => rule(facts));
}
