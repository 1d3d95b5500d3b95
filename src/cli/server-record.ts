/**
 * Which server has a store open: a small file beside it, for people who start a second one or a command on the file. It is
 * for messages alone; whether somebody has the store is told by its lock. One that was left by a server that was killed
 * says so by its process, which is gone.
 */
import { readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';

export interface ServerRecord {
  readonly pid: number;
  readonly url: string;
}

const recordOf = (store: string): string => `${realpathSync(store)}-server`;

/** @returns what takes it away again */
export function writeServerRecord(store: string, record: ServerRecord): () => void {
  const path = recordOf(store);
  try {
    writeFileSync(path, `${JSON.stringify(record)}\n`, { mode: 0o600 });
  } catch {
    // A full disk, say: the server runs without.
  }
  return () => rmSync(path, { force: true });
}

/** @returns null where there is none, or the process it names is gone */
export function readServerRecord(store: string): ServerRecord | null {
  try {
    const { pid, url } = JSON.parse(readFileSync(recordOf(store), 'utf8')) as Partial<ServerRecord>;
    if (typeof pid !== 'number' || typeof url !== 'string' || !URL.canParse(url) || !isAlive(pid)) return null;
    return { pid, url };
  } catch {
    return null;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
