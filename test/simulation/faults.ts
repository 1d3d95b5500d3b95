/** What goes wrong between a server and its store, drawn from the seed. */

import type { Carrier, Verb } from '../../src/store/memory/store.ts';
import { StoreUnavailableError, UNKNOWN } from '../../src/store/store.ts';
import type { Loop } from './loop.ts';
import type { Random } from './random.ts';
import type { ServerProcess } from './server-process.ts';

/** How likely each fault is at a call of the store, and how slow the store is. */
export interface FaultRates {
  /** Mean time to the tables, and back, in milliseconds. */
  readonly delayMs: number;
  /** A call now and then takes so much longer. */
  readonly slowMs: number;
  readonly slow: number;
  readonly unavailable: number;
  readonly unknownBefore: number;
  readonly unknownAfter: number;
  /** Unknown, and applied only later. */
  readonly unknownLater: number;
  readonly laterMs: number;
  readonly crashBefore: number;
  readonly crashAfter: number;
  /** Crashes at the most. */
  readonly crashes: number;
  /** The store is away for a while: every call fails. */
  readonly outage: number;
  readonly outageMs: number;
}

export const NO_FAULTS: FaultRates = {
  delayMs: 1,
  slowMs: 0,
  slow: 0,
  unavailable: 0,
  unknownBefore: 0,
  unknownAfter: 0,
  unknownLater: 0,
  laterMs: 0,
  crashBefore: 0,
  crashAfter: 0,
  crashes: 0,
  outage: 0,
  outageMs: 0,
};

export type FaultKind =
  | 'slow'
  | 'unavailable'
  | 'unknown'
  | 'late'
  | 'crash'
  | 'pause'
  | 'jump'
  | 'outage'
  | 'disconnect';
export type FaultCounts = Record<FaultKind, number>;

/** Takes a line for people to read; it is made only where somebody reads. */
export type Trace = (line: () => string) => void;

const SLOWEST_MS = 6_000;

export class Faults {
  readonly #loop: Loop;
  readonly #random: Random;
  readonly #trace: Trace;
  rates: FaultRates;
  calls = 0;
  readonly counts: FaultCounts = {
    slow: 0,
    unavailable: 0,
    unknown: 0,
    late: 0,
    crash: 0,
    pause: 0,
    jump: 0,
    outage: 0,
    disconnect: 0,
  };
  #awayUntil = 0;
  /** When the last of the calls that were sent so far is answered, however slow it is. */
  underWayUntil = 0;
  /** Writes sent whose sender has given up on them, and that will still be applied. */
  late = 0;

  constructor(loop: Loop, random: Random, rates: FaultRates, trace: Trace) {
    this.#loop = loop;
    this.#random = random;
    this.rates = rates;
    this.#trace = trace;
  }

  /**
   * The way from a process to the tables and back.
   * @param factor how much more often something goes wrong on it than on others
   */
  carrier(process: ServerProcess, random = this.#random, factor = 1): Carrier {
    return (verb, run, about) =>
      new Promise((resolve, reject) => {
        if (!process.alive) return;
        this.calls++;
        const trace = (what: () => string) => this.#trace(() => `server ${process.id}: ${about()} — ${what()}`);
        const fault = this.#draw(verb, random, factor);
        if (fault === 'crash-before') {
          trace(() => 'crash before');
          this.counts.crash++;
          process.crash();
          return;
        }
        const there = this.#delay(random);
        const back = this.#delay(random);
        this.underWayUntil = Math.max(this.underWayUntil, this.#loop.now + there + back);
        const answer = (what: string, tell: () => void): void => {
          process.after(back, () => {
            trace(() => what);
            tell();
          });
        };
        const apply = (ms: number, then: (result: Awaited<ReturnType<typeof run>>) => void): void => {
          this.#loop.after(ms, () => {
            const result = run();
            trace(() => `applied ${describe(result)}`);
            then(result as Awaited<ReturnType<typeof run>>);
          });
        };
        switch (fault) {
          case 'unavailable':
            this.counts.unavailable++;
            this.#loop.after(there, () => answer('unavailable', () => reject(new StoreUnavailableError('simulated'))));
            return;
          case 'unknown-before':
            this.counts.unknown++;
            this.#loop.after(there, () => answer('unknown, not applied', () => resolve(UNKNOWN as never)));
            return;
          case 'unknown-after':
            this.counts.unknown++;
            apply(there, () => answer('unknown, applied', () => resolve(UNKNOWN as never)));
            return;
          case 'unknown-later':
            this.counts.late++;
            this.#loop.after(there, () => answer('unknown, applied later', () => resolve(UNKNOWN as never)));
            this.late++;
            apply(there + random.around(this.rates.laterMs), () => this.late--);
            return;
          case 'crash-after':
            this.counts.crash++;
            this.late++;
            apply(there, () => this.late--);
            this.#loop.after(random.between(0, there * 2), () => {
              if (process.alive) trace(() => 'crash after it was sent');
              process.crash();
            });
            return;
          default:
            apply(there, (result) => answer('answered', () => resolve(result as never)));
        }
      });
  }

  #draw(verb: Verb, random: Random, factor: number): string {
    const { rates } = this;
    if (this.#loop.now < this.#awayUntil) return 'unavailable';
    if (rates.outage > 0 && random.chance(rates.outage)) {
      this.counts.outage++;
      this.#awayUntil = this.#loop.now + random.around(rates.outageMs);
    }
    let at = random.next() / factor;
    const falls = (probability: number): boolean => {
      at -= probability;
      return at < 0;
    };
    const mayCrash = this.counts.crash < rates.crashes;
    if (falls(rates.crashBefore)) return mayCrash ? 'crash-before' : 'none';
    if (falls(rates.crashAfter)) return mayCrash ? 'crash-after' : 'none';
    if (falls(rates.unavailable)) return 'unavailable';
    if (verb !== 'conditional') return 'none';
    if (falls(rates.unknownBefore)) return 'unknown-before';
    if (falls(rates.unknownAfter)) return 'unknown-after';
    if (falls(rates.unknownLater)) return 'unknown-later';
    return 'none';
  }

  #delay(random: Random): number {
    if (this.rates.slow > 0 && random.chance(this.rates.slow)) {
      this.counts.slow++;
      // The driver gives a request up in the end.
      return Math.min(SLOWEST_MS, random.around(this.rates.slowMs));
    }
    return random.around(this.rates.delayMs);
  }
}

function describe(result: unknown): string {
  if (result === null || result === undefined || typeof result !== 'object') return String(result ?? '');
  if ('kind' in result) return String(result.kind);
  if (Array.isArray(result))
    return `[${result.map((row: { id: number; status: string }) => `${row.id} ${row.status}`).join(', ')}]`;
  return result instanceof Map ? `${result.size} rows` : JSON.stringify(result);
}
