import type { Queue } from '../src/queue/api.ts';

/** Where the bench's tasks go: one store after the other, all gone afterwards. */
export interface Place {
  /** The address of a store that holds nothing yet. */
  fresh(): string;
  clear(): Promise<void>;
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
