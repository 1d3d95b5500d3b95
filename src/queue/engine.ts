import type { Store } from '../store/store.ts';
import type { Environment, Resolution } from './environment.ts';
import type { Log } from './log.ts';
import type { Messages } from './messages.ts';
import type { Topic, TopicBook } from './topics.ts';

/** What the use cases and the scheduler share. */
export interface Engine {
  readonly store: Store;
  readonly env: Environment;
  readonly book: TopicBook;
  readonly messages: Messages;
  readonly activity: Activity;
  readonly counters: Counters;
  readonly signals: Signals;
  readonly log: QueueLogger;
  /** The term under which this server claims. */
  readonly term: number;
  /** A claim met a higher term: another server schedules by now. */
  deposed(): void;
}

/** The index by which work is found again. */
export interface Activity {
  /**
   * Resolves once the log is recorded in the current period; null where it is already. Nothing is acknowledged that
   * put something into a log before this.
   */
  ensure(log: Log): Promise<void> | null;
}

/** What happened, for those who wait for it. */
export interface Signals {
  /** Ready tasks came up in a topic, or its gate may have opened. */
  ready(topic: Topic): void;
  /** Something in the log falls due then (0: as soon as may be). */
  due(log: Log, at: number): void;
  /** Entries were put into a time slot. */
  delayed(log: Log): void;
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
  delivered = 0;
  redelivered = 0;
  succeeded = 0;
  failed = 0;
  deadLettered = 0;
  expired = 0;
  /** Writes whose outcome was unknown at first, by how they came out. */
  readonly unknown: Record<Resolution, number> = { applied: 0, landed: 0, refused: 0, open: 0 };
}
