/** What the README shows is run as it stands; what it lists is compared with the tables it was taken from. */
import { execFile } from 'node:child_process';
import { access, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { COMMAND_SETTINGS, SERVER_SETTINGS, settingsTable } from '../../src/config.ts';
import { DEFAULT_SETTINGS } from '../../src/core/settings.ts';
import { startServer } from '../http/support/server.ts';

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');
const readme = await readFile(join(root, 'README.md'), 'utf8');

/** The code blocks of a language, in order. */
const blocks = (language: string): readonly string[] =>
  [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, 'gms'))].map((match) => match[1]!);

test('a first task in three calls', async () => {
  const server = await startServer();
  onTestFinished(() => server.close());
  const script = blocks('sh').find((block) => block.includes('curl'))!;
  expect(script.match(/curl -s/g)).toHaveLength(3);
  const { stdout } = await run('bash', [
    '-euo',
    'pipefail',
    '-c',
    script.replaceAll('http://127.0.0.1:8080', server.url),
  ]);
  expect(stdout).toContain('"payload":{"to":"ada@example.org"}');
  expect(stdout).toMatch(/"ack":\[\{"leaseId":"[^"]+","ok":true/);
});

test('the same in TypeScript', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-readme-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const program = blocks('ts')[0]!.replace("'ebbmark'", JSON.stringify(join(root, 'src/index.ts')));
  await writeFile(join(directory, 'program.mts'), program);
  const { stdout } = await run(join(root, 'node_modules/.bin/tsx'), ['program.mts'], { cwd: directory });
  expect(stdout).toContain("state: 'done'");
  expect(stdout).toContain('result: { sent: true }');
});

test('a client', async () => {
  const server = await startServer();
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-readme-'));
  onTestFinished(() => server.close());
  onTestFinished(() => rm(directory, { recursive: true }));
  const program = blocks('ts')[1]!
    .replace("'ebbmark/client'", JSON.stringify(join(root, 'src/client/index.ts')))
    .replace('http://127.0.0.1:8080', server.url);
  await writeFile(join(directory, 'program.mts'), program);
  const { stdout, stderr } = await run(join(root, 'node_modules/.bin/tsx'), ['program.mts'], { cwd: directory });
  expect(stdout).toBe('{ sent: true, abandoned: false }\n');
  expect(stderr).toBe('');
  expect(server.queue.status()).toMatchObject({ leased: 0, ready: 0 });
});

test('a test of one’s own', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-readme-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const source = join(root, 'src/testing/index.ts');
  const program = blocks('ts')[2]!.replace("'ebbmark/testing'", JSON.stringify(source));
  await writeFile(join(directory, 'mail.test.mts'), program);
  const args = ['--test', '--test-reporter=tap', 'mail.test.mts'];
  const { stdout } = await run(join(root, 'node_modules/.bin/tsx'), args, { cwd: directory });
  expect(stdout).toMatch(/^# pass 1\n# fail 0$/m);
});

test('the tables of settings are the program’s own', () => {
  expect(readme).toContain(settingsTable(SERVER_SETTINGS));
  expect(readme).toContain(settingsTable(COMMAND_SETTINGS));
});

test('what is linked to is there', async () => {
  const links = [...readme.matchAll(/\]\((?!https?:)([^)#]+)[^)]*\)/g)].map((match) => match[1]!);
  expect(links.length).toBeGreaterThan(5);
  for (const link of links) await expect(access(join(root, link)), link).resolves.toBeUndefined();
});

test('every topic setting is listed', () => {
  for (const name of Object.keys(DEFAULT_SETTINGS)) if (name !== 'purgedAt') expect(readme).toContain(`\`${name}\``);
});
