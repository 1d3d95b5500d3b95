/** Why a topic, or a task, is not being handed out. */
import { describe, expect, test } from 'vitest';
import type { Explanation, SettingsPatch } from '../../src/queue/api.ts';
import { ackAll, testQueue } from '../support/queue.ts';

const codes = ({ obstacles }: Explanation): readonly string[] => obstacles.map(({ code }) => code);

describe('a topic', () => {
  test('that nothing is in the way of', async () => {
    const { queue } = await testQueue();
    await queue.enqueue('t', { payload: 1 });
    expect(await queue.why('t')).toEqual({ topic: 't', task: null, servable: true, obstacles: [] });
  });

  test('that nobody has ever used', async () => {
    const { queue } = await testQueue();
    await expect(queue.why('t')).rejects.toMatchObject({ code: 'topic-not-found' });
  });

  test.each<readonly [code: string, patch: SettingsPatch, lasts: number | null]>([
    ['paused', { paused: true }, null],
    ['interval', { minIntervalMs: 5_000 }, 5_000],
    ['rate', { rate: { tasks: 1, perMs: 4_000, burst: 1 } }, 4_000],
  ])('whose gate is shut: %s', async (code, patch, lasts) => {
    const { queue, env } = await testQueue();
    await queue.configure('t', { ...patch, paused: false });
    await env.advance(10_000);
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2 }]);
    expect(await queue.lease()).toHaveLength(1);
    await queue.configure('t', patch);
    const why = await queue.why('t');
    expect(codes(why)).toEqual([code]);
    expect(why).toMatchObject({ servable: false, obstacles: [{ until: lasts === null ? null : env.now() + lasts }] });
    expect(await queue.lease()).toEqual([]);
    if (lasts === null) await queue.resume('t');
    else await env.advance(lasts);
    expect(await queue.why('t')).toMatchObject({ servable: true });
    expect(await queue.lease()).toHaveLength(1);
  });

  test('that cools down, or is blocked', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('t', { cooldownMs: 1_000, maxInFlight: 1 });
    await env.advance(2_000);
    await queue.enqueue('t', [{ payload: 1 }, { payload: 2 }]);
    await ackAll(queue, await queue.lease());
    expect(await queue.why('t')).toMatchObject({ obstacles: [{ code: 'cooldown', until: env.now() + 1_000 }] });
    await queue.configure('t', { blockedUntil: env.now() + 60_000 });
    expect(codes(await queue.why('t'))).toEqual(['blocked', 'cooldown']);
  });

  test('that has as many in flight as it may tells whose they are', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('t', { maxInFlight: 2 });
    await queue.enqueue(
      't',
      [1, 2, 3].map((payload) => ({ payload })),
    );
    const tasks = await queue.lease({ max: 3, worker: 'w-1', leaseMs: 20_000 });
    const [obstacle] = (await queue.why('t')).obstacles;
    expect(obstacle).toMatchObject({
      code: 'in-flight-limit',
      leases: tasks.map(({ id }) => ({ id, worker: 'w-1', until: env.now() + 20_000 })),
      remedy: expect.stringContaining('ebbmark set t maxInFlight=3'),
    });
  });

  test('in which nothing is ready tells what there is, and when the next is due', async () => {
    const { queue, env } = await testQueue();
    await queue.enqueue('t', [{ payload: 1, delayMs: 90_000 }, { payload: 2 }]);
    await queue.lease();
    expect(await queue.why('t')).toMatchObject({
      servable: false,
      obstacles: [
        {
          code: 'no-ready-task',
          detail: expect.stringContaining('1 delayed, 1 leased, 0 dead'),
          until: env.now() + 90_000,
        },
      ],
    });
  });
});

describe('a task', () => {
  test('that waits behind others', async () => {
    const { queue } = await testQueue();
    const [first, , low] = await queue.enqueue('t', [{ payload: 1 }, { payload: 2 }, { payload: 3, priority: 1 }]);
    expect(await queue.why('t', first!.id!)).toMatchObject({ servable: true, task: { id: first!.id, state: 'ready' } });
    const why = await queue.why('t', low!.id!);
    expect(why.obstacles).toMatchObject([{ code: 'behind-others', detail: expect.stringContaining('2 tasks') }]);
    await queue.pause('t');
    expect(codes(await queue.why('t', low!.id!))).toEqual(['paused', 'behind-others']);
  });

  test('that is leased, delayed, dead, or settled', async () => {
    const { queue, env } = await testQueue();
    await queue.configure('t', { maxAttempts: 1 });
    const { id } = await queue.enqueue('t', { payload: 1 });
    const [task] = await queue.lease({ worker: 'w', leaseMs: 5_000 });
    expect(await queue.why('t', id!)).toMatchObject({
      obstacles: [{ code: 'leased', until: env.now() + 5_000, leases: [{ id, worker: 'w' }] }],
    });
    await queue.settle({ nack: [{ leaseId: task!.leaseId, reason: 'broken' }] });
    expect(await queue.why('t', id!)).toMatchObject({
      obstacles: [{ code: 'dead', detail: expect.stringContaining('broken'), remedy: `ebbmark redrive t --id ${id}` }],
    });
    const later = await queue.enqueue('t', { payload: 2, delayMs: 7_000 });
    expect(await queue.why('t', later.id!)).toMatchObject({
      obstacles: [{ code: 'not-due', until: env.now() + 7_000 }],
    });
    await queue.cancel('t', later.id!, 'not needed');
    expect(await queue.why('t', later.id!)).toMatchObject({
      obstacles: [{ code: 'settled', detail: expect.stringContaining('cancelled (not needed)') }],
    });
    await expect(queue.why('t', 'nonsense')).rejects.toMatchObject({ code: 'task-not-found' });
  });
});
