/** What a load saw, window by window of time: round trips, and errors by kind. */
import { type ErrorCode, QueueError } from '../src/core/errors.ts';
import { type Percentiles, Times } from './rounds.ts';

/** Kinds of errors that callers meet. */
const CALL_ERRORS = ['connection_lost', 'unavailable', 'broker_busy', 'timeouts', 'other'] as const;
type CallError = (typeof CALL_ERRORS)[number];
/** Those, and what workers meet, whatever its kind: as they take tasks, and as they settle them. */
export const ERRORS = [...CALL_ERRORS, 'pull_errors', 'completion_errors'] as const;
export type CountedError = (typeof ERRORS)[number];

/** The head of the lines. */
export const WINDOW_COLUMNS = ['time', 'second', 'rate', 'p50', 'p99', 'errors', ...ERRORS].join(',');

const KINDS: Readonly<Partial<Record<ErrorCode, CallError>>> = {
  'store-unavailable': 'unavailable',
  'shutting-down': 'unavailable',
  'not-holder': 'unavailable',
  'outcome-unknown': 'unavailable',
  busy: 'broker_busy',
  'request-timeout': 'timeouts',
};

/** What an error of the client is counted as. By names, since those of the build have classes of their own. */
export function kindOfError(error: unknown): CallError {
  if (!(error instanceof Error)) return 'other';
  if (error.name === QueueError.name) return KINDS[(error as QueueError).code] ?? 'other';
  if (error.name === 'ResultTimeoutError') return 'timeouts';
  if (error.name !== 'ConnectionError') return 'other';
  return / no answer within \d+ ms$/.test(error.message) ? 'timeouts' : 'connection_lost';
}

export class Tally {
  readonly #times = new Times();
  readonly #errors = new Map<CountedError, number>();

  roundTrip(ms: number): void {
    this.#times.add(ms);
  }

  error(kind: CountedError): void {
    this.#errors.set(kind, this.errors(kind) + 1);
  }

  get roundTrips(): number {
    return this.#times.count;
  }

  percentiles(): Percentiles {
    return this.#times.percentiles();
  }

  errors(kind: CountedError): number {
    return this.#errors.get(kind) ?? 0;
  }

  /** Those that callers met. */
  get callErrors(): number {
    return CALL_ERRORS.reduce((sum, kind) => sum + this.errors(kind), 0);
  }
}

/**
 * Counts each round trip and each error in the window in which it ends or happens, and once; what lies before the first
 * window and behind the last counts nowhere.
 */
export class Windows {
  readonly count: number;
  readonly #windowMs: number;
  readonly #now: () => number;
  /** Of those that have begun and are not closed: a histogram is large, and a load may last for days. */
  readonly #tallies = new Map<number, Tally>();
  /** The whole of them. */
  readonly total = new Tally();
  readonly #counted = new WeakSet<object>();
  #start = Number.POSITIVE_INFINITY;
  #startedAt = 0;

  /** @param now milliseconds of a clock that never goes back */
  constructor(count: number, windowMs: number, now: () => number = () => performance.now()) {
    this.count = count;
    this.#windowMs = windowMs;
    this.#now = now;
  }

  /** The first one begins. @param at its time, in milliseconds since 1970 */
  begin(at: number): void {
    this.#start = this.#now();
    this.#startedAt = at;
  }

  /** How long it is until a window is over. */
  leftMs(nth: number): number {
    return this.#start + (nth + 1) * this.#windowMs - this.#now();
  }

  roundTrip(ms: number): void {
    for (const tally of this.#current()) tally.roundTrip(ms);
  }

  /** Counts an error, unless it was counted: one call's may reach several who waited for it, in several ways. */
  error(error: unknown, kind: CountedError = kindOfError(error)): void {
    if (typeof error === 'object' && error !== null) {
      if (this.#counted.has(error)) return;
      this.#counted.add(error);
    }
    for (const tally of this.#current()) tally.error(kind);
  }

  /** The line of a window that is over, under WINDOW_COLUMNS; percentiles are empty where there were no round trips. */
  close(nth: number): string {
    const tally = this.#tallies.get(nth) ?? new Tally();
    this.#tallies.delete(nth);
    const { p50, p99 } = tally.percentiles();
    const times = tally.roundTrips === 0 ? ['', ''] : [p50, p99];
    const startMs = nth * this.#windowMs;
    return [
      new Date(this.#startedAt + startMs).toISOString(),
      startMs / 1_000,
      (tally.roundTrips * 1_000) / this.#windowMs,
      ...times,
      tally.callErrors,
      ...ERRORS.map((kind) => tally.errors(kind)),
    ].join(',');
  }

  #current(): readonly Tally[] {
    const nth = Math.floor((this.#now() - this.#start) / this.#windowMs);
    if (nth < 0 || nth >= this.count) return [];
    const tally = this.#tallies.get(nth) ?? new Tally();
    this.#tallies.set(nth, tally);
    return [tally, this.total];
  }
}
