import { describe, expect, it } from 'vitest';
import { type FrontierTask, priorityOf, readTask, sumTopics, toInput } from '../../crawler-example/frontier.ts';

const TASK: FrontierTask = {
  kind: 'page',
  url: 'http://a.org/',
  depth: 2,
  referrer: null,
  hops: 0,
  seed: false,
  lastModified: null,
};

describe('the frontier', () => {
  it.each<[number, number | null, number]>([
    [0, null, 9],
    [1, null, 8],
    [2, null, 7],
    [8, null, 1],
    [50, null, 1],
    [1, 1, 8],
    [2, 1, 8],
    [3, 1, 8],
    [1, 0.5, 8],
    [1, 0, 6],
    [9, 0, 1],
    [0, 1, 8],
  ])('depth %d, sitemap priority %s: %d', (depth, sitemap, priority) => {
    expect(priorityOf(depth, sitemap)).toBe(priority);
  });

  it('writes tasks and reads them back', () => {
    const input = toInput(TASK);
    expect(input).toMatchObject({ messageId: 'http://a.org/', priority: 7 });
    expect(readTask(JSON.parse(JSON.stringify(input.payload)))).toEqual(TASK);
    expect(toInput({ ...TASK, kind: 'sitemap' })).toMatchObject({ messageId: 'sitemap http://a.org/', priority: 9 });
  });

  it.each([
    null,
    1,
    'x',
    [],
    {},
    new Uint8Array(1),
    { ...TASK, kind: 'other' },
    { ...TASK, url: 'x' },
    { ...TASK, url: 1 },
    { ...TASK, depth: -1 },
    { ...TASK, hops: 0.5 },
  ])("takes nobody else's task: %j", (payload) => {
    expect(readTask(payload)).toBeNull();
  });

  it('adds up the pages of a list of topics', async () => {
    const topic = (name: string, ready: number) => ({
      topic: name,
      paused: false,
      counts: { ready, delayed: 1, leased: 0, dead: 0 },
    });
    const pages = [
      { topics: [topic('a', 1)], after: 'a' },
      { topics: [], after: 'b' },
      { topics: [topic('c', 2), { ...topic('d', 0), counts: { ready: 0, delayed: 0, leased: 0, dead: 0 } }] },
    ];
    const asked: (string | undefined)[] = [];
    const sum = await sumTopics(async (after) => {
      asked.push(after);
      return pages[asked.length - 1]!;
    });
    expect(sum).toEqual({ ready: 3, delayed: 2, leased: 0, dead: 0, hosts: 2 });
    expect(asked).toEqual([undefined, 'a', 'b']);
  });
});
