import { once } from 'node:events';
import { expect, it, onTestFinished } from 'vitest';
import { backupStream } from '../../src/http/backup-stream.ts';
import type { Backup } from '../../src/queue/api.ts';
import { connectRaw, eventually, expectProblem, startServer } from './support/server.ts';

const GET = 'GET /v1/admin/backup HTTP/1.1\r\nHost: localhost\r\n\r\n';

async function filledServer() {
  const server = await startServer();
  onTestFinished(() => server.close());
  // More than what lies between the server and a reader who reads nothing.
  for (let n = 0; n < 24; n++) {
    await server.queue.enqueue(
      't',
      Array.from({ length: 1_000 }, () => ({ payload: 'x'.repeat(1_000) })),
    );
  }
  return server;
}

it('is a SQLite file of the length that was said, one at a time, and ends with its reader', async () => {
  const server = await filledServer();
  const reader = await connectRaw(server.port);
  reader.socket.write(GET);
  const head = await reader.until(/\r\n\r\n/);
  reader.socket.pause();
  expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(head).toMatch(/content-type: application\/vnd\.sqlite3\r\n/i);
  const second = await server.get('/v1/admin/backup');
  expectProblem(second, 503, 'busy');
  expect(second.headers['retry-after']).toBe('1');
  // It reads no further than its reader, and the queue goes on.
  await server.expectAlive();
  reader.socket.destroy();
  let response: Response | null = null;
  await eventually(async () => {
    response = await fetch(`${server.url}/v1/admin/backup`);
    if (response.status !== 200) await response.text();
    return response.status === 200;
  });
  const bytes = Buffer.from(await response!.arrayBuffer());
  expect(bytes.length).toBe(Number(response!.headers.get('content-length')));
  expect(bytes.toString('latin1', 0, 15)).toBe('SQLite format 3');
  // Nor is one begun for somebody who would not read it.
  expect((await server.call('HEAD', '/v1/admin/backup')).status).toBe(405);
});

it('is broken off by a stop of the server, which does not wait for it', async () => {
  const server = await filledServer();
  const reader = await connectRaw(server.port);
  reader.socket.write(GET);
  await reader.until(/\r\n\r\n/);
  reader.socket.pause();
  const at = performance.now();
  await Promise.all([server.server.stop(100), server.queue.stop()]);
  expect(performance.now() - at).toBeLessThan(10_000);
});

it('is taken from a reader that takes next to nothing', async () => {
  let isClosed = false;
  const backup: Backup = {
    bytes: 10_000_000,
    read: async () => new Uint8Array(1_000),
    close: () => {
      isClosed = true;
    },
  };
  const stream = backupStream(backup, 20);
  stream.read();
  const [error] = (await once(stream, 'error')) as [Error];
  expect(error.message).toMatch(/^the reader took \d+ bytes in 20 ms; 1048576 are the least$/);
  expect(isClosed).toBe(true);
});
