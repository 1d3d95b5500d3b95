/** `ebbmark enqueue`: one task from an argument or a file, or many from standard input. */
import { open, readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { type Command, Option } from 'commander';
import { show } from '../core/errors.ts';
import { safeText } from '../http/text.ts';
import type { EnqueueOptions, EnqueueResult, JsonValue, OnDuplicate, TaskInput, TaskPayload } from '../queue/api.ts';
import { durationMs, instant, integer, json, pair, positive, topicName } from './arguments.ts';
import { examples, partlyRefused, type QueueOptions, type Surroundings, withQueue } from './command.ts';
import type { Connection } from './connect.ts';
import { CommandError, usage } from './failure.ts';
import { note, print } from './output.ts';
import { Progress } from './progress.ts';

interface EnqueueFlags extends QueueOptions {
  readonly file?: string;
  readonly bytes?: boolean;
  readonly lines?: boolean;
  readonly priority?: number;
  readonly messageId?: string;
  readonly delay?: number;
  readonly ttl?: number;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly runAt?: number;
  readonly maxAttempts?: number;
  readonly onDuplicate?: OnDuplicate;
  readonly idempotencyKey?: string;
}

/** Lines of one call, and characters of them: far below the server's limit on a body. */
const CALL_LINES = 200;
const CALL_CHARACTERS = 1024 * 1024;
/** Refusals that are told one by one. */
const TOLD_REFUSALS = 20;

export function addEnqueueCommand(program: Command, surroundings: Surroundings): void {
  const command = program
    .command('enqueue')
    .description('put a task into a topic, which needs no creation; or many, a line each')
    .argument('<topic>', '', topicName)
    .argument('[payload]', 'JSON', json)
    .option('--file <path>', 'take the payload from a file; - for standard input')
    .option('--bytes', 'with --file: its bytes as they are, not JSON')
    .option('--lines', 'a task for every line of standard input (or --file), each line a payload as JSON')
    .option('--priority <n>', '0–9, 9 first, 5 when absent', integer)
    .option('--message-id <id>', "the task's own id: the topic has at most one task with it")
    .option('--delay <time>', 'not before this long from now: 30s, 5m, 2h', durationMs)
    .option('--run-at <time>', 'not before this time: 2030-01-31T08:00:00Z, or milliseconds since 1970', instant)
    .option('--ttl <time>', 'expires when it was not completed by then', durationMs)
    .option('--max-attempts <n>', "deliveries before the dead letters; the topic's when absent", positive)
    .addOption(
      new Option('--on-duplicate <what>', 'what a known message id gets; keep when absent').choices([
        'keep',
        'again',
        'replace',
      ]),
    )
    .option('--idempotency-key <key>', 'makes a second run of the same command safe; not with --lines')
    .option('--metadata <name=value>', 'handed to the worker; repeat for more', pair);
  withQueue(command, surroundings, enqueue);
  examples(
    command,
    'ebbmark enqueue mail.example.org \'{"url": "https://example.org/"}\'',
    'ebbmark enqueue mail.example.org \'"hello"\' --priority 9 --delay 5m',
    'ebbmark enqueue images --file cat.png --bytes --message-id cat',
    'cat tasks.ndjson | ebbmark enqueue mail.example.org --lines',
  );
}

async function enqueue(
  { queue }: Connection,
  options: EnqueueFlags,
  topic: string,
  payload: JsonValue | undefined,
): Promise<void> {
  const rest = restOf(options);
  const sources = [payload !== undefined, options.file !== undefined || options.lines === true].filter(Boolean).length;
  if (sources !== 1) {
    throw usage(
      `Give one payload: as an argument, with --file, or with --lines; for example: ebbmark enqueue ${safeText(topic)} '{"n": 1}'`,
    );
  }
  if (options.lines) {
    if (options.messageId !== undefined || options.idempotencyKey !== undefined || options.bytes)
      throw usage('--lines goes with none of --message-id, --idempotency-key and --bytes');
    await enqueueLines(queue, options, topic, rest);
    return;
  }
  const task = { ...rest, payload: payload !== undefined ? payload : await payloadOf(options) };
  const result = (await queue.enqueue(topic, [task], keyOf(options)))[0]!;
  print(options, result, () => resultText(result));
  if (result.id === null) partlyRefused([result.code]);
}

function restOf(options: EnqueueFlags): Omit<TaskInput, 'payload'> {
  return {
    ...(options.priority === undefined ? {} : { priority: options.priority }),
    ...(options.messageId === undefined ? {} : { messageId: options.messageId }),
    ...(options.delay === undefined ? {} : { delayMs: options.delay }),
    ...(options.runAt === undefined ? {} : { runAt: options.runAt }),
    ...(options.maxAttempts === undefined ? {} : { maxAttempts: options.maxAttempts }),
    ...(options.onDuplicate === undefined ? {} : { onDuplicate: options.onDuplicate }),
    ...(options.ttl === undefined ? {} : { ttlMs: options.ttl }),
    ...(options.metadata === undefined ? {} : { metadata: options.metadata }),
  };
}

const keyOf = ({ idempotencyKey }: EnqueueFlags): EnqueueOptions =>
  idempotencyKey === undefined ? {} : { idempotencyKey };

const resultText = (result: EnqueueResult): string =>
  result.id === null
    ? `Refused: ${result.code}: ${safeText(result.detail, 500)}`
    : `${result.id}${result.deduplicated ? '  (the message id was known: this is its task)' : ''}`;

/** The payload in the file that `--file` names. */
export async function payloadOf(options: Pick<EnqueueFlags, 'file' | 'bytes'>): Promise<TaskPayload> {
  const path = options.file!;
  const bytes = await (path === '-' ? standardInput() : readFile(path)).catch((error: Error) => {
    throw new CommandError(`${path} cannot be read: ${error.message}`);
  });
  if (options.bytes) return new Uint8Array(bytes);
  try {
    return JSON.parse(bytes.toString('utf8')) as JsonValue;
  } catch (error) {
    throw usage(`${path} is not JSON: ${(error as Error).message}; --bytes takes it as it is`);
  }
}

async function standardInput(): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

async function enqueueLines(
  queue: Connection['queue'],
  options: EnqueueFlags,
  topic: string,
  rest: Omit<TaskInput, 'payload'>,
): Promise<void> {
  const totals = { enqueued: 0, deduplicated: 0, refused: 0 };
  const progress = new Progress('enqueued');
  let waiting: { readonly line: number; readonly task: TaskInput }[] = [];
  let characters = 0;
  const flush = async (): Promise<void> => {
    if (waiting.length === 0) return;
    const sent = waiting;
    waiting = [];
    characters = 0;
    const results = await queue.enqueue(
      topic,
      sent.map(({ task }) => task),
    );
    for (const [at, result] of results.entries()) {
      if (result.id !== null) totals[result.deduplicated ? 'deduplicated' : 'enqueued']++;
      else if (++totals.refused <= TOLD_REFUSALS)
        note(`line ${sent[at]!.line}: ${result.code}: ${safeText(result.detail, 500)}`);
    }
    progress.show(totals.enqueued + totals.deduplicated + totals.refused);
  };

  let line = 0;
  try {
    for await (const text of await linesOf(options.file ?? '-')) {
      line++;
      if (text.trim() === '') continue;
      waiting.push({ line, task: { ...rest, payload: lineJson(text, line, totals) } });
      characters += text.length;
      if (waiting.length >= CALL_LINES || characters >= CALL_CHARACTERS) await flush();
    }
    await flush();
  } finally {
    progress.end();
  }
  print(
    options,
    totals,
    () => `${totals.enqueued} enqueued, ${totals.deduplicated} known already, ${totals.refused} refused`,
  );
  if (totals.refused > 0) partlyRefused();
}

async function linesOf(path: string): Promise<AsyncIterable<string>> {
  if (path === '-') return createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY });
  const file = await open(path).catch((error: Error) => {
    throw new CommandError(`${path} cannot be read: ${error.message}`);
  });
  return file.readLines();
}

function lineJson(text: string, line: number, totals: { readonly enqueued: number }): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    throw new CommandError(
      `line ${line}: ${show(text)} is not JSON; for example: {"n": 1}\nThe ${totals.enqueued} tasks sent before stay enqueued.`,
    );
  }
}
