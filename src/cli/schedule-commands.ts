/** Commands on schedules: set, show, list, delete. */
import type { Command } from 'commander';
import { safeText, time } from '../http/text.ts';
import type { JsonValue, ScheduleInfo, ScheduleInput, ScheduleSummary } from '../queue/api.ts';
import { durationMs, integer, json, pair, positive, topicName } from './arguments.ts';
import { examples, type QueueOptions, type Surroundings, withQueue } from './command.ts';
import type { Connection } from './connect.ts';
import { payloadOf } from './enqueue.ts';
import { usage } from './failure.ts';
import { brief, facts, note, print, tableOr } from './output.ts';

/** Characters of a payload that are shown. */
const BRIEF = 200;

export function addScheduleCommands(program: Command, surroundings: Surroundings): void {
  const schedule = program
    .command('schedule')
    .description('put a task into a topic at the times of a cron pattern')
    .helpCommand(false);

  const set = schedule
    .command('set')
    .description('make a schedule, or change it as a whole')
    .argument('<name>')
    .argument('<topic>', '', topicName)
    .argument('<pattern>', 'minute, hour, day, month, weekday; or six fields, with seconds first')
    .argument('[payload]', 'JSON', json)
    .option('--time-zone <name>', 'in which the pattern is read; UTC when absent')
    .option('--file <path>', 'take the payload from a file; - for standard input')
    .option('--bytes', 'with --file: its bytes as they are, not JSON')
    .option('--priority <n>', "of each task, 0–9, 9 first; the topic's default when absent", integer)
    .option('--ttl <time>', 'each task expires when it was not completed by then', durationMs)
    .option('--max-attempts <n>', "deliveries before the dead letters; the topic's when absent", positive)
    .option('--metadata <name=value>', 'handed to the worker; repeat for more', pair)
    .option('--catch-up <time>', 'how late a firing may be and is not passed over; 1m when absent', durationMs);
  withQueue(set, surroundings, setSchedule);
  examples(
    set,
    'ebbmark schedule set nightly-report reports \'30 8 * * MON-FRI\' \'{"kind": "daily"}\' --time-zone Europe/Berlin',
    "ebbmark schedule set heartbeat monitor '*/10 * * * * *' null --ttl 10s",
  );

  const show = schedule
    .command('show')
    .description('its next times, its last firing, and what it missed')
    .argument('<name>');
  withQueue(show, surroundings, async ({ queue }, options: QueueOptions, name: string) => {
    const info = await queue.schedule(name);
    print(options, info, () => scheduleText(info));
  });
  examples(show, 'ebbmark schedule show nightly-report');

  const list = schedule
    .command('list')
    .description("list schedules, in an order of the store's own")
    .option('--limit <n>', 'schedules at the most', positive, 100)
    .option('--after <name>', 'go on behind this one');
  withQueue(list, surroundings, listSchedules);
  examples(list, 'ebbmark schedule list', 'ebbmark schedule list --limit 1000 --json');

  const remove = schedule
    .command('delete')
    .description('end a schedule; tasks that it has enqueued stay')
    .argument('<name>');
  withQueue(remove, surroundings, async ({ queue }, options: QueueOptions, name: string) => {
    await queue.deleteSchedule(name);
    print(options, { name, deleted: true }, () => `${safeText(name)} is deleted.`);
  });
}

interface SetFlags extends QueueOptions {
  readonly timeZone?: string;
  readonly file?: string;
  readonly bytes?: boolean;
  readonly priority?: number;
  readonly ttl?: number;
  readonly maxAttempts?: number;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly catchUp?: number;
}

async function setSchedule(
  { queue }: Connection,
  options: SetFlags,
  name: string,
  topic: string,
  pattern: string,
  payload: JsonValue | undefined,
): Promise<void> {
  if ((payload === undefined) === (options.file === undefined)) {
    throw usage('Give one payload: as an argument, or with --file; for example: \'{"n": 1}\', or null');
  }
  const schedule: ScheduleInput = {
    topic,
    pattern,
    payload: payload !== undefined ? payload : await payloadOf(options),
    ...(options.timeZone === undefined ? {} : { timeZone: options.timeZone }),
    ...(options.priority === undefined ? {} : { priority: options.priority }),
    ...(options.ttl === undefined ? {} : { ttlMs: options.ttl }),
    ...(options.maxAttempts === undefined ? {} : { maxAttempts: options.maxAttempts }),
    ...(options.metadata === undefined ? {} : { metadata: options.metadata }),
    ...(options.catchUp === undefined ? {} : { catchUpMs: options.catchUp }),
  };
  const info = await queue.setSchedule(name, schedule);
  print(options, info, () => scheduleText(info));
}

async function listSchedules(
  { queue }: Connection,
  options: QueueOptions & { readonly limit: number; readonly after?: string },
): Promise<void> {
  const found: ScheduleSummary[] = [];
  let after = options.after;
  do {
    const page = await queue.schedules({
      limit: Math.min(options.limit - found.length, 1000),
      ...(after === undefined ? {} : { after }),
    });
    found.push(...page.schedules);
    after = page.after;
  } while (after !== undefined && found.length < options.limit);
  print(options, after === undefined ? { schedules: found } : { schedules: found, after }, () =>
    tableOr(
      'There is no schedule.',
      ['schedule', 'topic', 'pattern', 'time zone', 'next', 'fired', 'missed', ''],
      found.map((one) => [
        safeText(one.name),
        safeText(one.topic),
        safeText(one.pattern),
        safeText(one.timeZone),
        timeOr(one.nextAt),
        one.fired,
        one.missed,
        one.refusal === null ? '' : 'refused',
      ]),
    ),
  );
  if (after !== undefined && !options.json) note(`There are more: --limit, or --after '${safeText(after)}'`);
}

function scheduleText(info: ScheduleInfo): string {
  return facts([
    ['schedule', safeText(info.name)],
    ['topic', safeText(info.topic)],
    ['pattern', safeText(info.pattern)],
    ['time zone', safeText(info.timeZone)],
    ...info.next.map((at, nth) => [nth === 0 ? 'next' : '', time(at)] as const),
    ['last fired for', timeOr(info.lastFiredFor)],
    ['its task', info.lastTask === null ? null : safeText(info.lastTask, 500)],
    ['fired', info.fired],
    ['missed', info.missed],
    ['refused', info.refusal === null ? null : safeText(info.refusal, 500)],
    ['priority', info.priority],
    ['ttl', info.ttlMs],
    ['max attempts', info.maxAttempts],
    ['catch up', info.catchUpMs],
    ['changed', time(info.updatedAt)],
    ['metadata', brief(info.metadata, BRIEF)],
    ['payload', brief(info.payload, BRIEF)],
  ]);
}

const timeOr = (at: number | null): string | null => (at === null ? null : time(at));
