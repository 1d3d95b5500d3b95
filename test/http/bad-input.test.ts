/** Wrong types, unknown fields, numbers out of range, and addresses that are none: every call, every kind. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { expectProblem, startServer, type TestServer, tasksPath } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterEach(() => server.expectAlive());
afterAll(() => server.close());

const PATH = tasksPath('bad');

describe('a task that breaks a rule of its shape refuses the call, and says what is wrong', () => {
  // The task, where the fault is, and what the message says.
  const TASKS: readonly (readonly [unknown, string, string])[] = [
    [{}, '', 'exactly one of payload and payloadBase64'],
    [{ payload: 1, payloadBase64: 'AA==' }, '', 'exactly one of payload and payloadBase64'],
    [1, '', '1 is not an object'],
    [null, '', 'null is not an object'],
    [[], '', 'not an object'],
    [{ payloadBase64: '*' }, '/payloadBase64', '"*" is not base64'],
    [{ payloadBase64: 'AAA' }, '/payloadBase64', '"AAA" is not base64'],
    [{ payloadBase64: 1 }, '/payloadBase64', '1 is not base64'],
    [{ payload: 1, priority: '5' }, '/priority', '"5" is not an integer; for example: 5'],
    [{ payload: 1, priority: 5.5 }, '/priority', '5.5 is not an integer'],
    [{ payload: 1, priority: null }, '/priority', 'null is not an integer'],
    [{ payload: 1, priority: 1e300 }, '/priority', 'is not an integer'],
    [{ payload: 1, messageId: '' }, '/messageId', '"" is not a string of 1 to 2,048 characters'],
    [{ payload: 1, messageId: 7 }, '/messageId', '7 is not a string'],
    [{ payload: 1, messageId: 'x'.repeat(2049) }, '/messageId', 'is not a string of 1 to 2,048 characters'],
    [{ payload: 1, delayMs: -1 }, '/delayMs', '-1 is not an integer from 0 to 31,622,400,000'],
    [{ payload: 1, delayMs: 31_622_400_001 }, '/delayMs', 'is not an integer from 0'],
    [{ payload: 1, delayMs: '1s' }, '/delayMs', '"1s" is not an integer'],
    [{ payload: 1, runAt: -1 }, '/runAt', '-1 is not an integer of at least 0'],
    [{ payload: 1, runAt: '2026-01-01' }, '/runAt', '"2026-01-01" is not an integer'],
    [{ payload: 1, ttlMs: 0 }, '/ttlMs', '0 is not an integer from 1'],
    [{ payload: 1, metadata: [] }, '/metadata', '[] is not an object'],
    [{ payload: 1, metadata: { n: 1 } }, '/metadata/n', '1 is not a string'],
    [{ payload: 1, metadata: { 'a/b~c\n': 1 } }, '/metadata/a~1b~0c\n', '1 is not a string'],
    [{ payload: 1, maxAttempts: 0 }, '/maxAttempts', '0 is not an integer from 1 to 1,000'],
    [{ payload: 1, onDuplicate: 'drop' }, '/onDuplicate', '"drop" is not one of "keep", "again", "replace"'],
    [
      { payload: 1, Priority: 1 },
      '/Priority',
      '"Priority" is not a known field; known are payload, payloadBase64, priority',
    ],
  ];
  it.each(TASKS)('%j', async (task, path, message) => {
    const before = server.queue.status().enqueued;
    const answer = await server.post(PATH, { tasks: [{ payload: 'good' }, task] });
    expectProblem(answer, 400, 'invalid-input');
    expect(answer.json.errors[0].path).toBe(`/tasks/1${path}`);
    expect(answer.json.errors[0].message).toContain(message);
    expect(answer.json.detail).toContain(message);
    expect(server.queue.status().enqueued).toBe(before);
  });

  it('lists all that is wrong with a small body', async () => {
    const answer = await server.post(PATH, { tasks: [{ payload: 1, priority: 'x', ttlMs: -1, foo: 1 }, {}], more: 1 });
    expectProblem(answer, 400, 'invalid-input');
    expect(answer.json.errors.map((issue: { path: string }) => issue.path).sort()).toEqual(
      ['/more', '/tasks/0/foo', '/tasks/0/priority', '/tasks/0/ttlMs', '/tasks/1'].sort(),
    );
  });

  it('names the first of what is wrong with a large one, in a short answer', async () => {
    const metadata = Object.fromEntries(Array.from({ length: 200_000 }, (_, at) => [`k${at}`, at]));
    const answer = await server.post(PATH, { tasks: [{ payload: 1, metadata }] });
    expectProblem(answer, 400, 'invalid-input');
    expect(answer.json.errors).toHaveLength(1);
    expect(answer.text.length).toBeLessThan(2000);
  });

  it.each([0, 1001, 100_000])('refuses a call of %d tasks', async (length) => {
    const answer = await server.post(PATH, { tasks: Array.from({ length }, () => ({ payload: 1 })) });
    expectProblem(answer, 400, 'invalid-input');
    expect(answer.json.errors[0]).toMatchObject({ path: '/tasks', message: expect.stringContaining('1 to 1,000') });
  });
});

describe('an Idempotency-Key', () => {
  it.each(['', ' ', 'a b', 'é', 'x'.repeat(256)])('%j is refused', async (key) => {
    const headers = { 'idempotency-key': Buffer.from(key, 'utf8').toString('latin1') };
    expectProblem(await server.post(PATH, { tasks: [{ payload: 1 }] }, headers), 400, 'invalid-input');
  });
  it('of 255 visible characters is taken', async () => {
    const answer = await server.post(
      PATH,
      { tasks: [{ payload: 1 }] },
      { 'idempotency-key': '~!'.repeat(127).padEnd(255, '"') },
    );
    expect(answer.status).toBe(201);
  });
});

describe('a lease call that breaks a rule', () => {
  it.each([
    [[]],
    ['all'],
    [{ topics: 'a' }],
    [{ topics: [] }],
    [{ topics: [''] }],
    [{ topics: [1] }],
    [{ topics: ['x'.repeat(300)] }],
    [{ max: 0 }],
    [{ max: 1001 }],
    [{ max: '1' }],
    [{ max: 1.5 }],
    [{ maxPerTopic: 0 }],
    [{ priorities: [] }],
    [{ priorities: [10] }],
    [{ priorities: [-1] }],
    [{ priorities: [1, 1] }],
    [{ order: 'random' }],
    [{ waitMs: -1 }],
    [{ waitMs: 60_001 }],
    [{ leaseMs: 99 }],
    [{ leaseMs: 43_200_001 }],
    [{ worker: '' }],
    [{ worker: 'x'.repeat(129) }],
    [{ signal: {} }],
    [{ topic: 'a' }],
  ])('%j', async (body) => expectProblem(await server.post('/v1/leases', body), 400, 'invalid-input'));

  it.each(['a*b', '..', '.', 'a\n', '\ud800', 'é'.repeat(128)])('the topic %j', async (topic) => {
    expectProblem(await server.post('/v1/leases', { topics: ['fine', topic] }), 400, 'topic-invalid');
  });
});

describe('a query that breaks a rule', () => {
  it.each([
    '/v1/topics?limit=0',
    '/v1/topics?limit=1001',
    '/v1/topics?limit=',
    '/v1/topics?limit=ten',
    '/v1/topics?limit=1.0',
    '/v1/topics?limit=0x10',
    '/v1/topics?limit=+5',
    '/v1/topics?limit=%205',
    '/v1/topics?limit=1&limit=2',
    '/v1/topics?limit[]=1',
    '/v1/topics?limt=1',
    '/v1/topics?__proto__=1',
    '/v1/topics?constructor=1',
    '/v1/topics?after=%ff',
    '/v1/topics?after=%',
    '/v1/topics?after=%ED%A0%80',
    '/v1/topics?%E0%A4%A=1',
    `/v1/topics?prefix=${'x'.repeat(256)}`,
    `${PATH}?state=gone`,
    `${PATH}?state=ready&state=dead`,
    `${PATH}?limit=-1`,
    `${PATH}?messageId=`,
    `${PATH}/x?waitMs=60001`,
    `${PATH}/x?waitMs=-0`,
    `${PATH}/x?wait=1`,
    '/v1/topics/bad?drainedWaitMs=1e3',
    '/v1/admin/topics/bad/cursors?x=1',
    '/healthz?x=1',
    '/readyz?x',
    '/metrics?x',
    '/status?x',
  ])('%s', async (path) => expectProblem(await server.get(path), 400, 'invalid-input'));

  it('is refused on calls that take none', async () => {
    expectProblem(await server.post(`${PATH}?dry=1`, { tasks: [{ payload: 1 }] }), 400, 'invalid-input');
    expectProblem(await server.call('DELETE', '/v1/topics/bad?force=1'), 400, 'invalid-input');
  });

  it.each(['not a cursor', '😀', '-1', '{}'])('an `after` that no page gave: %j', async (after) => {
    const answer = await server.get(`${PATH}?after=${encodeURIComponent(after)}`);
    expect([200, 400], answer.text).toContain(answer.status);
  });
});

describe('addresses and methods', () => {
  it.each([
    '/v1',
    '/v1/',
    '/v1/topics/a/',
    '/V1/topics',
    '/v1/topics/a/tasks/b/c',
    '/v1//topics',
    '//healthz',
    '/v1/admin/topics/a/nuke',
    '/healthz/',
    '/.env',
    '/docs/../healthz',
  ])('there is nothing at %s', async (path) => expectProblem(await server.get(path), 404, 'not-found'));

  it.each([
    ['GET', '/v1/leases', 'POST'],
    ['POST', '/v1/topics', 'GET, HEAD'],
    ['PUT', '/v1/topics/a/tasks', 'GET, HEAD, POST'],
    ['POST', '/v1/topics/a/tasks/b', 'DELETE, GET, HEAD, PATCH'],
    ['OPTIONS', '/v1/topics/a', 'DELETE, GET, HEAD, PUT'],
    ['GET', '/v1/admin/topics/a/pause', 'POST'],
    ['DELETE', '/status', 'GET, HEAD'],
    ['TRACE', '/healthz', 'GET, HEAD'],
    ['PROPFIND', '/healthz', 'GET, HEAD'],
    ['QUERY', '/healthz', 'GET, HEAD'],
  ])('%s does not go with %s', async (method, path, allow) => {
    const answer = await server.call(method, path);
    expectProblem(answer, 405, 'method-not-allowed');
    expect(answer.headers.allow).toBe(allow);
  });

  it.each(['%', '%zz', '%ff', '%c3', '%ED%A0%80', '%F5%80%80%80', 'a%00%ff'])(
    'the path part %s is not UTF-8',
    async (part) => {
      expectProblem(await server.get(`/v1/topics/${part}`), 400, 'invalid-input');
      expectProblem(await server.get(`${PATH}/${part}`), 400, 'invalid-input');
    },
  );

  it('a part of the path may not be empty', async () => {
    expectProblem(await server.get('/v1/topics/'), 400, 'topic-invalid');
    expectProblem(await server.get('/v1/topics//tasks'), 400, 'topic-invalid');
    expectProblem(await server.get(`${PATH}/`), 404, 'task-not-found');
  });

  it('a part of the path may not be endless', async () => {
    expectProblem(await server.get(`${PATH}/${'x'.repeat(9000)}`), 400, 'invalid-input');
  });
});

describe('requests from pages of other sites', () => {
  it('are refused where they change something', async () => {
    const path = '/v1/admin/topics/bad/pause';
    expectProblem(await server.call('POST', path, { headers: { origin: 'https://evil.example' } }), 403, 'forbidden');
    expectProblem(await server.call('POST', path, { headers: { origin: 'null' } }), 403, 'forbidden');
    expect((await server.call('POST', path, { headers: { origin: server.url } })).status).toBe(200);
  });
});

describe('names of other hosts', () => {
  it.each([
    'evil.example',
    'evil.example:8080',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '10.0.0.1',
    '[::2]',
    '',
  ])('are refused on loopback: %j', async (host) => {
    for (const path of ['/healthz', '/v1/topics', '/docs/json'])
      expectProblem(await server.call('GET', path, { headers: { host } }), 403, 'forbidden');
  });

  it.each(['localhost', 'LOCALHOST:1', '127.0.0.1', '127.255.0.1:8080', '[::1]', '[::1]:8080'])(
    'but not its own: %s',
    async (host) => {
      expect((await server.call('GET', '/healthz', { headers: { host } })).status).toBe(200);
    },
  );

  it('are taken where others may reach the server', async () => {
    const open = await startServer({ anyHost: true });
    expect((await open.call('GET', '/healthz', { headers: { host: 'queue.example.org' } })).status).toBe(200);
    await open.close();
  });
});
