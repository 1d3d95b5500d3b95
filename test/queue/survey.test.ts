/** What looks at all topics: pages of names, and the busiest, where there are more than one slice of them. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Queue } from '../../src/queue/api.ts';
import { openQueue } from '../../src/queue/open.ts';

const TOPICS = 11_000;
const nameOf = (nth: number): string => `t${(nth * 7_919) % TOPICS}`;

let queue: Queue;
beforeAll(async () => {
  queue = await openQueue({ store: 'sqlite::memory:' });
  for (let at = 0; at < TOPICS; at += 1_000) {
    await Promise.all(Array.from({ length: 1_000 }, (_, nth) => queue.enqueue(nameOf(at + nth), { payload: nth })));
  }
});
afterAll(() => queue.stop());

test('pages go through all names in their order, each once', async () => {
  const names: string[] = [];
  for (let after: string | undefined; ; ) {
    const page = await queue.topics({ limit: 1_000, ...(after === undefined ? {} : { after }) });
    names.push(...page.topics.map(({ topic }) => topic));
    if (page.after === undefined) break;
    after = page.after;
  }
  expect(names).toEqual(Array.from({ length: TOPICS }, (_, nth) => `t${nth}`).sort());
  const some = await queue.topics({ prefix: 't109', limit: 5 });
  expect(some.topics.map(({ topic }) => topic)).toEqual(['t109', 't1090', 't10900', 't10901', 't10902']);
  expect(some.after).toBe('t10902');
});

test('the busiest come first, and others get their turn while they are looked for', async () => {
  for (const [nth, count] of [300, 5, 40].entries()) {
    await queue.enqueue(
      `t${nth}`,
      Array.from({ length: count }, (_, payload) => ({ payload })),
    );
  }
  let turns = 0;
  let isLooking = true;
  const turn = (): void => {
    turns++;
    if (isLooking) setImmediate(turn);
  };
  setImmediate(turn);
  const busiest = await queue.busiest();
  isLooking = false;
  expect(turns).toBeGreaterThanOrEqual(2);
  expect(busiest).toHaveLength(20);
  expect(busiest.slice(0, 4).map(({ topic, counts }) => [topic, counts.ready])).toEqual([
    ['t0', 301],
    ['t2', 41],
    ['t1', 6],
    [expect.any(String), 1],
  ]);
  expect(queue.status()).toMatchObject({
    activeTopics: TOPICS,
    ready: TOPICS + 345,
    oldestReadyMs: expect.any(Number),
  });
});
