import { existsSync } from 'node:fs';
import { type Environment, type Flags, readSettings } from '../config.ts';
import { openQueue } from '../queue/open.ts';

/** Creates or upgrades a stopped store, and says what was done. */
export async function migrate(flags: Flags, env: Environment): Promise<string> {
  const { store } = readSettings(['store'], flags, env);
  const existed = existsSync(store.path);
  const queue = await openQueue({ store: store.text });
  await queue.stop();
  return existed ? `${store.text} is up to date.` : `${store.text} was created.`;
}
