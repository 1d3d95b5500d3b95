/**
 * One client under load: puts tasks in, works them off, and writes down all it knows, so that a checker can tell later
 * whether the queue kept its word.
 *
 *     load.ts TOPIC NAME TASKS_PER_SECOND URL…
 *
 * It puts in until it is sent SIGUSR1, then only works off, until SIGTERM. Each line of its standard output is an Event
 * (history.ts).
 */
import { setTimeout as wait } from 'node:timers/promises';
import { RemoteQueue } from '../../../../src/cli/remote-queue.ts';
import { QueueError } from '../../../../src/core/errors.ts';
import type { Event } from './history.ts';

/** Tasks of one call. */
const BATCH = 5;
const LEASE_MAX = 20;
/** Longer than a pause of a server, shorter than a scenario: some are handed out again. */
const LEASE_MS = 20_000;
const WAIT_MS = 1_000;
/** After a refusal, before the next try. */
const PAUSE_MS = 250;
/** Answers after which it is not known whether something was written. */
const DOUBTFUL = ['outcome-unknown', 'unreachable', 'internal'];

const [topic = '', name = '', rate = '', ...urls] = process.argv.slice(2);
const servers = urls.map((url) => new RemoteQueue(url));
let isPutting = true;
let isRunning = true;
let turn = 0;

const tell = (event: Event): boolean => process.stdout.write(`${JSON.stringify(event)}\n`);

/** Tries, at one server after the other, until it succeeds or the client is stopped (null). */
async function insist<T>(
  call: 'enqueue' | 'settle',
  act: (queue: RemoteQueue) => Promise<T>,
): Promise<{ readonly value: T; readonly doubts: number } | null> {
  for (let doubts = 0; isRunning; ) {
    try {
      return { value: await act(servers[turn++ % servers.length]!), doubts };
    } catch (error) {
      const code = codeOf(error);
      tell({ kind: 'refused', call, code });
      if (DOUBTFUL.includes(code)) doubts++;
      await wait(PAUSE_MS);
    }
  }
  return null;
}

const codeOf = (error: unknown): string => (error instanceof QueueError ? error.code : 'unreachable');

async function put(): Promise<void> {
  const everyMs = (1_000 * BATCH) / Number(rate);
  for (let n = 0; isPutting; n++) {
    const began = performance.now();
    const ids = Array.from({ length: BATCH }, (_, i) => `${name}/${n * BATCH + i}`);
    const tasks = ids.map((id, i) => ({ payload: id, messageId: id, priority: (n + i) % 10 }));
    tell({ kind: 'sent', ids });
    const done = await insist('enqueue', (queue) => queue.enqueue(topic, tasks));
    if (done === null) break;
    const known = done.value.filter(({ deduplicated }) => deduplicated).length;
    tell({ kind: 'acknowledged', ids, doubts: done.doubts, known });
    await wait(Math.max(0, everyMs - (performance.now() - began)));
  }
  tell({ kind: 'finished' });
}

async function work(): Promise<void> {
  for (let at = 0; isRunning; ) {
    try {
      const queue = servers[at % servers.length]!;
      const tasks = await queue.lease({
        topics: [topic],
        max: LEASE_MAX,
        waitMs: WAIT_MS,
        leaseMs: LEASE_MS,
        worker: name,
      });
      for (const { payload, leaseId: lease, attempt } of tasks) {
        tell({ kind: 'delivered', id: String(payload), lease, attempt });
      }
      if (tasks.length === 0) continue;
      const ack = tasks.map(({ leaseId }) => ({ leaseId }));
      const done = await insist('settle', (some) => some.settle({ ack }));
      for (const [i, { ok }] of (done?.value.ack ?? []).entries()) {
        tell({ kind: 'settled', id: String(tasks[i]!.payload), lease: tasks[i]!.leaseId, ok });
      }
    } catch (error) {
      const code = codeOf(error);
      // Another one hands out: no trouble, but the way it is.
      if (code !== 'not-holder') tell({ kind: 'refused', call: 'lease', code });
      at++;
      await wait(PAUSE_MS);
    }
  }
}

process.on('SIGUSR1', () => {
  isPutting = false;
});
process.on('SIGTERM', () => {
  isPutting = isRunning = false;
});
await Promise.all([put(), work()]);
