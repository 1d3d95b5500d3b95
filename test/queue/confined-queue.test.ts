/** Lists by who sees some topics alone, which go through what others have as well. */
import { expect, test } from 'vitest';
import { ConfinedQueue } from '../../src/queue/confined-queue.ts';
import { CursorSeal } from '../../src/queue/cursor-seal.ts';
import { testQueue } from '../support/queue.ts';

async function delayedOfOthers() {
  const { queue } = await testQueue();
  const delayed = Array.from({ length: 1_000 }, () => ({ payload: 1, delayMs: 60_000 }));
  for (let nth = 0; nth < 3; nth++) await queue.enqueue('b/x', delayed);
  await queue.enqueue('a/x', delayed.slice(0, 2));
  let running = 0;
  let most = 0;
  let pages = 0;
  const counting = new Proxy(queue, {
    get(target, name) {
      const member = Reflect.get(target, name) as unknown;
      if (name !== 'tasks') return typeof member === 'function' ? member.bind(target) : member;
      return async (...args: Parameters<typeof target.tasks>) => {
        pages++;
        most = Math.max(most, ++running);
        return target.tasks(...args).finally(() => running--);
      };
    },
  });
  const confined = new ConfinedQueue(counting, ['a/'], new CursorSeal('0'.repeat(32)));
  return { confined, seen: () => ({ most, pages }) };
}

test('lists of a key run one after the other', async () => {
  const { confined, seen } = await delayedOfOthers();
  const lists = await Promise.all(Array.from({ length: 5 }, () => confined.tasks('a/x', { state: 'delayed' })));
  for (const { tasks } of lists) expect(tasks).toHaveLength(2);
  expect(seen().most).toBe(1);
});

test('a list ends where nobody waits for it any more', async () => {
  const { confined, seen } = await delayedOfOthers();
  const gone = new AbortController();
  const lists = Array.from({ length: 5 }, () => confined.tasks('a/x', { state: 'delayed' }, gone.signal));
  gone.abort();
  const ends = await Promise.allSettled(lists);
  expect(ends.slice(1).map(({ status }) => status)).toEqual(Array(4).fill('rejected'));
  // The first one had begun.
  expect(seen().pages).toBe(1);
});
