/**
 * The release before this version, out of the repository's history, to be run beside it: the newest tag `v…` before this
 * commit. Before the first release it is the last commit with the schema before this one.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, '../..');

/** Schema 1 on Cassandra and 2 on SQLite: before there were schedules. */
const BEFORE_THE_FIRST = '01f4a9acef4a8e73cd65f549556a91c183772b72';

export interface LastRelease {
  /** Its tag, or its commit. */
  readonly name: string;
  /** Where its files are. */
  readonly root: string;
  remove(): Promise<void>;
}

/** @returns why there is none, where the history does not reach back so far */
export async function lastRelease(): Promise<LastRelease | string> {
  const git = async (...args: readonly string[]) => (await run('git', args, { cwd: ROOT })).stdout.trim();
  const name = await git('describe', '--tags', '--abbrev=0', '--match', 'v*', 'HEAD^').catch(() => BEFORE_THE_FIRST);
  const isThere = await git('cat-file', '-e', `${name}^{commit}`).then(
    () => true,
    () => false,
  );
  if (!isThere) return `the history here does not reach back to ${name} (a shallow clone, or no clone at all)`;
  const root = await mkdtemp(join(tmpdir(), 'ebbmark-release-'));
  await run('sh', ['-c', `git archive "$1" src schema package.json tsconfig.json | tar -x -C "$2"`, 'sh', name, root], {
    cwd: ROOT,
  });
  // Its own packages would be older; what they are used for is the same.
  await symlink(join(ROOT, 'node_modules'), join(root, 'node_modules'));
  return { name, root, remove: () => rm(root, { recursive: true, force: true }) };
}
