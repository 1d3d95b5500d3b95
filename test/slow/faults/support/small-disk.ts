/**
 * A disk that becomes full, and gets more space later: a small tmpfs where this may be mounted (by root, on Linux), else
 * a limit on the size of the files that one process may write (prlimit).
 */
import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

export interface SmallDisk {
  readonly kind: 'tmpfs' | 'file size limit';
  /** Applies to a process that writes there; before it writes much. */
  limit(pid: number): Promise<void>;
  /** Makes room. */
  grow(pid: number): Promise<void>;
  remove(): Promise<void>;
}

const mib = (count: number): number => count * 1024 * 1024;

/** Makes the directory of a disk of so many mebibytes; `null` where neither way works here. */
export async function makeSmallDisk(directory: string, sizeMib: number, grownMib: number): Promise<SmallDisk | null> {
  await mkdir(directory, { recursive: true });
  const mount = (options: string) => run('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', directory]);
  const isMounted = await mount(`size=${sizeMib}m`).then(
    () => true,
    () => false,
  );
  if (isMounted) {
    return {
      kind: 'tmpfs',
      limit: async () => {},
      grow: async () => void (await mount(`remount,size=${grownMib}m`)),
      remove: async () => void (await run('umount', [directory])),
    };
  }
  const limits = (pid: number, bytes: string) => run('prlimit', ['--pid', String(pid), `--fsize=${bytes}:unlimited`]);
  const works = await run('prlimit', ['--version']).then(
    () => true,
    () => false,
  );
  if (!works) return null;
  return {
    kind: 'file size limit',
    limit: async (pid) => void (await limits(pid, String(mib(sizeMib)))),
    grow: async (pid) => void (await limits(pid, String(mib(grownMib)))),
    remove: async () => {},
  };
}
