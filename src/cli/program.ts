import { Command } from 'commander';
import { COMMAND_SETTINGS, type Environment, type Flags, SERVER_SETTINGS, STORE_SETTINGS } from '../config.ts';
import { VERSION } from '../http/version.ts';
import { positive } from './arguments.ts';
import type { AuditFlags } from './audit.ts';
import { examples, withSettings } from './command.ts';
import { addEnqueueCommand } from './enqueue.ts';
import { addKeyCommands } from './key-commands.ts';
import { addScheduleCommands } from './schedule-commands.ts';
import { addStoreCommands } from './store-commands.ts';
import { addTaskCommands } from './task-commands.ts';
import { addTopicCommands } from './topic-commands.ts';

/** The whole command line. Errors are thrown, not printed (see main.ts). */
export function createProgram(env: Environment): Command {
  const program = new Command('ebbmark')
    .description('A priority task queue for very many topics.')
    .version(VERSION)
    .helpCommand(false)
    .showSuggestionAfterError()
    // So that --url goes before a command as well as behind it.
    .enablePositionalOptions()
    .configureHelp({ showGlobalOptions: false })
    .exitOverride()
    // main.ts prints errors, once.
    .configureOutput({ outputError: () => {} });

  withSettings(program, COMMAND_SETTINGS);

  const server = withSettings(program.command('serve').description('run the server'), SERVER_SETTINGS).action(
    // Loaded only here: the other commands start faster without the server.
    async (flags: Flags) => (await import('./serve.ts')).serve(flags, env),
  );
  examples(
    server,
    'ebbmark serve',
    'ebbmark serve --store sqlite:/var/lib/ebbmark/queue.db --listen 127.0.0.1:9000',
    'EBBMARK_STORE=sqlite:./queue.db EBBMARK_LOG_LEVEL=debug ebbmark serve',
    "ebbmark serve --store 'cassandra://10.0.0.1,10.0.0.2/ebbmark?dc=datacenter1&replication=3'",
  );
  server.addHelpText(
    'after',
    '\nSIGTERM or SIGINT stops it within five seconds: it refuses new work, answers what runs, and exits with 0.',
  );

  addEnqueueCommand(program, { env });
  addTaskCommands(program, { env });
  addTopicCommands(program, { env });
  addScheduleCommands(program, { env });
  addKeyCommands(program, { env });

  const store = withSettings(
    program.command('migrate').description('create or upgrade a store, and say what was done'),
    STORE_SETTINGS,
  ).action(async (flags: Flags) => {
    const { migrate } = await import('./migrate.ts');
    process.stdout.write(`${await migrate(flags, env)}\n`);
  });
  examples(
    store,
    'ebbmark migrate --store sqlite:./ebbmark.db',
    "ebbmark migrate --store 'cassandra://10.0.0.1/ebbmark?replication=3'",
  );

  addAuditCommand(program, env);
  addStoreCommands(program, { env });

  examples(
    program,
    'ebbmark serve                                    run the server',
    'ebbmark enqueue mail.example.org \'{"n": 1}\'      put a task into a topic',
    'ebbmark lease mail.example.org                   take one',
    'ebbmark ack LEASE-ID                             and say that it is done',
  );
  program.addHelpText(
    'after',
    '\nCommands speak to the running server (--url, EBBMARK_URL), with the API key in EBBMARK_KEY or in the file\nEBBMARK_KEY_FILE where it asks for one; --store opens a SQLite file that no server has\nopen, or a keyspace of Cassandra (logging in as EBBMARK_CASSANDRA_… says).\nExit codes: 0 done, 1 failed or partly refused, 2 called the wrong way.',
  );
  return program;
}

function addAuditCommand(program: Command, env: Environment): void {
  const command = withSettings(
    program
      .command('audit')
      .description('look a store over: what would never be found, what must not be, and what is left over')
      .option('--repair', 'mend what can be, and say what was left and why')
      .option('--limit <n>', 'examples of each rule', positive, 5)
      .option('--json', 'print JSON'),
    STORE_SETTINGS,
  ).action(async (flags: AuditFlags) => (await import('./audit.ts')).audit(flags, env));
  examples(
    command,
    'ebbmark audit --store sqlite:./ebbmark.db',
    "ebbmark audit --repair --store 'cassandra://10.0.0.1/ebbmark'",
  );
  command.addHelpText(
    'after',
    `
It works on the store itself, never through a server. A SQLite file must not be open elsewhere; servers may go on
working on a keyspace, and what looks wrong there is told only once it has stood four looks in half a minute.
A repair makes only conditional writes that the queue makes as well, moves no cursor, and takes back nothing that
was settled. What each rule means, and what to do about it, is in docs/operations.md.

Exit codes: 0 nothing was found, or all of it was mended; 1 something was found; 2 called the wrong way.`,
  );
}
