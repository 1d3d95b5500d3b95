import type { LogAddress } from '../core/entry.ts';
import type { LimitState } from '../core/limits.ts';
import type { TopicSettings } from '../core/settings.ts';
import type { LogAtRest } from './log.ts';
import type { Tenure } from './tenure.ts';

/** What is kept of a topic besides its log. */
export interface TopicAtRest {
  readonly name: string;
  readonly tenure: Tenure;
  readonly settings: TopicSettings;
  readonly version: number | null;
  readonly delayed: number;
  readonly limits: LimitState | null;
  readonly lastLeaseAt: number;
  readonly servedNth: number;
}

/** What only those have that were leased from before. */
interface Past {
  readonly limits: LimitState | null;
  readonly lastLeaseAt: number;
  readonly servedNth: number;
  readonly logServedNth: number;
  readonly cursor: number;
  readonly averageBefore: number;
}

const NEVER_LEASED: Past = {
  limits: null,
  lastLeaseAt: Number.NEGATIVE_INFINITY,
  servedNth: 0,
  logServedNth: 0,
  cursor: 0,
  averageBefore: 0,
};

/**
 * A topic in which tasks wait and nothing else goes on, with its one log, in a fifth of the memory: there may be millions
 * of them. Whoever looks the topic up gets it unfolded, as if it had been loaded then, but without a call of the store.
 */
export class FoldedTopic {
  readonly name: string;
  readonly tenure: Tenure;
  readonly settings: TopicSettings;
  readonly version: number | null;
  /** Tasks that wait in time slots; kept by the book. */
  delayed: number;
  readonly tier: number;
  readonly #segment: number;
  readonly #next: number | null;
  readonly #bytes: number;
  readonly #ready: number;
  readonly #isUnclaimed: boolean;
  readonly readySince: number;
  /** The period of the activity index in which its log is recorded. */
  recordedPeriod: number;
  readonly #past: Past;

  constructor(topic: TopicAtRest, log: LogAtRest) {
    this.name = topic.name;
    this.tenure = topic.tenure;
    this.settings = topic.settings;
    this.version = topic.version;
    this.delayed = topic.delayed;
    this.tier = log.tier;
    this.#segment = log.end.segment;
    this.#next = log.end.next;
    this.#bytes = log.end.bytes;
    this.#ready = log.ready;
    this.#isUnclaimed = log.isUnclaimed;
    this.readySince = log.readySince;
    this.recordedPeriod = log.recordedPeriod;
    const { limits, lastLeaseAt, servedNth } = topic;
    const { cursor, averageBefore } = log;
    const past = { limits, lastLeaseAt, servedNth, logServedNth: log.servedNth, cursor, averageBefore };
    this.#past = isPast(past) ? past : NEVER_LEASED;
  }

  get address(): LogAddress {
    return { topic: this.name, tier: this.tier };
  }

  get servedNth(): number {
    return this.#past.servedNth;
  }

  get hasByteQuota(): false {
    return false;
  }

  get hasLogs(): true {
    return true;
  }

  /** Ready entries; no claim is under way. */
  get available(): number {
    return this.#ready;
  }

  hasReady(tiers: ReadonlySet<number>): boolean {
    return tiers.has(this.tier);
  }

  counts(): { ready: number; delayed: number; leased: number; dead: number } {
    return { ready: this.#ready, delayed: Math.max(0, this.delayed), leased: 0, dead: 0 };
  }

  /** All that was kept of the topic. */
  get topic(): TopicAtRest {
    const { name, tenure, settings, version, delayed } = this;
    const { limits, lastLeaseAt, servedNth } = this.#past;
    return { name, tenure, settings, version, delayed, limits, lastLeaseAt, servedNth };
  }

  /** All that was kept of its log. */
  get log(): LogAtRest {
    const { tier, readySince, recordedPeriod } = this;
    const { cursor, averageBefore, logServedNth } = this.#past;
    return {
      tier,
      cursor,
      end: { segment: this.#segment, next: this.#next, bytes: this.#bytes },
      averageBefore,
      ready: this.#ready,
      isUnclaimed: this.#isUnclaimed,
      readySince,
      servedNth: logServedNth,
      recordedPeriod,
    };
  }
}

const PAST = Object.keys(NEVER_LEASED) as readonly (keyof Past)[];
const isPast = (past: Past): boolean => PAST.some((key) => past[key] !== NEVER_LEASED[key]);
