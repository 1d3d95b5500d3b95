/** The file of a queue that took in 200,000 tasks of a kilobyte, and was drained. */
import { statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { eventually } from '../http/support/server.ts';
import { ackAll, testQueue } from '../support/queue.ts';

const TASKS = 200_000;
const TOPICS = 20;
const MIB = 1024 * 1024;
/** A call waits for a step, or for the log to be copied: some 10 ms each, and many times that on a machine that is busy. */
const LONGEST_MS = 1_000;
const FREE_TURNS = 20;

it('shrinks to what it was, and no call waits for it', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-space-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const path = join(directory, 'queue.db');
  const bytes = () => statSync(path).size + (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0);
  const { queue, env } = await testQueue({ path });
  for (let n = 0; n < TOPICS; n++) await queue.configure(`t${n}`, { retentionMs: 300_000 });
  const before = bytes();
  const tasks = Array.from({ length: 1_000 }, () => ({ payload: 'x'.repeat(1_024) }));
  for (let n = 0; n < TASKS; n += tasks.length) await queue.enqueue(`t${(n / tasks.length) % TOPICS}`, tasks);
  for (let some = await queue.lease({ max: 1_000 }); some.length > 0; some = await queue.lease({ max: 1_000 }))
    await ackAll(queue, some);
  const peak = bytes();
  expect(peak).toBeGreaterThan(TASKS * 1_024);
  await env.advance(300_000);

  let [calls, longestMs] = [0, 0];
  const reclaimedAt = performance.now();
  let isOn = true;
  const measuring = (async () => {
    for (; isOn; calls++) {
      const at = performance.now();
      await queue.enqueue('measured', { payload: calls });
      longestMs = Math.max(longestMs, performance.now() - at);
      // As a queue has it that is not busy: some turns are free.
      for (let turn = 0; turn < FREE_TURNS; turn++) await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  await eventually(async () => {
    await env.advance(60_000);
    return statSync(path).size < 4 * MIB;
  });
  const tookMs = performance.now() - reclaimedAt;
  isOn = false;
  await measuring;
  // Behind it nothing is written, and the log goes as well.
  await eventually(async () => {
    await env.advance(60_000);
    return queue.status().space!.logBytes < MIB;
  });
  const mib = (size: number) => (size / MIB).toFixed(1);
  console.log(
    `${mib(before)} MiB before, ${mib(peak)} at the peak, ${mib(bytes())} after; trimmed and given back in ${(tookMs / 1_000).toFixed(1)} s; of ${calls} calls meanwhile the longest took ${longestMs.toFixed(0)} ms`,
  );
  expect(bytes()).toBeLessThan(4 * MIB);
  expect(longestMs).toBeLessThan(LONGEST_MS);
});
