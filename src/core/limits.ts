/** The gate of a topic: whether tasks may be leased from it now, how many, and when to ask again. */
import type { TopicSettings } from './settings.ts';

type LimitSettings = Pick<
  TopicSettings,
  'maxInFlight' | 'minIntervalMs' | 'cooldownMs' | 'rate' | 'blockedUntil' | 'paused'
>;

/** What a topic's limits remember. Times are milliseconds of whatever clock the gate is asked by; -Infinity: never. */
export interface LimitState {
  readonly lastLeaseAt: number;
  readonly lastSettledAt: number;
  /** Tokens of the rate's bucket at `refilledAt`. */
  readonly tokens: number;
  readonly refilledAt: number;
}

export interface Gate {
  /** How many tasks may be leased now. */
  readonly allowed: number;
  /** When that changes by itself; null: only by a settlement or by settings. */
  readonly nextAt: number | null;
}

export const hasLimits = (settings: LimitSettings): boolean =>
  settings.paused ||
  settings.blockedUntil !== null ||
  settings.maxInFlight !== null ||
  settings.minIntervalMs !== null ||
  settings.cooldownMs !== null ||
  settings.rate !== null;

/** Tokens of the rate's bucket at a time: token bucket, refilled evenly, `burst` at the most. */
export function tokensAt(state: LimitState, rate: NonNullable<LimitSettings['rate']>, now: number): number {
  const refill = (Math.max(0, now - state.refilledAt) * rate.tasks) / rate.perMs;
  return Math.min(rate.burst, state.tokens + refill);
}

/** The first millisecond at which the bucket has a token. Rounding may put the quotient off by one, to either side. */
function firstTokenAt(state: LimitState, rate: NonNullable<LimitSettings['rate']>): number {
  const estimate = state.refilledAt + Math.ceil(((1 - state.tokens) * rate.perMs) / rate.tasks);
  return [estimate - 1, estimate].find((at) => tokensAt(state, rate, at) >= 1) ?? estimate + 1;
}

/** @param inFlight tasks under a lease now */
export function gateOf(state: LimitState, inFlight: number, settings: LimitSettings, now: number): Gate {
  if (settings.paused) return { allowed: 0, nextAt: null };
  let allowed = Number.POSITIVE_INFINITY;
  let nextAt: number | null = null;
  const closedUntil = (at: number): void => {
    allowed = 0;
    nextAt = Math.max(nextAt ?? 0, at);
  };
  if (settings.blockedUntil !== null && settings.blockedUntil > now) closedUntil(settings.blockedUntil);
  if (settings.minIntervalMs !== null) {
    allowed = Math.min(allowed, 1);
    if (state.lastLeaseAt + settings.minIntervalMs > now) closedUntil(state.lastLeaseAt + settings.minIntervalMs);
  }
  if (settings.cooldownMs !== null && state.lastSettledAt + settings.cooldownMs > now) {
    closedUntil(state.lastSettledAt + settings.cooldownMs);
  }
  if (settings.rate !== null) {
    const tokens = tokensAt(state, settings.rate, now);
    if (tokens < 1) closedUntil(firstTokenAt(state, settings.rate));
    else allowed = Math.min(allowed, Math.floor(tokens));
  }
  if (settings.maxInFlight !== null && inFlight >= settings.maxInFlight) return { allowed: 0, nextAt: null };
  if (settings.maxInFlight !== null) allowed = Math.min(allowed, settings.maxInFlight - inFlight);
  return { allowed, nextAt };
}

const OPEN: LimitSettings = {
  paused: false,
  blockedUntil: null,
  maxInFlight: null,
  minIntervalMs: null,
  cooldownMs: null,
  rate: null,
};
export type Limit = keyof LimitSettings;

/** The limits by which the gate is shut now, each with the time when that ends by itself; null: it does not. */
export function closedBy(
  state: LimitState,
  inFlight: number,
  settings: LimitSettings,
  now: number,
): readonly { readonly limit: Limit; readonly until: number | null }[] {
  return (Object.keys(OPEN) as Limit[]).flatMap((limit) => {
    const { allowed, nextAt } = gateOf(state, inFlight, { ...OPEN, [limit]: settings[limit] }, now);
    return allowed === 0 ? [{ limit, until: nextAt }] : [];
  });
}

/**
 * The state after `count` tasks were leased.
 *
 * @param at when they were; leases and settlements are accounted for as their writes are answered, which may be in another
 *   order than that of their times
 */
export function afterLease(state: LimitState, settings: LimitSettings, count: number, at: number): LimitState {
  if (count === 0) return state;
  const tokens = settings.rate ? tokensAt(state, settings.rate, at) - count : 0;
  const lastLeaseAt = Math.max(state.lastLeaseAt, at);
  return {
    ...state,
    lastLeaseAt,
    tokens,
    refilledAt: Math.max(state.refilledAt, at),
  };
}

/** The state after leases ended, by a settlement or by their time. */
export const afterSettle = (state: LimitState, at: number): LimitState => ({
  ...state,
  lastSettledAt: Math.max(state.lastSettledAt, at),
});
