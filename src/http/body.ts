/**
 * Reads a JSON body: bounded, decompressed where need be, and strict about what it takes, since a body that is
 * silently changed on its way (replaced bytes, dropped keys) would be stored changed.
 */
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import zlib from 'node:zlib';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { QueueError } from '../core/errors.ts';

/** Levels of arrays and objects in a body. JSON.stringify recurses, and so does what looks at payloads later. */
export const MAX_DEPTH = 128;

type Done = (error: Error | null, body?: unknown) => void;
type JsonParser = (request: FastifyRequest, text: string, done: Done) => void;

/** Takes `application/json` only. */
export function readsJson(app: FastifyInstance): void {
  // Refuses `__proto__` and `constructor.prototype` keys: a payload is copied by whatever works on it.
  const parse = app.getDefaultJsonParser('error', 'error') as unknown as JsonParser;
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', (request, _payload, done: Done) => {
    const charset = /;\s*charset\s*=\s*"?([^";\s]+)/i.exec(request.headers['content-type'] ?? '')?.[1];
    if (charset !== undefined && !/^utf-?8$/i.test(charset)) {
      done(new QueueError('unsupported-media-type', `JSON is UTF-8 (RFC 8259); the charset sent is ${charset}`));
    } else {
      readBytes(request, (error, bytes) => {
        if (error) done(error);
        else parseJson(request, bytes as Buffer, parse, done);
      });
    }
  });
}

function parseJson(request: FastifyRequest, bytes: Buffer, parse: JsonParser, done: Done): void {
  if (bytes.length === 0) {
    // An empty body is no body: calls that need one say so.
    done(null, undefined);
  } else if (!isUtf8(bytes)) {
    done(new QueueError('invalid-input', 'body: these bytes are not UTF-8'));
  } else if (isDeeper(bytes, MAX_DEPTH)) {
    done(new QueueError('invalid-input', `body: lists and objects are nested more than ${MAX_DEPTH} levels deep`));
  } else {
    const text = bytes.toString('utf8');
    parse(request, text, (error, body) => {
      if (error) done(new QueueError('invalid-input', `body: ${faultOf(text)}`));
      else if (MAYBE_INFINITE.test(text) && hasInfinity(body)) done(new QueueError('invalid-input', TOO_GREAT));
      else if (losesDigits(bytes)) done(new QueueError('invalid-input', TOO_EXACT));
      else done(null, body);
    });
  }
}

/**
 * JSON.parse reads a number beyond a double as Infinity, which JSON.stringify would write as null. Digits are looked at from
 * where they begin alone: from each of them, 8 MB of numbers of 300 digits take three seconds.
 */
const MAYBE_INFINITE = /[eE]\+?\d{3}|(?<!\d)\d{309}/;
const TOO_GREAT = 'body: it has a number beyond what a 64-bit float holds (±1.8e308); for example: send it as a text';

function hasInfinity(value: unknown): boolean {
  if (typeof value === 'number') return !Number.isFinite(value);
  return typeof value === 'object' && value !== null && Object.values(value).some(hasInfinity);
}

/** JSON.parse rounds an integer beyond 2^53 that no double is; who sent it would get another one back. */
const TOO_EXACT =
  'body: it has an integer beyond 2^53 that a 64-bit float would change, such as 9007199254740993; for example: send it as a text';

/**
 * Whether JSON has an integer that would lose digits; one pass over its bytes, strings skipped. It takes 1.1 ms a MB,
 * where JSON.parse takes 2.9; a look for sixteen digits by a pattern first took 2.3.
 */
function losesDigits(bytes: Buffer): boolean {
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i]!;
    if (byte === 0x22) {
      while (++i < bytes.length && bytes[i] !== 0x22) if (bytes[i] === 0x5c) i++;
    } else if (isDigit(byte)) {
      const from = i;
      while (isDigit(bytes[i + 1])) i++;
      if (i - from < 15) continue;
      const next = bytes[i + 1];
      const digits = bytes.toString('latin1', from, i + 1);
      // With a point or an exponent it is no integer, but a measurement, which a float may round.
      const isInteger = next !== 0x2e && next !== 0x45 && next !== 0x65 && bytes[from - 1] !== 0x2e;
      // A number above 1.8e308 was refused before, so this is finite.
      if (isInteger && !isExponent(bytes, from) && BigInt(Number(digits)) !== BigInt(digits)) return true;
    }
  }
  return false;
}

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= 0x30 && byte <= 0x39;

/** Whether the digits that begin here are an exponent's: `1e0000000000000000`. */
function isExponent(bytes: Buffer, from: number): boolean {
  const sign = bytes[from - 1] === 0x2b || bytes[from - 1] === 0x2d;
  const before = bytes[from - (sign ? 2 : 1)];
  return before === 0x45 || before === 0x65;
}

function faultOf(text: string): string {
  try {
    JSON.parse(text);
    return 'the keys "__proto__" and "constructor" with "prototype" are not taken';
  } catch (error) {
    return `this is not JSON: ${(error as Error).message}`;
  }
}

/** Reads all of a body, decompressed, as far as it was admitted. */
function readBytes({ raw, admission }: FastifyRequest, done: (error: Error | null, bytes?: Buffer) => void): void {
  const encoding = raw.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  const decompressor = DECOMPRESSORS.get(encoding);
  if (decompressor === undefined) {
    done(new QueueError('unsupported-encoding', `Content-Encoding ${encoding}: send gzip, deflate, br, or none`));
    return;
  }
  admission.readsBody();
  collect(raw, decompressor === null ? raw : raw.pipe(decompressor()), (length) => admission.hasBody(length), done);
}

/** @param admit told how many bytes have come by now; throws where they are too many */
function collect(
  raw: IncomingMessage,
  source: Readable,
  admit: (length: number) => void,
  done: (error: Error | null, bytes?: Buffer) => void,
): void {
  const chunks: Buffer[] = [];
  let length = 0;
  let finished = false;
  const finish = (error: Error | null, bytes?: Buffer): void => {
    if (finished) return;
    finished = true;
    source.off('data', onData);
    if (error) {
      if (source !== raw) {
        raw.unpipe();
        source.destroy();
      }
      // The rest is read and dropped, so that the answer arrives and the connection stays of use.
      raw.resume();
    }
    done(error, bytes);
  };
  const fail = () =>
    finish(new QueueError('invalid-input', 'body: it ended early, or is not what its Content-Encoding says'));
  const onData = (chunk: Buffer): void => {
    length += chunk.length;
    try {
      admit(length);
      chunks.push(chunk);
    } catch (error) {
      finish(error as Error);
    }
  };
  source.on('data', onData);
  source.on('end', () => finish(null, chunks.length === 1 ? chunks[0] : Buffer.concat(chunks, length)));
  source.on('error', fail);
  // A connection that breaks off does not end what is behind the pipe.
  if (source !== raw) raw.on('error', fail);
}

/** By Content-Encoding; null: as it is. */
const DECOMPRESSORS: ReadonlyMap<string, (() => Readable & NodeJS.WritableStream) | null> = new Map([
  ['identity', null],
  ['gzip', () => zlib.createGunzip()],
  ['x-gzip', () => zlib.createGunzip()],
  ['deflate', () => zlib.createInflate()],
  ['br', () => zlib.createBrotliDecompress()],
]);

/** Whether JSON text nests deeper than so many levels; one pass over its bytes, strings skipped. */
export function isDeeper(bytes: Uint8Array, levels: number): boolean {
  // A level takes two bytes.
  if (bytes.length < levels * 2) return false;
  let depth = 0;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === 0x22) {
      while (++i < bytes.length && bytes[i] !== 0x22) if (bytes[i] === 0x5c) i++;
    } else if (byte === 0x5b || byte === 0x7b) {
      if (++depth > levels) return true;
    } else if (byte === 0x5d || byte === 0x7d) depth--;
  }
  return false;
}
