/**
 * Politeness by the limits of a topic: 200 hosts, of which each is fetched from by one worker at a time and then left alone
 * for a second, with 8 workers and two servers, one of which is killed on the way and comes back.
 */
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { testDatabase } from '../../support/cassandra/database.ts';
import { kill, type ServerProcess, startAgain, startServer, untilEven, untilReady } from '../faults/support/servers.ts';
import { fetchAll, tooSoon } from '../support/polite-crew.ts';

const database = await testDatabase();
const HOSTS = 200;
const PAGES = 8;
const REST_MS = 1_000;

describe.skipIf(database === null)('politeness', () => {
  let address: string;
  const servers: ServerProcess[] = [];
  beforeAll(async () => {
    address = database!.newAddress('replication=1');
    for (let nth = 0; nth < 2; nth++) {
      servers.push(await startServer(address));
      await untilReady(servers[nth]!);
    }
    await untilEven(servers);
  });
  afterAll(async () => {
    await Promise.all(servers.map(kill));
    await database!.drop(address);
  });

  it('holds while a server is killed, and while it comes back', async () => {
    const [first, second] = servers as [ServerProcess, ServerProcess];
    const hosts = Array.from({ length: HOSTS }, (_, nth) => `host-${nth}.example`);
    for (const [nth, host] of hosts.entries()) {
      const { queue } = nth % 2 === 0 ? first : second;
      await queue.configure(host, { maxInFlight: 1, cooldownMs: REST_MS });
      await queue.enqueue(
        host,
        Array.from({ length: PAGES }, (_, page) => ({ payload: `/${page}` })),
      );
    }
    const tasks = HOSTS * PAGES;
    const marks = new EventTarget();
    const restarted = (async () => {
      await once(marks, 'quarter');
      await kill(first);
      // Its hosts are fetched from again once the other has taken them over.
      await once(marks, 'three quarters');
      servers[0] = await startAgain(first, address);
    })();
    const log = await fetchAll({
      queues: [first.queue, second.queue],
      workers: 8,
      fetchMs: 20,
      tasks,
      onFetch: ({ length }) => {
        if (length === tasks / 4) marks.dispatchEvent(new Event('quarter'));
        if (length === (tasks * 3) / 4) marks.dispatchEvent(new Event('three quarters'));
      },
    });
    await restarted;
    expect(tooSoon(log, REST_MS)).toEqual([]);
    expect(new Set(log.map(({ id }) => id)).size).toBe(tasks);
    console.log(
      `${log.length} fetches of ${tasks} pages from ${HOSTS} hosts, none within ${REST_MS} ms of the one before`,
    );
  }, 180_000);
});
