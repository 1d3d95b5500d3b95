/** Commands on API keys: create, list, revoke. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { COMMAND_SETTINGS } from '../config.ts';
import { type ApiKey, endOf, keyIdOf, ROLES, type Role } from '../core/api-key.ts';
import { safeText, time } from '../http/text.ts';
import type { KeyCalls, KeyInput } from '../queue/keys.ts';
import { durationMs, positive, several, topicName } from './arguments.ts';
import { examples, flagsOf, type QueueOptions, type Surroundings, withSettings } from './command.ts';
import { connectKeys } from './connect.ts';
import { usage } from './failure.ts';
import { note, print, tableOr } from './output.ts';

export function addKeyCommands(program: Command, surroundings: Surroundings): void {
  const keys = program.command('keys').description('API keys: who may do what, by topics').helpCommand(false);

  const create = keys
    .command('create')
    .description('make a key, and print it: this once, since only its hash is kept')
    .argument('<name>', 'for people: whose it is')
    .addOption(
      new Option(
        '--role <role>',
        'what it may: produce puts tasks in, consume works on them, admin looks after topics; repeat for more',
      )
        .argParser(several(role))
        .makeOptionMandatory(),
    )
    .option(
      '--prefix <text>',
      'only topics whose names begin with this; repeat for more; all topics when absent',
      several(topicName),
    )
    .option('--expires <time>', 'how long it is good for; for ever when absent', durationMs)
    .option('--rate <n>', 'requests a second to each server', positive)
    .option('--burst <n>', 'with --rate: so many at once; as --rate when absent', positive)
    .option('--description <text>', 'for people');
  withKeys(create, surroundings, 'create', createKey);
  examples(
    create,
    'ebbmark keys create me --role admin --role produce --role consume --store sqlite:./ebbmark.db',
    'ebbmark keys create mailer --role consume --prefix mail/ --rate 100 --expires 90d',
  );
  create.addHelpText(
    'after',
    `
The first key is made on the store itself (--store), before the server starts; a SQLite file is created where it is not
there. Later ones are made by a running server as well, for who shows an admin key for all topics (EBBMARK_KEY, or
EBBMARK_KEY_FILE). Keys themselves are made and listed by such a key alone, whichever other roles it has.`,
  );

  const list = keys
    .command('list')
    .description('list keys, also those that ended within a month')
    .option('--limit <n>', 'keys at the most', positive, 100)
    .option('--after <id>', 'go on behind this one');
  withKeys(list, surroundings, 'look', listKeys);

  const revoke = keys
    .command('revoke')
    .description('make a key good for nothing: on the server that is asked at once, on others within five seconds')
    .argument('<id>', 'as keys list shows it; or the key itself, of which only its id is sent');
  withKeys(revoke, surroundings, 'look', async (calls, options: QueueOptions, id: string) => {
    const revoked = await calls.revokeKey(keyIdOf(id) ?? id);
    print(options, revoked, () => `${revoked.id} (${safeText(revoked.name)}) is revoked.`);
  });
  examples(revoke, 'ebbmark keys revoke 4f0c1d2e3b5a');
}

/** Makes a command work with keys, a running server's or those of a store. */
function withKeys<O extends QueueOptions, A extends readonly unknown[]>(
  command: Command,
  { env }: Surroundings,
  purpose: 'create' | 'look',
  work: (keys: KeyCalls, options: O, ...args: A) => Promise<unknown>,
): void {
  withSettings(command, [...COMMAND_SETTINGS, 'store'], {
    store: 'work on this store instead of a running server: a SQLite file that no server has open, or a keyspace',
  });
  command.option('--json', 'print JSON');
  command.action(async (...all: unknown[]) => {
    const options = all.at(-2) as O;
    const connection = await connectKeys(flagsOf(command, options), env, purpose);
    try {
      await work(connection.keys, options, ...(all.slice(0, -2) as unknown as A));
    } finally {
      await connection.close();
    }
  });
}

interface CreateFlags extends QueueOptions {
  readonly role: readonly Role[];
  readonly prefix?: readonly string[];
  readonly expires?: number;
  readonly rate?: number;
  readonly burst?: number;
  readonly description?: string;
}

async function createKey(calls: KeyCalls, options: CreateFlags, name: string): Promise<void> {
  const { role: roles, prefix, expires, rate, burst, description } = options;
  if (burst !== undefined && rate === undefined)
    throw usage('--burst goes with --rate; for example: --rate 100 --burst 200');
  const input: KeyInput = {
    name,
    roles,
    ...(description === undefined ? {} : { description }),
    ...(prefix === undefined ? {} : { prefixes: prefix }),
    ...(rate === undefined ? {} : { rate: { perSecond: rate, ...(burst === undefined ? {} : { burst }) } }),
    ...(expires === undefined ? {} : { ttlMs: expires }),
  };
  const made = await calls.createKey(input);
  // The key alone on standard output, so that a script can take it.
  print(options, made, () => made.key);
  if (!options.json) note(`Key ${made.id}, ${forText(made)}. It is shown this once: keep it.`);
}

async function listKeys(
  calls: KeyCalls,
  options: QueueOptions & { readonly limit: number; readonly after?: string },
): Promise<void> {
  const found: ApiKey[] = [];
  let after = options.after;
  do {
    const limit = Math.min(options.limit - found.length, 1000);
    const page = await calls.listKeys({ limit, ...(after === undefined ? {} : { after }) });
    found.push(...page.keys);
    after = page.after;
  } while (after !== undefined && found.length < options.limit);
  print(options, after === undefined ? { keys: found } : { keys: found, after }, () =>
    tableOr(
      'There is no key.',
      ['id', 'name', 'roles', 'topics', 'rate', 'made', 'ends', ''],
      found.map((key) => [
        key.id,
        safeText(key.name),
        key.roles.join(' '),
        topicsText(key),
        key.rate === null ? null : `${key.rate.perSecond}/s, ${key.rate.burst} at once`,
        time(key.createdAt),
        timeOr(endOf(key)),
        key.revokedAt === null ? '' : 'revoked',
      ]),
    ),
  );
  if (after !== undefined && !options.json) note(`There are more: --limit, or --after ${after}`);
}

function role(text: string): Role {
  const found = ROLES.find((one) => one === text);
  if (found === undefined) throw new InvalidArgumentError(`It is not one of ${ROLES.join(', ')}; for example: consume`);
  return found;
}

const topicsText = ({ prefixes }: ApiKey): string =>
  prefixes === null ? 'all' : prefixes.map((prefix) => `${safeText(prefix)}*`).join(' ');

const forText = (key: ApiKey): string => `for ${topicsText(key)}: ${key.roles.join(', ')}`;

const timeOr = (at: number | null): string | null => (at === null ? null : time(at));
