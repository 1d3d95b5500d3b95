/** The way to other servers, over real sockets. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, onTestFinished, test } from 'vitest';
import { HttpTransport } from '../../src/queue/peer-transport.ts';
import { PeerUnreachableError } from '../../src/queue/peers.ts';

const transport = new HttpTransport();

/** A server that takes calls and answers none, as one that is paused. */
async function silentServer() {
  const server = createServer(() => {}).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { id: 'silent', address: `http://127.0.0.1:${port}`, secret: 's', beat: 1, holds: true };
}

/** Collects garbage over and over until the test is over. */
function collecting(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const collector = setInterval(collect, 10);
  onTestFinished(() => clearInterval(collector));
}

test('a server that never answers is given up in time, whatever is collected meanwhile', async () => {
  const node = await silentServer();
  collecting();
  const calls = Array.from({ length: 10 }, () => {
    const { signal } = new AbortController();
    return transport.call(node, 'wait', { interests: [], waitMs: 60_000 }, { signal, timeoutMs: 200 });
  });
  for (const call of await Promise.allSettled(calls)) {
    expect(call).toMatchObject({ status: 'rejected', reason: expect.any(PeerUnreachableError) });
  }
});

test('a call whose caller has gone is given up at once', async () => {
  const node = await silentServer();
  collecting();
  const gone = new AbortController();
  const call = transport.call(node, 'look', {}, { signal: gone.signal, timeoutMs: 60_000 });
  setImmediate(() => gone.abort());
  await expect(call).rejects.toThrow(PeerUnreachableError);
  await expect(transport.call(node, 'look', {}, { signal: gone.signal, timeoutMs: 60_000 })).rejects.toThrow(
    PeerUnreachableError,
  );
});
