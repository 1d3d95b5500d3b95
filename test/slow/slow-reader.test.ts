import { once } from 'node:events';
import net from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { eventually, startServer, tasksPath } from '../http/support/server.ts';

describe('a reader that takes a byte a second', () => {
  it('is ended after a time and as much again for each MiB, and what it leased is given back', async () => {
    // A tenth of what it is where nobody says otherwise.
    const answerMs = 3_000;
    const slow = await startServer({ timeouts: { answerMs } });
    onTestFinished(() => slow.close());
    // Larger than what the system takes on for who doesn't read, together with a page before it.
    for (let n = 0; n < 20; n++) await slow.enqueue('slow', { payload: 'x'.repeat(250_000) });
    await slow.enqueue('small', { payload: 'x'.repeat(100_000) }, { payload: 'x'.repeat(100_000) });
    const socket = net.connect(Number(new URL(slow.url).port), '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {});
    const closed = once(socket, 'close');
    const page = `GET ${tasksPath('slow')}?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    const lease = '{"topics":["small"],"max":10,"leaseMs":600000}';
    socket.write(
      `${page}${page}POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${lease.length}\r\n\r\n${lease}`,
    );
    const timer = setInterval(() => socket.read(1), 1_000);
    socket.pause();
    const startedAt = performance.now();
    await eventually(() => slow.queue.status().leased === 2);
    await eventually(() => slow.queue.status().leased === 0);
    const ms = performance.now() - startedAt;
    clearInterval(timer);
    console.log({ endedAfterMs: Math.round(ms), taken: socket.bytesRead });
    expect(ms).toBeGreaterThan(answerMs);
    expect(ms).toBeLessThan(6 * answerMs);
    const again = await slow.queue.lease({ topics: ['small'], max: 10 });
    expect(again.map(({ attempt }) => attempt)).toEqual([1, 1]);
    // It reads on until it learns of it.
    socket.resume();
    await closed;
  });
});
