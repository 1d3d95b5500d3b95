/**
 * Secrets of every kind are put wherever one can be, and real processes are driven through all that they can do, with the
 * log at its most talkative: right and wrong calls, a store that fails, errors that nobody catches, a stop. None may stand in
 * a log or on standard error.
 */
import { createPrivateKey, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';
import { expect, onTestFinished, test } from 'vitest';
import { createProgram } from '../../src/cli/program.ts';
import { formatKey } from '../../src/core/api-key.ts';
import { type Running, run, start } from '../cli/support/run.ts';
import { connectRaw, eventually } from '../http/support/server.ts';
import { makeAuthority, writeFiles } from '../support/authority.ts';
import { type Place, secrets, secretsIn } from './support/secrets.ts';

/** Those that belong to nobody who calls: no answer may have them. */
const NEVER_ANSWERED: readonly Place[] = [
  'authorization',
  'cookie',
  'header',
  'url',
  'cassandraPassword',
  'passphrase',
  'peerSecret',
  'bug',
];

const FAILING = fileURLToPath(new URL('support/failing-server.ts', import.meta.url));

interface Operation {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly hasBody: boolean;
}

interface Answer {
  readonly operation: string;
  readonly status: number;
  readonly text: string;
}

/** The operations of the OpenAPI document, so that a new route is driven too. */
function operationsOf(document: string): readonly Operation[] {
  const { paths } = JSON.parse(document) as {
    paths: Record<string, Record<string, { operationId: string; requestBody?: unknown }>>;
  };
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId, requestBody }]) => ({
      id: operationId,
      method: method.toUpperCase(),
      path,
      hasBody: requestBody !== undefined,
    })),
  );
}

const task = {
  payload: { secret: secrets.payload, url: `https://me:${secrets.payload}@example.org/?token=${secrets.payload}` },
  metadata: { secret: secrets.metadata },
};

/** A body that each operation takes. One that is missing here fails the test. */
const RIGHT_BODIES: Readonly<Record<string, unknown>> = {
  enqueue: {
    tasks: [{ ...task, messageId: `https://example.org/?token=${secrets.messageId}` }, task, { ...task, delayMs: 1 }],
  },
  rescheduleTask: { priority: 9 },
  lease: { topics: ['secrets'], max: 1 },
  settle: {
    ack: [{ leaseId: 'x.y.z', result: secrets.result }],
    nack: [{ leaseId: 'x.y.z', reason: secrets.reason }],
    progress: [{ leaseId: 'x.y.z', position: secrets.progress }],
  },
  configureTopic: { leaseMs: 30_000 },
  pauseTopic: {},
  resumeTopic: {},
  redriveTopic: {},
  scanTopic: {},
  setSchedule: {
    topic: 'secrets',
    pattern: '* * * * * *',
    payload: secrets.schedule,
    metadata: { s: secrets.schedule },
  },
  createKey: { name: 'secrets', description: secrets.metadata, roles: ['consume'] },
};

/** An API key, whoever made it. */
const ANY_KEY = /ebb_[0-9a-f]{12}_[0-9a-f]{8}/;

/** Bodies that no operation takes. */
const WRONG_BODIES: readonly (string | Uint8Array)[] = [
  `${secrets.misshapen}`,
  `{"tasks": [{"payload": "${secrets.misshapen}"`,
  JSON.stringify({ [secrets.misshapen]: secrets.misshapen, __proto: 1 }),
  `{"__proto__": {"a": "${secrets.misshapen}"}}`,
  JSON.stringify({
    tasks: secrets.misshapen,
    topics: secrets.misshapen,
    ack: secrets.misshapen,
    priority: secrets.misshapen,
  }),
  JSON.stringify({
    tasks: [{ payload: secrets.payload, messageId: secrets.messageId, priority: secrets.misshapen }],
    ack: [{ leaseId: secrets.misshapen, result: secrets.result }],
    nack: [{ leaseId: secrets.misshapen, reason: [secrets.reason] }],
    pattern: secrets.schedule,
    topic: secrets.pathPart,
  }),
  `{"tasks": [{"payload": "${secrets.payload.repeat(600_000)}"}]}`,
  Buffer.from(`\xff\xfe${secrets.misshapen}`, 'latin1'),
];

const HEADERS = {
  authorization: `Bearer ${secrets.authorization}`,
  cookie: `session=${secrets.cookie}`,
  'x-api-key': secrets.header,
  'idempotency-key': secrets.idempotencyKey,
  traceparent: `00-${secrets.header}-01`,
  referer: `https://example.org/?token=${secrets.header}`,
};

class Driver {
  readonly answers: Answer[] = [];
  readonly #pool: Pool;
  readonly #headers: Readonly<Record<string, string>>;

  /** @param key an API key that is good */
  constructor(url: string, tls: object, key: string | null = null) {
    this.#headers = key === null ? HEADERS : { ...HEADERS, authorization: `Bearer ${key}` };
    this.#pool = new Pool(url, { connections: 4, connect: { ...tls } });
    onTestFinished(() => this.#pool.destroy());
  }

  /** @returns the answer; null where the connection broke */
  async call(
    operation: string,
    method: string,
    path: string,
    body: string | Uint8Array | null = null,
    more: object = {},
  ) {
    try {
      const answer = await this.#pool.request({
        method: method as 'GET',
        path,
        headers: { ...this.#headers, ...(body === null ? {} : { 'content-type': 'application/json' }), ...more },
        body,
      });
      const kept = { operation, status: answer.statusCode, text: await answer.body.text() };
      this.answers.push(kept);
      return kept;
    } catch {
      return null;
    }
  }

  async post(path: string, body: unknown): Promise<unknown> {
    const answer = await this.call(path, 'POST', path, JSON.stringify(body));
    expect(answer?.status, answer?.text).toBeLessThan(300);
    return JSON.parse(answer!.text);
  }

  /** Every operation, right and wrong. */
  async driveAll(operations: readonly Operation[]): Promise<void> {
    for (const { id, method, path, hasBody } of operations) {
      const right = RIGHT_BODIES[id];
      expect(!hasBody || right !== undefined, `${id} has no body in this test`).toBe(true);
      const body = right === undefined ? null : JSON.stringify(right);
      const at = (part: string) => path.replace(/\{\w+\}/g, () => encodeURIComponent(part));
      await this.call(id, method, at('secrets'), body);
      await this.call(id, method, `${at('secrets')}?token=${secrets.query}&after=${secrets.query}`, body);
      await this.call(id, method, at(`${secrets.pathPart}\0`), body);
      await this.call(id, method, `${at(secrets.pathPart)}%ff`, body);
      await this.call(id, method, `${at('secrets')}/${secrets.pathPart}`, body);
      await this.call(id, 'PATCH', at(secrets.pathPart), body);
      await this.call(id, method, at('secrets'), body, HEADERS);
      const wrongKey = `${this.#headers.authorization!.slice(0, -1)}-`;
      await this.call(id, method, at('secrets'), body, { authorization: wrongKey });
      if (!hasBody) continue;
      for (const wrong of WRONG_BODIES) await this.call(id, method, at('secrets'), wrong);
      await this.call(id, method, at('secrets'), body, { 'content-type': secrets.misshapen });
      await this.call(id, method, at('secrets'), body, { 'content-encoding': secrets.misshapen });
      await this.call(id, method, at('secrets'), secrets.misshapen, { 'content-encoding': 'gzip' });
    }
    await this.call('peers', 'POST', '/internal/peers/lease', '{}', { authorization: `Bearer ${secrets.peerSecret}` });
    await this.call('host', 'GET', '/healthz', null, { host: secrets.header });
    await this.call('origin', 'POST', '/v1/leases', '{}', { origin: `https://${secrets.header}` });
  }
}

interface Served extends Running {
  readonly url: string;
}

async function serve(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Served> {
  const server = start(['serve', '--listen', '127.0.0.1:0', '--log-level', 'trace', ...args], {
    env: {
      EBBMARK_CASSANDRA_PASSWORD: secrets.cassandraPassword,
      EBBMARK_URL: `https://me:${secrets.url}@127.0.0.1:1/?token=${secrets.url}`,
      TEST_BUG: secrets.bug,
      ...env,
    },
    preload: FAILING,
  });
  onTestFinished(async () => {
    server.child.kill('SIGKILL');
    await server.ended;
  });
  const [, url] = await server.until(/"url":"([^"]+)"/);
  return { ...server, url: url! };
}

async function withTls() {
  const authority = await makeAuthority('tests');
  const own = await authority.issue('server');
  const passphrase = secrets.passphrase;
  const encrypted = createPrivateKey(own.key).export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase,
  });
  const files = await writeFiles({ cert: own.cert, key: encrypted.toString(), clientKey: own.key, ca: authority.ca });
  const keyText = own.key.split('\n')[1]!;
  return {
    files,
    clientTls: { ca: authority.ca, cert: own.cert, key: own.key },
    /** What of the keys would be told by a log that tells them. */
    keys: { key: keyText, encryptedKey: encrypted.toString().split('\n')[1]! },
    serverEnv: {
      EBBMARK_TLS_CERT: files.cert,
      EBBMARK_TLS_KEY: files.key,
      EBBMARK_TLS_KEY_PASSPHRASE: passphrase,
      EBBMARK_TLS_CLIENT_CA: files.ca,
    },
    clientEnv: {
      EBBMARK_TLS_CA: files.ca,
      EBBMARK_TLS_CLIENT_CERT: files.cert,
      EBBMARK_TLS_CLIENT_KEY: files.clientKey,
    },
  };
}

/** Every line is one of the log. */
function expectLog(out: string, keys: Readonly<Record<string, string>>): void {
  const lines = out.split('\n').filter((line) => line !== '' && line !== 'the store fails from now on');
  for (const line of lines) {
    expect(JSON.parse(line)).toMatchObject({ level: expect.any(String), msg: expect.any(String) });
    expect(secretsIn(line, keys), line).toEqual([]);
    expect(line).not.toMatch(ANY_KEY);
  }
}

function expectAnswers({ answers }: Driver): void {
  for (const { operation, text } of answers) {
    const found = secretsIn(text).filter((name) => (NEVER_ANSWERED as readonly string[]).includes(name));
    expect(found, `${operation}: ${text.slice(0, 2_000)}`).toEqual([]);
  }
}

async function newDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-secrets-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

test('none is told by a server with TLS and API keys that works, fails and crashes', async () => {
  const { serverEnv, clientTls, keys } = await withTls();
  const store = `sqlite:${join(await newDirectory(), 'queue.db')}`;
  const roles = ['admin', 'produce', 'consume'].flatMap((role) => ['--role', role]);
  const key = (await run(['keys', 'create', 'first', ...roles, '--store', store])).out.trim();
  expect(key).toMatch(ANY_KEY);
  const server = await serve(['--require-keys', 'on', '--store', store], serverEnv);
  const driver = new Driver(server.url, clientTls, key);
  const document = await driver.call('docs', 'GET', '/docs/json');
  const operations = operationsOf(document!.text);
  expect(operations.length).toBeGreaterThan(20);

  const setSchedule = JSON.stringify(RIGHT_BODIES.setSchedule);
  await driver.call('setSchedule', 'PUT', '/v1/schedules/secrets', setSchedule);
  await driver.driveAll(operations);
  const succeeded = new Set(driver.answers.filter(({ status }) => status < 300).map(({ operation }) => operation));
  // Of these there is nothing by the name of `secrets`.
  const needsAnId = ['getTask', 'cancelTask', 'rescheduleTask', 'revokeKey'];
  expect(operations.map(({ id }) => id).filter((id) => !succeeded.has(id) && !needsAnId.includes(id))).toEqual([]);

  // The whole way of tasks, a schedule that fires among them.
  await driver.call('setSchedule', 'PUT', '/v1/schedules/secrets', setSchedule);
  await driver.post('/v1/topics/secrets/tasks', RIGHT_BODIES.enqueue);
  let isFired = false;
  while (!isFired) {
    const { tasks } = (await driver.post('/v1/leases', { topics: ['secrets'], max: 10, waitMs: 10_000 })) as {
      tasks: { id: string; leaseId: string; payload: unknown }[];
    };
    isFired = tasks.some(({ payload }) => payload === secrets.schedule);
    const [first, ...others] = tasks;
    if (first === undefined) continue;
    await driver.call('getTask', 'GET', `/v1/topics/secrets/tasks/${encodeURIComponent(first.id)}`);
    await driver.post('/v1/leases/settle', {
      progress: [{ leaseId: first.leaseId, position: secrets.progress }],
      nack: others.map(({ leaseId }) => ({ leaseId, reason: secrets.reason, dead: true })),
    });
    await driver.post('/v1/leases/settle', { ack: [{ leaseId: first.leaseId, result: secrets.result }] });
  }
  // A key, and who shows it when it is revoked.
  const made = (await driver.post('/v1/admin/keys', RIGHT_BODIES.createKey)) as { id: string; key: string };
  const revoked = await driver.call('revokeKey', 'DELETE', `/v1/admin/keys/${made.id}`);
  expect(revoked?.status).toBe(200);
  const late = await driver.call('lease', 'POST', '/v1/leases', '{}', { authorization: `Bearer ${made.key}` });
  expect(late?.status).toBe(401);

  // A firing whose priority its topic takes no more.
  await driver.call('configureTopic', 'PUT', '/v1/topics/banded', '{"bands": [1, 101]}');
  const banded = { ...(RIGHT_BODIES.setSchedule as object), topic: 'banded', priority: 150 };
  expect((await driver.call('setSchedule', 'PUT', '/v1/schedules/refused', JSON.stringify(banded)))?.status).toBe(200);
  await driver.call('configureTopic', 'PUT', '/v1/topics/banded', '{"bands": null}');
  await server.until(/a firing was refused/);

  const raw = await connectRaw(Number(new URL(server.url).port));
  raw.socket.write(`GET /${secrets.query} HTTP/1.1\r\nAuthorization: ${secrets.authorization}\r\n\r\n`);
  await raw.closed;

  server.child.kill('SIGUSR2');
  await server.until(/the store fails from now on/);
  await driver.driveAll(operations);
  expect(driver.answers.some(({ text }) => text.includes('"internal"'))).toBe(true);
  expect(server.out()).toContain('a request failed unforeseen');

  server.child.kill('SIGWINCH');
  const { out, err, code } = await server.ended;
  expect(code).toBe(1);
  expect(out).toContain('an error that nobody caught; stopping');
  expect(out).toContain('a second error that nobody caught; ending');
  expectLog(out, keys);
  expect(err).toBe('');
  expectAnswers(driver);
});

test('none is told by a server whose cluster cannot be reached, up to its stop', async () => {
  const { serverEnv, clientTls, keys } = await withTls();
  // Port 9 of loopback: nothing listens there.
  const store = ['--store', 'cassandra://127.0.0.1:9/none', '--cassandra-user', 'me'];
  const server = await serve(store, serverEnv);
  const driver = new Driver(server.url, clientTls);
  const document = await driver.call('docs', 'GET', '/docs/json');
  await driver.driveAll(operationsOf(document!.text));
  server.child.kill('SIGTERM');
  const { out, err, code } = await server.ended;
  expect(code).toBe(0);
  expect(out).toContain('"msg":"stopped"');
  expectLog(out, keys);
  expect(err).toBe('');
  expectAnswers(driver);
});

test('none is told on standard error by any command', async () => {
  const { serverEnv, clientEnv, keys } = await withTls();
  const server = await serve(['--store', 'sqlite::memory:'], serverEnv);
  const directory = await newDirectory();
  const key = formatKey(randomBytes(6).toString('hex'), randomBytes(32).toString('hex'));
  const env = {
    ...clientEnv,
    EBBMARK_URL: server.url,
    EBBMARK_KEY: key,
    EBBMARK_CASSANDRA_PASSWORD: secrets.cassandraPassword,
    EBBMARK_TLS_KEY_PASSPHRASE: secrets.passphrase,
  };
  const store = ['--store', 'sqlite:/nowhere/none.db'];
  const cluster = ['--store', 'cassandra://127.0.0.1:9/none', '--cassandra-user', 'me'];
  const payload = JSON.stringify(task.payload);
  const commands: Readonly<Record<string, readonly string[]>> = {
    serve: ['--listen', '0.0.0.0:1', '--advertise', `http://me:${secrets.url}@x/`],
    enqueue: ['t', payload, '--message-id', secrets.messageId, '--metadata', `secret=${secrets.metadata}`],
    task: ['t', '--message-id', secrets.messageId],
    tasks: ['t'],
    lease: ['t'],
    ack: ['x.y.z', '--result', `"${secrets.result}"`],
    nack: ['x.y.z', '--reason', secrets.reason],
    extend: ['x.y.z'],
    release: ['x.y.z'],
    cancel: ['t', '01ARZ3NDEKTSV4RRFFQ69G5FAV.5.0', '--reason', secrets.reason],
    reschedule: ['t', '01ARZ3NDEKTSV4RRFFQ69G5FAV.5.0', '--priority', '1'],
    topics: [],
    topic: ['t'],
    set: ['t', 'leaseMs=1000'],
    cursors: ['t'],
    why: ['t'],
    scan: ['t'],
    pause: ['t'],
    resume: ['t'],
    purge: ['t'],
    redrive: ['t'],
    status: [],
    schedule: ['set', 's', 't', '@daily', `"${secrets.schedule}"`],
    migrate: cluster,
    audit: store,
    keys: ['create', 'k', '--role', 'consume', '--description', secrets.metadata],
    backup: [join(directory, 'backup.db')],
    restore: [join(directory, 'none.db'), ...store],
    compact: store,
  };
  expect(Object.keys(commands).sort()).toEqual(
    createProgram({})
      .commands.map((command) => command.name())
      .sort(),
  );
  const told: string[] = [];
  const call = async (args: readonly string[], more: object = {}): Promise<number | null> => {
    const { err, code } = await run(args, { env: { ...env, ...more } });
    told.push(`${args[0]}: ${err}`);
    return code;
  };
  for (const [name, args] of Object.entries(commands)) {
    await Promise.all([
      call([name, ...args]),
      call([name, ...args], { EBBMARK_URL: `https://me:${secrets.url}@127.0.0.1:1/?token=${secrets.url}` }),
      call([name, ...args], { EBBMARK_URL: 'https://127.0.0.1:9' }),
    ]);
  }
  expect(await call(['enqueue', 't', '--stdin'], {})).not.toBe(0);
  expect(await call(['topics'], { EBBMARK_KEY: key.slice(0, -1) })).toBe(2);
  for (const text of told) {
    expect(secretsIn(text, keys), text).toEqual([]);
    expect(text).not.toMatch(ANY_KEY);
  }
  server.child.kill('SIGTERM');
  const { out, err } = await server.ended;
  expectLog(out, keys);
  expect(err).toBe('');
  await eventually(() => server.child.exitCode !== null);
});
