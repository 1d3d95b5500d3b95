import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Queue } from '../src/queue/api.ts';
import { type Floor, sqliteInsertFloor } from './floors.ts';

/** Where the bench's tasks go: one store after the other, all gone afterwards. */
export interface Place {
  /** The address of a store that holds nothing yet. */
  fresh(): string;
  /** What the same database does at best; null where no floor is known for it. */
  insertFloor(): Floor | null;
  clear(): void;
}

/** @param store `sqlite`: files in a folder of their own. Other stores come with their drivers. */
export function openPlace(store: string): Place {
  if (store !== 'sqlite')
    throw new Error(`--store: "${store}" is not a store that the bench knows; for example: sqlite`);
  const folder = mkdtempSync(join(tmpdir(), 'ebbmark-bench-'));
  let files = 0;
  const path = () => join(folder, `${files++}.db`);
  return {
    fresh: () => `sqlite:${path()}`,
    insertFloor: () => sqliteInsertFloor(path()),
    clear: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/**
 * A module of the build in dist/, which is what `npm start` and users run. From src, through tsx, each function that is
 * made at run time would cost a call more (esbuild's keepNames).
 */
export const built = async <Module>(file: string): Promise<Module> =>
  (await import(new URL(`../dist/${file}`, import.meta.url).href)) as Module;

export async function openBuiltQueue(store: string): Promise<Queue> {
  const { openQueue } = await built<typeof import('../src/queue/open.ts')>('queue/open.js');
  return openQueue({ store });
}
