/**
 * Two servers as processes on one keyspace of one node: who holds what, who is asked for what, and what happens where one
 * of them ends or stands still. The same under load, on three nodes, is in faults.test.ts.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { run } from '../../cli/support/run.ts';
import { testDatabase } from '../../support/cassandra/database.ts';
import { Probes } from '../faults/support/probes.ts';
import {
  kill,
  type ServerProcess,
  shardsOf,
  startAgain,
  startServer,
  until,
  untilEven,
  untilReady,
} from '../faults/support/servers.ts';

const database = await testDatabase();
/** What is promised of a server that dies. */
const TAKE_OVER_MS = 15_000;
/** Of one that stops a second is aimed at; a busy machine takes longer, and far less than a lease of a shard. */
const HAND_OVER_MS = 5_000;
/** Everything that a server on a busy machine does by the way. */
const SOON_MS = 30_000;

const leaseIds = (tasks: readonly { readonly leaseId: string }[]) => tasks.map(({ leaseId }) => ({ leaseId }));
const told = (what: string, ms: number) => console.log(`${what}: ${Math.round(ms)} ms`);

describe.skipIf(database === null)('two servers on one keyspace', () => {
  let address: string;
  let first: ServerProcess;
  let second: ServerProcess;
  beforeAll(async () => {
    address = database!.newAddress('replication=1');
    first = await startServer(address);
    await untilReady(first);
    second = await startServer(address);
    await untilReady(second);
  });
  afterAll(async () => {
    await Promise.all([first, second].map((server) => server && kill(server)));
    await database!.drop(address);
  });

  it('have even shares', async () => {
    const { value, tookMs } = await untilEven([first, second]);
    expect(value).toEqual([128, 128]);
    told('shares even after the second was ready', tookMs);
  });

  it('both hand out tasks of all topics, whoever took them in', async () => {
    const probes = new Probes('all-', 64);
    for (const [put, lease] of [
      [first, second],
      [second, first],
    ] as const) {
      await probes.put(put.queue);
      const { settled } = await probes.serve(lease.queue, SOON_MS);
      expect(settled).toBe(probes.topics.length);
    }
    // From all topics at once, without a name.
    await probes.put(first.queue);
    const topics = new Set<string>();
    await until(SOON_MS, async () => {
      const tasks = await second.queue.lease({ max: 100, waitMs: 1_000 });
      for (const { topic } of tasks) topics.add(topic);
      await second.queue.settle({ ack: leaseIds(tasks) });
      expect(topics.size).toBe(probes.topics.length);
    });
  });

  it('wake each other’s long polls, and waits for a result, within a second', async () => {
    const tookMs: number[] = [];
    const resultMs: number[] = [];
    for (const [nth, [put, wait]] of [[first, second] as const, [second, first] as const].entries()) {
      for (const topic of new Probes(`wake-${nth}-`, 8).topics) {
        const waiting = wait.queue.lease({ topics: [topic], waitMs: SOON_MS });
        await until(SOON_MS, async () => expect((await wait.queue.status()).queue.waiting).toBe(1));
        const [task] = await put.queue.enqueue(topic, [{ payload: topic }]);
        const at = performance.now();
        const tasks = await waiting;
        tookMs.push(performance.now() - at);
        expect(tasks.map(({ id }) => id)).toEqual([task!.id]);
        const done = wait.queue.task(topic, task!.id!, { waitMs: 10_000 });
        const settling = performance.now();
        await put.queue.settle({ ack: [{ leaseId: tasks[0]!.leaseId, result: 7 }] });
        expect(await done).toMatchObject({ state: 'done', result: 7 });
        resultMs.push(performance.now() - settling);
      }
    }
    // Not each: a machine that is busy with something else lets a process wait for a second.
    const [middle] = tookMs.sort((a, b) => a - b).slice(tookMs.length / 2);
    told('a long poll at the other server was answered after an enqueue, in the middle', middle!);
    expect(middle).toBeLessThan(1_000);
    const [result] = resultMs.sort((a, b) => a - b).slice(resultMs.length / 2);
    told('a wait for a result at the other server was answered after the ack, in the middle', result!);
    expect(result).toBeLessThan(1_000);
  });

  it('go on as they are beside commands on the store, which pass on what only a server can answer', async () => {
    const command = (...args: readonly string[]) => run([...args, '--store', address]);
    for (const topic of new Probes('cli-', 2).topics) {
      expect(await command('enqueue', topic, '"by hand"', '--json')).toMatchObject({ code: 0, err: '' });
      const leased = await command('lease', topic, '--wait', '10s', '--json');
      expect(leased).toMatchObject({ code: 0, err: '' });
      const [task] = (JSON.parse(leased.out) as { tasks: { payload: unknown; leaseId: string }[] }).tasks;
      expect(task?.payload).toBe('by hand');
      expect(JSON.parse((await command('topic', topic, '--json')).out)).toMatchObject({ topic, counts: { leased: 1 } });
      expect(await command('ack', task!.leaseId)).toMatchObject({ code: 0, err: '' });
    }
    expect((await untilEven([first, second])).value).toEqual([128, 128]);
  });

  it('one that is stopped hands over: the other serves all within seconds', async () => {
    const probes = new Probes('stop-', shardsOf(first));
    await probes.put(first.queue);
    first.child.kill('SIGTERM');
    const served = await probes.serve(second.queue, SOON_MS);
    told('handed over, from SIGTERM until the last shard served', served.lastMs);
    expect(served.lastMs).toBeLessThan(HAND_OVER_MS);
    expect(served.settled).toBe(probes.topics.length);
    expect(await first.ended).toMatchObject({ code: 0, err: '' });
    first = await startAgain(first, address);
    await untilReady(first);
    expect((await untilEven([first, second])).value).toEqual([128, 128]);
  });

  it('one that is killed: the other serves all within 15 s, with what was leased and delayed', async () => {
    const [probes, held] = [new Probes('kill-', shardsOf(second)), new Probes('held-', 32)];
    await held.put(first.queue);
    const { leaseIds: ids } = await held.lease(second.queue, SOON_MS);
    await probes.put(first.queue);
    await first.queue.enqueue('stalls', [{ payload: 'stalls' }]);
    const [stalled] = await first.queue.lease({ topics: ['stalls'], leaseMs: 1_000, waitMs: SOON_MS });
    await first.queue.enqueue('delayed', [{ payload: 'later', delayMs: 1_000 }]);
    await kill(second);
    const served = await probes.serve(first.queue, SOON_MS);
    told('taken over, from kill -9 until the last shard served', served.lastMs);
    expect(served.lastMs).toBeLessThan(TAKE_OVER_MS);
    const { ack } = await first.queue.settle({ ack: ids.map((leaseId) => ({ leaseId })) });
    expect(ack!.every(({ ok }) => ok)).toBe(true);
    const rest = { topics: ['stalls', 'delayed'], waitMs: SOON_MS };
    const tasks = [...(await first.queue.lease(rest)), ...(await first.queue.lease(rest))];
    const seen = new Map(tasks.map(({ payload, attempt }) => [payload, attempt]));
    expect(seen).toEqual(
      new Map([
        ['stalls', stalled!.attempt + 1],
        ['later', 1],
      ]),
    );
    second = await startAgain(second, address);
    await untilReady(second);
    expect((await untilEven([first, second])).value).toEqual([128, 128]);
  });

  it('one that was paused past its leases hands out nothing stale when it goes on, and has its share again', async () => {
    const probes = new Probes('pause-', shardsOf(second).slice(0, 64));
    await probes.put(first.queue);
    const own = new Probes('own-', shardsOf(first).slice(0, 4));
    await own.put(first.queue);
    second.child.kill('SIGSTOP');
    // What the other one has to give it gives at once, also where the call is for topics of both.
    const waits: number[] = [];
    for (const _topic of own.topics) {
      const at = performance.now();
      const tasks = await first.queue.lease({ topics: ['own-*'] });
      waits.push(performance.now() - at);
      told(`leased ${tasks.length} of its own`, waits.at(-1)!);
    }
    // It will find these when it goes on, before it finds out what it has lost.
    const late = probes.topics.map((topic) => second.queue.lease({ topics: [topic] }));
    const served = await probes.lease(first.queue, SOON_MS);
    told('taken over, from SIGSTOP until the last shard served', served.lastMs);
    second.child.kill('SIGCONT');
    expect((await Promise.all(late)).flat()).toEqual([]);
    const { ack } = await first.queue.settle({ ack: served.leaseIds.map((leaseId) => ({ leaseId })) });
    expect(ack!.filter(({ ok }) => ok)).toHaveLength(probes.topics.length);
    expect((await untilEven([first, second])).value).toEqual([128, 128]);
    await probes.put(second.queue);
    expect((await probes.serve(second.queue, SOON_MS)).settled).toBe(probes.topics.length);
  });
});
