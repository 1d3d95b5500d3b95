/**
 * Every route with every kind of key. The routes are those of the OpenAPI document: one that the table below doesn't know
 * fails, and so does one that the document doesn't have.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { formatKey, ROLES, type Role } from '../../src/core/api-key.ts';
import { createServer } from '../../src/http/server.ts';
import type { NewKey } from '../../src/queue/keys.ts';
import {
  type Answer,
  connectRaw,
  eventually,
  expectProblem,
  startServer,
  type TestServer,
  tasksPath,
  topicPath,
} from './support/server.ts';

interface Call {
  readonly path: string;
  readonly body?: object;
}

/** What is expected of a route that needs a key. */
interface Keyed {
  readonly roles: readonly Role[];
  /** Only for keys that are for all topics. */
  readonly allTopics?: true;
  /** The status of a right call. */
  readonly right: number;
  /** What it is about, made ready for one right call: about something in this topic, which begins with `mine/`. */
  readonly call: (topic: string) => Promise<Call>;
  /** What a key for other topics gets: a status, and what the body says. */
  readonly outside: readonly [status: number, body: object];
}

const ADMIN = { roles: ['admin'] } as const;
const PRODUCE_OR_ADMIN = { roles: ['produce', 'admin'] } as const;
const FORBIDDEN = [
  403,
  { code: 'forbidden', detail: expect.stringContaining('whose names begin with "other/"') },
] as const;
const NO_TOPIC = [404, { code: 'topic-not-found' }] as const;
const NO_TASK = [404, { code: 'task-not-found' }] as const;
const NOT_FOR_SOME = [403, { code: 'forbidden', detail: expect.stringContaining('for all topics') }] as const;

let server: TestServer;
const keys = new Map<string, NewKey>();
let made = 0;

const withTask = async (topic: string): Promise<string> => {
  const [task] = await server.queue.enqueue(topic, [{ payload: 1 }]);
  return task!.id!;
};
const taskPath = async (topic: string): Promise<string> =>
  `${tasksPath(topic)}/${encodeURIComponent(await withTask(topic))}`;
const withSchedule = async (topic: string): Promise<string> => {
  await server.queue.setSchedule(topic, { topic, pattern: '0 0 1 1 *', payload: 1 });
  return `/v1/schedules/${encodeURIComponent(topic)}`;
};
const about = (path: string, body?: object) => async (topic: string) => {
  await withTask(topic);
  return { path: `/v1/admin/topics/${encodeURIComponent(topic)}/${path}`, ...(body && { body }) };
};

const KEYED: Readonly<Record<string, Keyed>> = {
  enqueue: {
    roles: ['produce'],
    right: 201,
    call: async (topic) => ({ path: tasksPath(topic), body: { tasks: [{ payload: 1 }] } }),
    outside: FORBIDDEN,
  },
  listTasks: {
    roles: ROLES,
    right: 200,
    call: async (topic) => {
      await withTask(topic);
      return { path: tasksPath(topic) };
    },
    outside: [200, { tasks: [] }],
  },
  getTask: {
    roles: ROLES,
    right: 200,
    call: async (topic) => ({ path: await taskPath(topic) }),
    outside: NO_TASK,
  },
  cancelTask: {
    ...PRODUCE_OR_ADMIN,
    right: 200,
    call: async (topic) => ({ path: await taskPath(topic) }),
    outside: FORBIDDEN,
  },
  rescheduleTask: {
    ...PRODUCE_OR_ADMIN,
    right: 200,
    call: async (topic) => ({ path: await taskPath(topic), body: { priority: 9 } }),
    outside: FORBIDDEN,
  },
  lease: {
    roles: ['consume'],
    right: 200,
    call: async (topic) => {
      await withTask(topic);
      return { path: '/v1/leases', body: { topics: [topic] } };
    },
    outside: [200, { tasks: [] }],
  },
  settle: {
    roles: ['consume'],
    right: 200,
    call: async (topic) => {
      await withTask(topic);
      const [task] = await server.queue.lease({ topics: [topic] });
      return { path: '/v1/leases/settle', body: { ack: [{ leaseId: task!.leaseId }] } };
    },
    outside: [200, { ack: [{ ok: false, code: 'lease-invalid' }] }],
  },
  listTopics: {
    roles: ROLES,
    right: 200,
    call: async (topic) => {
      await withTask(topic);
      return { path: '/v1/topics' };
    },
    outside: [200, { topics: [] }],
  },
  getTopic: {
    roles: ROLES,
    right: 200,
    call: async (topic) => {
      await withTask(topic);
      return { path: topicPath(topic) };
    },
    outside: NO_TOPIC,
  },
  configureTopic: {
    ...ADMIN,
    right: 200,
    call: async (topic) => ({ path: topicPath(topic), body: { maxAttempts: 3 } }),
    outside: FORBIDDEN,
  },
  purgeTopic: {
    ...ADMIN,
    right: 204,
    call: async (topic) => {
      await withTask(topic);
      return { path: topicPath(topic) };
    },
    outside: FORBIDDEN,
  },
  listSchedules: {
    ...PRODUCE_OR_ADMIN,
    right: 200,
    call: async (topic) => {
      await withSchedule(topic);
      return { path: '/v1/schedules' };
    },
    outside: [200, { schedules: [] }],
  },
  getSchedule: {
    ...PRODUCE_OR_ADMIN,
    right: 200,
    call: async (topic) => ({ path: await withSchedule(topic) }),
    outside: [404, { code: 'schedule-not-found' }],
  },
  setSchedule: {
    roles: ['produce'],
    right: 200,
    call: async (topic) => ({
      path: `/v1/schedules/${encodeURIComponent(topic)}`,
      body: { topic, pattern: '0 0 1 1 *', payload: 1 },
    }),
    outside: FORBIDDEN,
  },
  deleteSchedule: {
    ...PRODUCE_OR_ADMIN,
    right: 204,
    call: async (topic) => ({ path: await withSchedule(topic) }),
    outside: FORBIDDEN,
  },
  getCursors: { ...ADMIN, right: 200, call: about('cursors'), outside: [200, { priorities: [] }] },
  getWhy: { ...ADMIN, right: 200, call: about('why'), outside: NO_TOPIC },
  pauseTopic: { ...ADMIN, right: 200, call: about('pause', {}), outside: FORBIDDEN },
  resumeTopic: { ...ADMIN, right: 200, call: about('resume', {}), outside: FORBIDDEN },
  redriveTopic: { ...ADMIN, right: 200, call: about('redrive', {}), outside: FORBIDDEN },
  scanTopic: { ...ADMIN, right: 200, call: about('scan', {}), outside: FORBIDDEN },
  createKey: {
    ...ADMIN,
    allTopics: true,
    right: 201,
    call: async () => ({ path: '/v1/admin/keys', body: { name: 'made', roles: ['consume'] } }),
    outside: NOT_FOR_SOME,
  },
  listKeys: {
    ...ADMIN,
    allTopics: true,
    right: 200,
    call: async () => ({ path: '/v1/admin/keys' }),
    outside: NOT_FOR_SOME,
  },
  revokeKey: {
    ...ADMIN,
    allTopics: true,
    right: 200,
    call: async () => ({ path: `/v1/admin/keys/${(await server.newKey()).id}` }),
    outside: NOT_FOR_SOME,
  },
  getBackup: {
    ...ADMIN,
    allTopics: true,
    right: 200,
    call: async () => ({ path: '/v1/admin/backup' }),
    outside: NOT_FOR_SOME,
  },
  metrics: { ...ADMIN, allTopics: true, right: 200, call: async () => ({ path: '/metrics' }), outside: NOT_FOR_SOME },
  status: { ...ADMIN, allTopics: true, right: 200, call: async () => ({ path: '/status' }), outside: NOT_FOR_SOME },
};

const OPEN: Readonly<Record<string, string>> = { health: '/healthz', ready: '/readyz', errors: '/docs/errors' };

interface Operation {
  readonly method: string;
  readonly operationId: string;
  readonly security?: readonly object[];
  readonly responses: Readonly<Record<string, unknown>>;
}

/** The operations of the document, which is made without a server that listens: tests are told before any begins. */
const operations = await (async (): Promise<readonly Operation[]> => {
  const probe = await startServer({ needsKeys: true });
  try {
    const { paths } = (await probe.get('/docs/json')).json as { paths: Record<string, Record<string, Operation>> };
    return Object.values(paths).flatMap((path) =>
      Object.entries(path).map(([method, operation]) => ({ ...operation, method: method.toUpperCase() })),
    );
  } finally {
    await probe.close();
  }
})();

const send = (method: string, { path, body }: Call, key: string | null): Promise<Answer> =>
  server.call(method, path, { body, ...(key !== null && { headers: { authorization: `Bearer ${key}` } }) });

const newTopic = (): string => `mine/${made++}`;

beforeAll(async () => {
  server = await startServer({ needsKeys: true });
  for (const role of ROLES) {
    keys.set(`${role} for all`, await server.newKey({ roles: [role] }));
    keys.set(`${role} inside`, await server.newKey({ roles: [role], prefixes: ['mine/', 'also/'] }));
    keys.set(`${role} outside`, await server.newKey({ roles: [role], prefixes: ['other/'] }));
  }
  keys.set('revoked', await server.newKey());
  await server.queue.keys.revokeKey(keys.get('revoked')!.id);
  keys.set('expired', await server.newKey({ ttlMs: 1 }));
  await eventually(() => Date.now() > keys.get('expired')!.expiresAt!);
});
afterAll(() => server.close());

const keyOf = (name: string): string => keys.get(name)!.key;

/** What is no key, or no good one, each in its own way. */
const notGood = (): Readonly<Record<string, string | null>> => {
  const good = keyOf('admin for all');
  const { id } = keys.get('admin for all')!;
  return {
    'no key': null,
    'no key at all': 'secret',
    'an unknown key': formatKey(randomBytes(6).toString('hex'), randomBytes(32).toString('hex')),
    'the id of a good key with another secret': formatKey(id, randomBytes(32).toString('hex')),
    'a good key, mistyped': good.slice(0, -1) + (good.endsWith('0') ? '1' : '0'),
    'a revoked key': keyOf('revoked'),
    'an expired key': keyOf('expired'),
  };
};

describe('the table', () => {
  it('has every operation of the OpenAPI document, and no other', () => {
    expect(operations.map(({ operationId }) => operationId).sort()).toEqual(
      [...Object.keys(KEYED), ...Object.keys(OPEN)].sort(),
    );
  });
});

describe.each(operations)('$operationId', ({ method, operationId, security, responses }) => {
  const path = OPEN[operationId];
  if (path !== undefined) {
    it('is open', async () => {
      expect(security).toEqual([]);
      for (const key of [null, 'nonsense', keyOf('revoked'), keyOf('consume outside')]) {
        expect((await send(method, { path }, key)).status).toBe(200);
      }
    });
    return;
  }
  const { roles, allTopics, right, call, outside } = KEYED[operationId]!;

  it('says in the document that it needs a key', () => {
    expect(security).toEqual([{ key: [] }]);
    for (const status of ['401', '403', '429']) expect(Object.keys(responses)).toContain(status);
  });

  it('refuses whatever is no good key, always in the same way, and does nothing', async () => {
    const request = await call(newTopic());
    const before = await snapshot();
    const answers = await Promise.all(
      Object.entries(notGood()).map(async ([kind, key]) => [kind, await send(method, request, key)] as const),
    );
    const [, first] = answers[0]!;
    for (const [kind, answer] of answers) {
      expectProblem(answer, 401, 'unauthenticated');
      expect(answer.headers['www-authenticate'], kind).toBe('Bearer realm="ebbmark"');
      expect({ ...answer.headers, date: '' }, kind).toEqual({ ...first.headers, date: '' });
      expect(answer.text, kind).toBe(first.text);
    }
    expect(await snapshot()).toEqual(before);
  });

  it.each(ROLES.filter((role) => !roles.includes(role)))('refuses a key with the role %s', async (role) => {
    const request = await call(newTopic());
    for (const kind of ['for all', 'inside', 'outside']) {
      const answer = await send(method, request, keyOf(`${role} ${kind}`));
      expectProblem(answer, 403, 'forbidden');
      expect(answer.json.detail).toContain(`this one has ${role}`);
    }
  });

  it.each([...roles])(
    'answers a key with the role %s for other topics as if the topic were not there',
    async (role) => {
      const answer = await send(method, await call(newTopic()), keyOf(`${role} outside`));
      expect({ status: answer.status, body: answer.json }).toMatchObject({ status: outside[0], body: outside[1] });
    },
  );

  it.each([...roles])('answers a key with the role %s for its topic', async (role) => {
    const kinds = allTopics ? ['for all'] : ['for all', 'inside'];
    for (const kind of kinds) {
      const answer = await send(method, await call(newTopic()), keyOf(`${role} ${kind}`));
      expect(answer.status, answer.text).toBe(right);
    }
    if (allTopics) expectProblem(await send(method, await call(newTopic()), keyOf(`${role} inside`)), 403, 'forbidden');
  });
});

/** What calls could have changed. */
const snapshot = async () => ({
  counts: { ...server.queue.status(), waiting: 0, lastScanAt: 0, oldestReadyMs: 0, space: null },
  keys: await server.queue.keys.listKeys({ limit: 1000 }),
  schedules: await server.queue.schedules({ limit: 1000 }),
});

describe('besides', () => {
  it('HEAD needs what GET needs', async () => {
    expect((await server.call('HEAD', '/v1/topics')).status).toBe(401);
    expect((await send('HEAD', { path: '/v1/topics' }, keyOf('produce inside'))).status).toBe(200);
  });

  it('other servers are asked for their own secret, which no key is', async () => {
    const peers = await startServer({ needsKeys: true });
    const second = await createServer(peers.queue, { keys: peers.queue.keys, peers: peers.queue.peers });
    const url = await second.listen('127.0.0.1', 0);
    try {
      const { key } = await peers.newKey();
      for (const authorization of ['', `Bearer ${key}`]) {
        const answer = await fetch(`${url}/internal/peers/look`, { method: 'POST', headers: { authorization } });
        expect(answer.status).toBe(403);
      }
      // Nor does it wait for a body of theirs.
      const raw = await connectRaw(Number(new URL(url).port));
      onTestFinished(() => void raw.socket.destroy());
      const head = 'POST /internal/peers/look HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n';
      raw.socket.write(`${head}Content-Length: 1000\r\n\r\n`);
      await raw.until(/^HTTP\/1\.1 403 /);
    } finally {
      await second.stop(0);
      await peers.close();
    }
  });

  it('a route that does not say who may call it keeps the server from starting', async () => {
    const { app, stop } = await createServer(server.queue);
    expect(() => app.get('/v1/new', async () => ({}))).toThrow(
      'GET /v1/new does not say who may call it: config.access',
    );
    await stop(0);
  });

  it('addresses that are not there are told without a key', async () => {
    expectProblem(await server.get('/v1/nothing'), 404, 'not-found');
    expectProblem(await server.call('POST', '/healthz'), 405, 'method-not-allowed');
    // And before a body is there, which nobody would read.
    const raw = await connectRaw(server.port);
    onTestFinished(() => void raw.socket.destroy());
    raw.socket.write('POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n');
    await raw.until(/^HTTP\/1\.1 404 [\s\S]*"code":"not-found"/);
  });

  it('a call without a key is refused before its body is read', async () => {
    const answer = await server.call('POST', tasksPath('mine/x'), { raw: '{', headers: { 'content-type': 'text/x' } });
    expectProblem(answer, 401, 'unauthenticated');
  });

  it('who shows no key takes no memory: addresses where nobody reads a body are answered without it', async () => {
    const guarded = await startServer({ needsKeys: true });
    const second = await createServer(guarded.queue, { keys: guarded.queue.keys, peers: guarded.queue.peers });
    const port = Number(new URL(await second.listen('127.0.0.1', 0)).port);
    try {
      for (const [path, status] of [
        ['/nothing', 404],
        ['/healthz', 405],
        ['/v1/topics/mine', 405],
        ['/docs', 405],
        ['/v1/leases', 401],
        ['/internal/peers/look', 403],
      ] as const) {
        const raw = await connectRaw(port);
        raw.socket.write(
          `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n[`,
        );
        expect(await raw.until(/"code":"[^"]+"/)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
        await eventually(() => second.budgets.usage().memory.rest.now === 0);
        raw.socket.destroy();
      }
    } finally {
      await second.stop(0);
      await guarded.close();
    }
  });

  it('a cursor that was not sealed for its holder is none, in whatever words it is written', async () => {
    const topic = newTopic();
    await server.queue.enqueue(topic, [{ payload: 1 }, { payload: 2 }]);
    const page = (after: string) =>
      send('GET', { path: `${tasksPath(topic)}?limit=1&after=${after}` }, keyOf('produce inside'));
    const { after } = (await send('GET', { path: `${tasksPath(topic)}?limit=1` }, keyOf('produce inside'))).json;
    expect((await page(after)).json.tasks).toMatchObject([{ payload: 2 }]);
    // As the queue's own are written: places in a log that topics share could be tried with them.
    for (const text of ['0-4-1', '2-0-0']) expectProblem(await page(text), 400, 'invalid-input');
    // A block more in front once let what is behind be read, out of the error.
    for (let nth = 0; nth < 300; nth++) {
      const bent = Buffer.concat([randomBytes(16), Buffer.from(after, 'base64url')]).toString('base64url');
      const answer = await page(bent);
      expectProblem(answer, 400, 'invalid-input');
      expect(answer.json.detail).toContain(`"${bent}" is not a cursor`);
    }
  });

  it('the scheme may be written in any case, with blanks behind it', async () => {
    for (const authorization of [`bearer ${keyOf('admin for all')}`, `BEARER   ${keyOf('admin for all')} `]) {
      expect((await server.call('GET', '/v1/topics', { headers: { authorization } })).status).toBe(200);
    }
    for (const authorization of [keyOf('admin for all'), `Basic ${keyOf('admin for all')}`, 'Bearer', 'Bearer ']) {
      expect((await server.call('GET', '/v1/topics', { headers: { authorization } })).status).toBe(401);
    }
  });

  it('where no keys are asked for, none are made', async () => {
    const open = await startServer();
    try {
      expectProblem(await open.post('/v1/admin/keys', { name: 'x', roles: ['admin'] }), 403, 'forbidden');
      expect((await open.get('/v1/topics')).status).toBe(200);
      const { paths } = (await open.get('/docs/json')).json;
      expect(paths['/v1/topics'].get.security).toEqual([{ key: [] }, {}]);
    } finally {
      await open.close();
    }
  });
});
