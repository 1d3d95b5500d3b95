/**
 * One client under load: puts tasks in, works them off, and writes down all it knows, so that a checker can tell later
 * whether the queue kept its word.
 *
 *     load.ts OPTIONS        (LoadOptions as JSON)
 *
 * It puts in until it is sent SIGUSR1, then only works off, until SIGTERM. Each line of its standard output is an Event
 * (history.ts), written before the client goes on: what it has done when it is killed is known but for the last call.
 *
 * It speaks plain HTTP, and tries again as the API says and in no other case: where nothing was answered, and after 503
 * with Retry-After, once that time is over, at the next server.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { Call, Event } from './history.ts';

export interface LoadOptions {
  /** Names the client; its tasks and its leases bear it. */
  readonly name: string;
  /** Beginning of the topics' names. */
  readonly prefix: string;
  /** How many topics the tasks are spread over. */
  readonly topics: number;
  /** 0: it puts in nothing. */
  readonly tasksPerSecond: number;
  /** Tasks of one call. */
  readonly batch: number;
  /** Loops that lease and settle; 0: it works off nothing. */
  readonly workers: number;
  readonly leaseMs: number;
  /** How long it works on what it has leased. */
  readonly workMs: number;
  /** Bytes that are added to each payload. */
  readonly padBytes: number;
  /** Every second call has an Idempotency-Key, and its tasks no message ids. */
  readonly keys: boolean;
  readonly urls: readonly string[];
}

const PUTTERS = 4;
const LEASE_MAX = 20;
const WAIT_MS = 1_000;
/** A server that is paused takes a call, and never answers it. */
const CALL_MS = 15_000;
/** Before the next try where nothing was answered, so that no time to come back was given. */
const PAUSE_MS = 250;
/** So that nothing ends as a dead letter because its workers die. */
const MAX_ATTEMPTS = 1_000;
/** Answers after which it is not known whether something was written. */
const DOUBTFUL: readonly string[] = ['outcome-unknown', 'unreachable', 'internal'];

const options = JSON.parse(process.argv[2]!) as LoadOptions;
const { name, urls } = options;
const pad = 'x'.repeat(options.padBytes);
let isPutting = options.tasksPerSecond > 0;
let isRunning = true;
let turn = 0;
let batches = 0;

const tell = (event: Event): boolean => process.stdout.write(`${JSON.stringify(event)}\n`);

class Refusal extends Error {
  readonly code: string;
  readonly isRetried: boolean;
  readonly pauseMs: number;

  constructor(code: string, isRetried: boolean, pauseMs = PAUSE_MS) {
    super(code);
    this.code = code;
    this.isRetried = isRetried;
    this.pauseMs = pauseMs;
  }
}

async function post(url: string, path: string, body: unknown, headers: object = {}): Promise<unknown> {
  let response: Response;
  let text: string;
  try {
    response = await fetch(url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(CALL_MS),
    });
    text = await response.text();
  } catch {
    throw new Refusal('unreachable', true);
  }
  if (response.ok) return JSON.parse(text);
  const retryAfter = response.headers.get('retry-after');
  const isRetried = response.status === 503 && retryAfter !== null;
  throw new Refusal(codeIn(text) ?? String(response.status), isRetried, Number(retryAfter) * 1_000 || PAUSE_MS);
}

function codeIn(problem: string): string | null {
  try {
    return (JSON.parse(problem) as { code?: string }).code ?? null;
  } catch {
    return null;
  }
}

/** Tries, at one server after the other, until it succeeds or the client is stopped (null). */
async function insist<T>(
  call: Call,
  act: (url: string) => Promise<T>,
): Promise<{ readonly value: T; readonly doubts: number } | null> {
  for (let doubts = 0; isRunning; ) {
    try {
      return { value: await act(urls[turn++ % urls.length]!), doubts };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { code, isRetried, pauseMs } = error;
      tell({ kind: 'refused', call, code, isRetried });
      if (DOUBTFUL.includes(code)) doubts++;
      await wait(pauseMs);
    }
  }
  return null;
}

interface Batch {
  readonly topic: string;
  readonly ids: readonly string[];
  readonly tasks: readonly object[];
  readonly headers: object;
}

function nextBatch(): Batch {
  const nth = batches++;
  const topic = `${options.prefix}${nth % options.topics}`;
  const ids = Array.from({ length: options.batch }, (_, i) => `${topic}#${name}/${nth}/${i}`);
  const isKeyed = options.keys && nth % 2 === 1;
  const tasks = ids.map((id, i) => ({
    payload: id + pad,
    priority: (nth + i) % 10,
    maxAttempts: MAX_ATTEMPTS,
    ...(isKeyed ? {} : { messageId: id }),
  }));
  return { topic, ids, tasks, headers: isKeyed ? { 'idempotency-key': `${name}/${nth}` } : {} };
}

interface EnqueueAnswer {
  readonly tasks: readonly { readonly id: string | null; readonly deduplicated: boolean; readonly code?: string }[];
}

async function put(): Promise<void> {
  const everyMs = (1_000 * options.batch * PUTTERS) / options.tasksPerSecond;
  while (isPutting) {
    const began = performance.now();
    const { topic, ids, tasks, headers } = nextBatch();
    tell({ kind: 'sent', ids });
    const path = `/v1/topics/${topic}/tasks`;
    const done = await insist('enqueue', (url) => post(url, path, { tasks }, headers) as Promise<EnqueueAnswer>);
    if (done === null) return;
    tellOf(ids, done.value, done.doubts);
    await wait(Math.max(0, everyMs - (performance.now() - began)));
  }
}

/** A task that was refused by itself is an error: all are alike. */
function tellOf(ids: readonly string[], { tasks }: EnqueueAnswer, doubts: number): void {
  for (const { id, code = 'no id' } of tasks) {
    if (id === null) tell({ kind: 'refused', call: 'enqueue', code, isRetried: false });
  }
  const taken = ids.flatMap((id, at) => (tasks[at]!.id === null ? [] : [{ id, task: tasks[at]! }]));
  tell({
    kind: 'acknowledged',
    ids: taken.map(({ id }) => id),
    taskIds: taken.map(({ task }) => task.id!),
    doubts,
    known: taken.filter(({ task }) => task.deduplicated).length,
  });
}

interface Leased {
  readonly id: string;
  readonly leaseId: string;
}

async function work(): Promise<void> {
  const request = {
    topics: [`${options.prefix}*`],
    max: LEASE_MAX,
    waitMs: WAIT_MS,
    leaseMs: options.leaseMs,
    worker: name,
  };
  while (isRunning) {
    const leased = await insist('lease', (url) => post(url, '/v1/leases', request));
    const { tasks } = (leased?.value ?? { tasks: [] }) as {
      readonly tasks: readonly { readonly payload: string; readonly leaseId: string; readonly attempt: number }[];
    };
    const all = tasks.map(({ payload, leaseId, attempt }): Leased => {
      const id = payload.slice(0, payload.length - options.padBytes);
      tell({ kind: 'delivered', id, lease: leaseId, attempt, by: name });
      return { id, leaseId };
    });
    if (options.workMs > 0) await wait(options.workMs);
    if (all.length > 0) await settle(all);
  }
}

async function settle(all: readonly Leased[]): Promise<void> {
  for (const { id, leaseId } of all) tell({ kind: 'settling', id, lease: leaseId });
  const ack = all.map(({ leaseId }) => ({ leaseId }));
  const done = await insist('settle', (url) => post(url, '/v1/leases/settle', { ack }));
  const answers = (done?.value as { readonly ack: readonly { readonly ok: boolean }[] } | undefined)?.ack ?? [];
  for (const [at, { ok }] of answers.entries()) {
    tell({ kind: 'settled', id: all[at]!.id, lease: all[at]!.leaseId, ok });
  }
}

process.on('SIGUSR1', () => {
  isPutting = false;
});
process.on('SIGTERM', () => {
  isPutting = isRunning = false;
});
const putting = isPutting ? Promise.all(Array.from({ length: PUTTERS }, put)) : Promise.resolve();
const working = Array.from({ length: options.workers }, work);
await putting;
if (isRunning || options.tasksPerSecond > 0) tell({ kind: 'finished' });
await Promise.all(working);
