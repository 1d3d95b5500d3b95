import { expect, onTestFinished, test } from 'vitest';
import { countFailures, countTrouble } from '../../bench/failures.ts';
import { ERRORS, Windows } from '../../bench/windows.ts';
import { type Backend, Client, QueueError } from '../../src/client/index.ts';
import { openQueue } from '../../src/index.ts';
import { tapped } from '../client/support/queue.ts';

/** A client, and what is counted of it; calls fail as the test says. */
async function start(failing: (queue: Backend) => Partial<Backend>) {
  const windows = new Windows(1, 60_000);
  windows.begin(Date.now());
  const queue = await openQueue({ store: 'sqlite::memory:' });
  onTestFinished(() => queue.stop());
  const client = new Client(countFailures(tapped(queue, failing(queue)), windows), { onError: countTrouble(windows) });
  onTestFinished(() => client.close());
  const counted = () => ERRORS.flatMap((kind) => Array.from({ length: windows.total.errors(kind) }, () => kind));
  return { client, counted };
}

/** Fails the first time. */
function once<A extends unknown[], R>(code: 'busy' | 'store-unavailable', call: (...args: A) => Promise<R>) {
  let isFirst = true;
  return async (...args: A): Promise<R> => {
    if (!isFirst) return call(...args);
    isFirst = false;
    throw new QueueError(code);
  };
}

test('calls that fail are counted, though the client makes them again and nobody else notices', async () => {
  const { client, counted } = await start((queue) => ({
    enqueue: once('busy', async (...args: Parameters<Backend['enqueue']>) => queue.enqueue(...args)),
    task: once('store-unavailable', (...args: Parameters<Backend['task']>) => queue.task(...args)),
    lease: once('busy', (...args: Parameters<Backend['lease']>) => queue.lease(...args)),
    settle: once('store-unavailable', (...args: Parameters<Backend['settle']>) => queue.settle(...args)),
  }));
  void client.subscriber('echo').run(({ payload }) => payload);
  const handle = await client.publisher().publish('echo', 1);
  expect(await handle.result()).toBe(1);
  expect(counted()).toEqual(['unavailable', 'broker_busy', 'pull_errors', 'completion_errors']);
});

test('a call that fails counts once, though the client tells of it, too', async () => {
  const { client, counted } = await start(() => ({ lease: () => Promise.reject(new QueueError('forbidden')) }));
  await expect(client.subscriber('echo').run(() => 1)).rejects.toThrow('forbidden');
  expect(counted()).toEqual(['pull_errors']);
});

test('a settlement that is refused counts, though the call was answered', async () => {
  const { client, counted } = await start(() => ({}));
  void client.subscriber('echo').run(() => 'x'.repeat(300_000));
  const handle = await client.publisher().publish('echo', 1);
  await expect(handle.result()).rejects.toThrow('dead');
  expect(counted()).toEqual(['completion_errors']);
});
