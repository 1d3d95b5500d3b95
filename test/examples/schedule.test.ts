import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

test('a schedule', async () => {
  const { stdout, stderr } = await run(resolve(root, 'node_modules/.bin/tsx'), ['examples/schedule.ts'], { cwd: root });
  expect(stderr).toBe('');
  const times = [...stdout.matchAll(/^fired for (\S+): \{ check: 'disk' \}$/gm)].map(([, time]) => Date.parse(time!));
  expect(times.length).toBeGreaterThanOrEqual(3);
  expect(times).toEqual(times.map((_, nth) => times[0]! + nth * 1_000));
  expect(stdout).toContain(`its next times: ${new Date(times[0]!).toISOString()}, `);
  expect(stdout).toMatch(/^fired \d+ times, missed 0$/m);
});
