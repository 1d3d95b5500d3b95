/** Several servers on one store: one hands out tasks, all take them in. */
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Queue } from '../../src/queue/api.ts';
import { startQueue } from '../../src/queue/open.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import type { Store } from '../../src/store/store.ts';
import { type ManualEnvironment, manualEnvironment } from '../support/manual-environment.ts';

interface Server {
  readonly queue: Queue;
  /** From now on the server's calls to the store are not answered. */
  pause(): void;
  /** They go through again, those that waited first. */
  resume(): void;
}

async function sharedStore(): Promise<{ readonly env: ManualEnvironment; server(): Promise<Server> }> {
  const env = manualEnvironment();
  const store = await openSqliteStore(':memory:', { now: env.now });
  onTestFinished(() => store.close());
  return {
    env,
    async server() {
      const { door, shared } = throughADoor(store);
      const queue = await startQueue(shared, { environment: env });
      onTestFinished(async () => {
        door.open();
        await queue.stop();
      });
      return { queue, pause: door.close, resume: door.open };
    },
  };
}

/** The store as one of several servers sees it, behind a door that can be shut. */
function throughADoor(store: Store) {
  let opened: Promise<void> | null = null;
  let open = (): void => {};
  const door = {
    close: () => {
      opened = new Promise((resolve) => {
        open = resolve;
      });
    },
    open: () => {
      opened = null;
      open();
    },
  };
  const shared = new Proxy(store, {
    get(target, name) {
      if (name === 'exclusive') return false;
      if (name === 'close') return async () => {};
      if (name === 'now') return () => target.now();
      const member = Reflect.get(target, name) as unknown;
      if (typeof member !== 'function') return member;
      return async (...args: unknown[]) => {
        while (opened !== null) await opened;
        return Reflect.apply(member, target, args) as unknown;
      };
    },
  });
  return { door, shared };
}

const leaseIds = (tasks: readonly { readonly leaseId: string }[]) => tasks.map(({ leaseId }) => ({ leaseId }));

describe('two servers', () => {
  test('the second enqueues and settles, and says that it is not the holder', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    await expect(second.queue.lease()).rejects.toMatchObject({ code: 'not-holder' });
    await second.queue.enqueue('t', [{ payload: 1 }, { payload: 2, messageId: 'm' }]);
    await env.advance(1_000);
    const tasks = await first.queue.lease({ max: 5 });
    expect(tasks.map((task) => task.payload)).toEqual([1, 2]);
    const settled = await second.queue.settle({ ack: leaseIds(tasks) });
    expect(settled.ack.map((item) => item.ok)).toEqual([true, true]);
    await env.advance(2_000);
    expect((await first.queue.topic('t')).counts).toEqual({ ready: 0, delayed: 0, leased: 0, dead: 0 });
    expect(await first.queue.enqueue('t', { payload: 3, messageId: 'm' })).toMatchObject({ deduplicated: true });
    expect((await second.queue.taskByMessageId('t', 'm')).state).toBe('done');
  });

  test('an enqueue at one wakes a long poll at the other within a second', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    const waiting = first.queue.lease({ waitMs: 20_000 });
    await env.advance(3_000);
    for (const nth of [1, 2]) {
      await second.queue.enqueue('t', { payload: nth });
      await env.advance(1_000);
      const tasks = nth === 1 ? await waiting : await first.queue.lease();
      expect(tasks.map((task) => task.payload)).toEqual([nth]);
    }
  });

  test('delayed tasks and retries from a server that does not schedule come up in time', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    await second.queue.enqueue('t', [{ payload: 1, delayMs: 5_000 }]);
    await env.advance(4_900);
    expect(await first.queue.lease()).toEqual([]);
    await env.advance(1_000);
    const [task] = await first.queue.lease();
    await second.queue.settle({ nack: [{ leaseId: task!.leaseId, delayMs: 2_000 }] });
    await env.advance(3_500);
    expect((await first.queue.lease())[0]).toMatchObject({ attempt: 2 });
  });

  test('takes over at once when the first stops', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    await first.queue.enqueue('t', [{ payload: 1 }, { payload: 2, delayMs: 10_000 }]);
    const [held] = await first.queue.lease({ leaseMs: 60_000 });
    await first.queue.stop();
    await env.advance(2_500);
    expect((await second.queue.topic('t')).counts).toEqual({ ready: 0, delayed: 1, leased: 1, dead: 0 });
    expect((await second.queue.settle({ ack: leaseIds([held!]) })).ack[0]!.ok).toBe(true);
    await env.advance(10_000);
    expect((await second.queue.lease()).map((task) => task.payload)).toEqual([2]);
  });

  test('takes over within fifteen seconds when the first dies; a stalled task follows its lease', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    await first.queue.enqueue('t', { payload: 1 });
    await first.queue.lease({ leaseMs: 5_000 });
    await env.advance(1_000);
    first.pause();
    await env.advance(15_000);
    expect((await second.queue.lease())[0]).toMatchObject({ payload: 1, attempt: 2 });
  });

  test('a holder that was paused past its lease can claim nothing when it wakes up', async () => {
    const { env, server } = await sharedStore();
    const first = await server();
    const second = await server();
    await first.queue.enqueue(
      't',
      Array.from({ length: 10 }, (_, nth) => ({ payload: nth })),
    );
    await first.queue.lease();
    first.pause();
    const late = first.queue.lease({ max: 5 }).then(
      (tasks) => tasks.length,
      (error: { code: string }) => error.code,
    );
    await env.advance(15_000);
    expect((await second.queue.lease({ max: 2 })).length).toBe(2);
    first.resume();
    await env.advance(3_000);
    expect(await late).toBe('not-holder');
    await expect(first.queue.lease()).rejects.toMatchObject({ code: 'not-holder' });
    expect((await second.queue.lease({ max: 20 })).length).toBe(7);
  });
});
