import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { KeyRow } from '../../src/core/api-key.ts';
import type { KeysWrite } from '../../src/store/store.ts';
import { definite, range, type StoreUnderTest } from './harness.ts';

const APPLIED = { kind: 'applied' };
const CONFLICT = { kind: 'conflict' };

/** A key with every part set, but for what is changed. */
export const apiKey = (changed: Partial<KeyRow> = {}): KeyRow => ({
  id: randomBytes(6).toString('hex'),
  hash: randomBytes(32).toString('hex'),
  seal: randomBytes(16).toString('hex'),
  name: 'ma 🐌',
  description: 'of the "shop"',
  roles: ['produce', 'admin'],
  prefixes: ['a/', 'ü 🐌'],
  rate: { perSecond: 1_000_000, burst: 1 },
  createdAt: 1_700_000_000_000,
  expiresAt: 1_800_000_000_001,
  revokedAt: 1_750_000_000_002,
  ...changed,
});

const BARE = { description: null, prefixes: null, rate: null, expiresAt: null, revokedAt: null } as const;

/** All keys are one register: tests here go on from whatever version there is. */
export function keyConformance(store: StoreUnderTest): void {
  const write = async (put: KeyRow, drop: readonly string[] = []) => {
    const expect = await store().readKeysVersion();
    return definite(() => store().writeKeys({ expect, put, drop }));
  };
  const read = async (id: string) => (await store().readKeys(true)).keys.find((key) => key.id === id);

  describe('keys', () => {
    it.each([
      ['with every part', apiKey()],
      ['with no more than there must be', apiKey(BARE)],
    ])('are read as they were written: %s', async (_about, key) => {
      expect(await read(key.id)).toBeUndefined();
      expect(await write(key)).toEqual(APPLIED);
      expect(await read(key.id)).toEqual(key);
      expect((await store().readKeys()).keys).toContainEqual(key);
    });

    it('are written under the version of all of them alone, which each change raises by one', async () => {
      const [first, second] = [apiKey(), apiKey()];
      await write(first);
      const { version } = await store().readKeys(true);
      expect(await store().readKeysVersion()).toBe(version);
      for (const expected of [0, version - 1, version + 1]) {
        const late: KeysWrite = { expect: expected, put: second, drop: [first.id] };
        expect(await store().writeKeys(late)).toEqual(CONFLICT);
      }
      expect(await read(first.id)).toEqual(first);
      expect(await read(second.id)).toBeUndefined();
      expect(await write(second)).toEqual(APPLIED);
      expect(await store().readKeysVersion()).toBe(version + 1);
    });

    it('are changed, and forgotten together with a change', async () => {
      const keys = [apiKey(BARE), apiKey(), apiKey()];
      for (const key of keys) await write(key);
      const revoked = { ...keys[0]!, revokedAt: 5 };
      expect(await write(revoked, [keys[1]!.id, 'never there'])).toEqual(APPLIED);
      expect(await read(revoked.id)).toEqual(revoked);
      expect(await read(keys[1]!.id)).toBeUndefined();
      expect(await read(keys[2]!.id)).toEqual(keys[2]);
    });

    it('have one winner where several go on from the same version', async () => {
      const before = await store().readKeysVersion();
      const puts = range(0, 10).map((nth) => apiKey({ name: `racer ${nth}` }));
      const outcomes = await Promise.all(
        puts.map((put) => definite(() => store().writeKeys({ expect: before, put, drop: [] }))),
      );
      const { version, keys } = await store().readKeys(true);
      const written = puts.filter((put) => keys.some(({ id }) => id === put.id));
      expect(version).toBe(before + 1);
      expect(written).toHaveLength(1);
      const told = puts.filter((_, nth) => outcomes[nth]!.kind === 'applied');
      expect(told.filter((put) => put !== written[0])).toEqual([]);
    });
  });
}
