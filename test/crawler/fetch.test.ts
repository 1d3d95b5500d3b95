import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type Socket } from 'node:net';
import { brotliCompressSync, constants, deflateSync, gzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import type { Fetcher, FetcherOptions, FetchOutcome, GetOptions } from '../../crawler-example/fetch.ts';
import { newFetcher, send, serve, site, type Web } from './support/web.ts';

const MiB = 1024 * 1024;
const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const it of open.splice(0)) await it.close();
});

async function web(...args: Parameters<typeof serve>): Promise<Web> {
  const it = await serve(...args);
  open.unshift(it);
  return it;
}

function fetcher(options: Partial<FetcherOptions> = {}): Fetcher {
  const it = newFetcher(options);
  open.unshift(it);
  return it;
}

const get = (url: string, options: Partial<GetOptions> = {}, fetch = fetcher()): Promise<FetchOutcome> =>
  fetch.get(url, { maxBytes: MiB, over: 'refuse', keep: () => true, ...options });

const bodyOf = (got: FetchOutcome): string | undefined =>
  got.kind === 'response' ? got.body?.toString() : `${got.kind}`;

describe('Fetcher', () => {
  it('fetches, says who it is, gives body, length, hash and headers', async () => {
    let agent: string | undefined;
    const { origin } = await web((request, response) => {
      agent = request.headers['user-agent'];
      send(response, { headers: { link: ['<a>; rel=next', '<b>; rel=canonical'] }, body: 'hällo' });
    });
    const got = await get(`${origin}/?a=1`);
    expect(agent).toBe('ebbmark-crawler/0.1 (+test)');
    expect(got).toMatchObject({
      kind: 'response',
      status: 200,
      bytes: 6,
      hash: createHash('sha256').update('hällo').digest('hex'),
    });
    expect(bodyOf(got)).toBe('hällo');
    expect(got.kind === 'response' && got.header('link').join(', ')).toContain('canonical');
    expect(got.kind === 'response' && got.header('x-none')).toEqual([]);
  });

  it('keeps only the bodies that are wanted', async () => {
    const { origin } = await web(site({ '/': { headers: { 'content-type': 'image/png' }, body: 'png' } }));
    const types: string[] = [];
    const got = await get(origin, { keep: (type) => types.push(type) < 0 });
    expect(got).toMatchObject({ kind: 'response', body: null, bytes: 3 });
    expect(types).toEqual(['image/png']);
  });

  it('answers redirects instead of following them', async () => {
    const { origin, asked } = await web(site({ '/': { status: 302, headers: { location: '/next' } } }));
    const got = await get(origin);
    expect(got).toMatchObject({ kind: 'response', status: 302 });
    expect(got.kind === 'response' && got.header('location')).toEqual(['/next']);
    expect(asked).toHaveLength(1);
  });

  it.each([
    ['gzip', gzipSync],
    ['br', brotliCompressSync],
    ['deflate', deflateSync],
  ] as const)('undoes %s', async (encoding, pack) => {
    const body = pack(Buffer.from('text '.repeat(1_000)));
    const { origin } = await web(site({ '/': { headers: { 'content-encoding': encoding }, body } }));
    expect(bodyOf(await get(origin))).toBe('text '.repeat(1_000));
  });

  it('undoes two codings, and refuses three or unknown ones', async () => {
    const twice = gzipSync(brotliCompressSync(Buffer.from('text')));
    const { origin } = await web(
      site({
        '/2': { headers: { 'content-encoding': 'br, gzip' }, body: twice },
        '/3': { headers: { 'content-encoding': 'gzip, gzip, gzip' }, body: twice },
        '/x': { headers: { 'content-encoding': 'zstd' }, body: twice },
      }),
    );
    expect(bodyOf(await get(`${origin}/2`))).toBe('text');
    expect(await get(`${origin}/3`)).toMatchObject({ kind: 'network', retry: false });
    expect(await get(`${origin}/x`)).toMatchObject({ kind: 'network', retry: false });
  });

  it('takes what there is of a gzip that was cut, and refuses one that is damaged', async () => {
    const whole = gzipSync(Buffer.from('text '.repeat(10_000)));
    const gzip = { 'content-encoding': 'gzip' };
    const { origin } = await web(
      site({
        '/cut': { headers: gzip, body: whole.subarray(0, whole.length - 8) },
        '/bad': { headers: gzip, body: Buffer.from('this is not gzip') },
      }),
    );
    expect(bodyOf(await get(`${origin}/cut`))).toBe('text '.repeat(10_000));
    expect(await get(`${origin}/bad`)).toEqual({ kind: 'network', reason: 'Z_DATA_ERROR', retry: false });
  });

  it.each([
    ['gzip', gzipSync],
    ['br', (data: Buffer) => brotliCompressSync(data, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
  ] as const)('stops a %s bomb at the limit', async (encoding, pack) => {
    const bomb = pack(Buffer.alloc(128 * MiB));
    expect(bomb.length).toBeLessThan(MiB);
    const { origin } = await web(site({ '/': { headers: { 'content-encoding': encoding }, body: bomb } }));
    const before = process.memoryUsage().arrayBuffers;
    expect(await get(origin)).toEqual({ kind: 'too-large', status: 200 });
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(16 * MiB);
  });

  it('refuses a body that says it is too large, without reading it', async () => {
    const { origin } = await web((_, response) => {
      response.writeHead(200, { 'content-length': String(10 * MiB) });
      response.write('x');
    });
    expect(await get(origin)).toEqual({ kind: 'too-large', status: 200 });
  });

  it('cuts the connection of a body that does not end', async () => {
    let closed: Promise<unknown> | undefined;
    const { origin } = await web((_, response) => {
      closed = once(response, 'close');
      response.writeHead(200);
      const more = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(64 * 1024)));
      };
      response.on('drain', more);
      more();
    });
    expect(await get(origin)).toEqual({ kind: 'too-large', status: 200 });
    await closed;
    expect(await get(origin, { over: 'cut', maxBytes: 1_000 })).toMatchObject({ kind: 'response', bytes: 1_000 });
  });

  it('gives up on a server that is silent, or slow, or hangs up', async () => {
    const { origin } = await web((request, response) => {
      if (request.url === '/hangup') request.socket.destroy();
      if (request.url === '/slow') {
        response.writeHead(200);
        const timer = setInterval(() => response.write('x'), 20);
        response.on('close', () => clearInterval(timer));
      }
    });
    const impatient = fetcher({ headersTimeoutMs: 1_000, totalTimeoutMs: 300 });
    expect(await get(`${origin}/silent`, {}, impatient)).toEqual({ kind: 'network', reason: 'timeout', retry: true });
    expect(await get(`${origin}/slow`, {}, impatient)).toEqual({ kind: 'network', reason: 'timeout', retry: true });
    expect(await get(`${origin}/hangup`)).toEqual({ kind: 'network', reason: 'UND_ERR_SOCKET', retry: true });
    const noHeaders = fetcher({ headersTimeoutMs: 200 });
    expect(await get(`${origin}/silent`, {}, noHeaders)).toMatchObject({
      reason: 'UND_ERR_HEADERS_TIMEOUT',
      retry: true,
    });
  });

  it('ends when its caller says so', async () => {
    const abort = new AbortController();
    const { origin } = await web(() => abort.abort());
    expect(await get(origin, { signal: abort.signal })).toEqual({ kind: 'aborted' });
    expect(await get(origin, { signal: AbortSignal.abort() })).toEqual({ kind: 'aborted' });
  });

  it('tells what will not get better from what may', async () => {
    const answers: Record<string, string> = {
      '/noise': 'this is not HTTP\r\n\r\n',
      '/huge': `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(100_000)}\r\n\r\n`,
    };
    const server = createServer((socket: Socket) => {
      socket.on('error', () => {});
      socket.once('data', (data) => socket.end(answers[/GET (\S+)/.exec(data.toString())?.[1] ?? ''] ?? ''));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    open.push({ close: () => new Promise((resolve) => server.close(() => resolve())) });
    expect(await get(`http://127.0.0.1:${port}/noise`)).toMatchObject({ kind: 'network', retry: false });
    expect(await get(`http://127.0.0.1:${port}/huge`)).toMatchObject({ kind: 'network', retry: false });
    expect(await get(`http://127.0.0.1:${port}/empty`)).toMatchObject({ kind: 'network', retry: true });
    expect(await get('http://127.0.0.1:1/')).toEqual({ kind: 'network', reason: 'ECONNREFUSED', retry: true });
    // TLS against a server that speaks none.
    expect(await get(`https://127.0.0.1:${port}/`)).toMatchObject({ kind: 'network' });
  });
});
