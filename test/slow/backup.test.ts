/**
 * Backups of a server under load: what is in them, what becomes of them where somebody is killed or a disk is full, and
 * what the queue feels of it.
 */
import { watch } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { auditStore } from '../../src/audit/audit.ts';
import { openQueue, openStore } from '../../src/queue/open.ts';
import { run, start } from '../cli/support/run.ts';
import { Clients } from './faults/support/clients.ts';
import { type ServerProcess, startAgain, startServer, untilReady } from './faults/support/servers.ts';
import { makeSmallDisk } from './faults/support/small-disk.ts';

const FILL_TASKS = 40_000;
const FILL_BYTES = 2_000;
const LOAD = { topics: 20, workers: 1, tasksPerSecond: 100, leaseMs: 60_000 };
const PHASE_MS = 60_000;

async function place(): Promise<{
  readonly directory: string;
  readonly store: string;
  readonly server: ServerProcess;
}> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-backup-'));
  const store = `sqlite:${join(directory, 'queue.db')}`;
  const server = await startServer(store);
  onTestFinished(async () => {
    server.child.kill('SIGKILL');
    await server.ended;
    await rm(directory, { recursive: true, force: true });
  });
  return { directory, store, server };
}

async function fill({ queue }: ServerProcess): Promise<void> {
  const payload = 'x'.repeat(FILL_BYTES);
  for (let n = 0; n < FILL_TASKS; n += 1_000)
    await queue.enqueue(
      'filled',
      Array.from({ length: 1_000 }, () => ({ payload })),
    );
}

/** Resolves once a backup has begun to write its file, and there is something in it. */
function begun(directory: string): Promise<void> {
  return new Promise((resolve) => {
    let seen = 0;
    const watcher = watch(directory, (_event, name) => {
      if (!name?.endsWith('.partial') || ++seen < 3) return;
      watcher.close();
      resolve();
    });
  });
}

/** The longest of calls one after the other, in milliseconds, until told to stop. */
function longestCall({ queue }: ServerProcess): () => Promise<{ longestMs: number; calls: number }> {
  let isOn = true;
  const measured = (async () => {
    let [longestMs, calls] = [0, 0];
    for (; isOn; calls++) {
      const at = performance.now();
      await queue.enqueue('measured', [{ payload: calls }]);
      longestMs = Math.max(longestMs, performance.now() - at);
    }
    return { longestMs, calls };
  })();
  return () => {
    isOn = false;
    return measured;
  };
}

it('holds all that was acknowledged before it began and is not settled, and passes an audit', async () => {
  const { directory, server } = await place();
  await fill(server);
  const clients = new Clients('load-', [server.url]);
  for (const name of ['one', 'two']) clients.start(name, { ...LOAD, keys: name === 'two' });
  await clients.acknowledge(300, PHASE_MS);
  const before = clients.history.open().filter(({ isSettling }) => !isSettling);
  const quiet = longestCall(server);
  await clients.acknowledge(100, PHASE_MS);
  const usual = await quiet();
  const measured = longestCall(server);
  const result = await run(['backup', join(directory, 'backup.db'), '--url', server.url, '--json']);
  const { longestMs, calls } = await measured();
  expect(result, JSON.stringify(result)).toMatchObject({ code: 0 });
  const { bytes } = JSON.parse(result.out) as { bytes: number };
  expect(bytes).toBeGreaterThan(FILL_TASKS * FILL_BYTES);
  console.log(
    `${bytes} bytes; the longest of ${usual.calls} calls before it took ${Math.round(usual.longestMs)} ms, of ${calls} calls during it ${Math.round(longestMs)} ms`,
  );
  const settledSince = new Set(before.filter(({ id }) => clients.history.isSettled(id)).map(({ id }) => id));
  await clients.stop();

  const store = `sqlite:${join(directory, 'restored.db')}`;
  const restored = await run(['restore', join(directory, 'backup.db'), '--store', store]);
  expect(restored, JSON.stringify(restored)).toMatchObject({ code: 0 });
  const looked = await openStore({ store });
  expect((await auditStore(looked)).rules).toEqual([]);
  await looked.close();
  const queue = await openQueue({ store });
  onTestFinished(() => queue.stop());
  for (const { id, taskId } of before) {
    const { state } = await queue.task(id.slice(0, id.indexOf('#')), taskId);
    if (!settledSince.has(id)) expect(['ready', 'leased'], id).toContain(state);
  }
  expect((await queue.topic('filled')).counts.ready).toBe(FILL_TASKS);
});

it('leaves no file where it, the server, or a restore is killed amid it; the server goes on', async () => {
  const { directory, store, server } = await place();
  await fill(server);
  const file = join(directory, 'backup.db');
  const killed = start(['backup', file, '--url', server.url]);
  await begun(directory);
  killed.child.kill('SIGKILL');
  expect(await killed.ended).toMatchObject({ signal: 'SIGKILL' });
  expect(await readdir(directory)).not.toContain('backup.db');
  expect((await server.queue.enqueue('t', [{ payload: 1 }]))[0]).toMatchObject({ deduplicated: false });

  const cut = start(['backup', file, '--url', server.url]);
  await begun(directory);
  server.child.kill('SIGKILL');
  const { code, err } = await cut.ended;
  expect({ code, err }).toEqual({ code: 1, err: expect.stringMatching(/broke the backup off|No server answers/) });
  await server.ended;
  expect(await readdir(directory)).not.toContain('backup.db');

  const again = await startAgain(server, store);
  onTestFinished(async () => {
    again.child.kill('SIGKILL');
    await again.ended;
  });
  await untilReady(again);
  expect((await again.queue.topic('filled')).counts.ready).toBe(FILL_TASKS);
  expect(await run(['backup', file, '--url', again.url])).toMatchObject({ code: 0 });

  const restored = join(directory, 'restored.db');
  const restoring = start(['restore', file, '--store', `sqlite:${restored}`]);
  await begun(directory);
  restoring.child.kill('SIGKILL');
  await restoring.ended;
  expect(await readdir(directory)).not.toContain('restored.db');
  expect(await run(['restore', file, '--store', `sqlite:${restored}`])).toMatchObject({ code: 0 });
});

it('fails where the disk that it goes to is full, and the server is unharmed', async () => {
  const { directory, server } = await place();
  await fill(server);
  const target = join(directory, 'small');
  const disk = await makeSmallDisk(target, 8, 512);
  if (disk?.kind !== 'tmpfs') {
    await disk?.remove();
    console.warn('No disk can be mounted here: not tested.');
    return;
  }
  onTestFinished(() => disk.remove());
  const clients = new Clients('load-', [server.url]);
  clients.start('one', LOAD);
  await clients.acknowledge(50, PHASE_MS);
  const full = await run(['backup', join(target, 'backup.db'), '--url', server.url]);
  expect(full).toMatchObject({ code: 1, err: expect.stringContaining('ENOSPC') });
  expect(await readdir(target)).toEqual([]);
  await clients.acknowledge(50, PHASE_MS);
  expect(await server.readiness()).toEqual({ ready: true, reasons: [] });
  await disk.grow(0);
  expect(await run(['backup', join(target, 'backup.db'), '--url', server.url])).toMatchObject({ code: 0 });
  // A restore to a full disk leaves what was there.
  const restored = await run(['restore', join(target, 'backup.db'), '--store', `sqlite:${join(target, 'again.db')}`]);
  expect(restored).toMatchObject({ code: 0 });
  await clients.stop();
});
