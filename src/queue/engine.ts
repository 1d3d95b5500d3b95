import type { Store } from '../store/store.ts';
import type { Environment, Resolution } from './environment.ts';
import type { Log } from './log.ts';
import type { Measures } from './measures.ts';
import type { Messages } from './messages.ts';
import type { Tenure } from './tenure.ts';
import type { Topic, TopicBook } from './topics.ts';

/** What the use cases and the scheduler share. */
export interface Engine {
  readonly store: Store;
  readonly env: Environment;
  readonly book: TopicBook;
  readonly messages: Messages;
  readonly activity: Activity;
  readonly counters: Counters;
  readonly measures: Measures;
  readonly signals: Signals;
  readonly log: QueueLogger;
  /** Whether it is sure that nobody else schedules the shard, nor has looked for what is in it since this server does. */
  holds(tenure: Tenure): boolean;
  /** Whether this server may claim in a shard now, by its own monotonic clock, under the term it began with. */
  mayClaim(tenure: Tenure): boolean;
  /** A claim met a higher term: another server schedules the shard by now. */
  deposed(tenure: Tenure): void;
}

/** The index by which work is found again. */
export interface Activity {
  /** Records the log in the current period; null where it is already. To be begun beside the write that it is for. */
  ensure(log: Log): Promise<void> | null;
  /**
   * Resolves once the log is recorded in a period that is known to be current now. Nothing is acknowledged that was put
   * into a log, and no move that begins there is committed, before this was asked behind the append.
   */
  confirm(log: Log): Promise<void>;
}

/** What happened, for those who wait for it. */
export interface Signals {
  /** Ready tasks came up in a topic, or its gate may have opened. */
  ready(topic: Topic): void;
  /** Something in the log falls due then (0: as soon as may be). */
  due(log: Log, at: number): void;
  /** Something was put into a log behind its end as it is known here. */
  news(log: Log): void;
  /** Entries were put into a time slot. */
  delayed(log: Log): void;
  /**
   * Entries ended, or went elsewhere, that may have been handed out: they are open no longer. Resolves once whoever
   * schedules the log knows, where its topic has a cooldown: no lease may come between that and the settlement.
   */
  left(log: Log, ids: readonly number[]): Promise<void>;
  /** A task was settled. */
  settled(uid: string): void;
  /** Counts of a topic fell. */
  changed(topic: Topic): void;
}

export interface QueueLogger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export const silentLogger: QueueLogger = { info() {}, warn() {}, error() {} };

/** Counted since the start. */
export class Counters {
  enqueued = 0;
  deduplicated = 0;
  /** Tasks for which there was no room in their topic, or in the store. */
  refused = 0;
  delivered = 0;
  redelivered = 0;
  succeeded = 0;
  failed = 0;
  deadLettered = 0;
  expired = 0;
  firings = 0;
  firingsMissed = 0;
  /** Writes whose outcome was unknown at first, by how they came out. */
  readonly unknown: Record<Resolution, number> = { applied: 0, landed: 0, refused: 0, open: 0 };
}
