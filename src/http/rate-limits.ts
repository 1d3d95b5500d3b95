import { LRUCache } from 'lru-cache';
import type { ApiKey } from '../core/api-key.ts';
import { KEYS } from '../core/bounds.ts';

/** A token bucket a key: exact for this server; each server has its own. */
export class RateLimits {
  /** By the id of the key: when its bucket is full again, in milliseconds. */
  readonly #fullAt = new LRUCache<string, number>({ max: KEYS });

  /**
   * Takes one request, if it may be.
   * @param now milliseconds, by a clock that goes steadily
   * @returns 0, or in how many milliseconds one may be
   */
  take({ id, rate }: Pick<ApiKey, 'id' | 'rate'>, now: number): number {
    if (rate === null) return 0;
    const eachMs = 1000 / rate.perSecond;
    const fullAt = Math.max(this.#fullAt.get(id) ?? 0, now) + eachMs;
    const waitMs = fullAt - now - rate.burst * eachMs;
    // Sums of fractions: a bucket that is exactly full may seem to be over by the last digit.
    if (waitMs > eachMs * 1e-6) return waitMs;
    this.#fullAt.set(id, fullAt);
    return 0;
  }
}
