/** What each code becomes on its way out, and that nothing of the inside goes with it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ERROR_CODES, type ErrorCode, QueueError } from '../../src/core/errors.ts';
import type { HttpLogger } from '../../src/http/app.ts';
import { STATUS_OF } from '../../src/http/codes.ts';
import { expectProblem, startServer, type TestServer } from './support/server.ts';

const CODES = Object.keys(ERROR_CODES) as ErrorCode[];
const logged: object[] = [];
const log: HttpLogger = {
  debug: () => {},
  info: () => {},
  warn: (fields) => logged.push(fields),
  error: (fields) => logged.push(fields),
};

let server: TestServer;
beforeAll(async () => {
  server = await startServer({ log }, (app) => {
    for (const code of CODES) {
      app.get(`/test/${code}`, { config: { access: 'open' } }, async () => {
        throw new QueueError(code, 'what happened', [{ path: '/a', message: 'why' }], new Error('secret cause'));
      });
    }
    app.get('/test/thrown', { config: { access: 'open' } }, async () => {
      throw new Error('secret message');
    });
    app.get('/test/text', { config: { access: 'open' } }, () => Promise.reject('secret text'));
    app.get('/test/status', { config: { access: 'open' } }, () =>
      Promise.reject(Object.assign(new Error('secret status'), { statusCode: 502 })),
    );
  });
});
afterAll(() => server.close());

describe('every code', () => {
  it.each(CODES)('%s', async (code) => {
    const answer = await server.get(`/test/${code}`);
    expectProblem(answer, STATUS_OF[code], code);
    expect(answer.json).toEqual({
      type: `/docs/errors#${code}`,
      title: ERROR_CODES[code],
      status: STATUS_OF[code],
      code,
      detail: 'what happened',
      errors: [{ path: '/a', message: 'why' }],
    });
    // Whatever may pass by itself says when to come again; a rate says it where it is counted.
    const passes = [429, 503, 507].includes(STATUS_OF[code]) && code !== 'rate-limited';
    expect(answer.headers['retry-after'] !== undefined).toBe(passes);
    expect(answer.headers.connection).toBe(
      code === 'shutting-down' || code === 'request-timeout' ? 'close' : 'keep-alive',
    );
  });
});

describe('what nobody foresaw', () => {
  it.each(['thrown', 'text', 'status'])('%s: 500, logged, and nothing of it told', async (what) => {
    logged.length = 0;
    const answer = await server.get(`/test/${what}`);
    expectProblem(answer, 500, 'internal');
    expect(answer.text).not.toContain('secret');
    expect(logged).toMatchObject([{ method: 'GET', route: `/test/${what}` }]);
    await server.expectAlive();
  });
});
