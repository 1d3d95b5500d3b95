/** Leases that ask for some topics or tiers, one after the other, while tasks come and go: they get what a list would say. */
import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { TopicBook } from '../../src/queue/topics.ts';
import { TestQueue } from '../../src/testing/index.ts';

const NAMES = ['a/1', 'a/2', 'a/3', 'ab', 'b/1', 'b/2', 'c'] as const;
const SELECTIONS = [['a/*'], ['a*'], ['b/*', 'c'], ['c', 'a/1', 'x*'], ['*'], null] as const;

type Selection = (typeof SELECTIONS)[number];

/** Topics that have something, next first, and the priorities of their tasks. */
class List {
  readonly #ready = new Map<string, number[]>();

  put(topic: string, priority: number): void {
    const tasks = this.#ready.get(topic);
    if (tasks === undefined) this.#ready.set(topic, [priority]);
    else tasks.push(priority);
  }

  #asked(selection: Selection, priorities: readonly number[] | undefined): readonly [topic: string, ready: number[]][] {
    return [...this.#ready].flatMap(([topic, ready]) => {
      const isAsked =
        selection?.some((one) => (one.endsWith('*') ? topic.startsWith(one.slice(0, -1)) : topic === one)) ?? true;
      const some = ready.filter((priority) => priorities?.includes(priority) ?? true);
      return isAsked && some.length > 0 ? [[topic, some]] : [];
    });
  }

  /** Which topic is next. */
  next(selection: Selection, priorities?: readonly number[]): string | null {
    return this.#asked(selection, priorities)[0]?.[0] ?? null;
  }

  highest(selection: Selection): number | null {
    const all = this.#asked(selection, undefined).flatMap(([, ready]) => ready);
    return all.length === 0 ? null : Math.max(...all);
  }

  take(topic: string, priority: number): void {
    const left = [...this.#ready.get(topic)!];
    left.splice(left.indexOf(priority), 1);
    this.#ready.delete(topic);
    if (left.length > 0) this.#ready.set(topic, left);
  }
}

const step = fc.oneof(
  fc.record({
    kind: fc.constant('put' as const),
    topic: fc.constantFrom(...NAMES),
    priority: fc.integer({ min: 4, max: 6 }),
  }),
  fc.record({ kind: fc.constant('fair' as const), selection: fc.constantFrom(...SELECTIONS) }),
  fc.record({ kind: fc.constant('highest' as const), selection: fc.constantFrom(...SELECTIONS) }),
  fc.record({
    kind: fc.constant('tier' as const),
    selection: fc.constantFrom(...SELECTIONS),
    tier: fc.integer({ min: 4, max: 6 }),
  }),
  // Long enough for topics in which tasks wait to be folded.
  fc.record({ kind: fc.constant('rest' as const) }),
);

test('of the topics asked for the one that waits longest is next, or the highest tier', async () => {
  const fold = vi.spyOn(TopicBook.prototype, 'fold');
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 80, size: 'max' }), async (steps) => {
      const queue = await TestQueue.start();
      const list = new List();
      // Of these, what was settled is deleted by then.
      for (const topic of ['a/1', 'b/2']) await queue.configure(topic, { retentionMs: 300_000 });
      for (const one of steps) {
        if (one.kind === 'rest') {
          await queue.advance(420_000);
          continue;
        }
        if (one.kind === 'put') {
          await queue.enqueue(one.topic, { payload: 1, priority: one.priority });
          list.put(one.topic, one.priority);
          continue;
        }
        const topics = one.selection === null ? {} : { topics: one.selection };
        const order = one.kind === 'highest' ? { order: 'priority' as const } : {};
        const priorities = one.kind === 'tier' ? { priorities: [one.tier] } : {};
        const [task] = await queue.lease({ ...topics, ...order, ...priorities });
        if (one.kind === 'highest') expect(task?.priority ?? null).toBe(list.highest(one.selection));
        else if (one.kind === 'fair') expect(task?.topic ?? null).toBe(list.next(one.selection));
        else expect(task === undefined).toBe(list.next(one.selection, [one.tier]) === null);
        if (task === undefined) continue;
        if (one.kind === 'tier') expect(task.priority).toBe(one.tier);
        list.take(task.topic, task.priority);
        await queue.settle({ ack: [{ leaseId: task.leaseId }] });
      }
      await queue.stop();
    }),
    { numRuns: 300 },
  );
  expect(fold.mock.results.filter(({ value }) => value !== null).length).toBeGreaterThan(100);
  fold.mockRestore();
});

test('more kinds of selections than are kept up are served all the same', async () => {
  const queue = await TestQueue.start();
  const topics = Array.from({ length: 1_200 }, (_, nth) => `t${nth}/x`);
  for (let round = 0; round < 2; round++) {
    for (const topic of topics) await queue.enqueue(topic, { payload: round });
    for (const topic of topics) {
      const [task] = await queue.lease({ topics: [`${topic.slice(0, -1)}*`] });
      expect(task).toMatchObject({ topic, payload: round });
      await queue.settle({ ack: [{ leaseId: task!.leaseId }] });
    }
  }
  await queue.stop();
});
