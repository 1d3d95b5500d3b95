/** Two servers on one store that speak to each other by TLS, over real sockets, each showing a certificate to the other. */
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import type { TlsCredentials, TlsSource } from '../../src/core/tls.ts';
import { createServer } from '../../src/http/server.ts';
import { silentLogger } from '../../src/queue/engine.ts';
import { systemEnvironment } from '../../src/queue/environment.ts';
import { HttpTransport } from '../../src/queue/peer-transport.ts';
import { PeerUnreachableError } from '../../src/queue/peers.ts';
import { LocalQueue } from '../../src/queue/queue.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import type { Store } from '../../src/store/store.ts';
import { type Authority, makeAuthority, type Pair } from '../support/authority.ts';
import { throughADoor } from '../support/shared-store.ts';

let authority: Authority;
let own: Pair;
let right: TlsCredentials;
beforeAll(async () => {
  authority = await makeAuthority('tests');
  own = await authority.issue('server');
  right = { ca: authority.ca, ...own };
});

async function openStore(): Promise<Store> {
  const store = await openSqliteStore(':memory:', { now: systemEnvironment().now, meta: { shards: 8 } });
  onTestFinished(() => store.close());
  return store;
}

/** A server that admits only who shows a certificate. */
async function serve(store: Store, tls: TlsSource): Promise<LocalQueue> {
  const { shared } = throughADoor(store);
  const queue = await LocalQueue.start(shared, systemEnvironment(), silentLogger, new HttpTransport(tls));
  const server = await createServer(queue, { peers: queue.peers, tls: { ...own, clientCa: authority.ca } });
  await queue.reachableAt(await server.listen('127.0.0.1', 0));
  onTestFinished(async () => {
    await Promise.all([server.stop(0), queue.stop()]);
  });
  return queue;
}

test('servers pass calls on to each other', async () => {
  const store = await openStore();
  const first = await serve(store, right);
  const second = await serve(store, right);
  await expect.poll(() => [first, second].map((queue) => queue.status().shards.held)).toEqual([4, 4]);
  const topics = Array.from({ length: 24 }, (_, nth) => `t${nth}`);
  for (const topic of topics) await first.enqueue(topic, { payload: topic });
  // Half of the topics are the other one's, and all are leased here.
  const leased = new Set<string>();
  while (leased.size < topics.length) {
    const tasks = await second.lease({ max: 100, waitMs: 10_000 });
    expect(tasks).not.toHaveLength(0);
    for (const { topic } of tasks) leased.add(topic);
  }
  // A call that only the holder can answer.
  for (const topic of topics) expect((await first.cursors(topic)).priorities[0]).toMatchObject({ inFlight: 1 });
});

test('a certificate that is not right is told of once, and what is renewed is used with the next connection', async () => {
  const store = await openStore();
  await serve(store, right);
  const [node] = await store.readNodes();
  expect(node!.address).toMatch(/^https:/);
  const told: unknown[] = [];
  const tell = (fields: object, message: string) => void told.push([fields, message]);
  let tls: TlsCredentials = {};
  const transport = new HttpTransport(() => tls, { info: tell, warn: tell, error: tell });
  const call = () => transport.call(node!, 'look', {}, { timeoutMs: 10_000 });

  for (let nth = 0; nth < 3; nth++) await expect(call()).rejects.toThrow(PeerUnreachableError);
  const message = 'another server cannot be called; look at the certificates here and there';
  const { address } = node!;
  expect(told).toEqual([[{ address, code: 'SELF_SIGNED_CERT_IN_CHAIN' }, message]]);
  tls = { ca: authority.ca };
  await expect(call()).rejects.toThrow(PeerUnreachableError);
  expect(told[1]).toEqual([{ address, code: 'UND_ERR_SOCKET' }, message]);
  tls = right;
  await expect(call()).resolves.toEqual({});
});
