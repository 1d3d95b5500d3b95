/** Topic names with every odd character, through every way a name travels: path, body, query, lease token. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { topicNameFault } from '../../src/core/names.ts';
import { expectProblem, startServer, type TestServer, tasksPath, topicPath } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.close());

/** A task goes through a topic of this name. */
async function roundTrip(topic: string): Promise<void> {
  const [id] = await server.enqueue(topic, { payload: topic });
  const info = await server.get(`${tasksPath(topic)}/${encodeURIComponent(id!)}`);
  expect(info.json, info.text).toMatchObject({ topic, id });
  const [task] = await server.lease(topic);
  expect(task).toMatchObject({ topic, id, payload: topic });
  expect((await server.settle({ ack: [{ leaseId: task.leaseId }] })).json.ack).toMatchObject([{ ok: true }]);
  expect((await server.get(topicPath(topic))).json).toMatchObject({ topic });
  expect((await server.get(`/v1/admin/topics/${encodeURIComponent(topic)}/cursors`)).json).toMatchObject({ topic });
}

describe('names that are taken', () => {
  it.each([
    'a',
    'mail.example.org',
    'a/b',
    '/',
    '//',
    'a/../b',
    '../..',
    '/etc/passwd',
    '...',
    '.a',
    ' ',
    ' a ',
    'a b',
    'a+b',
    'a%b',
    '%2F',
    '%252F..',
    '%',
    '%zz',
    'a?b=c&d',
    'a#b',
    'a;b',
    'a:b',
    ':topic',
    'a,b',
    'a\\b',
    '"\'`',
    '<script>',
    '{{y}}',
    "'; DROP TABLE task; --",
    'ü',
    'u\u0308',
    '日本語',
    'עברית',
    '😀',
    '👩‍👩‍👧‍👦',
    '\u202eevil',
    '\ufeff',
    '\u2028',
    '__proto__',
    'constructor',
    'hasOwnProperty',
    'null',
    'undefined',
    '0',
    '-1',
    'tasks',
    'admin',
    'x'.repeat(255),
    'é'.repeat(127),
    '😀'.repeat(63),
  ])('%j', (topic) => roundTrip(topic));

  it('any that the rules allow', async () => {
    const name = fc
      .string({ unit: 'binary', minLength: 1, maxLength: 60 })
      .filter((text) => topicNameFault(text) === null);
    await fc.assert(fc.asyncProperty(name, roundTrip), { numRuns: 60 });
  });

  it('composed and decomposed letters are different names', async () => {
    await server.enqueue('caf\u00e9', { payload: 1 });
    expect(await server.lease('cafe\u0301')).toEqual([]);
    expect(await server.lease('caf\u00e9')).toHaveLength(1);
  });
});

describe('names that are refused, by every call', () => {
  const CALLS: Readonly<Record<string, readonly [string, (topic: string) => string, unknown?]>> = {
    enqueue: ['POST', (topic) => `/v1/topics/${topic}/tasks`, { tasks: [{ payload: 1 }] }],
    list: ['GET', (topic) => `/v1/topics/${topic}/tasks`],
    'find by message id': ['GET', (topic) => `/v1/topics/${topic}/tasks?messageId=m`],
    task: ['GET', (topic) => `/v1/topics/${topic}/tasks/x`],
    cancel: ['DELETE', (topic) => `/v1/topics/${topic}/tasks/x`],
    reschedule: ['PATCH', (topic) => `/v1/topics/${topic}/tasks/x`, { priority: 1 }],
    topic: ['GET', (topic) => `/v1/topics/${topic}`],
    drained: ['GET', (topic) => `/v1/topics/${topic}?drainedWaitMs=1`],
    configure: ['PUT', (topic) => `/v1/topics/${topic}`, { maxInFlight: 1 }],
    purge: ['DELETE', (topic) => `/v1/topics/${topic}`],
    cursors: ['GET', (topic) => `/v1/admin/topics/${topic}/cursors`],
    pause: ['POST', (topic) => `/v1/admin/topics/${topic}/pause`],
    resume: ['POST', (topic) => `/v1/admin/topics/${topic}/resume`],
    redrive: ['POST', (topic) => `/v1/admin/topics/${topic}/redrive`],
    scan: ['POST', (topic) => `/v1/admin/topics/${topic}/scan`],
  };
  const NAMES: Readonly<Record<string, string>> = {
    'a star': '*',
    'a prefix': 'a%2A',
    'a dot': '%2E',
    'two dots': '%2E%2E',
    'a control character': 'a%01',
    'a line break': 'a%0A',
    'a null character': '%00',
    DEL: '%7F',
    'a C1 control character': '%C2%85',
    'the name of an inner log': '%01slot%2F0',
    '256 bytes': 'x'.repeat(256),
    '256 bytes of letters with accents': encodeURIComponent('é'.repeat(128)),
    '4,000 characters': 'x'.repeat(4000),
  };
  describe.each(Object.entries(CALLS))('%s', (_call, [method, path, body]) => {
    it.each(Object.entries(NAMES))('%s', async (_name, topic) => {
      expectProblem(await server.call(method, path(topic), body === undefined ? {} : { body }), 400, 'topic-invalid');
    });
  });
});
