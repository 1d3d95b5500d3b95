import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

// The fast project runs in under three minutes; `slow` holds what kills processes, crawls, or waits for real time.
// Slow files run one after the other and after all fast ones, so that their timing isn't disturbed. Forks, not
// threads: better-sqlite3 is native code, and a test that takes its process down should take no other along.
/** Several Cassandra nodes and servers at once, nodes that are killed and paused: `npm run test:cluster`. */
const CLUSTER = ['coordinator', 'faults', 'outage', 'queue'].map((name) => `test/slow/cassandra/${name}.test.ts`);

const BUILT = ['test/support/build.ts'];

export default defineConfig({
  test: {
    reporters: ['default', './test/reporter.ts'],
    projects: [
      {
        test: {
          name: 'fast',
          include: ['test/**/*.test.ts'],
          exclude: ['test/slow/**'],
          pool: 'forks',
          globalSetup: BUILT,
          // Vitest leaves one core to itself, which on two cores means no parallelism; most tests wait for the disk.
          maxWorkers: Math.max(2, availableParallelism() - 1),
          sequence: { groupOrder: 0 },
          testTimeout: 30_000,
        },
      },
      {
        test: {
          name: 'slow',
          include: ['test/slow/**/*.test.ts'],
          exclude: CLUSTER,
          pool: 'forks',
          globalSetup: BUILT,
          fileParallelism: false,
          sequence: { groupOrder: 1 },
          testTimeout: 600_000,
          hookTimeout: 300_000,
        },
      },
      {
        test: {
          name: 'cluster',
          include: CLUSTER,
          pool: 'forks',
          globalSetup: BUILT,
          fileParallelism: false,
          sequence: { groupOrder: 2 },
          testTimeout: 600_000,
          hookTimeout: 300_000,
        },
      },
    ],
  },
});
