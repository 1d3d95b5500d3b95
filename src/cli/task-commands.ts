/** Commands on tasks: look at, list, lease, settle, cancel. */
import { type Command, Option } from 'commander';
import { safeText, time } from '../http/text.ts';
import {
  type JsonValue,
  type LeasedTask,
  type LeaseOrder,
  type SettleItem,
  TASK_STATES,
  type TaskInfo,
  type TaskState,
} from '../queue/api.ts';
import { durationMs, integer, json, positive, several, topicName, topicSelector } from './arguments.ts';
import { examples, partlyRefused, type QueueOptions, type Surroundings, withQueue } from './command.ts';
import type { Connection } from './connect.ts';
import { usage } from './failure.ts';
import { brief, facts, note, print, tableOr } from './output.ts';

/** Characters of a payload in a table. */
const BRIEF = 60;

export function addTaskCommands(program: Command, surroundings: Surroundings): void {
  const task = program
    .command('task')
    .description('look at a task: its state, attempts and result')
    .argument('<topic>', '', topicName)
    .argument('[id]')
    .option('--message-id <id>', 'the task that has this message id, in place of its own')
    .option('--wait <time>', 'wait so long for its result, 60s at the most', durationMs);
  withQueue(
    task,
    surroundings,
    async ({ queue }, options: QueueOptions & { wait?: number; messageId?: string }, topic: string, own?: string) => {
      if ((own === undefined) === (options.messageId === undefined))
        throw usage('Name one task: by its id, or by --message-id; for example: --message-id order-17');
      const id = own ?? (await queue.taskByMessageId(topic, options.messageId!)).id;
      const info = await queue.task(topic, id, options.wait === undefined ? {} : { waitMs: options.wait });
      print(options, info, () => taskText(info));
    },
  );
  examples(task, 'ebbmark task mail.example.org 01JH…', 'ebbmark task mail.example.org 01JH… --wait 30s --json');

  const tasks = program
    .command('tasks')
    .description('list tasks of a topic')
    .argument('<topic>', '', topicName)
    .option('--state <state>', `only those in this state: ${TASK_STATES.join(', ')}`, taskState)
    .option('--limit <n>', 'tasks at the most', positive, 100)
    .option('--after <cursor>', 'go on where an earlier list ended');
  withQueue(tasks, surroundings, listTasks);
  examples(tasks, 'ebbmark tasks mail.example.org --state dead', 'ebbmark tasks mail.example.org --limit 1000 --json');

  const lease = program
    .command('lease')
    .description('lease tasks, to work on them by hand')
    .argument('[topic...]', 'names, or prefixes that end with *; all topics when absent', several(topicSelector))
    .option('--max <n>', 'tasks at the most', positive, 1)
    .option('--max-per-topic <n>', 'tasks of one topic at the most', positive)
    .option('--priority <n>', 'only of this tier, 0–9; repeat for more', several(integer))
    .addOption(
      new Option(
        '--order <order>',
        'fair goes round the topics (the default), priority takes the highest tier first',
      ).choices(['fair', 'priority']),
    )
    .option('--wait <time>', 'how long to wait for a first one, 60s at the most', durationMs)
    .option('--lease <time>', "how long the lease lasts; the topic's when absent", durationMs)
    .option('--worker <name>', 'who works on it', 'ebbmark-cli');
  withQueue(lease, surroundings, leaseTasks);
  examples(lease, 'ebbmark lease mail.example.org --max 10 --lease 5m', "ebbmark lease 'crawl/*' --wait 30s --json");

  const ack = program
    .command('ack')
    .description('say that leased tasks are done')
    .argument('<lease-id...>')
    .option('--result <json>', 'kept with the task', json);
  withQueue(
    ack,
    surroundings,
    async (connection, options: QueueOptions & { result?: JsonValue }, ids: readonly string[]) => {
      const result = options.result === undefined ? {} : { result: options.result };
      settled(options, (await connection.queue.settle({ ack: ids.map((leaseId) => ({ leaseId, ...result })) })).ack);
    },
  );
  examples(ack, 'ebbmark ack kq0Zr1… --result \'{"status": 200}\'');

  const nack = program
    .command('nack')
    .description('say that leased tasks failed')
    .argument('<lease-id...>')
    .option('--delay <time>', "when they are tried again; the topic's backoff when absent", durationMs)
    .option('--reason <text>', 'why')
    .option('--dead', 'to the dead letters, whatever attempts are left');
  withQueue(nack, surroundings, nackTasks);

  const extend = program
    .command('extend')
    .description('keep leased tasks for longer')
    .argument('<lease-id...>')
    .requiredOption('--lease <time>', 'how long the lease lasts from now', durationMs);
  withQueue(
    extend,
    surroundings,
    async ({ queue }, options: QueueOptions & { readonly lease: number }, ids: readonly string[]) => {
      const items = ids.map((leaseId) => ({ leaseId, leaseMs: options.lease }));
      settled(options, (await queue.settle({ extend: items })).extend);
    },
  );

  const release = program.command('release').description('give leased tasks back unworked').argument('<lease-id...>');
  withQueue(release, surroundings, async ({ queue }, options: QueueOptions, ids: readonly string[]) => {
    settled(options, (await queue.settle({ release: ids.map((leaseId) => ({ leaseId })) })).release);
  });

  const cancel = program
    .command('cancel')
    .description('cancel a task that is not settled; a worker that has it loses its lease')
    .argument('<topic>', '', topicName)
    .argument('<id>')
    .option('--reason <text>', 'why');
  withQueue(
    cancel,
    surroundings,
    async ({ queue }, options: QueueOptions & { reason?: string }, topic: string, id: string) => {
      const info = await queue.cancel(topic, id, options.reason);
      print(options, info, () => `${safeText(id)} is ${info.state}.`);
    },
  );

  const reschedule = program
    .command('reschedule')
    .description('change priority or due time of a task that waits')
    .argument('<topic>', '', topicName)
    .argument('<id>')
    .option('--priority <n>', '0–9, 9 first', integer)
    .option('--delay <time>', 'not before this long from now; 0s for at once', durationMs);
  withQueue(reschedule, surroundings, rescheduleTask);
  examples(reschedule, 'ebbmark reschedule mail.example.org 01JH… --priority 9 --delay 0s');
}

function taskState(text: string): TaskState {
  if ((TASK_STATES as readonly string[]).includes(text)) return text as TaskState;
  throw usage(`--state: ${JSON.stringify(text)} is not one of ${TASK_STATES.join(', ')}; for example: --state dead`);
}

async function listTasks(
  { queue }: Connection,
  options: QueueOptions & { readonly state?: TaskState; readonly limit: number; readonly after?: string },
  topic: string,
): Promise<void> {
  const found: TaskInfo[] = [];
  let after = options.after;
  do {
    const page = await queue.tasks(topic, {
      limit: Math.min(options.limit - found.length, 1000),
      ...(options.state === undefined ? {} : { state: options.state }),
      ...(after === undefined ? {} : { after }),
    });
    found.push(...page.tasks);
    after = page.after;
  } while (after !== undefined && found.length < options.limit);
  print(options, after === undefined ? { tasks: found } : { tasks: found, after }, () =>
    tableOr(
      'No such task.',
      ['id', 'state', 'priority', 'attempt', 'enqueued', 'message id', 'payload', 'reason'],
      found.map((task) => [
        safeText(task.id),
        task.state,
        task.priority,
        `${task.attempt}/${task.maxAttempts}`,
        time(task.enqueuedAt),
        task.messageId === null ? '–' : safeText(task.messageId, BRIEF),
        brief(task.payload, BRIEF),
        task.reason === null ? '' : safeText(task.reason, BRIEF),
      ]),
    ),
  );
  if (after !== undefined && !options.json) note(`There are more: --limit, or --after '${safeText(after)}'`);
}

async function leaseTasks(
  { queue }: Connection,
  options: QueueOptions & {
    readonly max: number;
    readonly wait?: number;
    readonly lease?: number;
    readonly maxPerTopic?: number;
    readonly priority?: readonly number[];
    readonly order?: LeaseOrder;
    readonly worker: string;
  },
  topics: readonly string[] = [],
): Promise<void> {
  const tasks = await queue.lease({
    max: options.max,
    worker: options.worker,
    ...(topics.length === 0 ? {} : { topics }),
    ...(options.maxPerTopic === undefined ? {} : { maxPerTopic: options.maxPerTopic }),
    ...(options.priority === undefined ? {} : { priorities: options.priority }),
    ...(options.order === undefined ? {} : { order: options.order }),
    ...(options.wait === undefined ? {} : { waitMs: options.wait }),
    ...(options.lease === undefined ? {} : { leaseMs: options.lease }),
  });
  print(options, { tasks }, () => (tasks.length === 0 ? 'Nothing is ready.' : tasks.map(leasedText).join('\n\n')));
}

async function nackTasks(
  { queue }: Connection,
  options: QueueOptions & { readonly delay?: number; readonly reason?: string; readonly dead?: boolean },
  ids: readonly string[],
): Promise<void> {
  const how = {
    ...(options.delay === undefined ? {} : { delayMs: options.delay }),
    ...(options.reason === undefined ? {} : { reason: options.reason }),
    ...(options.dead ? { dead: true } : {}),
  };
  settled(options, (await queue.settle({ nack: ids.map((leaseId) => ({ leaseId, ...how })) })).nack);
}

async function rescheduleTask(
  { queue }: Connection,
  options: QueueOptions & { readonly priority?: number; readonly delay?: number },
  topic: string,
  id: string,
): Promise<void> {
  if (options.priority === undefined && options.delay === undefined) {
    throw usage('Say what to change: --priority or --delay; for example: --priority 9');
  }
  const info = await queue.reschedule(topic, id, {
    ...(options.priority === undefined ? {} : { priority: options.priority }),
    ...(options.delay === undefined ? {} : { delayMs: options.delay }),
  });
  print(options, info, () => taskText(info));
}

function settled(options: QueueOptions, items: readonly SettleItem[]): void {
  print(options, items, () =>
    items
      .map((item) => `${safeText(item.leaseId, 400)}: ${item.ok ? 'ok' : `${item.code}: ${item.detail}`}`)
      .join('\n'),
  );
  const refused = items.flatMap((item) => (item.ok ? [] : [item.code]));
  if (refused.length > 0) partlyRefused(refused.length < items.length ? undefined : refused);
}

function leasedText(task: LeasedTask): string {
  return facts([
    ['topic', safeText(task.topic)],
    ['id', safeText(task.id)],
    ...(task.messageId === null ? [] : [['message id', safeText(task.messageId, 400)] as const]),
    ['priority', task.priority],
    ['attempt', task.attempt],
    ['payload', brief(task.payload, 1000)],
    ...(task.progress === null ? [] : [['progress', brief(task.progress, 1000)] as const]),
    ['lease until', time(task.leaseUntil)],
    ['lease id', safeText(task.leaseId, 400)],
  ]);
}

function taskText(task: TaskInfo): string {
  const at = (when: number | null): string | null => (when === null ? null : time(when));
  const head = facts([
    ['topic', safeText(task.topic)],
    ['id', safeText(task.id)],
    ['message id', task.messageId === null ? null : safeText(task.messageId, 400)],
    ['state', task.reason === null ? task.state : `${task.state}: ${safeText(task.reason, 1000)}`],
    ['priority', task.priority],
    ['attempt', `${task.attempt} of ${task.maxAttempts}`],
    ['enqueued', at(task.enqueuedAt)],
    ['due', at(task.dueAt)],
    ['expires', at(task.expiresAt)],
    ['lease until', at(task.leaseUntil)],
    ['settled', at(task.settledAt)],
    ['metadata', brief(task.metadata, 1000)],
    ['payload', brief(task.payload, 1000)],
    ['progress', brief(task.progress, 1000)],
    ['result', brief(task.result, 1000)],
  ]);
  if (task.attempts.length === 0) return head;
  const attempts = tableOr(
    '',
    ['attempt', 'worker', 'leased', 'ended', 'outcome', 'reason'],
    task.attempts.map((attempt) => [
      attempt.attempt,
      attempt.worker === null ? '–' : safeText(attempt.worker),
      time(attempt.leasedAt),
      at(attempt.endedAt) ?? '–',
      attempt.outcome ?? 'running',
      attempt.reason === null ? '' : safeText(attempt.reason, 200),
    ]),
  );
  return `${head}\n\n${attempts}`;
}
