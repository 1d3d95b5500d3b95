/** What a claimer does with an entry at the scan cursor; pure, so that the same decisions can be explored by a model. */
import type { EntryHead } from './entry.ts';
import type { MessageRow } from './message.ts';
import { isLive } from './message.ts';

export type ClaimDecision =
  /** Hand it out. */
  | { readonly kind: 'claim' }
  /** A pending entry: carry its move to an end first. */
  | { readonly kind: 'resolve' }
  /** Nothing to do: it is final, or was handed out. */
  | { readonly kind: 'pass' }
  /** End it with this status. */
  | { readonly kind: 'end'; readonly status: 'expired' | 'cancelled' | 'duplicate'; readonly reason: string }
  /** Its message row is missing, or is one it takes over: write that first, then claim. */
  | { readonly kind: 'own'; readonly supersedes: string | null };

export interface ClaimContext {
  readonly now: number;
  readonly purgedAt: number | null;
  /** The row of the entry's message id; undefined where the entry has none. */
  readonly message: MessageRow | null | undefined;
}

export function decideClaim(entry: EntryHead, context: ClaimContext): ClaimDecision {
  if (entry.status === 'pending') return { kind: 'resolve' };
  if (entry.status !== 'ready') return { kind: 'pass' };
  const { message } = context;
  const owner = message ?? null;
  const isOthers = owner !== null && owner.uid !== entry.uid;
  if (isOthers && (entry.supersedes !== owner.uid || isLive(owner.status))) {
    return { kind: 'end', status: 'duplicate', reason: `message id owned by ${owner.uid}` };
  }
  if (isPurged(entry, context.purgedAt)) return { kind: 'end', status: 'cancelled', reason: 'purged' };
  if (isExpired(entry, context.now)) return { kind: 'end', status: 'expired', reason: 'time to live over' };
  if (isOthers) return { kind: 'own', supersedes: owner.uid };
  return message === null ? { kind: 'own', supersedes: null } : { kind: 'claim' };
}

/** Whether another server has claimed since, under a higher term: this one was paused past its lease. */
export const isDeposed = (own: number, found: number): boolean => found > own;

export const isExpired = (entry: Pick<EntryHead, 'expiresAt'>, now: number): boolean =>
  entry.expiresAt !== null && entry.expiresAt <= now;

export const isPurged = (entry: Pick<EntryHead, 'enqueuedAt'>, purgedAt: number | null): boolean =>
  purgedAt !== null && entry.enqueuedAt <= purgedAt;
