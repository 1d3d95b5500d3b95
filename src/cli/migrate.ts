import { type Environment, type Flags, readStoreSettings } from '../config.ts';
import { migrateStore, type QueueLogger } from '../queue/open.ts';
import { StoreInUseError } from '../store/store.ts';
import { CommandError, inUseBy } from './failure.ts';
import { note } from './output.ts';

/** What was done is said at the end; what an operator should know, at once. */
const WARNINGS: QueueLogger = { info() {}, warn: (_fields, message) => note(`Warning: ${message}`), error() {} };

/** Creates or upgrades a store, and says what was done. */
export async function migrate(flags: Flags, env: Environment): Promise<string> {
  const { address, options } = readStoreSettings(flags, env);
  const { from, to, applied } = await migrateStore({ ...options, log: WARNINGS }).catch((error: unknown) => {
    if (!(error instanceof StoreInUseError)) throw error;
    throw new CommandError(`${inUseBy(address, 'file')}\nA server brings its store up to date itself, at its start.`);
  });
  if (applied.length === 0) return `${address.text} is up to date (schema ${to}).`;
  return `${address.text} was ${from === 0 ? 'created' : 'upgraded'}: schema ${from} → ${to} (${applied.join(', ')}).`;
}
