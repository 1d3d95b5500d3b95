import type { TopicSettings } from './settings.ts';

/**
 * The delay before the next attempt: `backoffMs · 2^(attempt − 1)`, at most `maxBackoffMs`, of which the upper half
 * is random ("equal jitter", https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
 *
 * @param attempt the attempt that failed, 1 for the first
 * @param random from 0 up to 1
 * @returns milliseconds
 */
export function backoffMs(
  attempt: number,
  settings: Pick<TopicSettings, 'backoffMs' | 'maxBackoffMs'>,
  random: number,
): number {
  const full = Math.min(settings.maxBackoffMs, settings.backoffMs * 2 ** Math.min(attempt - 1, 40));
  return Math.round(full / 2 + (full / 2) * random);
}
