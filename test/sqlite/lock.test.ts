import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { readAll } from '../conformance/harness.ts';
import { contents, opened, scratch } from './scratch.ts';

const APPENDER = fileURLToPath(new URL('appender.ts', import.meta.url));

function spawnAppender(path: string): ChildProcess {
  const child = spawn(process.execPath, ['--import', 'tsx', APPENDER, path], { stdio: ['ignore', 'pipe', 'pipe'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

/** Starts a process that has the store open and appends to it; `lines` are its acknowledgements. */
async function startAppender(
  path: string,
): Promise<{ child: ChildProcess; lines: string[]; line(): Promise<unknown> }> {
  const child = spawnAppender(path);
  child.stderr!.pipe(process.stderr);
  const reader = createInterface({ input: child.stdout! });
  const lines: string[] = [];
  reader.on('line', (line) => lines.push(line));
  const line = () => once(reader, 'line');
  await line();
  return { child, lines, line };
}

it('refuses a file that another process has open, and says what to do', async () => {
  const path = join(scratch(), 'store.db');
  await startAppender(path);
  const refused = openSqliteStore(path);
  await expect(refused).rejects.toMatchObject({ name: 'StoreInUseError' });
  await expect(refused).rejects.toThrow(`${path} is already open in another process`);
  await expect(refused).rejects.toThrow(/EBBMARK_URL/);
});

it('lets go of the file however the process ended, and keeps what was acknowledged', async () => {
  const path = join(scratch(), 'store.db');
  const { child, lines, line } = await startAppender(path);
  while (lines.length < 200) await line();
  child.kill('SIGKILL');
  await once(child, 'close');
  const store = await opened(path);
  const acknowledged = lines.slice(1).map((text) => text.split(' ').map(Number) as [number, number]);
  for (let tier = 0; tier < 5; tier++) {
    const ids = (await readAll(store, { topic: 'killed', tier })).map(({ id }) => id);
    expect(ids).toEqual(ids.map((_, i) => i));
    const last = Math.max(...acknowledged.filter(([of]) => of === tier).map(([, id]) => id));
    expect(ids.length).toBeGreaterThan(last);
  }
  await store.close();
  expect(readdirSync(join(path, '..'))).toEqual(['store.db']);
});

it('refuses a file that this process has open, under any name, and keeps the lock', async () => {
  const directory = scratch();
  const path = join(directory, 'store.db');
  const link = join(directory, 'link.db');
  const store = await opened(path);
  symlinkSync(path, link);
  for (const name of [path, link, join(directory, '.', 'store.db')]) {
    await expect(openSqliteStore(name)).rejects.toThrow('already open in this process');
  }
  const other = spawnAppender(path);
  const errors = await other.stderr!.setEncoding('utf8').toArray();
  expect(errors.join('')).toContain('already open in another process');
  await store.close();
  await (await opened(path)).close();
});

it('makes no directory: a path that leads nowhere is refused', async () => {
  const directory = scratch();
  await expect(openSqliteStore(join(directory, 'a', 'store.db'))).rejects.toMatchObject({
    name: 'StoreUnavailableError',
    message: `${join(directory, 'a')} is no directory that is there: make it first, or correct the path`,
  });
  expect(readdirSync(directory)).toEqual([]);
});

it('takes an empty file for a new store', async () => {
  const path = join(scratch(), 'store.db');
  closeSync(openSync(path, 'w'));
  await opened(path);
});

it('follows a symbolic link to the file', async () => {
  const directory = scratch();
  mkdirSync(join(directory, 'elsewhere'));
  const target = join(directory, 'elsewhere', 'store.db');
  await (await opened(target)).close();
  symlinkSync(target, join(directory, 'link.db'));
  const store = await opened(join(directory, 'link.db'));
  expect(readdirSync(join(directory, 'elsewhere'))).toContain('store.db');
  await store.close();
  expect(readdirSync(directory)).toEqual(['elsewhere', 'link.db']);
});

it.each([
  ['a directory', (directory: string) => directory],
  ['a file below a file', (directory: string) => join(directory, 'file', 'store.db')],
])('says that %s cannot be a store', async (_, name) => {
  const directory = scratch();
  writeFileSync(join(directory, 'file'), 'text');
  const before = contents(directory);
  await expect(openSqliteStore(name(directory))).rejects.toMatchObject({ name: 'StoreUnavailableError' });
  expect(contents(directory)).toEqual(before);
});

it('refuses meta that cannot be, and leaves no file that looks like a store', async () => {
  const path = join(scratch(), 'store.db');
  await expect(openSqliteStore(path, { meta: { segmentSize: 0 } })).rejects.toThrow(RangeError);
  const store = await opened(path, { meta: { segmentSize: 10 } });
  expect(store.meta.segmentSize).toBe(10);
});

it('keeps what a store was created with', async () => {
  const path = join(scratch(), 'store.db');
  const meta = { segmentSize: 10, shards: 4, messageBuckets: 3, slotMs: 1000 };
  await (await opened(path, { meta })).close();
  expect((await opened(path, { meta: { segmentSize: 99 } })).meta).toEqual(meta);
});
