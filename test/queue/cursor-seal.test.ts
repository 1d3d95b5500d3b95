/** What a cursor says is known to who closed it alone, and nobody else makes one. */
import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { CursorSeal } from '../../src/queue/cursor-seal.ts';

const newSeal = (): CursorSeal => new CursorSeal(randomBytes(16).toString('hex'));
const CURSORS = ['0-5-1', '2-0-123456789012345', ''];

describe('a cursor that is closed', () => {
  it('is opened by the secret that closed it, and by no other', () => {
    const seal = newSeal();
    for (const cursor of CURSORS) {
      expect(seal.open(seal.close(cursor))).toBe(cursor);
      expect(newSeal().open(seal.close(cursor))).toBeNull();
    }
    expect(seal.close('0-5-1')).toBe(seal.close('0-5-1'));
  });

  it('is none any more with a single bit of it changed, a byte less or more', () => {
    const seal = newSeal();
    const closed = Buffer.from(seal.close('2-0-77'), 'base64url');
    for (let bit = 0; bit < closed.length * 8; bit++) {
      const bent = Buffer.from(closed);
      bent[bit >> 3]! ^= 1 << (bit & 7);
      expect(seal.open(bent.toString('base64url'))).toBeNull();
    }
    for (const other of [closed.subarray(1), closed.subarray(0, -1), Buffer.concat([closed, closed])]) {
      expect(seal.open(other.toString('base64url'))).toBeNull();
    }
  });

  it('is not made by who does not have the secret', () => {
    for (const text of [...CURSORS, 'zzz', 'é']) expect(newSeal().open(text)).toBeNull();
  });
});
