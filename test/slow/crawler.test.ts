import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import type { PageRow } from '../../crawler-example/pages.ts';
import { quickCrawl, readFound, tempDir } from '../crawler/support/crawling.ts';
import { type Answer, links, send, serve, site, type Web } from '../crawler/support/web.ts';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const it of open.splice(0)) await it.close();
});

async function web(...args: Parameters<typeof serve>): Promise<Web> {
  const it = await serve(...args);
  open.unshift(it);
  return it;
}

function dataDir(): string {
  const it = tempDir();
  open.push(it);
  return it.dir;
}

/** `path state` of each page, with hosts shortened. */
const outline = (dir: string): readonly string[] =>
  readFound(dir).pages.map(({ url, state }) => `${new URL(url).pathname}${new URL(url).search} ${state}`);
const pageAt = (dir: string, path: string): PageRow =>
  readFound(dir).pages.find(({ url }) => new URL(url).pathname === path)!;

describe('a crawl', () => {
  it('stores each page once and ends when nothing is left', async () => {
    const { origin, count } = await web(
      site({
        '/': links('/a', '/a#again', 'b?utm_source=x', '/missing', 'http://elsewhere.invalid/', 'mailto:x@y'),
        '/a': links('/', '/b', '/c'),
        '/b': links('/a', '/pic.png'),
        '/c': links('/'),
        '/pic.png': { headers: { 'content-type': 'image/png' }, body: 'png' },
      }),
    );
    const dir = dataDir();
    const summary = await quickCrawl({ seeds: [origin], dataDir: dir });
    expect(summary).toMatchObject({ reason: 'empty', states: { stored: 5, failed: 1 } });
    expect(outline(dir)).toEqual([
      '/ stored',
      '/a stored',
      '/b stored',
      '/c stored',
      '/missing failed',
      '/pic.png stored',
    ]);
    expect(pageAt(dir, '/b')).toMatchObject({
      title: 't',
      status: 200,
      depth: 1,
      referrer: `${origin}/`,
      reason: null,
    });
    expect(pageAt(dir, '/c')).toMatchObject({ depth: 2, contentType: 'text/html' });
    expect(pageAt(dir, '/pic.png')).toMatchObject({ contentType: 'image/png', bytes: 3, title: null });
    expect(pageAt(dir, '/missing')).toMatchObject({ status: 404, reason: 'status 404' });
    for (const path of ['/', '/a', '/b', '/c', '/missing', '/robots.txt']) expect(count(path)).toBe(1);

    const again = await quickCrawl({ seeds: [origin], dataDir: dir });
    expect(again).toMatchObject({ reason: 'empty', states: { stored: 5 }, stats: { fetched: 0 } });
    expect(count('/robots.txt')).toBe(1);
  });

  it('does what robots.txt says, pause included', async () => {
    const { origin, asked } = await web(
      site({
        '/robots.txt': { body: 'User-agent: *\nDisallow: /no\nCrawl-delay: 0.3' },
        '/': links('/1', '/2', '/no', '/no/2'),
        '/1': links(),
        '/2': links(),
      }),
    );
    const dir = dataDir();
    await quickCrawl({ seeds: [origin], dataDir: dir });
    expect(outline(dir)).toEqual(['/ stored', '/1 stored', '/2 stored', '/no refused', '/no/2 refused']);
    expect(asked.map(({ path }) => path).sort()).toEqual(['/', '/1', '/2', '/robots.txt']);
    for (let i = 1; i < asked.length; i++) expect(asked[i]!.at - asked[i - 1]!.at).toBeGreaterThan(295);
  });

  it('keeps to one fetch at a time from a host where there is a pause', async () => {
    let running = 0;
    let most = 0;
    const { port } = await web((request, response) => {
      most = Math.max(most, ++running);
      response.on('close', () => running--);
      const answer =
        request.url === '/' ? links('/1', '/2', '/3') : request.url === '/robots.txt' ? { status: 404 } : links();
      setTimeout(() => send(response, answer), 30);
    });
    const seeds = [`http://a.test:${port}/`];
    await quickCrawl({ seeds, dataDir: dataDir(), delayMs: 20 });
    expect(most).toBe(1);
    most = 0;
    await quickCrawl({ seeds, dataDir: dataDir(), perHost: 2 });
    expect(most).toBe(2);
  });

  it('says so where no seed has a public address', async () => {
    const { origin, count } = await web(site({ '/': links('/a') }));
    const crawling = quickCrawl({ seeds: [origin, `${origin}/b`], dataDir: dataDir(), allowPrivate: false });
    await expect(crawling).rejects.toThrow(
      /^http:\/\/127\.0\.0\.1:\d+\/ is not public .*loopback; see --allow-private$/,
    );
    expect(count('/')).toBe(0);
  });

  it('waits while robots.txt cannot be read, then goes on', async () => {
    let tries = 0;
    const { origin } = await web(
      site({
        '/robots.txt': () => ({ status: ++tries < 3 ? 503 : 404 }),
        '/': links('/a'),
        '/a': links(),
      }),
    );
    const dir = dataDir();
    await quickCrawl({ seeds: [origin], dataDir: dir });
    expect(outline(dir)).toEqual(['/ stored', '/a stored']);
    expect(tries).toBe(3);
  });

  it('gives up on a host whose robots.txt stays out of reach', async () => {
    const { origin, count } = await web((request) => request.socket.destroy());
    const dir = dataDir();
    await quickCrawl({ seeds: [origin], dataDir: dir, attempts: 3, backoffMs: 20 });
    expect(pageAt(dir, '/')).toMatchObject({ state: 'refused', reason: 'robots.txt unreachable' });
    expect(count('/')).toBe(0);
  });

  it('finds sitemaps by robots.txt and by guess: indexes, gzip, priority, lastmod', async () => {
    const loc = (path: string, more = ''): string => `<url><loc>${path}</loc>${more}</url>`;
    const { origin } = await web(
      site({
        '/robots.txt': { body: 'Sitemap: /index.xml\nSitemap: /bomb.xml' },
        '/': links(),
        '/index.xml': { body: '<sitemapindex><sitemap><loc>/list.xml.gz</loc></sitemap></sitemapindex>' },
        '/list.xml.gz': {
          headers: { 'content-type': 'application/gzip' },
          body: gzipSync(
            `<urlset>${loc('/1', '<lastmod>2026-01-02</lastmod><priority>1.0</priority>')}${loc('http://else.test/')}</urlset>`,
          ),
        },
        '/bomb.xml': { body: '<!DOCTYPE x [<!ENTITY a "b">]><urlset><url><loc>/no</loc></url></urlset>' },
        '/sitemap.xml': { status: 301, headers: { location: '/moved.txt' } },
        '/moved.txt': () => ({ headers: { 'content-type': 'text/plain' }, body: `${origin}/2` }),
        '/1': links(),
        '/2': links(),
      }),
    );
    const dir = dataDir();
    await quickCrawl({ seeds: [origin], dataDir: dir, sitemaps: true });
    expect(outline(dir)).toEqual(['/ stored', '/1 stored', '/2 stored']);
    expect(pageAt(dir, '/1')).toMatchObject({
      lastModified: Date.parse('2026-01-02'),
      referrer: `${origin}/list.xml.gz`,
    });
  });

  it('follows redirects by tasks of their own, and ends loops', async () => {
    const moved = (location: string, status = 302): Answer => ({ status, headers: { location } });
    const { origin, port, count } = await web((request, response) => {
      const host = (request.headers.host ?? '').split(':')[0];
      const pages: Record<string, Answer> =
        host === 'b.test'
          ? { '/page': links() }
          : {
              '/': links('/old', '/loop1', '/self', '/other', '/out', '/away/0', '/nowhere', '/bad'),
              '/old': moved('/new#part', 301),
              '/new': links(),
              '/loop1': moved('/loop2'),
              '/loop2': moved('/loop1'),
              '/self': moved('/self?utm_source=x'),
              '/other': moved(`http://b.test:${port}/page`),
              '/out': moved('http://c.invalid/'),
              '/nowhere': { status: 302 },
              '/bad': moved('ftp://x/'),
            };
      const away = /^\/away\/(\d+)$/.exec(request.url ?? '')?.[1];
      send(response, away ? moved(`/away/${Number(away) + 1}`) : (pages[request.url ?? ''] ?? { status: 404 }));
    });
    const dir = dataDir();
    const seeds = [`http://a.test:${port}/`, `http://b.test:${port}/page`];
    await quickCrawl({ seeds, dataDir: dir, maxRedirects: 3 });
    expect(origin).toContain('127.0.0.1');
    const states = Object.fromEntries(readFound(dir).pages.map((page) => [new URL(page.url).pathname, page]));
    expect(states['/old']).toMatchObject({ state: 'redirect', status: 301, canonical: `http://a.test:${port}/new` });
    expect(states['/new']).toMatchObject({ state: 'stored', depth: 1, referrer: `http://a.test:${port}/old` });
    expect(states['/loop1']?.state).toBe('redirect');
    expect(states['/loop2']?.state).toBe('redirect');
    expect(states['/self']).toMatchObject({ state: 'failed', reason: 'redirects to itself' });
    expect(states['/other']?.state).toBe('redirect');
    expect(states['/page']?.state).toBe('stored');
    expect(states['/out']).toMatchObject({ state: 'redirect', canonical: 'http://c.invalid/' });
    expect(states['/away/3']).toMatchObject({ state: 'failed', reason: 'too many redirects' });
    expect(states['/nowhere']).toMatchObject({ state: 'failed', reason: 'status 302 to nowhere' });
    expect(states['/bad']?.state).toBe('failed');
    for (const path of ['/new', '/loop1', '/loop2', '/page']) expect(count(path)).toBe(1);
  });

  it('takes the host that a seed redirects to for the one that was meant', async () => {
    const { port } = await web((request, response) => {
      const www = request.headers.host?.startsWith('www.');
      if (!www) send(response, { status: 301, headers: { location: `http://www.a.test:${port}/` } });
      else send(response, request.url === '/' ? links('/x') : links());
    });
    const dir = dataDir();
    const summary = await quickCrawl({ seeds: [`http://a.test:${port}/`], dataDir: dir, maxPages: 1 });
    expect(summary.states.stored).toBe(1);
    // After a restart, too.
    await quickCrawl({ seeds: [`http://a.test:${port}/`], dataDir: dir });
    expect(outline(dir)).toEqual(['/ redirect', '/ stored', '/x stored']);
  });

  it('fetches the canonical page in place of its aliases', async () => {
    const canonical = (href: string, ...more: readonly string[]): Answer => ({
      body: `<link rel="canonical" href="${href}">${links(...more).body}`,
    });
    const { origin, count } = await web(
      site({
        '/': links('/shop?sort=1', '/shop?sort=2', '/ping', '/gone-canonical', '/file', '/ext'),
        '/shop?sort=1': canonical('/shop'),
        '/shop?sort=2': canonical('/shop', '/only-here'),
        '/shop': canonical('/shop'),
        '/only-here': links(),
        '/ping': canonical('/pong'),
        '/pong': canonical('/ping'),
        '/gone-canonical': canonical('/gone'),
        '/file': { headers: { 'content-type': 'application/pdf', link: '</file.html>; rel="canonical"' }, body: 'pdf' },
        '/file.html': links(),
        '/ext': canonical('http://elsewhere.invalid/'),
      }),
    );
    const dir = dataDir();
    const { states } = await quickCrawl({ seeds: [origin], dataDir: dir });
    const found = outline(dir);
    for (const line of [
      '/shop stored',
      '/shop?sort=1 alias',
      '/shop?sort=2 alias',
      '/only-here stored',
      '/gone failed',
      '/gone-canonical stored',
      '/file alias',
      '/file.html stored',
      '/ext stored',
    ]) {
      expect(found).toContain(line);
    }
    expect(found.filter((line) => /p[io]ng stored/.test(line))).toHaveLength(1);
    expect(count('/shop')).toBe(1);
    expect(states.stored).toBe(7);
  });

  it('honours nofollow and noindex, in elements and headers', async () => {
    const { origin, asked } = await web(
      site({
        '/': {
          body: '<a rel="nofollow" href="/no1"></a><a href="/quiet"></a><a href="/hidden"></a><a href="/tag"></a>',
        },
        '/quiet': { body: '<meta name="robots" content="nofollow"><a href="/no2"></a>' },
        '/hidden': { body: '<title>secret</title><meta name="robots" content="noindex"><a href="/through"></a>' },
        '/tag': { headers: { 'x-robots-tag': 'none' }, body: '<a href="/no3"></a>' },
        '/through': links(),
      }),
    );
    const dir = dataDir();
    await quickCrawl({ seeds: [origin], dataDir: dir });
    expect(outline(dir)).toEqual(['/ stored', '/hidden noindex', '/quiet stored', '/tag noindex', '/through stored']);
    expect(pageAt(dir, '/hidden').title).toBeNull();
    expect(asked.some(({ path }) => path.startsWith('/no'))).toBe(false);
  });

  it('leaves a host alone for as long as Retry-After says', async () => {
    let first = 0;
    const { origin, asked } = await web(
      site({
        '/': links('/busy', '/other'),
        '/busy': () => (first++ === 0 ? { status: 429, headers: { 'retry-after': '1' } } : links('/later')),
        '/other': links(),
        '/later': links(),
      }),
    );
    const dir = dataDir();
    await quickCrawl({ seeds: [origin], dataDir: dir, concurrency: 1 });
    expect(outline(dir)).toEqual(['/ stored', '/busy stored', '/later stored', '/other stored']);
    const busy = asked.findIndex(({ path }) => path === '/busy');
    expect(asked[busy + 1]!.at - asked[busy]!.at).toBeGreaterThan(950);
  });

  it('tries 5xx and broken connections again, and in the end gives up', async () => {
    const tries: Record<string, number> = {};
    const { origin } = await web((request, response) => {
      const path = request.url ?? '';
      tries[path] = (tries[path] ?? 0) + 1;
      if (path === '/') send(response, links('/shaky', '/down', '/cut'));
      else if (path === '/shaky') send(response, tries[path]! < 3 ? { status: 500 } : links());
      else if (path === '/down') send(response, { status: 502 });
      else if (path === '/cut') request.socket.destroy();
      else send(response, { status: 404 });
    });
    const dir = dataDir();
    const summary = await quickCrawl({ seeds: [origin], dataDir: dir, attempts: 3, backoffMs: 20 });
    expect(outline(dir)).toEqual(['/ stored', '/cut failed', '/down failed', '/shaky stored']);
    expect(pageAt(dir, '/down')).toMatchObject({ status: 502, reason: 'status 502' });
    expect(pageAt(dir, '/cut')).toMatchObject({ status: null, reason: 'UND_ERR_SOCKET' });
    expect(tries).toMatchObject({ '/shaky': 3, '/down': 3, '/cut': 3 });
    expect(summary.stats.retried).toBe(6);
  });

  it('refuses what is too large, and private addresses', async () => {
    const { origin, port, asked } = await web(site({ '/': links('/big'), '/big': { body: 'x'.repeat(100_000) } }));
    const dir = dataDir();
    await quickCrawl({ seeds: [origin], dataDir: dir, maxBytes: 10_000 });
    expect(pageAt(dir, '/big')).toMatchObject({ state: 'failed', status: 200, reason: 'larger than allowed' });

    const before = asked.length;
    const other = dataDir();
    const seeds = [
      origin,
      `http://2130706433:${port}/x`,
      `http://[::ffff:127.0.0.1]:${port}/`,
      `http://inner.test:${port}/`,
    ];
    const crawling = quickCrawl({ seeds, dataDir: other, allowPrivate: false });
    await expect(crawling).rejects.toThrow('is not public (nor are the other 3 seeds)');
    expect(readFound(other).pages.map(({ state }) => state)).toEqual(['refused', 'refused', 'refused', 'refused']);
    expect(asked.length).toBe(before);
  });

  it('tries a beginning that failed again, when it is started anew', async () => {
    let broken = true;
    const { origin } = await web((request, response) => {
      if (request.url === '/robots.txt') send(response, { status: 404 });
      else send(response, broken ? { status: 404 } : links('/x'));
    });
    const dir = dataDir();
    await expect(quickCrawl({ seeds: [origin], dataDir: dir, allowPrivate: false })).rejects.toThrow('--allow-private');
    expect(pageAt(dir, '/').state).toBe('refused');
    await quickCrawl({ seeds: [origin], dataDir: dir });
    expect(pageAt(dir, '/')).toMatchObject({ state: 'failed', status: 404 });
    broken = false;
    await quickCrawl({ seeds: [origin], dataDir: dir });
    expect(outline(dir)).toEqual(['/ stored', '/x stored']);
  });

  it('says which file it cannot read', async () => {
    const dir = dataDir();
    writeFileSync(join(dir, 'pages.db'), 'this is no database, but it is long enough to be looked at. '.repeat(20));
    await expect(quickCrawl({ seeds: ['http://a.test/'], dataDir: dir })).rejects.toThrow(
      /pages\.db: file is not a database/,
    );
  });

  it('stores exactly as many pages as asked for, over restarts too', async () => {
    // Endless: each page has ten more below it; some are missing, some redirect.
    const { origin, count } = await web((request, response) => {
      const path = request.url ?? '';
      if (path === '/robots.txt' || path.endsWith('3')) return send(response, { status: 404 });
      if (path.endsWith('7')) return send(response, { status: 302, headers: { location: `${path}0` } });
      send(
        response,
        links(...Array.from({ length: 10 }, (_, i) => `${path === '/' ? '' : path}/${i}-${i}`.replace(/\/\d-/, '/'))),
      );
    });
    const dir = dataDir();
    for (const maxPages of [1, 20, 50]) {
      const { reason, states } = await quickCrawl({ seeds: [origin], dataDir: dir, maxPages });
      expect(reason).toBe('max-pages');
      expect(states.stored).toBe(maxPages);
    }
    const { fetched } = (await quickCrawl({ seeds: [origin], dataDir: dir, maxPages: 50 })).stats;
    expect(fetched).toBe(0);
    expect(count('/')).toBe(1);
    for (const times of readFound(dir).fetches.values()) expect(times).toBe(1);
  });

  it('extends the lease of a slow fetch, so that nobody else begins it', async () => {
    const { origin, count } = await web((request, response) => {
      if (request.url === '/') setTimeout(() => send(response, links()), 2_500);
      else send(response, { status: 404 });
    });
    const dir = dataDir();
    const { stats } = await quickCrawl({ seeds: [origin], dataDir: dir, leaseMs: 600 });
    expect(count('/')).toBe(1);
    expect(stats.lost).toBe(0);
    expect(outline(dir)).toEqual(['/ stored']);
  });

  it('stops when asked to, and goes on later without loss or repetition', async () => {
    const all = Array.from({ length: 60 }, (_, i) => `/p${i}`);
    const stop = new AbortController();
    let served = 0;
    const { origin, count } = await web((request, response) => {
      if (++served === 20) stop.abort();
      if (request.url === '/robots.txt') return send(response, { status: 404 });
      send(response, request.url === '/' ? links(...all) : links());
    });
    const dir = dataDir();
    const first = await quickCrawl({ seeds: [origin], dataDir: dir, signal: stop.signal });
    expect(first.reason).toBe('stopped');
    expect(first.states.stored).toBeLessThan(61);
    const second = await quickCrawl({ seeds: [origin], dataDir: dir });
    expect(second).toMatchObject({ reason: 'empty', states: { stored: 61 } });
    for (const path of ['/', ...all]) expect(count(path)).toBe(1);
  });

  it('gives back what does not finish within the grace', async () => {
    const stop = new AbortController();
    let hang = true;
    const { origin } = await web((request, response) => {
      if (request.url === '/robots.txt') return send(response, { status: 404 });
      if (hang) stop.abort();
      else send(response, links());
    });
    const dir = dataDir();
    const begun = performance.now();
    const first = await quickCrawl({
      seeds: [origin],
      dataDir: dir,
      leaseMs: 60_000,
      signal: stop.signal,
      graceMs: 100,
    });
    expect(first).toMatchObject({ reason: 'stopped', states: { stored: 0 } });
    hang = false;
    await quickCrawl({ seeds: [origin], dataDir: dir, leaseMs: 60_000 });
    expect(outline(dir)).toEqual(['/ stored']);
    // Nobody waited for the lease of a minute.
    expect(performance.now() - begun).toBeLessThan(20_000);
  });

  it('reports its progress', async () => {
    const { origin } = await web(site({ '/': links('/a'), '/a': links() }));
    const lines: number[] = [];
    const dir = dataDir();
    await quickCrawl({
      seeds: [origin],
      dataDir: dir,
      progressMs: 20,
      onProgress: ({ stats }) => lines.push(stats.stored),
    });
    expect(lines.at(-1)).toBe(2);
  });

  it('names a seed that is none', async () => {
    await expect(quickCrawl({ seeds: ['ftp://a.org/'], dataDir: dataDir() })).rejects.toThrow(
      '"ftp://a.org/" is not an address to crawl; for example:',
    );
  });
});
