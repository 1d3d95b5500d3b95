/** What the completion scanner does with an entry between the completion cursor and the scan cursor. */
import { isExpired, isPurged } from './claim.ts';
import { type EntryHead, isFinal } from './entry.ts';
import { messageKey } from './message.ts';
import type { TopicSettings } from './settings.ts';

export type ScanDecision =
  /** Leased and in time: look again then; the pass goes on behind it. */
  | { readonly kind: 'open'; readonly until: number }
  /** Final, once its message row agrees. */
  | { readonly kind: 'settled' }
  /** Moved: final, once its destination is ready and its row says where that is. */
  | { readonly kind: 'moved' }
  /** A pending entry: carry its move to an end. */
  | { readonly kind: 'resolve' }
  /** The lease is over: back into the queue, one attempt more, or to the dead letters. */
  | { readonly kind: 'requeue'; readonly attempt: number; readonly reason: string }
  | { readonly kind: 'bury'; readonly attempt: number; readonly reason: string }
  /** End it with this status. */
  | { readonly kind: 'end'; readonly status: 'expired' | 'cancelled'; readonly reason: string };

export function decideScan(
  entry: EntryHead,
  settings: Pick<TopicSettings, 'maxAttempts' | 'purgedAt'>,
  now: number,
): ScanDecision {
  if (entry.status === 'moved') return { kind: 'moved' };
  if (isFinal(entry.status)) return { kind: 'settled' };
  if (entry.status === 'pending') return { kind: 'resolve' };
  if (entry.status === 'leased' && entry.leaseUntil !== null && entry.leaseUntil > now) {
    return { kind: 'open', until: entry.leaseUntil };
  }
  if (isPurged(entry, settings.purgedAt)) return { kind: 'end', status: 'cancelled', reason: 'purged' };
  if (isExpired(entry, now)) return { kind: 'end', status: 'expired', reason: 'time to live over' };
  // Ready, and yet below the scan cursor: it was never handed out, so no attempt is counted.
  if (entry.status === 'ready') return { kind: 'requeue', attempt: entry.attempt, reason: 'passed by unclaimed' };
  return failedAttempt(entry, settings, 'lease ran out');
}

/** Where an entry goes whose delivery failed. */
export function failedAttempt(
  entry: Pick<EntryHead, 'attempt' | 'maxAttempts'>,
  settings: Pick<TopicSettings, 'maxAttempts'>,
  reason: string,
): { readonly kind: 'requeue' | 'bury'; readonly attempt: number; readonly reason: string } {
  const attempt = entry.attempt + 1;
  const left = attempt < (entry.maxAttempts ?? settings.maxAttempts);
  return { kind: left ? 'requeue' : 'bury', attempt, reason };
}

/** What the scanner does with a dead letter: it waits for a redrive until its retention is over. */
export function decideDead(
  entry: EntryHead,
  settings: Pick<TopicSettings, 'deadRetentionMs' | 'purgedAt'>,
  now: number,
): ScanDecision {
  if (entry.status !== 'ready') {
    return entry.status === 'pending' ? { kind: 'resolve' } : { kind: entry.status === 'moved' ? 'moved' : 'settled' };
  }
  if (isPurged(entry, settings.purgedAt)) return { kind: 'end', status: 'cancelled', reason: 'purged' };
  const until = entry.placedAt + settings.deadRetentionMs;
  return until > now
    ? { kind: 'open', until }
    : { kind: 'end', status: 'expired', reason: 'dead letter retention over' };
}

/** Whether an entry below the scan cursor is not just passed: final ones are once their message row agrees and their destination is ready. */
export const mustBeChecked = (head: Pick<EntryHead, 'status' | 'messageId' | 'hops' | 'uid'>): boolean =>
  !isFinal(head.status) || head.status === 'moved' || messageKey(head) !== null;
