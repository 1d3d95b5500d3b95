/**
 * Calls that are tasks: `npx tsx examples/request-and-reply.ts [URL]`, on a server or on a queue in this process.
 */

import { openQueue } from 'ebbmark';
import { Client, ResultTimeoutError } from 'ebbmark/client';

const target = process.argv[2] ?? (await openQueue({ store: 'sqlite::memory:' }));
const client = new Client(target);
const publisher = client.publisher();

const call = async (topic: string, payload: number[], timeoutMs = 10_000): Promise<unknown> => {
  const handle = await publisher.publish(topic, payload);
  return handle.result({ timeoutMs });
};

// Nobody serves it yet. A time-out ends the wait, not the task.
const early = await publisher.publish('sum', [1, 2, 3]);
await early.result({ timeoutMs: 50 }).catch((error: unknown) => {
  if (error instanceof ResultTimeoutError) console.log('nobody there yet');
});

void client.subscriber('sum').run((task) => (task.payload as number[]).reduce((sum, n) => sum + n, 0), {
  concurrency: 4,
});

console.log(`1 + 2 + 3 = ${await early.result({ timeoutMs: 10_000 })}`);
const sums = await Promise.all([call('sum', [4, 5]), call('sum', [6, 7]), call('sum', [8, 9])]);
console.log(`and ${sums.join(', ')}`);

await client.drain();
if (typeof target !== 'string') await target.stop();
