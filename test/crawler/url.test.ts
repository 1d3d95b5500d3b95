import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { hostOf, isTrap, normaliseUrl, originOf } from '../../crawler-example/url.ts';

describe('normaliseUrl', () => {
  const BASE = 'http://docs.example.org/a/b/page.html?x=1';
  it.each([
    ['HTTP://Docs.Example.ORG', 'http://docs.example.org/'],
    ['http://docs.example.org:80/', 'http://docs.example.org/'],
    ['https://docs.example.org:443/', 'https://docs.example.org/'],
    ['https://docs.example.org:80/', 'https://docs.example.org:80/'],
    ['http://docs.example.org./', 'http://docs.example.org/'],
    ['c.html', 'http://docs.example.org/a/b/c.html'],
    ['./c.html#part', 'http://docs.example.org/a/b/c.html'],
    ['../../../c.html', 'http://docs.example.org/c.html'],
    ['//other.org/x', 'http://other.org/x'],
    ['?y=2', 'http://docs.example.org/a/b/page.html?y=2'],
    ['#top', 'http://docs.example.org/a/b/page.html?x=1'],
    ['/a?', 'http://docs.example.org/a'],
    ['/a?&b=1&', 'http://docs.example.org/a?b=1'],
    ['/a?b=2&a=1', 'http://docs.example.org/a?b=2&a=1'],
    ['/%7euser/%2fx/%e4%C3%A4', 'http://docs.example.org/~user/%2Fx/%E4%C3%A4'],
    ['/ä b', 'http://docs.example.org/%C3%A4%20b'],
    ['/a//b', 'http://docs.example.org/a//b'],
    ['/a/%2e%2e/b', 'http://docs.example.org/b'],
    ['/a?utm_source=x&id=7&gclid=y', 'http://docs.example.org/a?id=7'],
    ['/a?utm_source=x', 'http://docs.example.org/a'],
    ['/shop;jsessionid=AB12?id=7', 'http://docs.example.org/shop?id=7'],
    ['http://bücher.example/', 'http://xn--bcher-kva.example/'],
    ['http://2130706433/', 'http://127.0.0.1/'],
    ['http://0177.0.0.1/', 'http://127.0.0.1/'],
    ['http://0x7f.1/', 'http://127.0.0.1/'],
    ['http://[::FFFF:127.0.0.1]:8080/', 'http://[::ffff:7f00:1]:8080/'],
    [' \n/c.html\t', 'http://docs.example.org/c.html'],
    ['/a\\b', 'http://docs.example.org/a/b'],
  ])('%s → %s', (raw, url) => {
    expect(normaliseUrl(raw, BASE)).toBe(url);
  });

  it.each([
    'mailto:a@example.org',
    'javascript:alert(1)',
    'data:text/html,x',
    'ftp://example.org/',
    'file:///etc/passwd',
    'http://user:secret@example.org/',
    'http://user@example.org/',
    'http://',
    'http://a..b/',
    'http://*.example.org/',
    'http://exa mple.org/',
    `http://${'a'.repeat(64)}.org/`,
    `http://${'a.'.repeat(120)}org/`,
    `/${'x'.repeat(2048)}`,
    `/${'x'.repeat(100_000)}`,
  ])('refuses %s', (raw) => {
    expect(normaliseUrl(raw, BASE)).toBeNull();
  });

  it('gives every spelling of an address one form, which is its own', () => {
    const urls = fc.oneof(
      fc.webUrl({ withQueryParameters: true, withFragments: true }),
      fc.string(),
      fc.string({ unit: 'binary' }),
    );
    fc.assert(
      fc.property(urls, (raw) => {
        const once = normaliseUrl(raw, BASE);
        if (once === null) return;
        expect(normaliseUrl(once)).toBe(once);
        expect(new URL(once).href).toBe(once);
        expect(Buffer.byteLength(once)).toBeLessThanOrEqual(2048);
      }),
      { numRuns: 2_000 },
    );
  });

  it('tells host and origin', () => {
    expect(hostOf('https://a.org/x')).toBe('a.org');
    expect(hostOf('http://a.org:8080/x')).toBe('a.org:8080');
    expect(originOf('https://a.org/x')).toBe('https://a.org');
  });
});

describe('isTrap', () => {
  it.each([
    ['http://a.org/', false],
    ['http://a.org/x/x/x', false],
    ['http://a.org/x/x/x/x', true],
    ['http://a.org/a/b/a/b/a/b/a/b/', true],
    ['http://a.org/a/b/a/b/a', false],
    ['http://a.org/a/b/c/a/b/c/a/b/c/a/b/c', true],
    [`http://a.org/${Array.from({ length: 31 }, (_, i) => i).join('/')}`, true],
    [`http://a.org/${Array.from({ length: 25 }, (_, i) => i).join('/')}`, false],
    ['http://a.org////////', false],
  ])('%s: %s', (url, trap) => {
    expect(isTrap(url)).toBe(trap);
  });
});
