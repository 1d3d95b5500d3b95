import { type AuditReport, auditStore } from '../audit/audit.ts';
import type { HttpQueue } from '../client/http-queue.ts';
import { type Environment, type Flags, readStoreSettings } from '../config.ts';
import { count, safeText, size } from '../http/text.ts';
import {
  backupStore,
  type CopyOptions,
  compactStore,
  openStore,
  type SavedCopy,
  saveBackup,
  stageRestore,
} from '../queue/open.ts';
import { StoreInUseError } from '../store/store.ts';
import { remoteQueue } from './connect.ts';
import { CommandError, inUseBy } from './failure.ts';
import { note, print } from './output.ts';
import { ByteProgress } from './progress.ts';

export type FileFlags = Flags & { readonly force?: boolean; readonly json?: boolean };

export async function backup(file: string, options: FileFlags, env: Environment): Promise<void> {
  const progress = new ByteProgress();
  const copy = { overwrite: options.force === true, progress: progress.show };
  try {
    const saved = await (options.store === undefined
      ? backupOfServer(remoteQueue(options, env), file, copy)
      : backupStore(readStoreSettings(options, env).address.text, file, copy));
    progress.end();
    print(options, saved, () => `${safeText(saved.path, 500)}: ${size(saved.bytes)}, whole\nsha256  ${saved.sha256}`);
  } catch (error) {
    throw toldOf(error, options, env, 'calls');
  } finally {
    progress.end();
  }
}

async function backupOfServer(queue: HttpQueue, file: string, copy: CopyOptions): Promise<SavedCopy> {
  try {
    return await saveBackup(queue, file, copy);
  } finally {
    queue.close();
  }
}

export async function restore(file: string, options: FileFlags, env: Environment): Promise<void> {
  const { address } = readStoreSettings(options, env);
  const progress = new ByteProgress();
  try {
    const staged = await stageRestore(file, address.text, {
      overwrite: options.force === true,
      progress: progress.show,
    });
    progress.end();
    try {
      const report = await lookOver(`sqlite:${staged.path}`);
      const left = report.rules.filter(({ group, found, mended }) => group !== 'left over' && mended < found);
      if (left.length > 0 && options.force !== true) throw new CommandError(refusal(file, left));
      const replaced = staged.install();
      const { entries, messages, found, mended } = report;
      print(options, { store: address.text, replaced, entries, messages, found, mended }, () =>
        [
          `${address.text} is restored: ${count(entries)} entries, ${count(messages)} message rows.`,
          ...(found === 0
            ? []
            : [`An audit found ${count(found)}, of which ${count(mended)} were mended: ebbmark audit says more.`]),
          ...(replaced === null ? [] : [`What was there before is now ${safeText(replaced, 500)}`]),
        ].join('\n'),
      );
    } finally {
      staged.discard();
    }
  } catch (error) {
    throw toldOf(error, options, env);
  } finally {
    progress.end();
  }
}

/** Also brings it to the schema of this version, while it is still a copy. */
async function lookOver(store: string): Promise<AuditReport> {
  const open = await openStore({ store });
  try {
    return await auditStore(open, { repair: true });
  } finally {
    await open.close();
  }
}

const refusal = (file: string, left: AuditReport['rules']): string =>
  [
    `${file} is whole, but an audit found in it what must not be, and what cannot be mended:`,
    ...left.map(({ rule, found, mended, about }) => `  ${rule}: ${count(found - mended)} (${about})`),
    'Restore another backup, or take this one as it is with --force.',
  ].join('\n');

export async function compact(options: FileFlags, env: Environment): Promise<void> {
  const { address } = readStoreSettings(options, env);
  try {
    note(`Writing ${address.text} anew…`);
    const done = await compactStore(address.text);
    print(
      options,
      { store: address.text, ...done },
      () => `${address.text}: ${size(done.before)} → ${size(done.after)}`,
    );
  } catch (error) {
    throw toldOf(error, options, env);
  }
}

/** An error in the words of the command line. */
const toldOf = (error: unknown, options: Flags, env: Environment, for_: 'calls' | 'file' = 'file'): unknown =>
  error instanceof StoreInUseError ? new CommandError(inUseBy(readStoreSettings(options, env).address, for_)) : error;
