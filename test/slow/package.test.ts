/** The package as users get it: packed, installed into an empty project, and used in every way that a project may. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import manifest from '../../package.json' with { type: 'json' };

const run = promisify(execFile);
const root = resolve(import.meta.dirname, '../..');
const TSC = join(root, 'node_modules/typescript/bin/tsc');

/** As on a Node that can't `require` an ES module: it knows no condition `module-sync` either. */
const WITHOUT_REQUIRE_ESM = '--no-experimental-require-module';

let project: string;

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'ebbmark-package-'));
  const { stdout } = await run('npm', ['pack', '--silent', '--pack-destination', project], { cwd: root });
  const tarball = stdout.trim().split('\n').at(-1)!;
  await write('package.json', JSON.stringify({ name: 'project', version: '1.0.0', private: true }));
  // What has to be compiled was compiled for this machine already.
  const options = ['--prefer-offline', '--ignore-scripts', '--no-audit', '--no-fund'];
  await run('npm', ['install', `./${tarball}`, ...options], { cwd: project });
  await useCompiled('better-sqlite3');
});
afterAll(() => rm(project, { recursive: true, force: true }));

async function useCompiled(name: string): Promise<void> {
  const [ours, theirs] = [root, project].map((place) => join(place, 'node_modules', name));
  const versions = await Promise.all(
    [ours, theirs].map(async (place) => JSON.parse(await readFile(join(place!, 'package.json'), 'utf8')).version),
  );
  if (versions[0] === versions[1]) await cp(join(ours!, 'build'), join(theirs!, 'build'), { recursive: true });
  else await run('npm', ['rebuild', name], { cwd: project });
}

async function write(name: string, text: string): Promise<string> {
  const path = join(project, name);
  await mkdir(resolve(path, '..'), { recursive: true });
  await writeFile(path, text);
  return path;
}

async function node(...args: readonly string[]): Promise<string> {
  const { stdout } = await run(process.execPath, args, { cwd: project });
  return stdout;
}

/** What each of the programs does: with a file, and in memory, with an error that both entries know. */
const WORK = `
  const queue = await openQueue({ store: 'sqlite::memory:' });
  await queue.enqueue('t', { payload: 1 });
  const [task] = await queue.lease();
  await queue.stop();
  const test = await TestQueue.start();
  const isKnown = await test.advance(-1).catch((error) => error instanceof QueueError);
  const client = new Client(test);
  const working = client.subscriber('sums').run(({ payload }) => payload + 1);
  const handle = await client.publisher().publish('sums', 1);
  const result = await handle.result();
  await client.drain();
  console.log(task?.payload, isKnown, result);`;
const ESM = `
  import { openQueue, QueueError } from 'ebbmark';
  import { Client } from 'ebbmark/client';
  import { TestQueue } from 'ebbmark/testing';
  ${WORK}`;
const CJS = `
  const { openQueue, QueueError } = require('ebbmark');
  const { Client } = require('ebbmark/client');
  const { TestQueue } = require('ebbmark/testing');
  async function main() { ${WORK} }
  main();`;

describe.each([
  ['a Node that can require ES modules', [], 'dist/'],
  ['one that cannot', [WITHOUT_REQUIRE_ESM], 'dist/cjs/'],
])('%s', (_, flags, place) => {
  test('imports it', async () => {
    expect(await node(...flags, await write('program.mjs', ESM))).toBe('1 true 2\n');
  });

  test('requires it', async () => {
    expect(await node(...flags, await write('program.cjs', CJS))).toBe('1 true 2\n');
  });

  test('has one copy of it, however often and in whichever way it is loaded', async () => {
    const program = await write(
      'both.mjs',
      `import { createRequire } from 'node:module';
       import * as imported from 'ebbmark';
       import * as client from 'ebbmark/client';
       import * as testing from 'ebbmark/testing';
       const require = createRequire(import.meta.url);
       const same = (name, of) => Object.entries(require(name)).every(([key, value]) => of[key] === value);
       const all = { ebbmark: imported, 'ebbmark/client': client, 'ebbmark/testing': testing };
       console.log(Object.keys(imported).includes('openQueue'), Object.entries(all).every(([name, of]) => same(name, of)));
       console.log(require.resolve('ebbmark'));
       console.log(require.resolve('ebbmark/client'));
       console.log(require.resolve('ebbmark/testing'));`,
    );
    const installed = join(project, 'node_modules/ebbmark', place);
    const paths = ['index.js', 'client/index.js', 'testing/index.js'].map((path) => join(installed, path));
    expect(await node(...flags, program)).toBe(`true true\n${paths.join('\n')}\n`);
  });
});

describe('TypeScript', () => {
  const TYPED = `
    import { openQueue, type Queue, QueueError, type TaskInfo } from 'ebbmark';
    import { Client, type TaskHandle } from 'ebbmark/client';
    import { type DrainReport, TestQueue } from 'ebbmark/testing';
    async function main(): Promise<void> {
      const queue: Queue = await openQueue({ store: 'sqlite::memory:' });
      await queue.enqueue('t', { payload: { to: 'ada' }, delayMs: 0 });
      // @ts-expect-error a task needs a payload
      await queue.enqueue('t', { priority: 1 }).catch((error: unknown) => console.log(error instanceof QueueError));
      await queue.stop();
      const test: TestQueue = await TestQueue.start({ now: new Date() });
      await test.enqueue('t', { payload: 1, messageId: 'one' });
      const report: DrainReport = await test.drain(async (task) => task.attempt);
      const task: TaskInfo = await test.waitFor({ topic: 't', messageId: 'one', state: 'done' });
      const answer: string = await test.waitFor(() => 'text');
      const client = new Client(test);
      const handle: TaskHandle = await client.publisher().publish('t', { to: 'bob' });
      await client.drain();
      console.log(handle.id.length > 20);
      console.log(report.succeeded, task.result, answer);
    }
    void main();`;

  test.each([
    ['node16', 'node16', 'program.mts', 'program.mjs'],
    ['node16', 'node16', 'program.cts', 'program.cjs'],
    ['nodenext', 'nodenext', 'program.mts', 'program.mjs'],
    ['nodenext', 'nodenext', 'program.cts', 'program.cjs'],
    ['preserve', 'bundler', 'program.mts', 'program.mjs'],
  ])('module %s, resolution %s: %s', async (module, moduleResolution, source, made) => {
    const folder = `${module}-${source.at(-3)}`;
    const path = await write(join(folder, source), TYPED);
    const compilerOptions = {
      ...{ module, moduleResolution, target: 'es2022', strict: true, exactOptionalPropertyTypes: true },
      // Ours have to be right as they are, without what we need ourselves.
      ...{ skipLibCheck: false, types: ['node'], typeRoots: [join(root, 'node_modules/@types')] },
    };
    await write(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: [source] }));
    const checked = await run(process.execPath, [TSC, '-p', resolve(path, '..')]).catch((error) => error);
    expect(checked.stdout).toBe('');
    expect(await node(join(folder, made))).toBe('true\ntrue\n1 1 text\n');
  });

  test('the example of a test runs as it stands', async () => {
    await cp(join(root, 'examples/handler.test.ts'), join(project, 'example/handler.test.mts'));
    const compilerOptions = {
      ...{ module: 'nodenext', target: 'es2022', strict: true },
      ...{ types: ['node'], typeRoots: [join(root, 'node_modules/@types')] },
    };
    await write('example/tsconfig.json', JSON.stringify({ compilerOptions, files: ['handler.test.mts'] }));
    await run(process.execPath, [TSC, '-p', join(project, 'example')]);
    expect(await node('--test', '--test-reporter=tap', 'example/handler.test.mjs')).toMatch(/^# pass 4\n# fail 0$/m);
  });
});

test('its command serves, and speaks to a server', async () => {
  const command = join(project, 'node_modules/.bin/ebbmark');
  expect((await run(command, ['--version'])).stdout).toBe(`${manifest.version}\n`);
  const server = spawn(command, ['serve', '--listen', '127.0.0.1:0', '--store', 'sqlite::memory:'], { cwd: project });
  onTestFinished(() => void server.kill('SIGKILL'));
  const ended = once(server, 'exit');
  let url = '';
  for await (const line of createInterface(server.stdout)) {
    ({ url } = JSON.parse(line));
    if (url !== undefined) break;
  }
  await run(command, ['enqueue', 't', '{"to": "ada"}', '--url', url]);
  expect((await run(command, ['lease', 't', '--json', '--url', url])).stdout).toContain('"to": "ada"');
  server.kill('SIGTERM');
  expect(await ended).toEqual([0, null]);
});

describe('an old Node', () => {
  const tooOld = (version: string): string | null =>
    createRequire(join(project, 'program.cjs'))('./node_modules/ebbmark/dist/node-version.cjs').tooOld(version);
  const said = (version: string) =>
    `ebbmark ${manifest.version} needs Node.js 20.19 or newer, and this is Node.js ${version}: ` +
    'install a newer one from https://nodejs.org, or switch to one, for example by: nvm install 22';

  test.each(['v4.9.1', 'v16.20.2', 'v18.20.8', 'v20.18.3'])('%s is too old', (version) => {
    expect(tooOld(version)).toBe(said(version.slice(1)));
  });

  test.each(['v20.19.0', 'v20.20.2', 'v21.7.3', 'v22.0.0', 'v24.1.0', 'v26.0.0-pre'])('%s is not', (version) => {
    expect(tooOld(version)).toBeNull();
  });

  const pretending = async () => [
    WITHOUT_REQUIRE_ESM,
    '--require',
    await write('old.cjs', `Object.defineProperty(process, 'version', { value: 'v18.20.8' });`),
  ];

  test('the command says so in one sentence, and ends with 1', async () => {
    const bin = join(project, 'node_modules/ebbmark/dist/bin.cjs');
    const failed = await run(process.execPath, [...(await pretending()), bin, 'serve']).catch((error) => error);
    expect(failed).toMatchObject({ code: 1, stdout: '', stderr: `${said('18.20.8')}\n` });
  });

  test.each(['ebbmark', 'ebbmark/client', 'ebbmark/testing'])(
    'so do %s, required and imported, before anything else',
    async (name) => {
      const programs = [
        await write('late.cjs', `require('${name}');`),
        await write('late.mjs', `import * as all from '${name}'; console.log(all);`),
        await write(
          'named.mjs',
          `import { ${{ ebbmark: 'openQueue', 'ebbmark/client': 'Client' }[name] ?? 'TestQueue'} } from '${name}';`,
        ),
      ];
      for (const program of programs) {
        const failed = await run(process.execPath, [...(await pretending()), program]).catch((error) => error);
        expect(failed.code).toBe(1);
        expect(failed.stderr).toContain(`\nError: ${said('18.20.8')}\n`);
      }
    },
  );
});
