/**
 * One GET, with everything bounded: the time to connect, to the headers and in all; the bytes on the wire and after
 * decompression; where it connects to (address-guard.ts). Redirects are answered, not followed: each hop has to pass
 * scope and robots.txt first, which are not this file's business.
 */
import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, constants as zlib } from 'node:zlib';
import { Agent } from 'undici';
import { AddressRefused, type GuardOptions, guardedConnector } from './address-guard.ts';

export interface FetcherOptions extends GuardOptions {
  readonly userAgent: string;
  /** Until the response's headers are there, in milliseconds. */
  readonly headersTimeoutMs: number;
  /** For the whole fetch, in milliseconds: a server that sends a byte a second doesn't hold a worker for long. */
  readonly totalTimeoutMs: number;
  /** Connections to one origin at the same time. */
  readonly connections: number;
}

export interface GetOptions {
  /** Of the body, both as sent and after decompression. */
  readonly maxBytes: number;
  /** What happens to a longer body: `refuse` answers `too-large`, `cut` answers with what fits. */
  readonly over: 'refuse' | 'cut';
  /** Whether the body is wanted, or only its length and hash. */
  readonly keep: (contentType: string) => boolean;
  readonly signal?: AbortSignal;
}

export interface FetchedResponse {
  readonly kind: 'response';
  readonly status: number;
  /** Values of a header, one a line. */
  readonly header: (name: string) => readonly string[];
  /** Null where it wasn't wanted. */
  readonly body: Buffer | null;
  /** Of the body after decompression. */
  readonly bytes: number;
  /** SHA-256 of the body after decompression, in hex. */
  readonly hash: string;
}

export type FetchFailure =
  /** The body is longer than allowed. */
  | { readonly kind: 'too-large'; readonly status: number }
  /** The address is off limits: never tried again. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** The caller's signal ended it. */
  | { readonly kind: 'aborted' }
  /** No usable response: DNS, connection, TLS, protocol, time. */
  | { readonly kind: 'network'; readonly reason: string; readonly retry: boolean };

export type FetchOutcome = FetchedResponse | FetchFailure;

/** Nobody needs the body of a redirect or an error; a short one is read to its end, to keep the connection. */
const ERROR_BODY: GetOptions = { maxBytes: 64 * 1024, over: 'cut', keep: () => false };

/** Content codings in a row that are undone; more than that is an attack. */
const CODINGS = 2;

export class Fetcher {
  readonly #agent: Agent;
  readonly #options: FetcherOptions;

  constructor(options: FetcherOptions) {
    this.#options = options;
    this.#agent = new Agent({
      connect: guardedConnector(options),
      connections: options.connections,
      pipelining: 1,
      headersTimeout: options.headersTimeoutMs,
      bodyTimeout: options.headersTimeoutMs,
    });
  }

  /** @param url normalised */
  async get(url: string, options: GetOptions): Promise<FetchOutcome> {
    const target = new URL(url);
    const timeout = AbortSignal.timeout(this.#options.totalTimeoutMs);
    const signal = options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal]);
    try {
      const response = await this.#agent.request({
        origin: target.origin,
        path: target.pathname + target.search,
        method: 'GET',
        headers: {
          'user-agent': this.#options.userAgent,
          accept: 'text/html,application/xhtml+xml;q=0.9,*/*;q=0.5',
          'accept-encoding': 'gzip, br, deflate',
        },
        signal,
      });
      const header = (name: string): readonly string[] => {
        const value = response.headers[name];
        return value === undefined ? [] : typeof value === 'string' ? [value] : value;
      };
      const bounds = response.statusCode >= 200 && response.statusCode < 300 ? options : ERROR_BODY;
      const read = await readBody(response.body, header, bounds);
      if (read === 'too-large') return { kind: 'too-large', status: response.statusCode };
      if (read === 'unreadable') return { kind: 'network', reason: 'unknown content-encoding', retry: false };
      return { kind: 'response', status: response.statusCode, header, ...read };
    } catch (error) {
      if (options.signal?.aborted) return { kind: 'aborted' };
      if (timeout.aborted) return { kind: 'network', reason: 'timeout', retry: true };
      return failureOf(error);
    }
  }

  /** Cuts what still runs. */
  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

type Header = (name: string) => readonly string[];

/** Reads a body to its end or its bound; whatever happens, the stream is finished or destroyed afterwards. */
async function readBody(
  body: Readable,
  header: Header,
  options: GetOptions,
): Promise<Pick<FetchedResponse, 'body' | 'bytes' | 'hash'> | 'too-large' | 'unreadable'> {
  // A stream destroyed early reports that as an error, which nobody waits for any more.
  body.on('error', () => {});
  let plain: Readable = body;
  try {
    const length = Number(header('content-length')[0]);
    if (options.over === 'refuse' && length > options.maxBytes) return 'too-large';
    const decoded = decode(body, header('content-encoding').join(','));
    if (decoded === null) return 'unreadable';
    plain = decoded;
    let wire = 0;
    if (plain !== body) body.on('data', (chunk: Buffer) => (wire += chunk.length));

    const keep = options.keep(header('content-type')[0] ?? '');
    const kept: Buffer[] = [];
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const piece of plain) {
      let chunk = piece as Buffer;
      const over = bytes + chunk.length > options.maxBytes || wire > options.maxBytes;
      if (over && options.over === 'refuse') return 'too-large';
      if (over) chunk = chunk.subarray(0, options.maxBytes - bytes);
      bytes += chunk.length;
      hash.update(chunk);
      if (keep) kept.push(chunk);
      if (over) break;
    }
    return { body: keep ? Buffer.concat(kept) : null, bytes, hash: hash.digest('hex') };
  } finally {
    plain.destroy();
    body.destroy();
  }
}

/**
 * Undoes the content codings. zlib hands out at most some 64 KiB at a time and waits until they are taken, so a bomb
 * is noticed after that much too much, whatever it would unpack to.
 */
function decode(body: Readable, encoding: string): Readable | null {
  const codings = encoding
    .toLowerCase()
    .split(',')
    .map((coding) => coding.trim())
    .filter((coding) => coding !== '' && coding !== 'identity');
  if (codings.length > CODINGS) return null;
  let stream = body;
  for (const coding of codings.reverse()) {
    const decoder = decoderOf(coding);
    if (decoder === null) return null;
    const source = stream;
    source.once('error', (error) => decoder.destroy(error));
    decoder.once('close', () => source.destroy());
    stream = source.pipe(decoder);
    stream.on('error', () => {});
  }
  return stream;
}

function decoderOf(coding: string) {
  // Like browsers, takes what there is of a body whose compressed end is missing.
  const lenient = { finishFlush: zlib.Z_SYNC_FLUSH };
  if (coding === 'gzip' || coding === 'x-gzip') return createGunzip(lenient);
  if (coding === 'deflate') return createInflate(lenient);
  if (coding === 'br') return createBrotliDecompress({ finishFlush: zlib.BROTLI_OPERATION_FLUSH });
  return null;
}

/** Failures that another try won't cure: certificates, and bytes that aren't HTTP. */
const FINAL = /CERT|SELF_SIGNED|ERR_TLS|UNABLE_TO_|HPE_|HEADERS_OVERFLOW|Z_DATA|Z_BUF|ERR_BROTLI|INVALID_ARG/;

function failureOf(error: unknown): FetchFailure {
  const inner = error instanceof AggregateError ? (error.errors[0] as unknown) : error;
  if (inner instanceof AddressRefused) return { kind: 'refused', reason: inner.message };
  const { code, message, name } = inner as NodeJS.ErrnoException;
  const reason = String(code ?? message ?? inner).slice(0, 200);
  return { kind: 'network', reason, retry: !FINAL.test(reason) && name !== 'HTTPParserError' };
}
