/** The examples run as they stand; as users run them, with the package installed, in test/slow/package.test.ts. */
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');

test('a test of a handler', async () => {
  const args = ['--import', 'tsx', '--test', '--test-reporter=tap', 'examples/handler.test.ts'];
  const { stdout } = await run(process.execPath, args, { cwd: root, env: { PATH: process.env.PATH } });
  expect(stdout).toMatch(/^# pass 4\n# fail 0$/m);
});
