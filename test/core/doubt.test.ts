import { describe, expect, test } from 'vitest';
import { appendLanding } from '../../src/core/doubt.ts';

/** What an append in doubt came to, by what stands where its entries were to go. */
describe('an append in doubt', () => {
  const ours = [
    { uid: 'a', hops: 1 },
    { uid: 'b', hops: 1 },
  ];
  const at = (id: number, uid: string, hops = 1) => ({ id, uid, hops });
  const header = (nextId: number) => ({ nextId, sealedAt: null });

  test('has landed where all of its entries stand', () => {
    expect(appendLanding(ours, 7, [at(7, 'a'), at(8, 'b')], null)).toBe('landed');
  });

  test('was refused where another one put the same task first, and something else behind it', () => {
    expect(appendLanding(ours, 7, [at(7, 'a'), at(8, 'c')], null)).toBe('refused');
    expect(appendLanding(ours, 7, [at(7, 'a')], header(8))).toBe('refused');
  });

  test('was refused where an earlier entry of the task stands', () => {
    expect(appendLanding(ours, 7, [at(7, 'a', 0), at(8, 'b')], null)).toBe('refused');
  });

  test('was refused where the segment ends before it', () => {
    expect(appendLanding(ours, 7, [], header(7))).toBe('refused');
  });

  test('is unclear where something stood there and was trimmed, or the header is gone', () => {
    expect(appendLanding(ours, 7, [at(8, 'b')], header(12))).toBe('unclear');
    expect(appendLanding(ours, 7, [], null)).toBe('unclear');
  });
});
