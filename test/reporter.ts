/** Writes how many tests passed, failed and were skipped to the file named by EBBMARK_TEST_COUNTS, for .ci/run. */
import { writeFileSync } from 'node:fs';
import type { Reporter, TestModule } from 'vitest/node';

export default class CountReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const file = process.env.EBBMARK_TEST_COUNTS;
    if (file === undefined) return;
    // An error outside any test fails the run; it has to show in the counts too.
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      let failedTests = 0;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === 'passed') counts.passed++;
        else if (state === 'skipped') counts.skipped++;
        // `pending` after the run: it was begun and never ended.
        else failedTests++;
      }
      // A file that fails without a failing test: it can't be loaded, or a hook of it failed.
      counts.failed += failedTests === 0 && !module.ok() ? 1 : failedTests;
    }
    writeFileSync(file, `${counts.passed} ${counts.failed} ${counts.skipped}\n`);
  }
}
