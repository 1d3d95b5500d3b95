import { describe, expect, it } from 'vitest';
import {
  canonicalOfLink,
  parseMediaType,
  parseMetaRobots,
  parseRetryAfter,
  parseXRobotsTag,
} from '../../crawler-example/headers.ts';

describe('Retry-After', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');
  it.each<[string | undefined, number | null]>([
    [undefined, null],
    ['', null],
    ['0', 0],
    ['120', 120_000],
    [' 5 ', 5_000],
    ['999999999', 3_600_000],
    ['Thu, 01 Jan 2026 00:00:30 GMT', 30_000],
    ['Thursday, 01-Jan-26 00:00:30 GMT', 30_000],
    ['Wed, 31 Dec 2025 00:00:00 GMT', 0],
    ['-5', null],
    ['1.5', null],
    ['soon', null],
    ['2026-01-01', null],
  ])('%s → %s ms', (value, ms) => {
    expect(parseRetryAfter(value, now)).toBe(ms);
  });
});

describe('X-Robots-Tag and robots meta', () => {
  it.each([
    [['noindex'], true, false],
    [['nofollow, NOINDEX'], true, true],
    [['none'], true, true],
    [['all'], false, false],
    [['otherbot: noindex, nofollow'], false, false],
    [['ebbmark-crawler: nofollow'], false, true],
    [['otherbot: noindex', 'nofollow'], false, true],
    [['otherbot: noindex, ebbmark-crawler: nofollow'], false, true],
    [['unavailable_after: 25 Jun 2030 15:00:00 PST, noindex'], true, false],
    [[], false, false],
  ])('%j', (values, noindex, nofollow) => {
    expect(parseXRobotsTag(values, 'ebbmark-crawler')).toEqual({ noindex, nofollow });
  });

  it('reads the content of a meta element', () => {
    expect(parseMetaRobots(' NoIndex ,nofollow')).toEqual({ noindex: true, nofollow: true });
    expect(parseMetaRobots('index, follow')).toEqual({ noindex: false, nofollow: false });
  });
});

describe('Link', () => {
  it.each<[string[], string | null]>([
    [['<https://a.org/x>; rel="canonical"'], 'https://a.org/x'],
    [['<https://a.org/x>; rel=canonical'], 'https://a.org/x'],
    [['</n>; rel=next, </c>; title="a, b"; rel="up canonical"'], '/c'],
    [['</n>; rel=next', '</c>; REL=Canonical'], '/c'],
    [['</n>; rel="next"'], null],
    [['garbage'], null],
    [[], null],
  ])('%j → %s', (values, url) => {
    expect(canonicalOfLink(values)).toBe(url);
  });
});

it('reads media types', () => {
  expect(parseMediaType('Text/HTML; Charset="ISO-8859-1"')).toEqual({ type: 'text/html', charset: 'iso-8859-1' });
  expect(parseMediaType('text/html;x=y;charset=utf-8')).toEqual({ type: 'text/html', charset: 'utf-8' });
  expect(parseMediaType(undefined)).toEqual({ type: '', charset: null });
});
