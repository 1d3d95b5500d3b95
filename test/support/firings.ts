/** What schedules have put into a topic. */
import type { Queue } from '../../src/queue/api.ts';

/** For when tasks of a topic were fired, of all that are there, in the order of their times. */
export async function firedFor(queue: Pick<Queue, 'tasks'>, topic: string): Promise<readonly number[]> {
  const times: number[] = [];
  for (let after: string | undefined; ; ) {
    const page = await queue.tasks(topic, { limit: 1_000, ...(after === undefined ? {} : { after }) });
    times.push(...page.tasks.map(({ metadata }) => Date.parse(metadata['ebbmark-fired-for']!)));
    if (page.after === undefined) return times.sort((a, b) => a - b);
    after = page.after;
  }
}

/** Each full second behind a time, up to another one. */
export const seconds = (from: number, to: number): number[] => {
  const first = Math.floor(from / 1_000) + 1;
  return Array.from({ length: Math.floor(to / 1_000) + 1 - first }, (_, nth) => (first + nth) * 1_000);
};
