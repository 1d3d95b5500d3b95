/**
 * A publisher and a worker: `npx tsx examples/publisher-and-worker.ts [URL]`, on a server or on a queue in this process.
 */

import { openQueue } from 'ebbmark';
import { Client, RetryAfterError, UnrecoverableError } from 'ebbmark/client';

const target = process.argv[2] ?? (await openQueue({ store: 'sqlite::memory:' }));
const client = new Client(target);

const worker = client.subscriber('mail/*', { leaseMs: 30_000 });
const working = worker.run(
  async (task) => {
    console.log(`${task.topic}: ${JSON.stringify(task.payload)}, attempt ${task.attempt}`);
    if (task.payload === 'nobody') throw new UnrecoverableError('no such user');
    if (task.payload === 'busy' && task.attempt === 1) throw new RetryAfterError(200);
    // Give task.signal to whatever takes long: it is aborted when the task is no longer ours.
    return { sentAt: Date.now() };
  },
  { concurrency: 10 },
);

const publisher = client.publisher();
const mails = await Promise.all([
  publisher.publish('mail/example.org', { to: 'ada' }, { priority: 9, metadata: { trace: '4711' } }),
  publisher.publish('mail/example.org', 'busy'),
  publisher.publish('mail/example.net', 'nobody'),
]);

for (const mail of mails) {
  const outcome = await mail.result({ timeoutMs: 10_000 }).then(
    () => 'sent',
    (error: Error) => error.message,
  );
  console.log(`${mail.topic}: ${outcome}`);
}

await client.drain();
await working;
if (typeof target !== 'string') await target.stop();
