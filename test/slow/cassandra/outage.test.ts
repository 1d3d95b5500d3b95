/** What the store says while its only node is paused or gone, and that it goes on by itself when that is back. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openCassandraStore } from '../../../src/store/cassandra/store.ts';
import type { Store } from '../../../src/store/store.ts';
import { append, definite, entry, readAll, uniqueLog } from '../../conformance/harness.ts';
import { databaseAt } from '../../support/cassandra/database.ts';
import { jarsFault } from '../../support/cassandra/jars.ts';
import { type CassandraNode, type NodeOptions, startCluster, startNode } from '../../support/cassandra/node.ts';

const fault = await jarsFault();

describe.skipIf(fault !== null)(`a node that is away${fault === null ? '' : ` (not: ${fault})`}`, () => {
  let directory: string;
  let options: NodeOptions;
  let node: CassandraNode;
  let address: string;
  let store: Store;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'ebbmark-outage-'));
    const cluster = await startCluster(directory, 1);
    [node, options] = [cluster.nodes[0]!, cluster.options[0]!];
    address = databaseAt(`${options.address}:${options.cqlPort}`).newAddress();
    store = await openCassandraStore({ address });
  });
  afterAll(async () => {
    await store?.close();
    await node?.stop();
    await rm(directory, { recursive: true });
  });

  it('leaves the outcome unknown while it is paused; the same call repeated is answered when it goes on', async () => {
    const log = uniqueLog('paused');
    // Two, so that the statement of the third is one that was sent before: preparing one is not yet a write.
    for (const i of [0, 1]) await append(store, log, [entry(i)]);
    const next = { log, segment: 0, expectNext: 2, firstId: 2, entries: [entry(2)], bytes: 2, seal: false };
    node.kill('SIGSTOP');
    // A signal takes its time to reach all threads of a process.
    while (!/^\d+ \(.*\) T/.test(await readFile(`/proc/${node.pid}/stat`, 'utf8')));
    const outcome = store.append(next).finally(() => node.kill('SIGCONT'));
    expect(await outcome).toEqual({ kind: 'unknown' });
    const repeated = await definite(() => store.append(next));
    // Applied by the first or by the second, and never by both.
    expect(['applied', 'conflict']).toContain(repeated.kind);
    expect((await readAll(store, log)).map(({ uid }) => uid)).toEqual(['uid-0', 'uid-1', 'uid-2']);
  });

  it('loses nothing that was acknowledged when it is killed, and serves again without a new store', async () => {
    const log = uniqueLog('killed');
    const acknowledged: string[] = [];
    const doubtful: string[] = [];
    const write = async (): Promise<void> => {
      for (let i = 0; ; i++) {
        const header = { expectNext: i === 0 ? null : i, firstId: i, bytes: i, seal: false };
        doubtful.push(`uid-${i}`);
        const outcome = await store.append({ log, segment: 0, entries: [entry(i)], ...header });
        if (outcome.kind !== 'applied') return;
        acknowledged.push(doubtful.pop()!);
        if (acknowledged.length === 40) node.kill('SIGKILL');
      }
    };
    await write().catch((error) => expect(error).toMatchObject({ name: 'StoreUnavailableError' }));
    expect(acknowledged.length).toBeGreaterThanOrEqual(40);
    await node.ended;

    // Refused, and not in doubt: there is nobody to send it to.
    await expect
      .poll(() =>
        store.ping().then(
          () => 'up',
          (error) => error.name,
        ),
      )
      .toBe('StoreUnavailableError');
    const late = { log: uniqueLog('late'), segment: 0, expectNext: null, firstId: 0, bytes: 1, seal: false };
    await expect(store.append({ ...late, entries: [entry(0)] })).rejects.toMatchObject({
      name: 'StoreUnavailableError',
    });
    await expect(openCassandraStore({ address })).rejects.toMatchObject({ name: 'StoreUnavailableError' });

    node = await startNode(options);
    await expect
      .poll(
        () =>
          store.ping().then(
            () => 'up',
            (error) => error.message,
          ),
        { timeout: 30_000 },
      )
      .toBe('up');
    const found = (await readAll(store, log)).map(({ uid }) => uid);
    expect(found.slice(0, acknowledged.length)).toEqual(acknowledged);
    expect([[], doubtful]).toContainEqual(found.slice(acknowledged.length));
    expect(await store.readSegment(late.log, 0, true)).toBeNull();
  });
});
