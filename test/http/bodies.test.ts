/** What can be wrong with the bytes of a body, before its fields are looked at. */
import { brotliCompressSync, constants, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isDeeper } from '../../src/http/body.ts';
import {
  type CallOptions,
  connectRaw,
  expectProblem,
  startServer,
  type TestServer,
  tasksPath,
} from './support/server.ts';

const LIMIT = 1024 * 1024;
const PATH = tasksPath('bodies');

let server: TestServer;
beforeAll(async () => {
  server = await startServer({ maxBodyBytes: LIMIT });
});
afterEach(() => server.expectAlive());
afterAll(() => server.close());

const task = (payload: string) => `{"tasks":[{"payload":${payload}}]}`;
const bytes = (...parts: readonly (string | readonly number[])[]) =>
  Buffer.concat(parts.map((part) => Buffer.from(part as string)));
const zeros = Buffer.alloc(200 * 1024 * 1024);

const REFUSED: Readonly<Record<string, readonly [number, string, CallOptions]>> = {
  'no body': [400, 'invalid-input', {}],
  'an empty body': [400, 'invalid-input', { raw: '' }],
  'broken JSON': [400, 'invalid-input', { raw: '{"tasks":[' }],
  'JSON and more': [400, 'invalid-input', { raw: `${task('1')}x` }],
  'two JSON texts': [400, 'invalid-input', { raw: `${task('1')}\n${task('2')}` }],
  'a comment': [400, 'invalid-input', { raw: '/* */{}' }],
  'single quotes': [400, 'invalid-input', { raw: "{'tasks':[]}" }],
  NaN: [400, 'invalid-input', { raw: task('NaN') }],
  null: [400, 'invalid-input', { raw: 'null' }],
  'a text': [400, 'invalid-input', { raw: '"tasks"' }],
  'a list': [400, 'invalid-input', { raw: '[]' }],
  'a control character in a text': [400, 'invalid-input', { raw: task('"\u0001"') }],
  'invalid UTF-8: a lone continuation byte': [
    400,
    'invalid-input',
    { raw: bytes('{"tasks":[{"payload":"', [0x80], '"}]}') },
  ],
  'invalid UTF-8: overlong': [400, 'invalid-input', { raw: bytes('{"tasks":[{"payload":"', [0xc0, 0xaf], '"}]}') }],
  'invalid UTF-8: a surrogate': [
    400,
    'invalid-input',
    { raw: bytes('{"tasks":[{"payload":"', [0xed, 0xa0, 0x80], '"}]}') },
  ],
  'invalid UTF-8: cut off': [400, 'invalid-input', { raw: bytes('{"tasks":[{"payload":"', [0xf0, 0x9f], '"}]}') }],
  'invalid UTF-8: beyond Unicode': [
    400,
    'invalid-input',
    { raw: bytes('{"tasks":[{"payload":"', [0xf5, 0x80, 0x80, 0x80], '"}]}') },
  ],
  'UTF-16': [400, 'invalid-input', { raw: Buffer.from(task('1'), 'utf16le') }],
  '129 levels of lists': [400, 'invalid-input', { raw: task('['.repeat(126) + ']'.repeat(126)) }],
  '100,000 levels of lists': [400, 'invalid-input', { raw: task('['.repeat(100_000) + ']'.repeat(100_000)) }],
  '100,000 open lists': [400, 'invalid-input', { raw: '['.repeat(100_000) }],
  '50,000 levels of objects': [400, 'invalid-input', { raw: task(`${'{"a":'.repeat(50_000)}1${'}'.repeat(50_000)}`) }],
  '__proto__ in a payload': [400, 'invalid-input', { raw: task('{"__proto__":{"admin":true}}') }],
  '__proto__ by escapes': [400, 'invalid-input', { raw: task('{"\\u005f_proto__":{"admin":true}}') }],
  '__proto__ beside tasks': [400, 'invalid-input', { raw: '{"__proto__":{"tasks":[]},"tasks":[{"payload":1}]}' }],
  '__proto__ in metadata': [400, 'invalid-input', { raw: '{"tasks":[{"payload":1,"metadata":{"__proto__":"x"}}]}' }],
  'constructor.prototype': [400, 'invalid-input', { raw: task('{"constructor":{"prototype":{"admin":true}}}') }],
  'a number beyond a float': [400, 'invalid-input', { raw: task('[{"n":-1e999}]') }],
  'a number of 400 digits': [400, 'invalid-input', { raw: task('9'.repeat(400)) }],
  'an integer that would lose digits': [400, 'invalid-input', { raw: task('{"id":9007199254740993}') }],
  'a negative one': [400, 'invalid-input', { raw: task('[-12345678901234567890]') }],
  'a body over the limit': [413, 'body-too-large', { raw: task(`"${'x'.repeat(LIMIT)}"`) }],
  'a body far over the limit': [413, 'body-too-large', { raw: task(`"${'x'.repeat(20 * LIMIT)}"`) }],
  'a gzip bomb': [413, 'body-too-large', { raw: gzipSync(zeros), headers: { 'content-encoding': 'gzip' } }],
  'a deflate bomb': [413, 'body-too-large', { raw: deflateSync(zeros), headers: { 'content-encoding': 'deflate' } }],
  'a brotli bomb': [
    413,
    'body-too-large',
    {
      raw: brotliCompressSync(zeros, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }),
      headers: { 'content-encoding': 'br' },
    },
  ],
  'gzip that is none': [400, 'invalid-input', { raw: task('1'), headers: { 'content-encoding': 'gzip' } }],
  'gzip that is cut off': [
    400,
    'invalid-input',
    { raw: gzipSync(task('1')).subarray(0, 20), headers: { 'content-encoding': 'gzip' } },
  ],
  'gzip of gzip': [
    400,
    'invalid-input',
    { raw: gzipSync(gzipSync(task('1'))), headers: { 'content-encoding': 'gzip' } },
  ],
  'an unknown encoding': [415, 'unsupported-encoding', { raw: task('1'), headers: { 'content-encoding': 'zstd' } }],
  'two encodings': [415, 'unsupported-encoding', { raw: task('1'), headers: { 'content-encoding': 'gzip, gzip' } }],
  'an encoding named like an object property': [
    415,
    'unsupported-encoding',
    { raw: task('1'), headers: { 'content-encoding': 'constructor' } },
  ],
  'a form': [
    415,
    'unsupported-media-type',
    { raw: 'a=1', headers: { 'content-type': 'application/x-www-form-urlencoded' } },
  ],
  'plain text': [415, 'unsupported-media-type', { raw: task('1'), headers: { 'content-type': 'text/plain' } }],
  'a media type that is none': [415, 'unsupported-media-type', { raw: task('1'), headers: { 'content-type': ';' } }],
  'another charset': [
    415,
    'unsupported-media-type',
    { raw: task('1'), headers: { 'content-type': 'application/json; charset=utf-16' } },
  ],
};

describe('refused bodies', () => {
  it.each(Object.entries(REFUSED))('%s', async (_name, [status, code, options]) => {
    const before = server.queue.status().enqueued;
    expectProblem(await server.call('POST', PATH, options), status, code);
    expect(server.queue.status().enqueued).toBe(before);
  });
});

describe('bodies that are taken', () => {
  const TAKEN: Readonly<Record<string, CallOptions>> = {
    gzip: { raw: gzipSync(task('1')), headers: { 'content-encoding': 'gzip' } },
    GZIP: { raw: gzipSync(task('1')), headers: { 'content-encoding': ' GZIP ' } },
    deflate: { raw: deflateSync(task('1')), headers: { 'content-encoding': 'deflate' } },
    br: { raw: brotliCompressSync(task('1')), headers: { 'content-encoding': 'br' } },
    identity: { raw: task('1'), headers: { 'content-encoding': 'identity' } },
    'a charset': { raw: task('"é"'), headers: { 'content-type': 'application/json; charset="UTF-8"' } },
    'a byte order mark': { raw: bytes([0xef, 0xbb, 0xbf], task('1')) },
    '126 levels of a payload': { raw: task('['.repeat(125) + ']'.repeat(125)) },
    'the greatest number': { raw: task('[1.7976931348623157e308, 1e-999, "1e999"]') },
    'integers beyond 2^53 that a float holds': { raw: task('[9007199254740992,-10000000000000000000,1e300]') },
    'digits that are no integer': {
      raw: task(
        '["9007199254740993","\\"9007199254740993",0.12345678901234567,1234567890123456.7,1e-0000000000000000001]',
      ),
    },
    'brackets in texts': { raw: task(JSON.stringify(`\\"${'['.repeat(1000)}\\`)) },
    'a key called constructor': { raw: task('{"constructor":"McLaren"}') },
  };
  it.each(Object.entries(TAKEN))('%s', async (_name, options) => {
    const answer = await server.call('POST', PATH, options);
    expect(answer.status, answer.text).toBe(201);
  });
});

it('digits cost no more than other bytes: nobody else waits for them', async () => {
  const large = await startServer();
  try {
    const raw = task(`[${new Array(26_000).fill('9'.repeat(300)).join()}]`);
    const begin = performance.now();
    expectProblem(await large.call('POST', PATH, { raw }), 400, 'invalid-input');
    expect(performance.now() - begin).toBeLessThan(1_500);
  } finally {
    await large.close();
  }
});

describe('bodies that never end', () => {
  it('counts bytes as they come where no length was given', async () => {
    const raw = await connectRaw(server.port);
    raw.socket.write(
      `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    const chunk = `10000\r\n${'x'.repeat(0x10000)}\r\n`;
    for (let sent = 0; sent <= LIMIT; sent += 0x10000) raw.socket.write(chunk);
    expect(await raw.until(/body-too-large/)).toMatch(/^HTTP\/1\.1 413 /);
    raw.socket.destroy();
  });

  it('forgets a body whose sender went away', async () => {
    for (const encoding of ['identity', 'gzip']) {
      const raw = await connectRaw(server.port);
      raw.socket.write(
        `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Encoding: ${encoding}\r\nContent-Length: 1000\r\n\r\n{"tasks"`,
      );
      raw.socket.end();
      await raw.closed;
    }
  });

  it('goes on with the next request of a connection after a body that was too large', async () => {
    const raw = await connectRaw(server.port);
    const length = 2 * LIMIT;
    raw.socket.write(
      `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`,
    );
    await raw.until(/body-too-large/);
    raw.socket.write(`${'x'.repeat(length)}GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    expect(await raw.until(/"status":"ok"/)).toMatch(/HTTP\/1\.1 413 [\s\S]*HTTP\/1\.1 200 /);
    raw.socket.destroy();
  });
});

describe('isDeeper', () => {
  it.each([
    ['[[]]', 1, true],
    ['[[]]', 2, false],
    ['[[],[],[]]', 2, false],
    ['"[[[["', 1, false],
    ['["\\"[[[["]', 1, false],
    ['{"a":{"b":[1]}}', 2, true],
    ['{"a":{"b":[1]}}', 3, false],
    ['"unterminated [[[[', 1, false],
    ['"\\', 1, false],
  ])('%s has more than %d levels: %s', (text, levels, deeper) => {
    expect(isDeeper(Buffer.from(text), levels)).toBe(deeper);
  });
});
