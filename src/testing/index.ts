export type { DrainHandler, DrainOptions, DrainReport } from './drain.ts';
export { TestTimeoutError } from './left-over.ts';
export { TestQueue, type TestQueueOptions } from './test-queue.ts';
export type { TaskFilter, WaitOptions } from './wait-for.ts';
