/**
 * Topics with the types of their payloads: `npx tsx examples/typed-topics.ts [URL]`, on a server or on a queue in this
 * process. Here by Zod; any library that follows Standard Schema does.
 */

import { openQueue } from 'ebbmark';
import { Client, defineTopics, QueueError } from 'ebbmark/client';
import { z } from 'zod';

const topics = defineTopics({
  'mail.welcome': z.object({ to: z.email(), language: z.enum(['en', 'fr']).default('en') }),
  // One definition for all topics that begin so.
  'crawl/*': z.object({ path: z.string().startsWith('/') }),
});

const target = process.argv[2] ?? (await openQueue({ store: 'sqlite::memory:' }));
const client = new Client(target, { topics });
const publisher = client.publisher();

void client.subscriber('mail.welcome').run(({ payload }) => `${payload.language} to ${payload.to}`);
void client.subscriber('crawl/*').run(({ topic, payload }) => `${topic.slice('crawl/'.length)}${payload.path}`);

const mail = await publisher.publish('mail.welcome', { to: 'ada@example.org' });
const page = await publisher.publish('crawl/example.org', { path: '/about' });
console.log(await mail.result({ timeoutMs: 10_000 }));
console.log(await page.result({ timeoutMs: 10_000 }));

// The compiler refuses { to: 7 }; what only shows at run time is refused before it is sent.
try {
  await publisher.publish('mail.welcome', { to: 'nobody' });
} catch (error) {
  if (error instanceof QueueError) console.log(error.detail);
}

await client.drain();
if (typeof target !== 'string') await target.stop();
