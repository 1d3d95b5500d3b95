import type { Queue } from './api.ts';

/** Where a queue keeps its tasks, and what it takes from its surroundings. */
export interface OpenOptions {
  /** `sqlite:PATH`. */
  readonly store: string;
  /** Told of background trouble; nothing is logged when absent. */
  readonly log?: QueueLogger;
}

export interface QueueLogger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Opens the store, creating it where it isn't there, and starts the queue. */
export async function openQueue(_options: OpenOptions): Promise<Queue> {
  throw new Error('not yet');
}
