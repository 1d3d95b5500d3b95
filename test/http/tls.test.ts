/** HTTP over TLS, on real sockets: who is admitted, what is answered to the others, and what a stop does with them. */
import { once } from 'node:events';
import { connect as connectPlain } from 'node:net';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { ConnectionError } from '../../src/client/errors.ts';
import { HttpQueue } from '../../src/client/http-queue.ts';
import type { TlsCredentials, TlsSource } from '../../src/core/tls.ts';
import type { HttpLogger } from '../../src/http/app.ts';
import type { ServerOptions } from '../../src/http/server.ts';
import { type Authority, makeAuthority, type Pair } from '../support/authority.ts';
import { connectRaw, eventually, startServer, type TestServer } from './support/server.ts';

let authority: Authority;
let stranger: Authority;
let own: Pair;
let client: Pair;
beforeAll(async () => {
  authority = await makeAuthority('tests');
  stranger = await makeAuthority('stranger');
  own = await authority.issue('server', { uses: ['server'] });
  client = await authority.issue('client', { uses: ['client'] });
});

interface Logged {
  readonly level: string;
  readonly fields: object;
  readonly message: string;
}

/** A server with TLS, and what it logs. */
async function serve(options: ServerOptions = {}): Promise<TestServer & { readonly logged: readonly Logged[] }> {
  const logged: Logged[] = [];
  const keep = (level: string) => (fields: object, message: string) => void logged.push({ level, fields, message });
  const log: HttpLogger = { debug: keep('debug'), info: keep('info'), warn: keep('warn'), error: keep('error') };
  const clients = { ca: authority.ca, ...client };
  const server = await startServer({ tls: own, log, ...options }, () => {}, clients);
  onTestFinished(() => server.close());
  return { ...server, logged };
}

function callsOf(server: TestServer, tls: TlsSource): HttpQueue {
  const queue = new HttpQueue(server.url, { tls });
  onTestFinished(() => queue.close());
  return queue;
}

/** Calls the server once, on a connection of its own. @returns the code of what went wrong; null where nothing did */
async function failureOf(server: TestServer, tls: TlsCredentials): Promise<string | null> {
  try {
    await callsOf(server, tls).topics();
    return null;
  } catch (error) {
    if (!(error instanceof ConnectionError)) throw error;
    return String((error.cause as NodeJS.ErrnoException).code);
  }
}

async function secureSocket(server: TestServer, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connect({ host: '127.0.0.1', port: server.port, ca: authority.ca, ...options });
  socket.on('error', () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, 'secureConnect');
  return socket;
}

describe('a server with a certificate', () => {
  it('answers as it does without, by https', async () => {
    const server = await serve();
    expect(server.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
    await server.expectAlive();
    expect(await failureOf(server, { ca: authority.ca })).toBeNull();
  });

  it('is believed only by who knows its signer, and by its name', async () => {
    const server = await serve();
    expect(await failureOf(server, {})).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE');
    expect(await failureOf(server, { ca: stranger.ca })).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE');
    const elsewhere = await serve({ tls: await authority.issue('elsewhere', { addresses: ['127.0.0.9'] }) });
    expect(await failureOf(elsewhere, { ca: authority.ca })).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
    const expired = await serve({ tls: await authority.issue('expired', { days: [-2, -1] }) });
    expect(await failureOf(expired, { ca: authority.ca })).toBe('CERT_HAS_EXPIRED');
  });

  it.each(['TLSv1', 'TLSv1.1'] as const)('speaks no %s', async (version) => {
    const server = await serve();
    // What Node refuses to speak by itself is allowed to this client, so that it is the server who refuses.
    const options = { minVersion: version, maxVersion: version, ciphers: 'DEFAULT@SECLEVEL=0' } as const;
    await expect(secureSocket(server, options)).rejects.toMatchObject({
      code: expect.stringMatching(/PROTOCOL_VERSION|ECONNRESET/),
    });
    await server.expectAlive();
  });

  it.each(['TLSv1.2', 'TLSv1.3'] as const)('speaks %s', async (version) => {
    const socket = await secureSocket(await serve(), { minVersion: version, maxVersion: version });
    expect(socket.getProtocol()).toBe(version);
  });

  it('tells a caller in plain text what it speaks, and logs it at debug', async () => {
    const server = await serve();
    const raw = await connectRaw(server.port);
    const body = 'x'.repeat(100_000);
    raw.socket.write(`POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    const answer = await raw.closed;
    expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(answer).toContain('content-type: application/problem+json');
    expect(answer).toContain(
      '"code":"invalid-input","detail":"This port speaks TLS (1.2 or newer); for example: https',
    );
    expect(server.logged).toEqual([
      { level: 'debug', fields: { ip: '127.0.0.1' }, message: 'a call in plain text to a port that speaks TLS' },
    ]);
    await server.expectAlive();
  });

  it('lives on after bytes that are no handshake, and after handshakes that break off', async () => {
    const server = await serve();
    const hello = Buffer.from('1603010200010001fc0303', 'hex');
    for (const bytes of [hello, Buffer.concat([hello, Buffer.alloc(600, 7)]), Buffer.from('160000', 'hex')]) {
      for (const isReset of [true, false]) {
        const raw = await connectRaw(server.port);
        raw.socket.write(bytes);
        if (isReset) raw.socket.resetAndDestroy();
        else raw.socket.end();
        await raw.closed;
      }
    }
    const silent = await connectRaw(server.port);
    silent.socket.end();
    await silent.closed;
    await server.expectAlive();
    expect(server.logged.filter(({ level }) => level !== 'debug')).toEqual([]);
  });

  it.each([
    ['that says nothing', Buffer.alloc(0)],
    ['that begins a handshake and goes no further', Buffer.from('16030102', 'hex')],
  ])('gives up a connection %s', async (_name, bytes) => {
    const server = await serve({ handshakeMs: 100 });
    const secure = await secureSocket(server);
    const raw = await connectRaw(server.port);
    raw.socket.write(bytes);
    expect(await raw.closed).toBe('');
    // One that is secure has all the time that HTTP gives it.
    secure.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
    expect(String(await once(secure, 'data'))).toMatch(/^HTTP\/1\.1 200 /);
  });

  it('stops at once beside connections that are not secure yet', async () => {
    const server = await serve();
    const silent = await connectRaw(server.port);
    const halfway = await connectRaw(server.port);
    halfway.socket.write(Buffer.from('16030102', 'hex'));
    // Accepted, both, since a later one is.
    await server.expectAlive();
    const at = performance.now();
    await server.server.stop(3_000);
    expect(performance.now() - at).toBeLessThan(1_000);
    await Promise.all([silent.closed, halfway.closed]);
  });

  it('ends the wait of a caller who asks no longer', async () => {
    const server = await serve();
    const calls = callsOf(server, { ca: authority.ca });
    const gone = new AbortController();
    const waiting = calls.lease({ topics: ['quiet'], waitMs: 30_000, signal: gone.signal });
    await eventually(() => server.queue.status().waiting === 1);
    const at = performance.now();
    gone.abort();
    expect(await waiting).toEqual([]);
    expect(performance.now() - at).toBeLessThan(2_000);
    await eventually(() => server.queue.status().waiting === 0);
  });

  it('shows another certificate once it is renewed, and keeps the connections that there are', async () => {
    const server = await serve();
    const before = await secureSocket(server);
    const other = await stranger.issue('renewed');
    server.server.renewTls(other);
    expect(await failureOf(server, { ca: authority.ca })).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE');
    expect(await failureOf(server, { ca: stranger.ca })).toBeNull();
    expect(() => server.server.renewTls({ cert: other.cert, key: own.key })).toThrow(/key values mismatch/);
    expect(await failureOf(server, { ca: stranger.ca })).toBeNull();
    before.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    expect(String(await once(before, 'data'))).toMatch(/^HTTP\/1\.1 200 /);
  });
});

describe('a server that asks for client certificates', () => {
  const asking = (more: ServerOptions = {}) => serve({ tls: { ...own, clientCa: authority.ca }, ...more });

  it('admits who shows a right one', async () => {
    const server = await asking();
    await server.expectAlive();
    expect(await failureOf(server, { ca: authority.ca, ...client })).toBeNull();
  });

  it.each([
    ['none', async () => ({}), /CERTIFICATE_REQUIRED/, 'ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE'],
    ['one of another signer', () => stranger.issue('client'), /ECONNRESET|EPIPE/, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    ['one that is over', () => authority.issue('client', { days: [-2, -1] }), /ECONNRESET|EPIPE/, 'CERT_HAS_EXPIRED'],
    [
      'one that begins tomorrow',
      () => authority.issue('client', { days: [1, 2] }),
      /ECONNRESET|EPIPE/,
      'CERT_NOT_YET_VALID',
    ],
    ['one of a server', () => authority.issue('client', { uses: ['server'] }), /ECONNRESET|EPIPE/, 'INVALID_PURPOSE'],
  ])('admits nobody who shows %s, and logs why at debug', async (_name, issue, code, logged) => {
    const server = await asking();
    expect(await failureOf(server, { ca: authority.ca, ...(await issue()) })).toMatch(code);
    await eventually(() => server.logged.length > 0);
    expect(server.logged).toMatchObject([
      { level: 'debug', fields: { code: logged }, message: 'a TLS handshake failed' },
    ]);
    await server.expectAlive();
  });

  it('reads no request of who is not admitted', async () => {
    const server = await asking();
    const before = server.queue.status().enqueued;
    // In TLS 1.3 a client may send before it is told.
    const socket = connect({ host: '127.0.0.1', port: server.port, ca: authority.ca, ...(await stranger.issue('x')) });
    socket.on('error', () => {});
    const body = '{"tasks":[{"payload":1}]}';
    socket.write(
      `POST /v1/topics/t/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    await once(socket, 'close');
    await server.expectAlive();
    expect(answer).toBe('');
    expect(server.queue.status().enqueued).toBe(before + 1);
  });

  it('admits by other signers once these are renewed', async () => {
    const server = await asking();
    const other = { ca: authority.ca, ...(await stranger.issue('client')) };
    expect(await failureOf(server, other)).toMatch(/ECONNRESET|EPIPE/);
    server.server.renewTls({ ...own, clientCa: stranger.ca });
    expect(await failureOf(server, other)).toBeNull();
    expect(await failureOf(server, { ca: authority.ca, ...client })).toMatch(/ECONNRESET|EPIPE/);
    server.server.renewTls({ ...own, clientCa: authority.ca });
  });

  it('admits nobody who speaks plain text', async () => {
    const server = await asking();
    const socket = connectPlain(server.port, '127.0.0.1');
    socket.write('GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n');
    expect(String(await once(socket, 'data'))).toContain('This port speaks TLS');
  });
});

describe('a caller', () => {
  it('takes certificates that were renewed with its next connection, and goes on without one it was refused', async () => {
    const server = await serve({ tls: { ...own, clientCa: authority.ca } });
    let tls: TlsCredentials = { ca: authority.ca, ...(await stranger.issue('client')) };
    const calls = callsOf(server, () => tls);
    await expect(calls.topics()).rejects.toThrow(ConnectionError);
    tls = { ca: authority.ca, ...client };
    await expect(calls.topics()).resolves.toMatchObject({ topics: [] });
    // What cannot be used is told, and tried again with the next call.
    tls = { ca: authority.ca, cert: client.cert, key: own.key };
    await expect(calls.topics()).rejects.toMatchObject({ name: 'ConnectionError', mayHaveArrived: false });
    tls = { ca: authority.ca, ...client };
    await expect(calls.topics()).resolves.toMatchObject({ topics: [] });
  });

  it('knows that a call did not arrive where the server was not believed', async () => {
    const server = await serve();
    await expect(callsOf(server, {}).topics()).rejects.toMatchObject({ mayHaveArrived: false });
  });

  it('is refused at once with certificates that are none, which are not shown', () => {
    const wrong = { ca: 'canary-1', cert: 'canary-2', key: 'canary-3' };
    const make = () => new HttpQueue('https://127.0.0.1:1', { tls: wrong });
    expect(make).toThrow(/tls: "…" is not certificates and a key that fit \(ERR_\w+\); for example/);
    expect(make).not.toThrow(/canary/);
  });

  it('tells no password of an address, neither of one that does not answer nor of one that is none', async () => {
    const queue = new HttpQueue('http://me:canary@127.0.0.1:9/base');
    onTestFinished(() => queue.close());
    const failure = await queue.topics().catch((error: unknown) => error);
    expect(failure).toMatchObject({ name: 'ConnectionError', url: 'http://127.0.0.1:9/base' });
    expect(String(failure)).not.toContain('canary');
    const make = () => new HttpQueue('ftp://me:canary@x');
    expect(make).toThrow(/"…@x" is not the address of a server/);
    expect(make).not.toThrow(/canary/);
  });
});
