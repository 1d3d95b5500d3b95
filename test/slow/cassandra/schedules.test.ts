/** Schedules of every second on two servers as processes on one keyspace, of which one is killed as it fires. */
import { describe, expect, it, onTestFinished } from 'vitest';
import { shardOf } from '../../../src/core/message.ts';
import { testDatabase } from '../../support/cassandra/database.ts';
import { firedFor, seconds } from '../../support/firings.ts';
import { kill, shardsOf, startServer, until, untilEven, untilReady } from '../faults/support/servers.ts';

const database = await testDatabase();
const SCHEDULES_EACH = 4;
const SOON_MS = 60_000;

describe.skipIf(database === null)('schedules on two servers', () => {
  it('fire each second once, also those of the one that is killed', async () => {
    const address = database!.newAddress('replication=1');
    const first = await startServer(address);
    onTestFinished(async () => {
      await kill(first);
      await database!.drop(address);
    });
    await untilReady(first);
    const second = await startServer(address);
    onTestFinished(() => kill(second));
    await untilReady(second);
    await untilEven([first, second]);

    const namesOf = (shards: readonly number[]): string[] => {
      const names: string[] = [];
      for (let n = 0; names.length < SCHEDULES_EACH; n++)
        if (shards.includes(shardOf(`s${n}`, 256))) names.push(`s${n}`);
      return names;
    };
    const doomed = namesOf(shardsOf(second));
    const names = [...namesOf(shardsOf(first)), ...doomed];
    const made = new Map<string, number>();
    for (const [nth, name] of names.entries()) {
      // Whichever is asked, and a topic that forgets message ids at once.
      const { queue } = nth % 2 === 0 ? first : second;
      await queue.configure(name, { dedupWindowMs: 0 });
      const { createdAt } = await queue.setSchedule(name, { topic: name, pattern: '* * * * * *', payload: name });
      made.set(name, createdAt);
    }
    await until(SOON_MS, async () => {
      for (const name of names) expect((await first.queue.schedule(name)).fired).toBeGreaterThanOrEqual(2);
    });
    // As soon as a task of a schedule of its own is handed out, it has yet to note that it has fired.
    for (const task of await first.queue.lease({ topics: doomed, max: 100, waitMs: 10_000 })) {
      await first.queue.settle({ ack: [{ leaseId: task.leaseId }] });
    }
    const [task] = await first.queue.lease({ topics: doomed, waitMs: 10_000 });
    await kill(second);
    const killedAt = Date.now();
    await first.queue.settle({ ack: [{ leaseId: task!.leaseId }] });
    const { tookMs } = await until(SOON_MS, async () => {
      for (const name of names) expect((await first.queue.schedule(name)).firedUpTo).toBeGreaterThan(killedAt + 18_000);
    });
    console.log(`all fired up to 18 s behind the kill after ${Math.round(tookMs)} ms`);
    for (const name of names) await first.queue.deleteSchedule(name);
    for (const name of names) {
      const times = await firedFor(first.queue, name);
      expect(times, name).toEqual(seconds(made.get(name)!, times.at(-1)!));
      expect(times.at(-1)).toBeGreaterThan(killedAt + 18_000);
    }
  });
});
