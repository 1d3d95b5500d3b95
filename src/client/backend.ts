import type { QueueCalls } from './http-queue.ts';

/**
 * What a client needs of a queue. One that was opened in this process is one (src/queue/api.ts), and HttpQueue is one
 * over the network; all else is written once, for both. A lease whose signal is aborted answers with what it has got.
 */
export type Backend = Pick<QueueCalls, 'enqueue' | 'lease' | 'settle' | 'task'>;
