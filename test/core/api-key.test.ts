import { randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { endOf, formatKey, isUsable, keyIdOf, mayUse, sparsest, within } from '../../src/core/api-key.ts';
import { apiKey } from '../conformance/keys.ts';

const ID = '4f0c1d2e3b5a';
const newKey = () => formatKey(ID, randomBytes(32).toString('hex'));

describe('the text of a key', () => {
  it('says its id, and ends with the CRC-32 of what goes before', () => {
    const key = newKey();
    expect(key).toMatch(/^ebb_4f0c1d2e3b5a_[0-9a-f]{72}$/);
    expect(keyIdOf(key)).toBe(ID);
    expect(key.slice(-8)).toBe(crc32(key.slice(0, -8)).toString(16).padStart(8, '0'));
  });

  it('is none with any one character changed, or missing, or more', () => {
    const key = newKey();
    for (let at = 0; at < key.length; at++) {
      const other = key[at] === '0' ? '1' : '0';
      expect(keyIdOf(key.slice(0, at) + other + key.slice(at + 1))).toBeNull();
      expect(keyIdOf(key.slice(0, at) + key.slice(at + 1))).toBeNull();
    }
    for (const text of ['', ID, `${key} `, `${key}\n`, key.toUpperCase(), `${key}0`]) expect(keyIdOf(text)).toBeNull();
  });
});

describe('when a key is good', () => {
  const [revokedAt, expiresAt] = [10, 20];
  it.each([
    [{ revokedAt: null, expiresAt: null }, [true, true, true], null],
    [{ revokedAt: null, expiresAt }, [true, true, false], 20],
    [{ revokedAt, expiresAt: null }, [false, false, false], 10],
    [{ revokedAt, expiresAt }, [false, false, false], 10],
    [{ revokedAt: 30, expiresAt }, [false, false, false], 20],
  ])('%j', (times, good, end) => {
    const key = apiKey(times);
    expect([9, 19, 20].map((now) => isUsable(key, now))).toEqual(good);
    expect(endOf(key)).toBe(end);
  });
});

describe('prefixes', () => {
  const text = fc.string({ unit: fc.constantFrom('a', 'b', '/'), maxLength: 4 });
  const prefixes = fc.array(
    text.filter((one) => one !== ''),
    { minLength: 1, maxLength: 6 },
  );

  it('mean the same without those that others cover', () => {
    fc.assert(
      fc.property(prefixes, text, (all, topic) => {
        const few = sparsest(all);
        expect(mayUse(few, topic)).toBe(mayUse(all, topic));
        for (const one of few) expect(few.filter((other) => one.startsWith(other))).toEqual([one]);
      }),
    );
  });

  it('meet what is asked for in exactly the topics that are in both', () => {
    fc.assert(
      fc.property(prefixes, text, text, (all, asked, topic) => {
        const few = sparsest(all);
        expect(mayUse(within(few, asked), topic)).toBe(mayUse(few, topic) && topic.startsWith(asked));
      }),
    );
  });
});
