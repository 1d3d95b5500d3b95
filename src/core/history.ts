import { HISTORY_ATTEMPTS, REASON_BYTES } from './bounds.ts';
import type { EntryHead } from './entry.ts';

export type AttemptOutcome = 'done' | 'nack' | 'dead' | 'lapsed' | 'released' | 'cancelled';

/** A delivery that is over. */
export interface PastAttempt {
  readonly attempt: number;
  readonly worker: string | null;
  readonly leasedAt: number;
  readonly endedAt: number;
  readonly outcome: AttemptOutcome;
  readonly reason: string | null;
}

export const parseHistory = (text: string | null): readonly PastAttempt[] =>
  text === null ? [] : (JSON.parse(text) as PastAttempt[]);

/** The history of a task after its current delivery ended; the oldest attempts give way. */
export function withAttempt(
  history: string | null,
  entry: Pick<EntryHead, 'attempt' | 'worker' | 'leasedAt'>,
  ended: { readonly at: number; readonly outcome: AttemptOutcome; readonly reason: string | null },
): string | null {
  if (entry.leasedAt === null) return history;
  const past: PastAttempt = {
    attempt: entry.attempt + 1,
    worker: entry.worker,
    leasedAt: entry.leasedAt,
    endedAt: ended.at,
    outcome: ended.outcome,
    reason: ended.reason?.slice(0, REASON_BYTES) ?? null,
  };
  return JSON.stringify([...parseHistory(history), past].slice(-HISTORY_ATTEMPTS));
}
