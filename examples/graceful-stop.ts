/**
 * A worker that ends well on SIGTERM: `npx tsx examples/graceful-stop.ts [URL]`, on a server or on a queue in this
 * process. What is in hand is finished, what was not begun goes back at once, and no attempt is lost.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { openQueue } from 'ebbmark';
import { Client } from 'ebbmark/client';

/** After this long whoever started us ends us anyway (Kubernetes: terminationGracePeriodSeconds). */
const GRACE_MS = 20_000;

const target = process.argv[2] ?? (await openQueue({ store: 'sqlite::memory:' }));
const client = new Client(target);
const publisher = client.publisher();
const worker = client.subscriber('steps');

async function stop(): Promise<void> {
  console.log('stopping');
  // Whatever is not done by then comes back when its lease ends.
  const deadline = setTimeout(() => client.close(), GRACE_MS);
  try {
    // The worker first: its handlers may still publish, which a draining publisher would refuse.
    await worker.drain();
    await client.drain();
    console.log('stopped, with nothing in hand');
  } catch (error) {
    console.log(`stopped, and not well: ${(error as Error).message}`);
    process.exitCode = 1;
  } finally {
    clearTimeout(deadline);
    if (typeof target !== 'string') await target.stop();
  }
}
process.once('SIGTERM', stop);
process.once('SIGINT', stop);

await publisher.publish('steps', 1);
console.log('working; end it with SIGTERM');
await worker.run(async (task) => {
  console.log(`step ${task.payload} begins`);
  await sleep(300);
  await publisher.publish('steps', Number(task.payload) + 1);
  console.log(`step ${task.payload} done`);
});
