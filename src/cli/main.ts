import { CommanderError } from 'commander';
import { ConnectionError } from '../client/errors.ts';
import { ConfigError, type Environment } from '../config.ts';
import { QueueError } from '../core/errors.ts';
import { CommandError, EXIT, exitOf, unreachable } from './failure.ts';
import { note } from './output.ts';
import { createProgram } from './program.ts';

/**
 * Runs the command line. Never throws: what goes wrong is told to the person who called.
 * @returns the exit code; null where the command has set one, or runs on
 */
export async function main(args: readonly string[], env: Environment): Promise<number | null> {
  try {
    await createProgram(env).parseAsync(args, { from: 'user' });
    return null;
  } catch (error) {
    return fail(error);
  }
}

/** Tells what went wrong. @returns the exit code */
function fail(error: unknown): number {
  if (error instanceof CommanderError) {
    // Help and version come this way, too.
    if (error.exitCode === 0) return EXIT.ok;
    // Without a command commander has printed the help.
    if (error.code !== 'commander.help') note(`${error.message}\nSee ebbmark --help, or ebbmark COMMAND --help`);
    return EXIT.usage;
  }
  if (error instanceof ConfigError) {
    note(error.message);
    return EXIT.usage;
  }
  if (error instanceof CommandError) {
    note(error.message);
    return error.exitCode;
  }
  if (error instanceof ConnectionError) {
    note(unreachable(error));
    return EXIT.failed;
  }
  if (error instanceof QueueError) {
    note(`${error.code}: ${error.detail}`);
    if (error.code === 'unauthenticated')
      note('Give an API key:   EBBMARK_KEY, or EBBMARK_KEY_FILE (a file that holds it)');
    if (error.code === 'not-holder') note('Ask the server that does:   --url URL, or EBBMARK_URL');
    return exitOf([error.code]);
  }
  note(sayError(error));
  return EXIT.failed;
}

function sayError(error: unknown): string {
  const { code, message, address, port } = error as NodeJS.ErrnoException & { address?: string; port?: number };
  if (code === 'EADDRINUSE')
    return `${address}:${port} is in use; choose another address with --listen, or port 0 for a free one`;
  if (code === 'EACCES' && port !== undefined)
    return `${address}:${port} may not be taken by this user; ports below 1024 often may not`;
  return message ?? String(error);
}
