import { type Command, Option } from 'commander';
import { COMMAND_SETTINGS, type Environment, type Flags, SETTINGS, type Setting, type SettingName } from '../config.ts';
import { type Connection, connect } from './connect.ts';
import { EXIT, exitOf } from './failure.ts';
import type { OutputOptions } from './output.ts';

/** What commands take from their surroundings. */
export interface Surroundings {
  readonly env: Environment;
}

/** Options of every command that works with a queue. */
export type QueueOptions = OutputOptions & Pick<Flags, (typeof COMMAND_SETTINGS)[number] | 'store'>;

/** Adds settings as flags; their help comes from the table of settings. */
export function withSettings(
  command: Command,
  names: readonly SettingName[],
  about: Partial<Record<SettingName, string>> = {},
): Command {
  for (const name of names) {
    const { flag, placeholder, env, fallback, about: text }: Setting<unknown> = SETTINGS[name];
    if (flag === null) continue;
    const flags = placeholder === undefined ? `--${flag}` : `--${flag} <${placeholder}>`;
    // Commander's own defaults and environment are not used: config.ts has one order for both, and one way to complain.
    command.addOption(new Option(flags, about[name] ?? `${text} (env ${env}, default ${fallback || 'none'})`));
  }
  return command;
}

/** What stands behind the command's name counts before what stands in front of it. */
export const flagsOf = <O extends Flags>(command: Command, options: O): O => ({
  ...command.optsWithGlobals<O>(),
  ...options,
});

/** Makes a command work with a queue: adds its options, and connects and disconnects around it. */
export function withQueue<O extends QueueOptions, A extends readonly unknown[]>(
  command: Command,
  { env }: Surroundings,
  work: (connection: Connection, options: O, ...args: A) => Promise<unknown>,
): Command {
  withSettings(command, [...COMMAND_SETTINGS, 'store'], {
    store: 'work on this store instead of a running server: a SQLite file that no server has open, or a keyspace',
  });
  command.option('--json', 'print JSON');
  return command.action(async (...all: unknown[]) => {
    const options = all.at(-2) as O;
    const connection = await connect(flagsOf(command, options), env);
    try {
      await work(connection, options, ...(all.slice(0, -2) as unknown as A));
    } finally {
      await connection.close();
    }
  });
}

/**
 * Some of what was asked for was refused; the rest is done.
 * @param codes of what was refused, where nothing else was asked for
 */
export function partlyRefused(codes?: readonly string[]): void {
  process.exitCode = codes === undefined ? EXIT.failed : exitOf(codes);
}

/** Examples below a command's help. */
export const examples = (command: Command, ...lines: readonly string[]): Command =>
  command.addHelpText('after', `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`);
