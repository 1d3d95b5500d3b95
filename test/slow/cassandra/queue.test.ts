/**
 * The queue on a real node: whole servers as processes, and a network that holds answers back. Two servers on one keyspace
 * are in servers.test.ts; what happens where nodes die is in faults.test.ts.
 */
import { afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { openQueue, type TaskInput } from '../../../src/index.ts';
import { run } from '../../cli/support/run.ts';
import { keyspaceOf, type TestDatabase, testDatabase } from '../../support/cassandra/database.ts';
import {
  kill,
  LOOK_MS,
  type ServerProcess,
  startServer,
  until,
  untilEven,
  untilReady,
} from '../faults/support/servers.ts';
import { TcpProxy } from '../faults/support/tcp-proxy.ts';
import { mainCalls } from './support/main-calls.ts';

const found = await testDatabase();

describe.skipIf(found === null)('the queue on Cassandra', () => {
  let database: TestDatabase;
  const servers: ServerProcess[] = [];
  const proxies: TcpProxy[] = [];
  const addresses: string[] = [];
  beforeAll(() => {
    database = found!;
  });
  afterEach(async () => {
    await Promise.all(servers.splice(0).map(kill));
    await Promise.all(proxies.splice(0).map((proxy) => proxy.close()));
    for (const address of addresses.splice(0)) await database.drop(address);
  });

  const newAddress = (): string => {
    const address = database.newAddress('replication=1');
    addresses.push(address);
    return address;
  };
  const serve = async (...given: Parameters<typeof startServer>): Promise<ServerProcess> => {
    const server = await startServer(...given);
    servers.push(server);
    return server;
  };
  /** A proxy before the database, and the same keyspace through it. */
  const behindProxy = async (address: string) => {
    const proxy = new TcpProxy(/\/\/([^/,]+)/.exec(address)![1]!);
    proxies.push(proxy);
    const port = await proxy.listen();
    return { proxy, address: throughPort(address, port) };
  };
  const throughPort = (address: string, port: number) => address.replace(/\/\/[^/]+/, `//127.0.0.1:${port}`);
  const leaseIds = (tasks: readonly { readonly leaseId: string }[]) => tasks.map(({ leaseId }) => ({ leaseId }));

  describe('does what it does elsewhere', () => {
    it('in process', async () => {
      const queue = await openQueue({ store: newAddress() });
      onTestFinished(() => queue.stop());
      await mainCalls(queue, 'in-process');
    });

    it('as a server, over HTTP', async () => {
      const server = await serve(newAddress());
      await untilReady(server);
      await mainCalls(server.queue, 'over-http');
      server.child.kill('SIGTERM');
      expect(await server.ended).toMatchObject({ code: 0, err: '' });
    });

    it('goes on with what was there after a stop', async () => {
      const address = newAddress();
      const first = await openQueue({ store: address });
      await first.enqueue('kept', [
        { payload: 1, messageId: 'm' },
        { payload: 2, delayMs: 5_000 },
      ]);
      expect(await first.lease({ topics: ['kept'], leaseMs: 120_000, waitMs: 10_000 })).toMatchObject([{ payload: 1 }]);
      await first.stop();
      const second = await openQueue({ store: address });
      onTestFinished(() => second.stop());
      const { ready, delayed, ...counts } = (await second.topic('kept')).counts;
      // Its time may have come meanwhile.
      expect([ready + delayed, counts]).toEqual([1, { leased: 1, dead: 0 }]);
      expect(await second.enqueue('kept', { payload: 3, messageId: 'm' })).toMatchObject({ deduplicated: true });
      expect(await second.lease({ topics: ['kept'], waitMs: 10_000 })).toMatchObject([{ payload: 2 }]);
    });
  });

  describe('answers that do not come', () => {
    /** A queue through a proxy, that has done all that a first call does. */
    const slow = async () => {
      const { proxy, address } = await behindProxy(newAddress());
      const server = await serve(address);
      await untilReady(server);
      await server.queue.enqueue('t', [{ payload: 0, messageId: 'zero' }]);
      const [task] = await server.queue.lease({ topics: ['t'], leaseMs: 120_000, waitMs: 10_000 });
      return { proxy, server, task: task! };
    };
    /** All that is there, leased and settled. */
    const drain = async ({ queue }: ServerProcess): Promise<unknown[]> => {
      const payloads: unknown[] = [];
      for (;;) {
        const lease = () => queue.lease({ topics: ['t'], max: 50, waitMs: 2_000 });
        const { value: tasks } = await until(30_000, lease);
        if (tasks.length === 0) return payloads;
        payloads.push(...tasks.map(({ payload }) => payload));
        await queue.settle({ ack: leaseIds(tasks) });
      }
    };

    it('for as long as a caller waits: it gets the true answer, and nothing is doubled', async () => {
      const { proxy, server, task } = await slow();
      proxy.hold();
      // Where nothing was written a caller is told so, and may send the same again.
      const unlessWritten = <T>(call: () => Promise<T>): Promise<T> =>
        call().catch((error: { code?: string }) => {
          if (error.code !== 'store-unavailable') throw error;
          return new Promise<T>((resolve) => setTimeout(() => resolve(unlessWritten(call)), LOOK_MS));
        });
      const put = (task: TaskInput) => unlessWritten(() => server.queue.enqueue('t', [task]));
      const all = Promise.all([
        ...Array.from({ length: 20 }, (_, n) => put({ payload: n + 1 })),
        put({ payload: 21, messageId: 'twenty-one' }),
      ]);
      const settled = unlessWritten(() => server.queue.settle({ ack: [{ leaseId: task.leaseId, result: 'done' }] }));
      // The driver gives a request up after 6 s; the answers that then are lost said what was written.
      await until(20_000, async () => {
        if ((await server.readiness()).ready) throw new Error('still thought to be well');
      });
      proxy.cut();
      const results = (await all).flat();
      expect(results.some(({ deduplicated }) => deduplicated)).toBe(false);
      expect(new Set(results.map(({ id }) => id)).size).toBe(21);
      expect((await settled).ack[0]).toMatchObject({ ok: true });
      expect(await server.queue.task('t', task.id)).toMatchObject({ state: 'done', result: 'done' });
      await untilReady(server);
      // It let go of its shards meanwhile, and takes them again at its next beat.
      await untilEven([server], 20_000);
      expect((await drain(server)).sort((a, b) => Number(a) - Number(b))).toEqual(
        Array.from({ length: 21 }, (_, n) => n + 1),
      );
    });

    it('for longer: 503 that says a retry with the same message id is safe, and it is', async () => {
      const { proxy, server, task } = await slow();
      proxy.hold();
      const tried = await Promise.allSettled([
        server.queue.enqueue('t', [{ payload: 'a', messageId: 'a' }]),
        server.queue.settle({ ack: [{ leaseId: task.leaseId, result: 'done' }] }),
      ]);
      for (const one of tried) {
        expect(one).toMatchObject({ status: 'rejected' });
        expect(['outcome-unknown', 'store-unavailable']).toContain((one as PromiseRejectedResult).reason.code);
      }
      expect((await server.readiness()).ready).toBe(false);
      proxy.cut();
      await untilReady(server);
      const retry = () => server.queue.enqueue('t', [{ payload: 'a', messageId: 'a' }]);
      const ids = new Set([(await until(30_000, retry)).value[0]!.id, (await retry())[0]!.id]);
      expect(ids.size).toBe(1);
      const acked = await until(30_000, () => server.queue.settle({ ack: leaseIds([task]) }));
      expect(acked.value.ack[0]!.ok).toBe(true);
      // It let go of its shards meanwhile, and takes them again at its next beat.
      await untilEven([server], 20_000);
      expect(await drain(server)).toEqual(['a']);
    });
  });

  it('starts while the cluster is down, and becomes ready when it is there', async () => {
    const address = newAddress();
    const { proxy, address: through } = await behindProxy(address);
    const port = Number(/:(\d+)\//.exec(through)![1]);
    await proxy.close();
    const server = await serve(through);
    const { ready, reasons } = await server.readiness();
    expect(ready).toBe(false);
    expect(reasons).toEqual([expect.stringMatching(/not reached yet: .*ECONNREFUSED/)]);
    await expect(server.queue.enqueue('t', [{ payload: 1 }])).rejects.toMatchObject({ code: 'store-unavailable' });
    await proxy.listen(port);
    await untilReady(server);
    await server.queue.enqueue('t', [{ payload: 1 }]);
    expect(await server.queue.lease({ topics: ['t'], waitMs: 5_000 })).toHaveLength(1);
  });

  it('ends by a signal also while it tries to reach a cluster that answers nothing', async () => {
    const { proxy, address } = await behindProxy(newAddress());
    proxy.hold();
    const server = await serve(address);
    server.child.kill('SIGTERM');
    expect(await server.ended).toMatchObject({ code: 0, err: '' });
  });

  describe('the schema', () => {
    it('is made by two at once, and once; a third finds it done', async () => {
      const address = newAddress();
      const both = await Promise.all([run(['migrate', '--store', address]), run(['migrate', '--store', address])]);
      for (const one of both) expect(one.code, one.err).toBe(0);
      const made = both.filter(({ out }) => out.includes('was created: schema 0 → 1 (001_tables.cql)'));
      expect(made).toHaveLength(1);
      expect((await run(['migrate', '--store', address])).out).toBe(`${address} is up to date (schema 2).\n`);
      await untilReady(await serve(address, { args: ['--migrate', 'off'] }));
    });

    it('is not made where that is off; a server that was waiting begins once it is', async () => {
      const address = newAddress();
      const refused = await run(['serve', '--listen', '127.0.0.1:0', '--store', address, '--migrate', 'off']);
      expect(refused).toMatchObject({ code: 1 });
      expect(refused.err).toContain(`ebbmark migrate --store '${address}'`);
      const topics = await run(['topics', '--store', address]);
      expect(topics).toMatchObject({ code: 1, err: expect.stringContaining('ebbmark migrate') });

      const { proxy, address: through } = await behindProxy(address);
      const port = Number(/:(\d+)\//.exec(through)![1]);
      await proxy.close();
      const server = await serve(through, { env: { EBBMARK_MIGRATE: 'off' } });
      await proxy.listen(port);
      await until(20_000, async () => expect((await server.readiness()).reasons[0]).toMatch(/migrations are off/));
      await run(['migrate', '--store', address]);
      await untilReady(server);
    });

    it('of a newer version is refused', async () => {
      const address = newAddress();
      await run(['migrate', '--store', address]);
      const client = await database.connect();
      onTestFinished(() => client.shutdown());
      const table = `${keyspaceOf(address)}.schema_version`;
      await client.execute(`INSERT INTO ${table} (part, number) VALUES ('ebbmark', 999) IF NOT EXISTS`);
      const refused = await run(['serve', '--listen', '127.0.0.1:0', '--store', address]);
      expect(refused).toMatchObject({ code: 1 });
      expect(refused.err).toMatch(/was written by a newer Ebbmark \(schema 999; this version knows up to 1\)/);
      expect(await run(['migrate', '--store', address])).toMatchObject({ code: 1, out: '' });
    });
  });
});
