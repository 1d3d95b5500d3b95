/** The server's log, where nobody takes it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { LogStream } from '../../src/cli/log-stream.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

describe('the stream of lines', () => {
  /** A sink that takes nothing until it is told to. */
  function stuck() {
    const taken: string[] = [];
    let pending: ((error?: Error | null) => void) | null = null;
    const resumed: number[] = [];
    const stream = new LogStream(
      (text, done) => {
        taken.push(text);
        pending = done;
      },
      (lines) => {
        resumed.push(lines);
        stream.write(`dropped ${lines}\n`);
      },
    );
    const goOn = (error?: Error): void => {
      const done = pending;
      pending = null;
      done?.(error);
    };
    return { stream, taken, resumed, goOn };
  }

  test('keeps what there is room for, drops and counts the rest, and tells of it once', () => {
    const { stream, taken, resumed, goOn } = stuck();
    const line = `${'x'.repeat(1_023)}\n`;
    for (let nth = 0; nth < 2_000; nth++) stream.write(line);
    // One was being written, and half a mebibyte waits.
    expect(stream.dropped).toBe(2_000 - 1 - 512);
    for (let turn = 0; turn < 20; turn++) goOn();
    expect(resumed).toEqual([2_000 - 513]);
    const lines = taken.join('').split('\n');
    expect(lines.filter((one) => one.startsWith('x'))).toHaveLength(513);
    expect(lines.filter((one) => one.startsWith('dropped'))).toEqual(['dropped 1487']);
    expect(taken.every((chunk) => chunk.length <= 64 * 1024)).toBe(true);
  });

  test('a write that fails drops its lines; a flush takes no longer than it may', async () => {
    const { stream, goOn } = stuck();
    stream.write('a\n');
    stream.write('b\n');
    goOn(new Error('no space left'));
    expect(stream.dropped).toBe(1);
    const at = performance.now();
    await stream.flush(50);
    expect(performance.now() - at).toBeLessThan(1_000);
  });

  test('a flush ends with the last line', async () => {
    const { stream, taken, goOn } = stuck();
    await stream.flush(60_000);
    stream.write('a\n');
    const flushed = stream.flush(60_000);
    goOn();
    await flushed;
    expect(taken).toEqual(['a\n']);
  });
});

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as { port: number };
  probe.close();
  await once(probe, 'close');
  return port;
}

/** A server whose standard output nobody reads yet, or that writes it to a file. */
async function unread(stdout: 'pipe' | number) {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-log-'));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const args = ['serve', '--listen', `127.0.0.1:${port}`, '--store', `sqlite:${join(directory, 'q.db')}`];
  const child = spawn(process.execPath, ['dist/cli.js', ...args, '--log-level', 'debug'], {
    cwd: ROOT,
    env: { PATH: process.env.PATH ?? '' },
    stdio: ['ignore', stdout, 'pipe'],
  });
  const ended = once(child, 'exit');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await ended;
    await rm(directory, { recursive: true, force: true });
  });
  const isUp = () =>
    fetch(`${url}/healthz`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isUp())) if (child.exitCode !== null) throw new Error('the server did not start');
  const dropped = async () => {
    const metrics = await (await fetch(`${url}/metrics`)).text();
    return Number(/^ebbmark_log_lines_dropped_total (\d+)$/m.exec(metrics)![1]);
  };
  return { child, ended, url, dropped };
}

describe('a server', () => {
  test('whose standard output nobody reads goes on, drops lines, and says so when it is read again', async () => {
    const { child, ended, url, dropped } = await unread('pipe');
    let slowest = 0;
    const call = async (): Promise<void> => {
      const at = performance.now();
      await (await fetch(`${url}/healthz`)).text();
      slowest = Math.max(slowest, performance.now() - at);
    };
    while ((await dropped()) < 100) await Promise.all(Array.from({ length: 200 }, call));
    expect(slowest).toBeLessThan(5_000);
    const status = await (await fetch(`${url}/status`)).text();
    expect(status).toMatch(/^log lines dropped {2}\d{3}/m);

    let out = '';
    child.stdout!.setEncoding('utf8');
    const told = new Promise<RegExpExecArray>((resolve) => {
      child.stdout!.on('data', (chunk: string) => {
        out += chunk;
        const match = /"level":"warn".*"lines":(\d+),"msg":"lines of this log found no room/.exec(out);
        if (match !== null) resolve(match);
      });
    });
    expect(Number((await told)[1])).toBeGreaterThanOrEqual(100);
    child.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
    expect(out).toContain('"msg":"stopped"');
    for (const line of out.trimEnd().split('\n')) expect(() => JSON.parse(line), line).not.toThrow();
  });

  test('ends in time although nobody reads its last lines', async () => {
    const { child, ended, url, dropped } = await unread('pipe');
    while ((await dropped()) === 0) {
      await Promise.all(Array.from({ length: 200 }, () => fetch(`${url}/healthz`).then((answer) => answer.text())));
    }
    const at = performance.now();
    child.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
    expect(performance.now() - at).toBeLessThan(5_000);
  });

  test('whose reader has gone, or whose disk is full, goes on', async () => {
    const full = openSync('/dev/full', 'w');
    onTestFinished(() => closeSync(full));
    const onFull = await unread(full);
    expect((await fetch(`${onFull.url}/readyz`)).status).toBe(200);
    while ((await onFull.dropped()) === 0) await fetch(`${onFull.url}/healthz`);

    const closed = await unread('pipe');
    closed.child.stdout!.destroy();
    while ((await closed.dropped()) === 0) await fetch(`${closed.url}/healthz`);
    for (const { child, ended } of [onFull, closed]) {
      child.kill('SIGTERM');
      expect(await ended).toEqual([0, null]);
    }
  });
});
