import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { openSqliteStore, type SqliteOptions } from '../../src/store/sqlite/store.ts';
import type { Store } from '../../src/store/store.ts';

/** A directory that goes with the test. */
export function scratch(): string {
  const directory = mkdtempSync(join(tmpdir(), 'ebbmark-sqlite-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Opens a store that is closed when the test ends, if it isn't by then. */
export async function opened(path: string, options?: SqliteOptions): Promise<Store> {
  const store = await openSqliteStore(path, options);
  onTestFinished(() => store.close());
  return store;
}

/** What is in a directory: every file's name and the hash of its bytes. */
export function contents(directory: string): Readonly<Record<string, string>> {
  const hash = (name: string) =>
    createHash('sha256')
      .update(readFileSync(join(directory, name)))
      .digest('hex');
  return Object.fromEntries(
    readdirSync(directory)
      .sort()
      .map((name) => [name, hash(name)]),
  );
}
