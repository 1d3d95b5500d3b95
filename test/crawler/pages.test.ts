import { beforeEach, describe, expect, it } from 'vitest';
import { type PageRow, type PageState, Pages } from '../../crawler-example/pages.ts';

let pages: Pages;
beforeEach(() => {
  pages = new Pages(':memory:');
});

const row = (url: string, state: PageState, canonical: string | null = null): PageRow => ({
  url,
  host: 'a.org',
  state,
  status: 200,
  reason: null,
  contentType: 'text/html',
  title: url,
  bytes: 10,
  hash: 'h',
  depth: 0,
  canonical,
  referrer: null,
  lastModified: null,
  fetchedAt: 1,
});

/** Records rows in order, and answers with the states they end in and the sum of what `record` answered. */
function end(...rows: readonly PageRow[]): { readonly states: Record<string, PageState>; readonly stored: number } {
  let stored = 0;
  for (const it of rows) stored += pages.record(it, null);
  const states = Object.fromEntries(rows.map(({ url }) => [url, pages.page(url)!.state]));
  expect(Object.values(states).filter((state) => state === 'stored')).toHaveLength(stored);
  return { states, stored };
}

describe('Pages', () => {
  it('overwrites a page that comes again, and counts it once', () => {
    expect(pages.record(row('a', 'stored'), null)).toBe(1);
    expect(pages.record({ ...row('a', 'stored'), title: 'new' }, null)).toBe(0);
    expect(pages.page('a')?.title).toBe('new');
    expect(pages.record(row('a', 'failed'), null)).toBe(-1);
    expect(pages.totals().states).toMatchObject({ stored: 0, failed: 1 });
  });

  it('logs each fetch', () => {
    const id = pages.beginFetch('a', 1);
    pages.record(row('a', 'stored'), id);
    expect(pages.beginFetch('a', 2)).toBeGreaterThan(id);
  });

  it('keeps an alias beside its canonical page, whichever comes first', () => {
    expect(end(row('a', 'alias', 'b'), row('b', 'stored')).states).toEqual({ a: 'alias', b: 'stored' });
    expect(end(row('d', 'stored'), row('c', 'alias', 'd')).states).toEqual({ c: 'alias', d: 'stored' });
  });

  it.each<[string, PageRow[], number]>([
    ['two that name each other', [row('a', 'alias', 'b'), row('b', 'alias', 'a')], 1],
    ['three in a circle', [row('a', 'alias', 'b'), row('b', 'alias', 'c'), row('c', 'alias', 'a')], 1],
    ['a canonical page that leads back', [row('a', 'alias', 'b'), row('b', 'redirect', 'a')], 1],
    ['a canonical page that is missing', [row('a', 'alias', 'b'), row('b', 'failed')], 1],
    ['the same, in the other order', [row('b', 'failed'), row('a', 'alias', 'b')], 1],
    ['two aliases of a missing one', [row('a', 'alias', 'b'), row('c', 'alias', 'b'), row('b', 'refused')], 1],
    [
      'a redirect on the way to a missing one',
      [row('a', 'alias', 'r'), row('r', 'redirect', 'x'), row('x', 'failed')],
      1,
    ],
    ['the same, the error first', [row('x', 'failed'), row('a', 'alias', 'r'), row('r', 'redirect', 'x')], 1],
    ['redirects in a circle', [row('a', 'redirect', 'b'), row('b', 'redirect', 'a')], 0],
    ['a redirect to a missing page', [row('a', 'redirect', 'b'), row('b', 'failed')], 0],
  ])('stores one of %s', (_, rows, stored) => {
    expect(end(...rows).stored).toBe(stored);
  });

  it('keeps robots.txt and hosts', () => {
    const robots = { origin: 'o', state: 'rules', body: 'b', fetchedAt: 1, expiresAt: 2, failures: 0 } as const;
    pages.putRobots(robots);
    pages.putRobots({ ...robots, body: 'c' });
    expect(pages.robots('o')?.body).toBe('c');
    pages.putHost({ host: 'h', delayMs: 1, settings: null, admitted: 1 });
    expect([...pages.hosts()]).toEqual([{ host: 'h', delayMs: 1, settings: null, admitted: 1 }]);
    expect(pages.host('x')).toBeUndefined();
  });
});
