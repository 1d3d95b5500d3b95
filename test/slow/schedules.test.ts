/**
 * A schedule of every second on real server processes that are killed around its firings: as soon as a worker gets a task
 * of it, which is when the server has yet to note that it has fired. In the end there is one task a second.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { firedFor, seconds } from '../support/firings.ts';
import { kill, startAgain, startServer } from './faults/support/servers.ts';

const LASTS_MS = 20_000;
/** Of the firings that a worker gets, every so many-th is the last that the server makes. */
const KILL_EVERY = 3;

// A topic that forgets message ids at once: what keeps a firing from being made twice is the schedule's own.
it.each([
  ['acknowledged before the kill', true],
  ['left to its lease', false],
] as const)('each second has one task, %s', async (_about, acks) => {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-schedules-'));
  const store = `sqlite:${join(directory, 'queue.db')}`;
  let server = await startServer(store);
  onTestFinished(async () => {
    await kill(server);
    await rm(directory, { recursive: true, force: true });
  });
  await server.queue.configure('t', { dedupWindowMs: 0 });
  const made = await server.queue.setSchedule('s', { topic: 't', pattern: '* * * * * *', payload: 1 });
  const end = made.createdAt + LASTS_MS;
  let [firings, kills] = [0, 0];
  for (let last = 0; last < end; ) {
    const [task] = await server.queue.lease({ topics: ['t'], waitMs: 30_000, leaseMs: 60_000 });
    last = Math.max(last, Date.parse(task!.metadata['ebbmark-fired-for']!));
    const isLast = ++firings % KILL_EVERY === 0;
    if (acks || !isLast) await server.queue.settle({ ack: [{ leaseId: task!.leaseId }] });
    if (!isLast) continue;
    await kill(server);
    kills++;
    server = await startAgain(server, store);
  }
  await server.queue.deleteSchedule('s');
  const times = await firedFor(server.queue, 't');
  console.log(`${times.length} firings, ${kills} kills`);
  expect(times).toEqual(seconds(made.createdAt, times.at(-1)!));
  expect(times.at(-1)).toBeGreaterThanOrEqual(end);
  expect(kills).toBeGreaterThanOrEqual(3);
});
