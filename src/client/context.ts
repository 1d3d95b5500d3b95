import type { Backend } from './backend.ts';
import type { Connection } from './connection.ts';
import type { TopicBook } from './topics.ts';
import type { Turns } from './turns.ts';

/** What went wrong where. */
export interface Trouble {
  /**
   * `connection`: the queue cannot be reached, told once a try; `lease`, `extend`, `settle`: a call of a subscriber
   * failed; `handler`: a handler did, and its task with it.
   */
  readonly during: 'connection' | 'lease' | 'extend' | 'settle' | 'handler';
  readonly topic?: string;
  /** The task's. */
  readonly id?: string;
}

/** What publishers and subscribers of a client share. */
export interface ClientContext {
  readonly backend: Backend;
  readonly connection: Connection;
  readonly topics: TopicBook;
  /** Of waits for results. */
  readonly resultTurns: Turns;
  readonly requestTimeoutMs: number;
  readonly retryMs: number;
  report(error: unknown, trouble: Trouble): void;
}
