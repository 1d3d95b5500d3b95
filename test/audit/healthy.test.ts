/** A store that went through all there is, with processes that died in it, has nothing to find at any moment. */
import { describe, expect, test } from 'vitest';
import { ackAll } from '../support/queue.ts';
import { type Kind, type World, world } from './support/world.ts';

const KINDS: readonly Kind[] = ['memory', 'SQLite'];

const nothing = async (at: World): Promise<void> => expect((await at.audit()).rules).toEqual([]);

async function enqueueAll({ queue }: World): Promise<void> {
  await queue.configure('t', { maxAttempts: 2, backoffMs: 0, dedupWindowMs: 600_000, retentionMs: 300_000 });
  await queue.enqueue(
    't',
    Array.from({ length: 35 }, (_, nth) => ({ payload: nth, priority: nth % 3 })),
  );
  const named = Array.from({ length: 12 }, (_, nth) => ({
    payload: nth,
    messageId: `m${nth}`,
    priority: nth & 1 ? 0 : 2,
  }));
  await queue.enqueue('t', named);
  await queue.enqueue('t', named);
  await queue.enqueue('t', [
    { payload: 'later', delayMs: 2_000 },
    { payload: 'later and known', delayMs: 2_000, messageId: 'later' },
    { payload: 'short-lived', ttlMs: 3_000, priority: 0 },
    { payload: 'much later', delayMs: 3_600_000 },
  ]);
  await queue.enqueue('u', { payload: 'elsewhere' });
}

describe.each(KINDS)('on %s', (kind) => {
  test('a mix of work, looked at at every step', async () => {
    const at = await world(kind);
    await enqueueAll(at);
    await nothing(at);

    const tasks = await at.queue.lease({ topics: ['t'], max: 20 });
    await nothing(at);
    const [nacked, delayed, dead, released] = [tasks.slice(0, 3), tasks.slice(3, 5), tasks.slice(5, 8), tasks[8]!];
    await at.queue.settle({
      nack: [
        ...nacked.map(({ leaseId }) => ({ leaseId, delayMs: 0 })),
        ...delayed.map(({ leaseId }) => ({ leaseId, delayMs: 1_500 })),
        ...dead.map(({ leaseId }) => ({ leaseId, dead: true })),
      ],
      release: [{ leaseId: released.leaseId }],
    });
    await nothing(at);
    await ackAll(at.queue, tasks.slice(9, 15));
    await nothing(at);

    await at.queue.redrive('t', { limit: 2 });
    await at.queue.cancel('t', (await at.queue.taskByMessageId('t', 'm11')).id);
    await at.queue.enqueue('t', { payload: 'new', messageId: 'm10', onDuplicate: 'replace' });
    await nothing(at);

    await at.env.advance(5_000);
    await nothing(at);
    await at.crash();
    await nothing(at);

    // Leases of the one before run out, and their tasks come back.
    await at.env.advance(60_000);
    await nothing(at);
    for (let some = await at.queue.lease({ max: 100 }); some.length > 0; some = await at.queue.lease({ max: 100 })) {
      await ackAll(at.queue, some);
      await at.env.advance(1_000);
    }
    await at.queue.enqueue('t', { payload: 'again', messageId: 'm0', onDuplicate: 'again' });
    await nothing(at);
    const purged = at.queue.purge('t');
    await at.env.advance(1);
    await purged;
    await nothing(at);
    // Past the retention.
    for (let minutes = 0; minutes < 6; minutes += 2) {
      await at.env.advance(120_000);
      await nothing(at);
    }
    await at.crash();
    await nothing(at);
  });

  test('processes that die amid their work leave nothing that the next one would not find', async () => {
    const at = await world(kind);
    await at.queue.configure('t', { maxAttempts: 3, backoffMs: 0 });
    for (let round = 0; round < 30; round++) {
      const busy = [
        at.queue.enqueue('t', [
          { payload: round },
          { payload: round, messageId: `m${round % 4}`, onDuplicate: 'again' },
          { payload: round, delayMs: 300 * (round % 3) },
        ]),
        at.queue.lease({ max: 5, leaseMs: 1_000 }).then((tasks) =>
          at.queue.settle({
            ack: tasks.slice(0, 2).map(({ leaseId }) => ({ leaseId })),
            nack: tasks.slice(2).map(({ leaseId }, nth) => ({ leaseId, dead: nth === 1, delayMs: 400 * nth })),
          }),
        ),
        ...(round % 5 === 4 ? [at.queue.redrive('t')] : []),
      ];
      for (const call of busy) call.catch(() => {});
      // A little further each time before it dies.
      for (let turn = 0; turn < round; turn++) await new Promise<void>((resolve) => setImmediate(resolve));
      if (round % 2 === 1) {
        await at.crash();
        await nothing(at);
      } else {
        await Promise.all(busy);
        await nothing(at);
      }
      await at.env.advance(700);
      await nothing(at);
    }
  });
});
