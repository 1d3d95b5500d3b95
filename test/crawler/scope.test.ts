import { describe, expect, it } from 'vitest';
import { type FollowHosts, Scope } from '../../crawler-example/scope.ts';

const allowed = (follow: FollowHosts, url: string, depth = 1): boolean => {
  const scope = new Scope(follow, 3);
  scope.admit('https://docs.example.co.uk/');
  return scope.allows(url, depth);
};

describe('Scope', () => {
  it.each<[FollowHosts, string, boolean]>([
    ['same', 'https://docs.example.co.uk/x', true],
    ['same', 'http://docs.example.co.uk/x', true],
    ['same', 'https://docs.example.co.uk:8443/x', false],
    ['same', 'https://www.example.co.uk/', false],
    ['site', 'https://www.example.co.uk/', true],
    ['site', 'https://example.co.uk/', true],
    ['site', 'https://other.co.uk/', false],
    ['any', 'https://other.co.uk/', true],
    [['example.org'], 'https://example.org/', true],
    [['*.Example.org'], 'https://a.b.example.org:8080/', true],
    [['example.org'], 'https://notexample.org/', false],
    [['example.org'], 'https://docs.example.co.uk/', true],
  ])('%s: %s: %s', (follow, url, expected) => {
    expect(allowed(follow, url)).toBe(expected);
  });

  it('ends at the depth, and at traps', () => {
    expect(allowed('any', 'https://a.org/', 3)).toBe(true);
    expect(allowed('any', 'https://a.org/', 4)).toBe(false);
    expect(allowed('any', 'https://a.org/x/x/x/x/x')).toBe(false);
  });

  it('tells the users of a shared domain apart', () => {
    const scope = new Scope('site', 3);
    scope.admit('https://alice.github.io/');
    expect(scope.allows('https://bob.github.io/', 0)).toBe(false);
  });
});
