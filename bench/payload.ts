import type { TaskInput } from '../src/queue/api.ts';

/** 200 bytes as JSON text, of which two are its quotes. */
export const PAYLOAD = 'https://example.org/a/page/of/a/crawl?'.padEnd(198, 'abcdefghijklmnopqrstuvwxyz0123456789');

export const tasksOf = (count: number): TaskInput[] => Array.from({ length: count }, () => ({ payload: PAYLOAD }));

/** The body of an enqueue call. */
export const bodyOf = (count: number): string => JSON.stringify({ tasks: tasksOf(count) });
