import { afterEach, describe, expect, it } from 'vitest';
import { type FrontierTask, toInput } from '../../crawler-example/frontier.ts';
import { HttpFrontier, ServerError } from '../../crawler-example/frontier-http.ts';
import { createServer } from '../../src/http/server.ts';
import type { ServerTls } from '../../src/http/tls.ts';
import { openQueue, type Queue, type TlsCredentials } from '../../src/index.ts';
import { makeAuthority } from '../support/authority.ts';
import { quickCrawl, readFound, tempDir } from './support/crawling.ts';
import { links, send, serve, site } from './support/web.ts';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const it of open.splice(0)) await it.close();
});

/** The real server on a queue in memory. */
async function queueServer(tls?: ServerTls): Promise<{ readonly url: string; readonly queue: Queue }> {
  const queue = await openQueue({ store: 'sqlite::memory:' });
  const server = await createServer(queue, { ...(tls && { tls }) });
  const url = await server.listen('127.0.0.1', 0);
  const close = async (): Promise<void> => {
    await server.stop();
    await queue.stop();
  };
  open.push({ close });
  return { url, queue };
}

function frontier(
  server: string,
  prefix = 'crawl/',
  patienceMs = 5_000,
  key: string | null = null,
  tls: TlsCredentials = {},
): HttpFrontier {
  const it = new HttpFrontier({ server, key, prefix, patienceMs, tls });
  open.unshift(it);
  return it;
}

const pageTask = (url: string): FrontierTask => ({
  kind: 'page',
  url,
  depth: 0,
  referrer: null,
  hops: 0,
  seed: true,
  lastModified: null,
});

function dataDir(): string {
  const it = tempDir();
  open.push(it);
  return it.dir;
}

describe('the frontier on a server', () => {
  it('is reached by TLS, with a certificate of its own where the server asks for one', async () => {
    const authority = await makeAuthority('tests');
    const own = await authority.issue('server');
    const { url, queue } = await queueServer({ ...own, clientCa: authority.ca });
    const tls = { ca: authority.ca, ...(await authority.issue('crawler')) };
    await frontier(url, 'crawl/', 5_000, null, tls).enqueue('a.org', [toInput(pageTask('http://a.org/'))]);
    expect((await queue.topic('crawl/a.org')).counts.ready).toBe(1);
    await expect(frontier(url, 'crawl/', 0, null, { ca: authority.ca }).counts()).rejects.toThrow(/other side closed/);
  });

  it('enqueues, leases, settles, configures, counts; by hosts of every kind', async () => {
    const { url, queue } = await queueServer();
    const it = frontier(url);
    const hosts = ['a.org', 'a.org:8080', '[::1]:80', 'x_y.test'];
    for (const host of hosts) {
      await it.configure(host, { dedupWindowMs: null, maxInFlight: 1 });
      const input = toInput(pageTask(`http://${host}/`));
      expect(await it.enqueue(host, [input])).toMatchObject([{ deduplicated: false }]);
      expect(await it.enqueue(host, [input])).toMatchObject([{ deduplicated: true }]);
    }
    // Another crawl's topics are none of ours.
    await queue.enqueue('other', { payload: 1 });
    expect(await it.counts()).toEqual({ ready: 4, delayed: 0, leased: 0, dead: 0, hosts: 4 });
    const leased = await it.lease({ max: 10, waitMs: 1_000, leaseMs: 5_000 });
    expect(leased.map(({ topic }) => topic).sort()).toEqual([...hosts].sort());
    expect(leased.map(({ payload }) => payload)).toContainEqual(pageTask('http://a.org/'));
    const [first, second, third, fourth] = leased.map(({ leaseId }) => ({ leaseId }));
    const answer = await it.settle({
      extend: [{ ...first!, leaseMs: 9_000 }],
      ack: [second!],
      nack: [{ ...third!, delayMs: 60_000, reason: 'later' }],
      release: [fourth!],
    });
    for (const item of [...answer.extend, ...answer.ack, ...answer.nack, ...answer.release]) expect(item.ok).toBe(true);
    expect(await it.counts()).toMatchObject({ ready: 1, delayed: 1, leased: 1 });
    expect(await it.lease({ max: 10, waitMs: 0 })).toHaveLength(1);
    expect(await it.lease({ max: 10, waitMs: 50 })).toEqual([]);
    expect((await it.settle({ ack: [second!, first!] })).ack.map(({ ok }) => ok)).toEqual([true, true]);
  });

  it('says what the server says', async () => {
    const it = frontier((await queueServer()).url);
    await expect(it.enqueue('a*b', [toInput(pageTask('http://a.org/'))])).rejects.toThrow(ServerError);
    await expect(it.configure('a.org', { cooldownMs: -1 })).rejects.toThrow(/invalid-input \(4\d\d\)/);
  });

  it('waits for a server that is away, up to its patience', async () => {
    let away = 2;
    const proxy = await serve((request, response) => {
      if (away-- > 0) request.socket.destroy();
      else send(response, { headers: { 'content-type': 'application/json' }, body: '{"topics": []}' });
    });
    open.unshift(proxy);
    expect(await frontier(proxy.origin).counts()).toMatchObject({ ready: 0 });
    expect(proxy.asked).toHaveLength(3);
    away = 1_000;
    await expect(frontier(proxy.origin, 'x/', 150).counts()).rejects.toThrow();
  });

  it('ends a wait when asked to', async () => {
    const abort = new AbortController();
    const waiting = frontier((await queueServer()).url).lease({ max: 1, waitMs: 30_000, signal: abort.signal });
    setImmediate(() => abort.abort());
    await expect(waiting).rejects.toThrow();
  });

  it('carries a crawl, and two at once', async () => {
    const { url } = await queueServer();
    const paths = Array.from({ length: 40 }, (_, i) => `/p${i}`);
    const web = await serve(
      site({ '/': links(...paths), ...Object.fromEntries(paths.map((path) => [path, links('/')])) }),
    );
    open.unshift(web);
    const common = { seeds: [web.origin], server: url, topicPrefix: 'docs/', concurrency: 4 };
    const dirs = [dataDir(), dataDir()] as const;
    const summaries = await Promise.all(dirs.map((dir) => quickCrawl({ ...common, dataDir: dir })));
    expect(summaries.map(({ reason }) => reason)).toEqual(['empty', 'empty']);
    const found = dirs.flatMap((dir) => readFound(dir).pages.map((page) => new URL(page.url).pathname));
    expect(found.sort()).toEqual(['/', ...paths].sort());
    for (const path of ['/', ...paths]) expect(web.count(path)).toBe(1);
  });
});
