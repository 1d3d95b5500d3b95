/**
 * The last release's server and this version's on one keyspace, while clients put tasks in and work them off: what is done
 * to upgrade a cluster, one server after the other.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shardOf } from '../../../src/core/message.ts';
import { latestSchema } from '../../../src/store/cassandra/migrate.ts';
import { keyspaceOf, testDatabase } from '../../support/cassandra/database.ts';
import { freePort } from '../../support/cassandra/node.ts';
import { firedFor } from '../../support/firings.ts';
import { type LastRelease, lastRelease } from '../../support/last-release.ts';
import { Clients } from '../faults/support/clients.ts';
import { faultOf, type Measure, PHASE_MS, underLoad } from '../faults/support/scenario.ts';
import {
  kill,
  type ServerProcess,
  shardsOf,
  startServer,
  until,
  untilEven,
  untilReady,
} from '../faults/support/servers.ts';

const database = await testDatabase();
const release = await lastRelease();
if (typeof release === 'string') console.warn(`No release to upgrade from: ${release}. This test is skipped.`);

const MEASURE: Measure = { tasksPerSecond: 60, tasksPerPhase: 60, pauseMs: 0, kills: 0 };
const SOON_MS = 60_000;
const UPGRADE = { name: 'upgrade', about: 'last release upgraded under load' };

describe.skipIf(database === null || typeof release === 'string')('an upgrade', () => {
  let last: LastRelease;
  let address: string;
  const servers: ServerProcess[] = [];
  beforeAll(() => {
    last = release as LastRelease;
    address = database!.newAddress('replication=1');
  });
  afterAll(async () => {
    await Promise.all(servers.map(kill));
    await database!.drop(address);
    await last.remove();
  });
  const start = async (...args: Parameters<typeof startServer>): Promise<ServerProcess> => {
    const server = await startServer(...args);
    servers.push(server);
    await untilReady(server);
    return server;
  };
  const schema = async (): Promise<number> => {
    const client = await database!.connect();
    const { rows } = await client.execute(
      `SELECT max(number) AS number FROM ${keyspaceOf(address)}.schema_version WHERE part = 'ebbmark'`,
    );
    await client.shutdown();
    return rows[0]!.number as number;
  };
  const nameIn = (shards: readonly number[]): string => {
    for (let n = 0; ; n++) if (shards.includes(shardOf(`s${n}`, 256))) return `s${n}`;
  };

  it(`loses nothing from ${typeof release === 'string' ? 'none' : release.name} on, server by server`, async () => {
    const old = await start(address, { root: last.root });
    const before = await schema();
    expect(before).toBeLessThan(latestSchema());
    const port = await freePort();
    const clients = new Clients('upgrade-', [old.url, `http://127.0.0.1:${port}`]);
    // Both work off through both servers, and tasks go on through retries and delays.
    for (const name of ['one', 'two']) {
      clients.start(name, { topics: 40, workers: 2, tasksPerSecond: MEASURE.tasksPerSecond / 2, keys: name === 'two' });
    }
    const settings = { maxInFlight: 3, retentionMs: 600_000 };
    await old.queue.configure('settings', settings);

    const result = await underLoad(UPGRADE, MEASURE, clients, async (note) => {
      const added = await start(address, { port });
      expect(await schema()).toBe(latestSchema());
      const { tookMs } = await untilEven([old, added]);
      note(`even shares ${Math.round(tookMs)} ms after the new one was ready`);
      expect(old.child.exitCode).toBeNull();
      await clients.acknowledge(2 * MEASURE.tasksPerPhase, PHASE_MS);

      // Each sets what it knows, whoever holds it; what the other one does not know stays.
      await added.queue.configure('settings', { weight: 7 });
      await old.queue.configure('settings', { maxAttempts: 9 });
      expect((await added.queue.topic('settings')).settings).toMatchObject({ ...settings, weight: 7, maxAttempts: 9 });

      // What is new works where the new one holds it, and is refused, for now, where the old one does.
      const schedule = { topic: 'fired', pattern: '* * * * * *', payload: 1 };
      const [known, unknown] = [nameIn(shardsOf(added)), nameIn(shardsOf(old))];
      await added.queue.setSchedule(known, schedule);
      await until(SOON_MS, async () => expect((await added.queue.schedule(known)).fired).toBeGreaterThan(1));
      await expect(added.queue.setSchedule(unknown, schedule)).rejects.toMatchObject({ code: 'not-holder' });
      // Deleted before its shard may go to the old one, which would fire it no more.
      await added.queue.deleteSchedule(known);
      const times = await firedFor(added.queue, 'fired');
      expect(new Set(times).size).toBe(times.length);

      old.child.kill('SIGTERM');
      expect(await old.ended).toMatchObject({ code: 0 });
      const after = await untilEven([added]);
      note(`all shards ${Math.round(after.tookMs)} ms after the old one had ended`);
      await added.queue.setSchedule(unknown, schedule);
      await until(SOON_MS, async () => expect((await added.queue.schedule(unknown)).fired).toBeGreaterThan(0));
      await added.queue.deleteSchedule(unknown);
    });
    console.log(result.notes.join('\n'));
    expect(faultOf(result)).toBeNull();
    expect(result.settled).toBe(result.acknowledged);
  });
});
