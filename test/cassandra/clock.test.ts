import { describe, expect, it } from 'vitest';
import { DatabaseClock } from '../../src/store/cassandra/clock.ts';

/** A clock of which the test sets what our monotonic clock shows and what the nodes answer. */
function clockOf() {
  const world = { ours: 1_000, nodes: [1_700_000_000_000], spreads: [] as number[] };
  const clock = new DatabaseClock(
    async () => world.nodes.map((theirs) => ({ theirs, ours: world.ours })),
    (spreadMs) => world.spreads.push(spreadMs),
    () => world.ours,
  );
  const pass = async (ms: number, jumpMs = 0) => {
    world.ours += ms;
    world.nodes = world.nodes.map((theirs) => theirs + ms + jumpMs);
    await clock.measure();
  };
  return { clock, world, pass };
}

describe("the database's clock", () => {
  it('is unsure until it was measured', async () => {
    const { clock } = clockOf();
    expect(clock.isSure).toBe(false);
    await clock.measure();
    expect(clock.isSure).toBe(true);
    expect(clock.now()).toBe(1_700_000_000_000);
  });

  it('goes on by the monotonic clock, and is stale without measurements for a minute', async () => {
    const { clock, world } = clockOf();
    await clock.measure();
    world.ours += 59_000;
    expect(clock.now()).toBe(1_700_000_059_000);
    expect(clock.isSure).toBe(true);
    world.ours += 2_000;
    expect(clock.isSure).toBe(false);
  });

  it('follows small corrections, and never goes back', async () => {
    const { clock, pass } = clockOf();
    await clock.measure();
    const before = clock.now();
    await pass(10, -500);
    expect(clock.now()).toBe(before);
    await pass(1_000);
    expect(clock.now()).toBe(before + 510);
  });

  it('believes a jump only after three measurements that agree', async () => {
    const { clock, pass } = clockOf();
    await clock.measure();
    await pass(1_000, 60_000);
    expect([clock.isSure, clock.now()]).toEqual([false, 1_700_000_001_000]);
    await pass(1_000);
    expect(clock.isSure).toBe(false);
    await pass(1_000);
    expect([clock.isSure, clock.now()]).toEqual([true, 1_700_000_063_000]);
  });

  it('forgets a jump that was none', async () => {
    const { clock, pass } = clockOf();
    await clock.measure();
    await pass(1_000, 60_000);
    await pass(1_000, -60_000);
    expect([clock.isSure, clock.now()]).toEqual([true, 1_700_000_002_000]);
  });

  it('goes by the node in the middle, and says when they differ', async () => {
    const { clock, world } = clockOf();
    world.nodes = [1_700_000_000_000, 1_700_000_000_100, 1_700_000_090_000];
    await clock.measure();
    expect(clock.now()).toBe(1_700_000_000_100);
    expect(world.spreads).toEqual([90_000]);
  });
});
