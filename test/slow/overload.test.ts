/** A server in a process of its own, with many who connect and ask nothing. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'undici';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { type Running, start } from '../cli/support/run.ts';
import { connectRaw, tasksPath } from '../http/support/server.ts';
import type { Idle } from './support/idle-connections.ts';

const CROWD = 10_000;
const MIB = 1024 ** 2;

let directory: string;
let server: Running;
let url: URL;
/** A client that was there before. */
let client: Client;

const startServer = async (env: Readonly<Record<string, string>>): Promise<void> => {
  server = start(['serve', '--listen', '127.0.0.1:0', '--store', `sqlite:${join(directory, 'queue.db')}`], { env });
  url = new URL((await server.until(/"url":"([^"]+)"/))[1]!);
  client = new Client(url.origin);
};
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'ebbmark-overload-'));
});
afterEach(async () => {
  await client.destroy();
  server.child.kill('SIGKILL');
  await server.ended;
  await rm(directory, { recursive: true, force: true });
});

const call = async (method: 'GET' | 'POST', path: string, body?: unknown) => {
  const headers = { 'content-type': 'application/json' };
  const answer = await client.request(
    body === undefined ? { method, path } : { method, path, headers, body: JSON.stringify(body) },
  );
  const text = await answer.body.text();
  return { status: answer.statusCode, text };
};
const metric = async (name: string): Promise<number> =>
  Number(new RegExp(`^${name} (\\S+)$`, 'm').exec((await call('GET', '/metrics')).text)?.[1]);
const residentMb = async (): Promise<number> => Math.round((await metric('process_resident_memory_bytes')) / MIB);

/** A task goes in, comes out, and is done. @returns how long it took, in milliseconds */
async function work(): Promise<number> {
  const startedAt = performance.now();
  expect((await call('POST', tasksPath('work'), { tasks: [{ payload: 1 }] })).status).toBe(201);
  const leased = JSON.parse((await call('POST', '/v1/leases', { topics: ['work'] })).text) as {
    readonly tasks: readonly { readonly leaseId: string }[];
  };
  const ack = leased.tasks.map(({ leaseId }) => ({ leaseId }));
  expect(ack).toHaveLength(1);
  const settled = await call('POST', '/v1/leases/settle', { ack });
  expect(settled.text).toContain('"ok":true');
  return performance.now() - startedAt;
}

/** Opens many connections from another process. @returns what became of them when the predicate first holds */
function crowd(): { until(holds: (idle: Idle) => boolean): Promise<Idle>; leave(): Promise<unknown> } {
  const file = new URL('./support/idle-connections.ts', import.meta.url);
  const child = fork(file, [url.port, String(CROWD)], { execArgv: ['--import', 'tsx'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  return {
    until: async (holds) => {
      for (;;) {
        const [idle] = (await once(child, 'message')) as [Idle];
        if (holds(idle)) return idle;
      }
    },
    leave: () => {
      child.kill('SIGKILL');
      return once(child, 'exit');
    },
  };
}
const total = ({ open, busy, late, dropped }: Idle): number => open + busy + late + dropped;

describe(`${CROWD} idle connections`, () => {
  it('against a limit of 1,000: the others are refused, and who was connected goes on', async () => {
    await startServer({ EBBMARK_MAX_CONNECTIONS: '1000' });
    await work();
    const before = await residentMb();
    const idle = crowd();
    const times: number[] = [];
    let isOver = false;
    const working = (async () => {
      while (!isOver) times.push(await work());
    })();
    const came = await idle.until((now) => total(now) === CROWD && now.open <= 999);
    isOver = true;
    await working;
    const during = await residentMb();
    console.log({ ...came, worked: times.length, slowestMs: Math.max(...times), residentMb: { before, during } });
    expect(came.open).toBe(999);
    expect(came.busy + came.dropped).toBe(CROWD - 999);
    // Told at most so many at once, the rest is closed without a word; most come one after the other.
    expect(came.busy).toBeGreaterThan(CROWD / 2);
    expect(times.length).toBeGreaterThan(0);
    expect(Math.max(...times)).toBeLessThan(2_000);
    expect(during - before).toBeLessThan(200);
    expect(await (await connectRaw(Number(url.port))).closed).toMatch(/^HTTP\/1\.1 503 /);
    await idle.leave();
    // There is room again.
    for (;;) {
      const answer = await fetch(`${url.origin}/healthz`).catch(() => null);
      if (answer?.status === 200) break;
    }
    await work();
  });

  it('within the limit are ended when they have asked nothing for 20 s, and nobody else notices', async () => {
    await startServer({ EBBMARK_MAX_CONNECTIONS: '12000' });
    await work();
    const before = await residentMb();
    const idle = crowd();
    const came = await idle.until((now) => total(now) === CROWD);
    const during = await residentMb();
    console.log({ ...came, residentMb: { before, during } });
    expect(came.dropped + came.busy).toBe(0);
    expect(during - before).toBeLessThan(500);
    const times: number[] = [];
    let isOver = false;
    const working = (async () => {
      while (!isOver) times.push(await work());
    })();
    const ended = await idle.until((now) => now.open === 0);
    isOver = true;
    await working;
    console.log({ ...ended, slowestMs: Math.max(...times) });
    expect(ended.late).toBe(CROWD);
    expect(Math.max(...times)).toBeLessThan(5_000);
    await idle.leave();
  });
});

describe('a connection over the limit that stays', () => {
  it('is closed after five seconds, whatever it does', async () => {
    await startServer({ EBBMARK_MAX_CONNECTIONS: '1' });
    await work();
    const socket = net.connect({ port: Number(url.port), host: '127.0.0.1', allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {});
    const startedAt = performance.now();
    const timer = setInterval(() => socket.write('x'.repeat(1000)), 50);
    await new Promise((resolve) => socket.resume().once('close', resolve));
    clearInterval(timer);
    expect(performance.now() - startedAt).toBeGreaterThan(4_000);
    expect(performance.now() - startedAt).toBeLessThan(8_000);
    await work();
  });
});
