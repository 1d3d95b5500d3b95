/** The key that a client shows: given, of the environment, or of a file. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { HttpFrontier } from '../../crawler-example/frontier-http.ts';
import { Client, type ClientOptions, keyFromEnvironment, QueueError } from '../../src/client/index.ts';
import { openQueue } from '../../src/index.ts';
import { eventually, startServer } from '../http/support/server.ts';

async function startWithKeys() {
  const server = await startServer({ needsKeys: true });
  onTestFinished(() => server.close());
  const connect = (options: ClientOptions = {}): Client => {
    const client = new Client(server.url, { onError: () => {}, ...options });
    onTestFinished(() => client.close());
    return client;
  };
  const setEnv = (name: string, value: string): void => {
    vi.stubEnv(name, value);
    onTestFinished(() => void vi.unstubAllEnvs());
  };
  return { server, connect, setEnv };
}

it('a key that is given is shown by every call, and refused once it is revoked', async () => {
  const { server, connect } = await startWithKeys();
  const { id, key } = await server.newKey({ roles: ['produce', 'consume'], prefixes: ['mail/'] });
  const client = connect({ key: ` ${key}\n` });
  void client.subscriber('mail/*').run(async ({ payload }) => payload);
  const handle = await client.publisher().publish('mail/a', 1);
  expect(await handle.result({ timeoutMs: 10_000 })).toBe(1);
  await expect(client.publisher().publish('other', 1)).rejects.toMatchObject({ code: 'forbidden' });
  await server.queue.keys.revokeKey(id);
  await expect(client.publisher().publish('mail/a', 1)).rejects.toMatchObject({ code: 'unauthenticated' });
});

it('what a key may not publish is refused in as many calls as it took', async () => {
  const { server, connect } = await startWithKeys();
  const { key } = await server.newKey({ roles: ['produce'], prefixes: ['mail/'] });
  const publisher = connect({ key }).publisher();
  const all = await Promise.allSettled(Array.from({ length: 100 }, (_, n) => publisher.publish('other', n)));
  for (const one of all) expect(one).toMatchObject({ status: 'rejected', reason: { code: 'forbidden' } });
  const { text } = await server.call('GET', '/metrics', {
    headers: { authorization: `Bearer ${(await server.newKey()).key}` },
  });
  const calls = /request_duration_seconds_count\{[^}]*method="POST"[^}]*\} (\d+)/.exec(text);
  expect(Number(calls?.[1])).toBeLessThan(10);
});

it('a key of the environment, or of a file, is shown where none is given', async () => {
  const { server, connect, setEnv } = await startWithKeys();
  const { key } = await server.newKey();
  await expect(connect().publisher().publish('a', 1)).rejects.toMatchObject({ code: 'unauthenticated' });
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-key-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  await writeFile(join(directory, 'key'), `${key}\n`);
  setEnv('EBBMARK_KEY_FILE', join(directory, 'key'));
  await connect().publisher().publish('a', 1);
  vi.unstubAllEnvs();
  setEnv('EBBMARK_KEY', key);
  await connect().publisher().publish('a', 1);
  const other = await server.newKey({ prefixes: ['b'] });
  await expect(connect({ key: other.key }).publisher().publish('a', 1)).rejects.toMatchObject({ code: 'forbidden' });
});

it('what is no key is refused at once, and not told', async () => {
  const { server, connect, setEnv } = await startWithKeys();
  const { key } = await server.newKey();
  const wrong = key.slice(0, -1);
  const refused = expect.objectContaining({ code: 'invalid-input', message: expect.not.stringContaining(wrong) });
  const thrown = (call: () => unknown): unknown => {
    try {
      return call();
    } catch (error) {
      return error;
    }
  };
  expect(thrown(() => connect({ key: wrong }))).toEqual(refused);
  expect(thrown(() => connect({ key: 5 as never }))).toEqual(refused);
  setEnv('EBBMARK_KEY', wrong);
  expect(thrown(() => connect())).toEqual(refused);
  // A queue in this process needs none, and asks for none.
  const queue = await openQueue({ store: 'sqlite::memory:' });
  onTestFinished(() => queue.stop());
  new Client(queue).close();
  expect(keyFromEnvironment({})).toBeNull();
  expect(() => keyFromEnvironment({ EBBMARK_KEY: key, EBBMARK_KEY_FILE: '/x' })).toThrow(QueueError);
});

it('over its rate a client waits, and goes on', async () => {
  const { server, connect } = await startWithKeys();
  const { key } = await server.newKey({ rate: { perSecond: 20, burst: 1 } });
  const client = connect({ key });
  const publishers = [1, 2, 3, 4].map(() => client.publisher());
  await Promise.all(publishers.map((publisher, nth) => publisher.publish('a', nth)));
  await eventually(() => server.queue.status().ready === 4);
});

it('the crawler shows its key', async () => {
  const { server } = await startWithKeys();
  const { key } = await server.newKey({ prefixes: ['crawl/'] });
  const frontier = (shown: string | null): HttpFrontier => {
    const made = new HttpFrontier({ server: server.url, key: shown, prefix: 'crawl/', patienceMs: 0 });
    onTestFinished(() => made.close());
    return made;
  };
  await expect(frontier(null).counts()).rejects.toMatchObject({ code: 'unauthenticated' });
  await frontier(key).configure('a.example', { maxInFlight: 1 });
  await frontier(key).enqueue('a.example', [{ payload: 1 }]);
  expect(await frontier(key).lease({})).toMatchObject([{ topic: 'a.example' }]);
  expect(await frontier(key).counts()).toMatchObject({ leased: 1 });
});
