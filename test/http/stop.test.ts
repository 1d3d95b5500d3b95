/** Stopping the server in this process; test/cli/serve.test.ts does it by signals. */
import { describe, expect, it } from 'vitest';
import { connectRaw, eventually, startServer, type TestServer } from './support/server.ts';

const waitsForLease = '{"topics":["quiet"],"waitMs":60000}';
const leaseRequest = `POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${waitsForLease.length}\r\n\r\n${waitsForLease}`;

async function withServer(work: (server: TestServer) => Promise<void>): Promise<void> {
  const server = await startServer();
  try {
    await work(server);
  } finally {
    await server.close();
  }
}

describe('stop', () => {
  it('ends long polls at once, with an answer', () =>
    withServer(async (server) => {
      const [id] = await server.enqueue('work', { payload: 1 });
      const lease = server.call('POST', '/v1/leases', { body: { topics: ['quiet'], waitMs: 60_000 } });
      const task = server.get(`/v1/topics/work/tasks/${encodeURIComponent(id!)}?waitMs=60000`);
      const drained = server.get('/v1/topics/work?drainedWaitMs=60000');
      await eventually(() => server.queue.status().waiting === 1);
      await server.get('/healthz');
      const startedAt = performance.now();
      const stopped = server.server.stop();
      expect(await lease).toMatchObject({ status: 200, json: { tasks: [] }, headers: { connection: 'close' } });
      expect(await task).toMatchObject({ status: 200, json: { state: 'ready' } });
      expect(await drained).toMatchObject({ status: 200, json: { drained: false } });
      await stopped;
      expect(performance.now() - startedAt).toBeLessThan(2000);
    }));

  it('refuses new work on connections that are open, and new connections', () =>
    withServer(async (server) => {
      const raw = await connectRaw(server.port);
      // A body that is on its way keeps the connection busy, so that it outlives the beginning of the end.
      raw.socket.write(
        'POST /v1/topics/late/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n{"tasks":',
      );
      await server.get('/healthz');
      const stopped = server.server.stop();
      raw.socket.write(`[{"payload":1}]}  ${leaseRequest}`);
      const text = await raw.closed;
      expect(text).toMatch(/HTTP\/1\.1 (201|503) /);
      if (text.includes('503')) expect(text).toContain('"code":"shutting-down"');
      await stopped;
      await expect(connectRaw(server.port)).rejects.toThrow();
    }));

  it('answers 503 shutting-down to what is pipelined behind', () =>
    withServer(async (server) => {
      const raw = await connectRaw(server.port);
      raw.socket.write(leaseRequest);
      await eventually(() => server.queue.status().waiting === 1);
      const stopped = server.server.stop();
      raw.socket.write(leaseRequest);
      const text = await raw.closed;
      expect(text).toMatch(/^HTTP\/1\.1 200 /);
      expect(text.match(/HTTP\/1\.1/g)!.length === 1 || text.includes('"code":"shutting-down"')).toBe(true);
      await stopped;
    }));

  it('cuts off who does not finish in time, and may be called twice', () =>
    withServer(async (server) => {
      const raw = await connectRaw(server.port);
      raw.socket.write(
        'POST /v1/topics/slow/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{',
      );
      await server.get('/healthz');
      const stopped = server.server.stop(50);
      expect(server.server.stop()).toBe(stopped);
      await stopped;
      await raw.closed;
    }));
});
