import cassandra from 'cassandra-driver';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bodyId } from '../../src/store/cassandra/rows.ts';
import { bigint, numberOf } from '../../src/store/cassandra/values.ts';

const { Long } = cassandra.types;

describe('numbers of 64 bits', () => {
  it('are encoded as CQL has them, and come back', () => {
    fc.assert(
      fc.property(fc.maxSafeInteger(), (value) => {
        expect(bigint(value).readBigInt64BE()).toBe(BigInt(value));
        expect(numberOf(Long.fromNumber(value))).toBe(value);
      }),
    );
    for (const value of [0, -1, 1, 2 ** 32, -(2 ** 32), Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]) {
      expect(bigint(value).readBigInt64BE()).toBe(BigInt(value));
    }
  });

  it.each([1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53])('are refused where they are not exact: %s', (value) => {
    expect(() => bigint(value)).toThrow(RangeError);
  });
});

it('a payload that stands apart is found from its entry, and the entry from it', () => {
  expect([0, 1, 9_999].map(bodyId)).toEqual([-2, -3, -10_001]);
  fc.assert(fc.property(fc.nat(), (id) => bodyId(bodyId(id)) === id && bodyId(id) < -1));
});
