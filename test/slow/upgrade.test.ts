/** A SQLite file that the last release has made, with tasks in all states, goes on under this version. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { auditStore } from '../../src/audit/audit.ts';
import { openQueue, openStore } from '../../src/queue/open.ts';
import { latestSchema } from '../../src/store/sqlite/migrate.ts';
import { run } from '../cli/support/run.ts';
import { lastRelease } from '../support/last-release.ts';
import { startServer, untilReady } from './faults/support/servers.ts';

const release = await lastRelease();
if (typeof release === 'string') console.warn(`No release to upgrade from: ${release}. This test is skipped.`);

describe.skipIf(typeof release === 'string')('a SQLite file of the last release', () => {
  it('goes on, and is refused by that release from then on', async () => {
    if (typeof release === 'string') return;
    const directory = await mkdtemp(join(tmpdir(), 'ebbmark-upgrade-'));
    onTestFinished(async () => {
      await rm(directory, { recursive: true, force: true });
      await release.remove();
    });
    const path = join(directory, 'queue.db');
    const store = `sqlite:${path}`;
    const server = await startServer(store, { root: release.root });
    onTestFinished(async () => {
      server.child.kill('SIGKILL');
      await server.ended;
    });
    await untilReady(server);
    const old = server.queue;
    await old.configure('t', { backoffMs: 0, maxAttempts: 9 });
    const put = async (count: number, more: object = {}) =>
      (
        await old.enqueue(
          't',
          Array.from({ length: count }, (_, n) => ({ payload: n, ...more })),
        )
      ).map(({ id }) => id!);
    const lease = async (ids: readonly string[]) => {
      const tasks = await old.lease({ topics: ['t'], max: ids.length, leaseMs: 600_000 });
      expect(tasks.map(({ id }) => id).sort()).toEqual([...ids].sort());
      return tasks.map(({ leaseId }) => ({ leaseId }));
    };
    const done = await put(3, { metadata: { a: 'b' } });
    await old.settle({ ack: (await lease(done)).map((one) => ({ ...one, result: { ok: true } })) });
    const dead = await put(2);
    await old.settle({ nack: (await lease(dead)).map((one) => ({ ...one, dead: true, reason: 'why' })) });
    const leased = await put(2);
    const held = await lease(leased);
    await old.settle({ progress: held.map((one) => ({ ...one, position: { at: 7 } })) });
    const retried = await put(1);
    await old.settle({ nack: (await lease(retried)).map((one) => ({ ...one, delayMs: 0 })) });
    const [cancelled] = await put(1, { delayMs: 3_600_000 });
    await old.cancel('t', cancelled!);
    const delayed = [...(await put(1, { delayMs: 3_600_000 })), ...(await put(1, { delayMs: 30 * 86_400_000 }))];
    const [known] = await old.enqueue('t', [{ payload: 'known', messageId: 'known' }]);
    const expected = async (queue: Pick<typeof old, 'task'>) =>
      Promise.all(
        [...done, ...dead, ...leased, ...retried, cancelled!, ...delayed, known!.id!].map((id) => queue.task('t', id)),
      );
    const before = await expected(old);
    expect(new Set(before.map(({ state }) => state))).toEqual(
      new Set(['done', 'dead', 'leased', 'ready', 'cancelled', 'delayed']),
    );
    // As a crash leaves it, with a log beside it.
    server.child.kill('SIGKILL');
    await server.ended;

    // What is as it was made can be backed up by this version, before it is changed.
    expect(await run(['backup', join(directory, 'before.db'), '--store', store])).toMatchObject({ code: 0 });
    const migrated = await run(['migrate', '--store', store]);
    expect(migrated).toMatchObject({ code: 0, out: expect.stringContaining(`→ ${latestSchema()} (`) });
    const looked = await openStore({ store, migrate: false });
    expect((await auditStore(looked)).rules).toEqual([]);
    await looked.close();
    const queue = await openQueue({ store });
    expect(await expected(queue)).toEqual(before);
    expect((await queue.topic('t')).settings).toMatchObject({ backoffMs: 0, maxAttempts: 9 });
    // Leases, message ids and dead letters of then are as good as ever, and what is new works.
    expect((await queue.settle({ ack: held })).ack).toMatchObject([{ ok: true }, { ok: true }]);
    expect(await queue.enqueue('t', { payload: 0, messageId: 'known' })).toMatchObject({ deduplicated: true });
    expect(await queue.redrive('t')).toMatchObject({ redriven: 2 });
    await queue.setSchedule('s', { topic: 't', pattern: '@yearly', payload: 1 });
    expect(queue.status().space).toMatchObject({ givesBack: false });
    await queue.stop();
    expect(await run(['compact', '--store', store])).toMatchObject({ code: 0 });

    const bytes = await readFile(path);
    const refused = await run(['serve', '--listen', '127.0.0.1:0', '--store', store], { root: release.root });
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining('was written by a newer Ebbmark') });
    expect((await readFile(path)).equals(bytes)).toBe(true);
    // The way back is the backup.
    const restored = await startServer(`sqlite:${join(directory, 'before.db')}`, { root: release.root });
    onTestFinished(async () => {
      restored.child.kill('SIGKILL');
      await restored.ended;
    });
    await untilReady(restored);
    expect(await restored.queue.task('t', known!.id!)).toMatchObject({ state: 'ready', payload: 'known' });
  });
});
