/** Commands on topics: list, look at, change, operate. */
import type { Command } from 'commander';
import { DEFAULT_SETTINGS } from '../core/settings.ts';
import { statusText } from '../http/status-page.ts';
import { duration, safeText, time } from '../http/text.ts';
import type {
  Explanation,
  Obstacle,
  PriorityCursors,
  SettingsPatch,
  TopicCursors,
  TopicInfo,
  TopicSummary,
} from '../queue/api.ts';
import { positive, several, topicName } from './arguments.ts';
import { examples, partlyRefused, type QueueOptions, type Surroundings, withQueue } from './command.ts';
import type { Connection } from './connect.ts';
import { usage } from './failure.ts';
import { facts, note, print, tableOr } from './output.ts';

export function addTopicCommands(program: Command, surroundings: Surroundings): void {
  const topics = program
    .command('topics')
    .description('list active topics, in the order of their names')
    .option('--prefix <text>', 'only those whose name begins with this')
    .option('--limit <n>', 'topics at the most', positive, 100)
    .option('--after <topic>', 'go on behind this one');
  withQueue(topics, surroundings, listTopics);
  examples(topics, 'ebbmark topics', 'ebbmark topics --prefix crawl/ --json');

  const topic = program
    .command('topic')
    .description('counts and settings of a topic')
    .argument('<topic>', '', topicName);
  withQueue(topic, surroundings, async ({ queue }, options: QueueOptions, name: string) => {
    const info = await queue.topic(name);
    print(options, info, () => topicText(info));
  });

  const set = program
    .command('set')
    .description('change settings of a topic; null removes a limit')
    .argument('<topic>', '', topicName)
    .argument('<setting=value...>', `one or more of ${SETTABLE.join(', ')}`);
  withQueue(set, surroundings, async ({ queue }, options: QueueOptions, name: string, changes: readonly string[]) => {
    const info = await queue.configure(name, patchOf(changes));
    print(options, info, () => topicText(info));
  });
  examples(
    set,
    'ebbmark set mail.example.org maxInFlight=1 cooldownMs=1000',
    'ebbmark set mail.example.org maxInFlight=null',
    'ebbmark set mail.example.org \'rate={"tasks": 10, "perMs": 1000, "burst": 10}\'',
  );

  const cursors = program
    .command('cursors')
    .description('both cursors of every tier of a topic, and what holds the completion cursor')
    .argument('<topic>', '', topicName);
  withQueue(cursors, surroundings, async ({ queue }, options: QueueOptions, name: string) => {
    const answer = await queue.cursors(name);
    print(options, answer, () => cursorsText(answer));
  });
  examples(cursors, 'ebbmark cursors mail.example.org');

  const why = program
    .command('why')
    .description('why a topic, or one of its tasks, is not being handed out just now, and what would change that')
    .argument('<topic>', '', topicName)
    .argument('[task]', 'the id of a task');
  withQueue(why, surroundings, async ({ queue }, options: QueueOptions, name: string, task: string | undefined) => {
    const answer = await queue.why(name, task);
    print(options, answer, () => whyText(answer));
  });
  examples(why, 'ebbmark why mail.example.org', 'ebbmark why mail.example.org 01JC3V5H8N6N3Q0QAZ0S9QF6YD.5.17');

  const scan = program
    .command('scan')
    .description('run the completion scanner over a topic now')
    .argument('<topic>', '', topicName);
  withQueue(scan, surroundings, async ({ queue }, options: QueueOptions, name: string) => {
    const answer = await queue.scan(name);
    print(options, answer, () => cursorsText(answer));
  });

  for (const [verb, about] of [
    ['pause', 'lease nothing of a topic until it is resumed'],
    ['resume', 'undo a pause'],
  ] as const) {
    const command = program.command(verb).description(about).argument('<topic>', '', topicName);
    withQueue(command, surroundings, async ({ queue }, options: QueueOptions, name: string) => {
      const info = await queue[verb](name);
      print(options, info, () => `${safeText(name)} is ${info.settings.paused ? 'paused' : 'resumed'}.`);
    });
  }

  const purge = program
    .command('purge')
    .description('cancel all tasks of a topic that wait; leased ones finish, and are not retried')
    .argument('<topic>', '', topicName);
  withQueue(purge, surroundings, async ({ queue }, options: QueueOptions, name: string) => {
    await queue.purge(name);
    print(options, { topic: name, purged: true }, () => `${safeText(name)} is purged.`);
  });

  const redrive = program
    .command('redrive')
    .description('put dead letters of a topic back to work; their attempts start anew')
    .argument('<topic>', '', topicName)
    .option('--id <id>', 'only this task; repeat for more', several(String))
    .option('--limit <n>', 'at most so many, oldest first', positive);
  withQueue(redrive, surroundings, redriveTopic);
  examples(redrive, 'ebbmark tasks mail.example.org --state dead', 'ebbmark redrive mail.example.org --limit 100');

  const status = program.command('status').description('how the queue is');
  withQueue(status, surroundings, async (connection, options: QueueOptions) => {
    const now = await connection.status();
    print(options, now, () => statusText(now).trimEnd());
  });
}

type ListOptions = QueueOptions & { readonly prefix?: string; readonly limit: number; readonly after?: string };

async function listTopics({ queue }: Connection, options: ListOptions): Promise<void> {
  const found: TopicSummary[] = [];
  let after = options.after;
  do {
    const page = await queue.topics({
      limit: Math.min(options.limit - found.length, 1000),
      ...(options.prefix === undefined ? {} : { prefix: options.prefix }),
      ...(after === undefined ? {} : { after }),
    });
    found.push(...page.topics);
    after = page.after;
  } while (after !== undefined && found.length < options.limit);
  print(options, after === undefined ? { topics: found } : { topics: found, after }, () =>
    tableOr(
      'No topic is active.',
      ['topic', 'ready', 'delayed', 'leased', 'dead', ''],
      found.map(({ topic, counts, paused }) => [
        safeText(topic),
        counts.ready,
        counts.delayed,
        counts.leased,
        counts.dead,
        paused ? 'paused' : '',
      ]),
    ),
  );
  if (after !== undefined && !options.json) note(`There are more: --limit, or --after '${safeText(after)}'`);
}

async function redriveTopic(
  { queue }: Connection,
  options: QueueOptions & { readonly id?: readonly string[]; readonly limit?: number },
  name: string,
): Promise<void> {
  const answer = await queue.redrive(name, {
    ...(options.id === undefined ? {} : { ids: options.id }),
    ...(options.limit === undefined ? {} : { limit: options.limit }),
  });
  print(options, answer, () =>
    [
      `${answer.redriven} redriven, ${answer.refused.length} refused.`,
      ...answer.refused.map(({ id, code, detail }) => `${safeText(id)}: ${code}: ${safeText(detail, 500)}`),
    ].join('\n'),
  );
  if (answer.refused.length > 0) partlyRefused();
}

function topicText({ topic, counts, settings }: TopicInfo): string {
  const shown = Object.entries(settings).map(([name, value]) => [name, JSON.stringify(value)] as const);
  return [safeText(topic), facts(Object.entries(counts)), facts(shown)].join('\n\n');
}

function cursorsText({ topic, priorities }: TopicCursors): string {
  return tableOr(
    `${safeText(topic)} has no entries.`,
    ['priority', 'next', 'scan', 'completion', 'trimmed', 'lag', 'ready', 'in flight', 'oldest', 'segments', 'held by'],
    priorities.map((tier) => [
      String(tier.priority),
      tier.nextId,
      tier.scanCursor,
      tier.completionCursor,
      tier.trimmed,
      tier.lag,
      tier.ready,
      tier.inFlight,
      tier.oldestReadyMs === null ? '–' : duration(tier.oldestReadyMs),
      tier.segments,
      heldBy(tier),
    ]),
  );
}

function whyText({ topic, task, servable, obstacles }: Explanation): string {
  const what = task === null ? safeText(topic) : `${safeText(task.id)} of ${safeText(topic)}, which is ${task.state},`;
  if (servable) return `Nothing keeps ${what} from being handed out: the next lease that asks for it gets it.`;
  return [`${what} is not handed out just now:`, ...obstacles.map(obstacleText)].join('\n\n');
}

function obstacleText({ code, detail, until, remedy, leases }: Obstacle): string {
  return [
    `  ${code}: ${safeText(detail, 500)}`,
    ...(until === null ? [] : [`    until ${time(until)}`]),
    ...leases.map((one) => `    ${safeText(one.id)}, ${safeText(one.worker ?? 'no name')}, until ${time(one.until)}`),
    `    ${safeText(remedy, 500)}`,
  ].join('\n');
}

function heldBy({ heldBy: holder }: PriorityCursors): string {
  if (holder === null) return '–';
  const until = holder.leaseUntil === null ? '' : `, leased until ${time(holder.leaseUntil)}`;
  return `${holder.entry} (${safeText(holder.task, 60)}${until})`;
}

const SETTABLE = Object.keys(DEFAULT_SETTINGS).filter((name) => name !== 'purgedAt');

function patchOf(changes: readonly string[]): SettingsPatch {
  const patch: Record<string, unknown> = {};
  for (const change of changes) {
    const at = change.indexOf('=');
    const name = change.slice(0, at);
    if (at < 1 || !SETTABLE.includes(name)) {
      throw usage(
        `${JSON.stringify(change)} is not SETTING=VALUE with one of ${SETTABLE.join(', ')}; for example: maxInFlight=1`,
      );
    }
    try {
      patch[name] = JSON.parse(change.slice(at + 1));
    } catch {
      throw usage(`${JSON.stringify(change)} has a value that is not JSON; for example: maxInFlight=1`);
    }
  }
  return patch as SettingsPatch;
}
