import { describe, expect, it } from 'vitest';
import { steadyClock, systemEnvironment } from '../../src/queue/environment.ts';

describe('a token', () => {
  it('is 128 bits in base64url, and no option of a command line', () => {
    const { token } = systemEnvironment();
    const tokens = Array.from({ length: 2_000 }, token);
    for (const one of tokens) expect(one).toMatch(/^\w[\w-]{21}$/);
    expect(new Set(tokens).size).toBe(2_000);
  });
});

describe('the steady clock', () => {
  const at = { wall: 1_000_000, monotonic: 0 };
  const clock = () => {
    Object.assign(at, { wall: 1_000_000, monotonic: 0 });
    return steadyClock(
      () => at.wall,
      () => at.monotonic,
    );
  };
  const pass = (ms: number): void => {
    at.wall += ms;
    at.monotonic += ms;
  };

  it('follows the machine’s clock', () => {
    const now = clock();
    expect(now()).toBe(1_000_000);
    pass(5_000);
    expect(now()).toBe(1_005_000);
  });

  it('never goes back', () => {
    const now = clock();
    now();
    at.wall -= 1_000;
    expect(now()).toBeGreaterThanOrEqual(1_000_000);
    pass(500);
    expect(now()).toBeGreaterThanOrEqual(1_000_000);
  });

  it('believes a jump only once it has lasted', () => {
    const now = clock();
    now();
    at.wall += 3_600_000;
    pass(1_000);
    expect(now()).toBeCloseTo(1_001_000, -2);
    at.wall -= 3_600_000;
    pass(1_000);
    expect(now()).toBeCloseTo(1_002_000, -2);
    at.wall += 3_600_000;
    pass(1);
    now();
    pass(11_000);
    now();
    expect(now()).toBe(at.wall);
  });
});
