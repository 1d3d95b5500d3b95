/** Topics with the types of their payloads; what is wrong in types is checked by tsc. */
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { describe, expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import { Client, defineTopics } from '../../src/client/index.ts';
import { gate, onBoth, untilState } from './support/queue.ts';

const topics = defineTopics({
  'mail.welcome': z.object({ to: z.string().includes('@'), copies: z.number().int().default(1) }),
  'mail.bill': z.object({ cents: z.number().int() }),
  'crawl/*': z.object({ url: z.string() }),
  'crawl/slow/*': z.object({ url: z.string(), after: z.string().transform((text) => new Date(text)) }),
});

/** Nothing but what the standard asks for. */
const even: StandardSchemaV1<number, number> = {
  '~standard': {
    version: 1,
    vendor: 'test',
    validate: async (value) =>
      typeof value === 'number' && value % 2 === 0 ? { value } : { issues: [{ message: `${value} is not even` }] },
  },
};

onBoth('typed topics', (start) => {
  it('bring what was published to the worker, as its schema makes it', async () => {
    const { connect, queue } = await start();
    const client = connect({ topics });
    const publisher = client.publisher();
    const welcome = await publisher.publish('mail.welcome', { to: 'ada@example.org' });
    const slow = await publisher.publish('crawl/slow/example.org', { url: '/', after: '2026-01-01T00:00:00Z' });
    // As it was given, on the way.
    expect((await queue.task('mail.welcome', welcome.id)).payload).toEqual({ to: 'ada@example.org' });
    void client.subscriber('mail.welcome').run((task) => {
      expectTypeOf(task.payload).toEqualTypeOf<{ to: string; copies: number }>();
      expectTypeOf(task.topic).toEqualTypeOf<'mail.welcome'>();
      return task.payload;
    });
    void client.subscriber('crawl/slow/*').run((task) => task.payload.after.getTime());
    expect(await welcome.result()).toEqual({ to: 'ada@example.org', copies: 1 });
    expect(await slow.result()).toBe(Date.parse('2026-01-01'));
  });

  it('refuse before it is sent what does not fit, with each issue', async () => {
    const { connect, queue } = await start();
    const publisher = connect({ topics }).publisher();
    const refused = publisher.publish('mail.welcome', { to: 'nobody', copies: 1.5 });
    await expect(refused).rejects.toMatchObject({
      code: 'invalid-input',
      issues: [{ path: '/payload/to' }, { path: '/payload/copies' }],
    });
    await expect(refused).rejects.toThrow(
      /The payload does not fit mail.welcome: \/payload\/to: .*; \/payload\/copies: /,
    );
    // @ts-expect-error not the type of this topic
    await expect(publisher.publish('mail.bill', { to: 'ada@example.org' })).rejects.toThrow(/does not fit mail.bill/);
    // @ts-expect-error no such topic
    await expect(publisher.publish('mail.other', 1)).rejects.toThrow(
      /"mail.other" is not a topic that this client defines; for example: mail.welcome, mail.bill, crawl\/slow\/\*/,
    );
    expect(queue.status().enqueued).toBe(0);
  });

  it('send to the dead letters at the worker what does not fit, and the handler sees none of it', async () => {
    const { connect, queue } = await start();
    const client = connect({ topics });
    const misfit = await connect().publisher().publish('mail.bill', { cents: 'many' });
    const good = await client.publisher().publish('mail.bill', { cents: 7 });
    const seen = gate<unknown>();
    void client.subscriber('mail.bill').run((task) => seen.open(task.payload));
    expect(await seen.opened).toEqual({ cents: 7 });
    await good.result();
    expect(await untilState(queue, 'mail.bill', misfit.id, 'dead')).toMatchObject({
      attempt: 1,
      reason: expect.stringMatching(/^The payload does not fit mail.bill: \/payload\/cents: /),
    });
  });

  it('of several names are told apart by the topic', async () => {
    const { connect } = await start();
    const client = connect({ topics });
    const publisher = client.publisher();
    void client
      .subscriber(['mail.welcome', 'mail.bill'])
      .run((task) => (task.topic === 'mail.bill' ? task.payload.cents : task.payload.to));
    const bill = await publisher.publish('mail.bill', { cents: 3 });
    const welcome = await publisher.publish('mail.welcome', { to: 'a@b' });
    expect([await bill.result(), await welcome.result()]).toEqual([3, 'a@b']);
  });

  it('follow any library of the standard, also one that takes its time', async () => {
    const { connect } = await start();
    const publisher = connect({ topics: defineTopics({ even }) }).publisher();
    await publisher.publish('even', 2);
    await expect(publisher.publish('even', 3)).rejects.toThrow('/payload: 3 is not even');
  });

  it('whose schema fails itself fail the task, not for good', async () => {
    const { connect, queue } = await start();
    let looks = 0;
    const client = connect({
      topics: defineTopics({
        odd: {
          '~standard': {
            version: 1,
            vendor: 'test',
            validate: (value) => {
              if (looks++ === 0) throw new Error('the registry is away');
              return { value };
            },
          },
        } satisfies StandardSchemaV1,
      }),
    });
    await queue.configure('odd', { backoffMs: 0 });
    const handle = await connect().publisher().publish('odd', 1);
    void client.subscriber('odd').run((task) => `attempt ${task.attempt}`);
    expect(await handle.result()).toBe('attempt 2');
  });
});

describe('definitions', () => {
  it('refuse names that are none, and what is no schema', () => {
    expect(() => defineTopics({ 'a\tb': even })).toThrow(/is not free of control characters; for example/);
    // @ts-expect-error no schema
    expect(() => defineTopics({ mail: { to: 'string' } })).toThrow(
      /\/mail: {"to":"string"} is not a Standard Schema; for example: z\.object/,
    );
    // @ts-expect-error as above
    expect(() => new Client('http://127.0.0.1:1', { topics: { mail: null } })).toThrow(/is not a Standard Schema/);
  });

  it('are all that a subscriber may ask for', () => {
    const client = new Client('http://127.0.0.1:1', { topics });
    client.subscriber('crawl/example.org');
    client.subscriber(['crawl/*', 'crawl/slow/*', 'mail.bill']);
    // @ts-expect-error wider than any definition
    expect(() => client.subscriber('mail.*')).toThrow(/"mail.\*" is not a topic that this client defines/);
    // @ts-expect-error not defined
    expect(() => client.subscriber('male.bill')).toThrow(/"male.bill" is not a topic that this client defines/);
    client.close();
  });
});
