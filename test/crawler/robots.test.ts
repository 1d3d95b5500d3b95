import { afterEach, describe, expect, it } from 'vitest';
import type { Fetcher } from '../../crawler-example/fetch.ts';
import { Pages } from '../../crawler-example/pages.ts';
import { parseRobots, Robots } from '../../crawler-example/robots.ts';
import { newFetcher, send, serve, type Web } from './support/web.ts';

const TOKEN = 'ebbmark-crawler';
const allows = (text: string, path: string): boolean =>
  parseRobots('http://a.org', text, TOKEN).allows(`http://a.org${path}`);

describe('parseRobots', () => {
  it.each<[string, string, boolean]>([
    ['', '/x', true],
    ['User-agent: *\nDisallow: /', '/x', false],
    ['User-agent: *\nDisallow: /', '/robots.txt', true],
    ['User-agent: *\nDisallow:', '/x', true],
    ['User-agent: *\nDisallow: /x', '/xy', false],
    ['User-agent: *\nDisallow: /x', '/y/x', true],
    // The longest match wins, and at the same length allow does.
    ['User-agent: *\nDisallow: /x\nAllow: /x/y', '/x/y/z', true],
    ['User-agent: *\nAllow: /x\nDisallow: /x/y', '/x/y/z', false],
    ['User-agent: *\nDisallow: /x\nAllow: /x', '/x', true],
    ['User-agent: *\nDisallow: /*.pdf$', '/a/b.pdf', false],
    ['User-agent: *\nDisallow: /*.pdf$', '/a/b.pdf?x', true],
    ['User-agent: *\nDisallow: /a?b', '/a?b=1', false],
    // Our own group replaces the one for all.
    ['User-agent: *\nDisallow: /\n\nUser-agent: Ebbmark-Crawler\nDisallow: /x', '/y', true],
    ['User-agent: ebbmark-crawler/1.0 (x)\nDisallow: /', '/y', false],
    ['User-agent: otherbot\nDisallow: /', '/y', true],
    ['User-agent: a\nUser-agent: ebbmark-crawler\nUser-agent: b\nDisallow: /x', '/x', false],
    // Two groups of one name count together.
    ['User-agent: *\nDisallow: /x\n\nUser-agent: b\nDisallow: /\n\nUser-agent: *\nDisallow: /y', '/y', false],
    // Other records don't end a list of user agents.
    ['User-agent: *\nSitemap: http://a.org/s\nNoise: 1\nUser-agent: b\nDisallow: /x', '/x', false],
    ['\uFEFFUser-agent: *\r\nDisallow: /x # all of it\r\n', '/x', false],
    ['user-AGENT : *\rdisallow : /x', '/x', false],
    ['User-agent: *\nDisallow: /%7euser\nDisallow: /ä', '/~user/', false],
    ['User-agent: *\nDisallow: /ä', '/%C3%A4', false],
    ['User-agent: *\nDisallow: /a%2fb', '/a%2Fb', false],
    ['User-agent: *\nDisallow: /a%2fb', '/a/b', true],
    ['Disallow: /', '/x', true],
    ['<!doctype html><p>Disallow: /', '/x', true],
    ['User-agent: *\nDisallow: __proto__\nUser-agent: __proto__\nDisallow: /', '/x', true],
  ])('%j: %s: %s', (text, path, expected) => {
    expect(allows(text, path)).toBe(expected);
  });

  it('reads delay and sitemaps', () => {
    const rules = parseRobots(
      'http://a.org',
      'Sitemap: http://a.org/s.xml\nUser-agent: *\nCrawl-delay: 1.5\nsitemap: /t.xml',
      TOKEN,
    );
    expect(rules.crawlDelayMs).toBe(1_500);
    expect(rules.sitemaps).toEqual(['http://a.org/s.xml', '/t.xml']);
    const delay = (value: string): number | null =>
      parseRobots('http://a.org', `User-agent: *\nCrawl-delay: ${value}`, TOKEN).crawlDelayMs;
    expect([delay('0'), delay('-1'), delay('x'), delay('1e9')]).toEqual([null, null, null, 3_600_000]);
    expect(parseRobots('http://a.org', 'User-agent: b\nCrawl-delay: 9', TOKEN).crawlDelayMs).toBeNull();
  });

  it('keeps away where the rules are too costly to judge by', () => {
    expect(allows(`User-agent: *\n${'Disallow: /*a*b*c*d*e*f\n'.repeat(10_000)}`, '/x')).toBe(false);
  });
});

describe('Robots', () => {
  const open: { close(): unknown }[] = [];
  afterEach(async () => {
    for (const it of open.splice(0)) await it.close();
  });

  let now = Date.parse('2026-01-01');
  const HOUR = 3_600_000;
  const newRobots = (pages = new Pages(':memory:')) => {
    const fetcher: Fetcher = newFetcher({
      headersTimeoutMs: 300,
      resolve: [{ host: '*.test', address: '127.0.0.1' }],
    });
    open.push(fetcher);
    return new Robots(pages, fetcher, { token: TOKEN, retryMs: 1_000, tries: 3, now: () => now });
  };
  const web = async (...args: Parameters<typeof serve>): Promise<Web> => {
    const it = await serve(...args);
    open.unshift(it);
    return it;
  };
  const { signal } = new AbortController();

  it('is fetched once an origin and day, also for workers that ask at the same time, and over restarts', async () => {
    const { origin, asked } = await web((_, r) => send(r, { body: 'User-agent: *\nDisallow: /x' }));
    const pages = new Pages(':memory:');
    const robots = newRobots(pages);
    const answers = await Promise.all([1, 2, 3].map(() => robots.answer(`${origin}/x`, signal)));
    for (const it of answers) expect(it.kind === 'rules' && it.rules.allows(`${origin}/x`)).toBe(false);
    expect(await newRobots(pages).answer(`${origin}/y`, signal)).toMatchObject({ kind: 'rules', fetched: false });
    expect(asked).toHaveLength(1);
    now += 25 * HOUR;
    expect(await robots.answer(`${origin}/y`, signal)).toMatchObject({ kind: 'rules', fetched: true });
    expect(asked).toHaveLength(2);
  });

  it.each([401, 403, 404, 410])('%d means that all is allowed', async (status) => {
    const { origin } = await web((_, r) => send(r, { status, body: 'User-agent: *\nDisallow: /' }));
    const answer = await newRobots().answer(`${origin}/x`, signal);
    expect(answer.kind === 'rules' && answer.rules.allows(`${origin}/x`)).toBe(true);
  });

  it.each([500, 503, 429, 0])('%d means that nothing is allowed for now, then for a day', async (status) => {
    const { origin, asked } = await web((request, r) => {
      if (status === 0) request.socket.destroy();
      else send(r, { status });
    });
    const robots = newRobots();
    expect(await robots.answer(`${origin}/x`, signal)).toEqual({ kind: 'later', retryAt: now + 1_000 });
    expect(await robots.answer(`${origin}/x`, signal)).toEqual({ kind: 'later', retryAt: now + 1_000 });
    expect(asked).toHaveLength(1);
    now += 1_000;
    expect(await robots.answer(`${origin}/x`, signal)).toEqual({ kind: 'later', retryAt: now + 2_000 });
    now += 2_000;
    expect(await robots.answer(`${origin}/x`, signal)).toMatchObject({ kind: 'never' });
    now += 25 * HOUR;
    expect(await robots.answer(`${origin}/x`, signal)).toEqual({ kind: 'later', retryAt: now + 1_000 });
  });

  it('waits as long as it is asked to', async () => {
    const { origin } = await web((_, r) => send(r, { status: 503, headers: { 'retry-after': '90' } }));
    expect(await newRobots().answer(`${origin}/x`, signal)).toMatchObject({ kind: 'later' });
  });

  it('uses an old copy while a new one cannot be had', async () => {
    let status = 200;
    const { origin } = await web((_, r) => send(r, { status, body: 'User-agent: *\nDisallow: /x' }));
    const robots = newRobots();
    await robots.answer(`${origin}/x`, signal);
    status = 500;
    now += 25 * HOUR;
    const answer = await robots.answer(`${origin}/x`, signal);
    expect(answer.kind === 'rules' && [answer.rules.allows(`${origin}/x`), answer.rules.allows(`${origin}/y`)]).toEqual(
      [false, true],
    );
    now += 31 * 24 * HOUR;
    expect(await robots.answer(`${origin}/x`, signal)).toMatchObject({ kind: 'later' });
  });

  it('follows five redirects, to other hosts too, and takes a sixth for no file', async () => {
    let hops = 5;
    // Each hop on the other of two host names.
    const { port } = await web((request, r) => {
      const n = Number(/\d+/.exec(request.url ?? '')?.[0] ?? 0);
      const next = `http://${n % 2 === 0 ? 'b' : 'a'}.test:${port}/${n + 1}`;
      if (n < hops) send(r, { status: 301, headers: { location: next } });
      else send(r, { body: 'User-agent: *\nDisallow: /' });
    });
    const a = `http://a.test:${port}/x`;
    const five = await newRobots().answer(a, signal);
    expect(five.kind === 'rules' && five.rules.allows(a)).toBe(false);
    hops = 6;
    const six = await newRobots().answer(a, signal);
    expect(six.kind === 'rules' && six.rules.allows(a)).toBe(true);
  });

  it('reads the first 500 KiB', async () => {
    const body = `User-agent: *\nDisallow: /x\n${'#'.repeat(600 * 1024)}\nDisallow: /y`;
    const { origin } = await web((_, r) => send(r, { body }));
    const answer = await newRobots().answer(`${origin}/x`, signal);
    expect(answer.kind === 'rules' && [answer.rules.allows(`${origin}/x`), answer.rules.allows(`${origin}/y`)]).toEqual(
      [false, true],
    );
  });

  it('says never where the address is off limits', async () => {
    const fetcher = newFetcher({ allowPrivate: false });
    open.push(fetcher);
    const robots = new Robots(new Pages(':memory:'), fetcher, { token: TOKEN, retryMs: 1, tries: 3, now: () => now });
    expect(await robots.answer('http://127.0.0.1:1/x', signal)).toEqual({
      kind: 'never',
      reason: 'address refused: 127.0.0.1 is loopback',
    });
  });
});
