/** Commands on the file of an embedded store: back it up, restore it, compact it. What they do is in store-work.ts. */
import type { Command } from 'commander';
import { COMMAND_SETTINGS, STORE_SETTINGS } from '../config.ts';
import { examples, flagsOf, type Surroundings, withSettings } from './command.ts';
import type { FileFlags } from './store-work.ts';

/** Loaded only where it is used: the other commands start faster without a store. */
const work = () => import('./store-work.ts');

export function addStoreCommands(program: Command, { env }: Surroundings): void {
  const backup = withSettings(
    program
      .command('backup')
      .description('copy the store of a running server, or one that no server has open, into a file')
      .argument('<file>')
      .option('--force', 'replace the file if it is there')
      .option('--json', 'print JSON'),
    [...COMMAND_SETTINGS, 'store'],
    { store: 'copy this store, which no server has open, instead of a running server’s' },
  ).action(async (file: string, options: FileFlags) => {
    await (await work()).backup(file, flagsOf(backup, options), env);
  });
  examples(
    backup,
    'ebbmark backup /backup/queue.db',
    'ebbmark backup /backup/queue.db --force --url http://127.0.0.1:9000',
    'ebbmark backup before-upgrade.db --store sqlite:./ebbmark.db',
  );
  backup.addHelpText(
    'after',
    `
The copy holds all that was acknowledged before it began, and goes on while tasks come and go. Every page of it is
checked, and it takes the name once it is on disk: what is cut off leaves a file that ends with .partial.
A keyspace of Cassandra is backed up by its own tools: see «Backup» in docs/operations.md.`,
  );

  const restore = withSettings(
    program
      .command('restore')
      .description('make a backup the store that a server is started on')
      .argument('<file>')
      .option(
        '--force',
        'put the store that is there aside, under another name; also take a backup that an audit finds fault with',
      )
      .option('--json', 'print JSON'),
    STORE_SETTINGS,
  ).action(async (file: string, options: FileFlags) => (await work()).restore(file, options, env));
  examples(
    restore,
    'ebbmark restore /backup/queue.db --store sqlite:./ebbmark.db',
    'ebbmark restore /backup/queue.db --store sqlite:./ebbmark.db --force',
  );
  restore.addHelpText(
    'after',
    `
Every page is checked, the schema is brought up to date, and the store is looked over as by ebbmark audit --repair,
before it takes the place. The queue then goes on from the moment of the backup: what was settled since is handed out
again, what was enqueued since is gone, and leases handed out since are lost (lease-lost).`,
  );

  const compact = withSettings(
    program
      .command('compact')
      .description('write the file of a store anew, without free space in it; no server may have it open')
      .option('--json', 'print JSON'),
    STORE_SETTINGS,
  ).action(async (options: FileFlags) => (await work()).compact(options, env));
  examples(compact, 'ebbmark compact --store sqlite:./ebbmark.db');
  compact.addHelpText(
    'after',
    `
Needs as much space beside the file as what is used in it. A store that was made by an older version keeps its free
space for itself; from then on it gives it back while it runs.`,
  );
}
