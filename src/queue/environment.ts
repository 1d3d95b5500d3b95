import { randomFillSync } from 'node:crypto';
import { monotonicFactory } from 'ulid';

/** What the queue takes from outside: time, randomness, timers. The simulator gives its own. */
export interface Environment {
  /** The store's clock as known here, milliseconds since 1970; never goes back. */
  now(): number;
  /** Milliseconds since any moment; what leases of shards and limits go by, since no clock can be set under it. */
  monotonic(): number;
  /** A number from 0 up to 1, for jitter. */
  random(): number;
  /** 128 random bits in base64url, not beginning with a hyphen: a command line would take that for an option. */
  token(): string;
  /** A ULID (https://github.com/ulid/spec), larger than every one given before by this environment. */
  ulid(at: number): string;
  /** Calls back after so many milliseconds, unless the returned function is called before. */
  timer(ms: number, call: () => void): () => void;
  /** Told how a write came out whose outcome was unknown at first. */
  readonly resolved?: (how: Resolution) => void;
}

/** The two clocks. */
export type Clock = Pick<Environment, 'now' | 'monotonic'>;

/** A moment, by both. */
export interface Moment {
  readonly now: number;
  readonly monotonic: number;
}

export const momentOf = (clock: Clock): Moment => ({ now: clock.now(), monotonic: clock.monotonic() });

/** A time that was told by `now`, as the monotonic clock would have told it. */
export const monotonicAt = (clock: Clock, at: number): number => at - clock.now() + clock.monotonic();

/** What comes of some work, or `late` where it takes longer than so many milliseconds. */
export async function within<T>(
  { timer }: Pick<Environment, 'timer'>,
  ms: number,
  work: Promise<T>,
  late: T,
): Promise<T> {
  let cancel = (): void => {};
  const over = new Promise<T>((resolve) => {
    cancel = timer(ms, () => resolve(late));
  });
  return Promise.race([work, over]).finally(cancel);
}

/**
 * - `applied` a repetition of the write was applied: the first try had written nothing;
 * - `landed`  a repetition was refused, since the first try had been applied;
 * - `refused` a repetition was refused, since another write had been before the first;
 * - `open`    nothing definite was heard in time, which the caller was told.
 */
export type Resolution = 'applied' | 'landed' | 'refused' | 'open';

const POOL_BYTES = 8192;
/** A timer of Node's counts in 32 bits; longer waits are cut and asked for again. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/** A jump of the machine's clock larger than this is believed only once it has lasted. */
const JUMP_MS = 2_000;
const JUMP_LASTS_MS = 10_000;

/** The environment of a real process. */
export function systemEnvironment(): Environment {
  const pool = new Uint8Array(POOL_BYTES);
  let used = POOL_BYTES;
  const take = (bytes: number): number => {
    if (used + bytes > POOL_BYTES) {
      randomFillSync(pool);
      used = 0;
    }
    used += bytes;
    return used - bytes;
  };
  // The plain factory asks the system for each character: 72 µs an id instead of one.
  const nextUlid = monotonicFactory(() => pool[take(1)]! / 256);
  return {
    now: steadyClock(Date.now, () => performance.now()),
    monotonic: () => performance.now(),
    random: Math.random,
    token: () => {
      for (;;) {
        const at = take(16);
        const token = Buffer.from(pool.buffer, at, 16).toString('base64url');
        if (!token.startsWith('-')) return token;
      }
    },
    ulid: nextUlid,
    timer: (ms, call) => {
      const timer = setTimeout(call, Math.min(Math.max(0, ms), LONGEST_TIMER_MS));
      return () => clearTimeout(timer);
    },
  };
}

/**
 * A clock that follows the machine's wall clock but never goes back, and believes a jump only after ten seconds, so
 * that a clock set wrong for a moment ends no lease.
 *
 * @param wall milliseconds since 1970
 * @param monotonic milliseconds since any moment
 */
export function steadyClock(wall: () => number, monotonic: () => number): () => number {
  let offset = wall() - monotonic();
  let last = 0;
  let jumpSeenAt: number | null = null;
  return () => {
    const elapsed = monotonic();
    const drift = wall() - (elapsed + offset);
    if (Math.abs(drift) <= JUMP_MS) {
      offset += drift;
      jumpSeenAt = null;
    } else if (jumpSeenAt === null) {
      jumpSeenAt = elapsed;
    } else if (elapsed - jumpSeenAt > JUMP_LASTS_MS) {
      offset += drift;
      jumpSeenAt = null;
    }
    last = Math.max(last, Math.floor(elapsed + offset));
    return last;
  };
}
