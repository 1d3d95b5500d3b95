import { defineConfig } from 'vitest/config';

// The fast project runs in under three minutes; `slow` holds what kills processes, crawls, or waits for real time.
export default defineConfig({
  test: {
    projects: [
      { test: { name: 'fast', include: ['test/**/*.test.ts'], exclude: ['test/slow/**'], testTimeout: 30_000 } },
      { test: { name: 'slow', include: ['test/slow/**/*.test.ts'], testTimeout: 600_000, hookTimeout: 300_000, fileParallelism: false } },
    ],
  },
});
