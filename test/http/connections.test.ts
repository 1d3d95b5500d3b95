/** What happens on a connection beneath HTTP's requests: reuse, pipelining, breaks, and what is no HTTP at all. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { connectRaw, eventually, startServer, type TestServer, tasksPath } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterEach(() => server.expectAlive());
afterAll(() => server.close());

const PATH = tasksPath('connections');
const request = (method: string, path: string, body = '', headers = '') =>
  `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${body === '' ? '' : 'Content-Type: application/json\r\n'}${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const enqueue = (payload: string) => request('POST', PATH, `{"tasks":[{"payload":${payload}}]}`);

describe('a connection', () => {
  it('is kept for the next request, also after a refusal', async () => {
    const raw = await connectRaw(server.port);
    raw.socket.write(enqueue('1'));
    await raw.until(/HTTP\/1\.1 201 [\s\S]*"deduplicated":false/);
    raw.socket.write(request('POST', PATH, '{"tasks":'));
    await raw.until(/HTTP\/1\.1 400 [\s\S]*not JSON/);
    raw.socket.write(request('GET', '/nowhere'));
    await raw.until(/HTTP\/1\.1 404 [\s\S]*not-found/);
    raw.socket.write(enqueue('2'));
    await raw.until(/HTTP\/1\.1 404 [\s\S]*HTTP\/1\.1 201 /);
    raw.socket.destroy();
  });

  it('answers pipelined requests in their order', async () => {
    const raw = await connectRaw(server.port);
    raw.socket.write(
      enqueue('1') + request('GET', '/healthz') + request('GET', '/nowhere') + enqueue('2') + enqueue('x'),
    );
    const text = await raw.until(/(HTTP\/1\.1[\s\S]*){5}not JSON/);
    expect([...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map((match) => match[1])).toEqual([
      '201',
      '200',
      '404',
      '201',
      '400',
    ]);
    raw.socket.destroy();
  });

  it('may break off anywhere', async () => {
    const whole = enqueue('"abcdefghij"');
    for (const length of [1, 5, whole.indexOf('\r\n') + 1, whole.indexOf('\r\n\r\n') + 4, whole.length - 3]) {
      const raw = await connectRaw(server.port);
      raw.socket.write(whole.slice(0, length));
      raw.socket.destroy();
      await raw.closed;
    }
    const before = server.queue.status().enqueued;
    const raw = await connectRaw(server.port);
    raw.socket.write(whole);
    raw.socket.destroy();
    // What arrived whole is done, though nobody hears of it.
    await eventually(() => server.queue.status().enqueued > before);
  });

  it('may bring its request byte by byte', async () => {
    const raw = await connectRaw(server.port);
    raw.socket.setNoDelay(true);
    for (const char of enqueue('"é"')) raw.socket.write(char);
    await raw.until(/HTTP\/1\.1 201 /);
    raw.socket.destroy();
  });

  it('ends the waits of a client that closes its side', async () => {
    const raw = await connectRaw(server.port);
    raw.socket.write(request('POST', '/v1/leases', '{"topics":["half"],"waitMs":30000}'));
    await eventually(() => server.queue.status().waiting === 1);
    raw.socket.end();
    await eventually(() => server.queue.status().waiting === 0);
    await raw.closed;
  });
});

describe('what is no request', () => {
  it('behind a request that waits is not answered as if it were that one', async () => {
    const raw = await connectRaw(server.port);
    raw.socket.write(request('POST', '/v1/leases', '{"topics":["before"],"waitMs":30000}'));
    await eventually(() => server.queue.status().waiting === 1);
    raw.socket.write('garbage\r\n\r\n');
    expect(await raw.closed).toBe('');
    await eventually(() => server.queue.status().waiting === 0);
  });

  it.each([
    ['not HTTP', 'hello\r\n\r\n', 400, 'invalid-input'],
    ['TLS', '\u0016\u0003\u0001\u0002\u0000\u0001', 400, 'invalid-input'],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'invalid-input'],
    ['an unknown method', 'BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n', 400, 'invalid-input'],
    ['a header without a name', 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n: y\r\n\r\n', 400, 'invalid-input'],
    ['a space before the colon', 'GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n', 400, 'invalid-input'],
    [
      'two lengths',
      'POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}',
      400,
      'invalid-input',
    ],
    [
      'a length and chunks',
      'POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      400,
      'invalid-input',
    ],
    [
      'a negative length',
      'POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n',
      400,
      'invalid-input',
    ],
    ['no Host', 'GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n', 400, 'invalid-input'],
    [
      'a header too large',
      `GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers-too-large',
    ],
    ['an address too long', `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`, 431, 'headers-too-large'],
    [
      'many headers',
      `GET /healthz HTTP/1.1\r\nHost: localhost\r\n${'X: y\r\n'.repeat(20_000)}\r\n`,
      431,
      'headers-too-large',
    ],
  ])('%s is answered by a problem, and the connection closed', async (_name, text, status, code) => {
    const raw = await connectRaw(server.port);
    raw.socket.write(text, 'latin1');
    const answer = await raw.closed;
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer.toLowerCase()).toContain('content-type: application/problem+json');
    expect(answer).toContain(`"code":"${code}"`);
  });
});
