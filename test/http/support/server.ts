/** A real server over a real store on a socket of its own, and a client that changes nothing of what it is given. */
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Dispatcher, Pool } from 'undici';
import { expect } from 'vitest';
import { ROLES } from '../../../src/core/api-key.ts';
import type { TlsCredentials } from '../../../src/core/tls.ts';
import { createServer, type HttpServer, type ServerOptions } from '../../../src/http/server.ts';
import type { Environment } from '../../../src/queue/environment.ts';
import type { KeyInput, NewKey } from '../../../src/queue/keys.ts';
import { openLocalQueue } from '../../../src/queue/open.ts';
import type { LocalQueue } from '../../../src/queue/queue.ts';

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  readonly json: any;
}

export interface CallOptions {
  readonly body?: unknown;
  /** Sent as it is, in place of `body`. */
  readonly raw?: string | Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface TestServer {
  readonly url: string;
  readonly port: number;
  readonly queue: LocalQueue;
  readonly server: HttpServer;
  /** Sends a request; the path goes out as it is. */
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  get(path: string): Promise<Answer>;
  post(path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Answer>;
  /** Puts tasks into a topic. @returns their ids */
  enqueue(topic: string, ...tasks: readonly object[]): Promise<string[]>;
  /** Leases from a topic. */
  // biome-ignore lint/suspicious/noExplicitAny: as above
  lease(topic: string, more?: object): Promise<any[]>;
  settle(request: object): Promise<Answer>;
  /** Makes an API key, for all topics and with all roles but for what is said. */
  newKey(input?: Partial<KeyInput>): Promise<NewKey>;
  /** Whether it still does its work: a task goes in, comes out, and is done. */
  expectAlive(): Promise<void>;
  close(): Promise<void>;
}

export const topicPath = (topic: string): string => `/v1/topics/${encodeURIComponent(topic)}`;
export const tasksPath = (topic: string): string => `${topicPath(topic)}/tasks`;

export type TestServerOptions = ServerOptions & {
  readonly needsKeys?: boolean;
  readonly environment?: Environment;
};

/**
 * @param needsKeys whether calls need API keys
 * @param environment of the queue; the system's when absent
 * @param routes adds routes of a test's own
 * @param tls of the client, where the server speaks it
 */
export async function startServer(
  { needsKeys, environment, ...options }: TestServerOptions = {},
  routes: (app: HttpServer['app']) => void = () => {},
  tls: TlsCredentials = {},
): Promise<TestServer> {
  const directory = await mkdtemp(join(tmpdir(), 'ebbmark-http-'));
  const queue = await openLocalQueue({
    store: `sqlite:${join(directory, 'queue.db')}`,
    ...(environment && { environment }),
  });
  const server = await createServer(queue, { ...options, ...(needsKeys && { keys: queue.keys }) });
  routes(server.app);
  const url = await server.listen('127.0.0.1', 0);
  const pool = new Pool(url, { connections: 8, connect: { ...tls } });
  let alive = 0;

  const call = async (
    method: string,
    path: string,
    { body, raw, headers, signal }: CallOptions = {},
  ): Promise<Answer> => {
    const content = raw ?? (body === undefined ? null : JSON.stringify(body));
    const response = await pool.request({
      method: method as Dispatcher.HttpMethod,
      path,
      headers: { ...(content === null ? {} : { 'content-type': 'application/json' }), ...headers },
      body: content,
      signal: signal ?? null,
    });
    const text = await response.body.text();
    const json = /json/.test(String(response.headers['content-type'])) && text !== '' ? JSON.parse(text) : undefined;
    return { status: response.statusCode, headers: response.headers, text, json };
  };
  const test: TestServer = {
    url,
    port: Number(new URL(url).port),
    queue,
    server,
    call,
    get: (path) => call('GET', path),
    post: (path, body, headers = {}) => call('POST', path, { body, headers }),
    async enqueue(topic, ...tasks) {
      const answer = await call('POST', tasksPath(topic), { body: { tasks } });
      expect(answer.status, answer.text).toBe(201);
      return answer.json.tasks.map((task: { id: string }) => task.id);
    },
    async lease(topic, more = {}) {
      const answer = await call('POST', '/v1/leases', { body: { topics: [topic], ...more } });
      expect(answer.status, answer.text).toBe(200);
      return answer.json.tasks;
    },
    settle: (request) => call('POST', '/v1/leases/settle', { body: request }),
    newKey: (input = {}) => queue.keys.createKey({ name: 'test', roles: ROLES, ...input }),
    async expectAlive() {
      const topic = `alive-${alive++}`;
      const [id] = await test.enqueue(topic, { payload: alive });
      const [task] = await test.lease(topic);
      expect(task).toMatchObject({ topic, id, payload: alive });
      const settled = await test.settle({ ack: [{ leaseId: task.leaseId }] });
      expect(settled.json.ack).toEqual([{ leaseId: task.leaseId, ok: true }]);
    },
    async close() {
      await pool.destroy();
      await server.stop(0);
      await queue.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
  return test;
}

/** Checks that an answer is a problem document with this code. */
export function expectProblem(answer: Answer, status: number, code: string): void {
  expect({ status: answer.status, code: answer.json?.code }, answer.text).toEqual({ status, code });
  expect(answer.headers['content-type']).toBe('application/problem+json');
  expect(answer.json).toMatchObject({
    type: `/docs/errors#${code}`,
    status,
    title: expect.any(String),
    detail: expect.any(String),
  });
  // Nothing of the inside: no stack, no file.
  expect(answer.text).not.toMatch(/\bat .*\.[jt]s:|node_modules|src\//);
}

/** Talks to the server byte by byte. */
export interface RawConnection {
  readonly socket: net.Socket;
  /** What came so far. */
  received(): string;
  /** Resolves once what came fits; rejects when the connection closes before. */
  until(pattern: RegExp): Promise<string>;
  /** Resolves with everything once the server has closed. */
  readonly closed: Promise<string>;
}

export async function connectRaw(port: number): Promise<RawConnection> {
  const socket = net.connect(port, '127.0.0.1');
  let text = '';
  const waiting = new Set<() => void>();
  const check = () => {
    for (const look of waiting) look();
  };
  socket.setEncoding('utf8');
  socket.on('data', (chunk: string) => {
    text += chunk;
    check();
  });
  socket.on('error', () => {});
  const closed = new Promise<string>((resolve) => socket.once('close', () => resolve(text)));
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  return {
    socket,
    received: () => text,
    closed,
    until: (pattern) =>
      new Promise((resolve, reject) => {
        const look = () => {
          if (!pattern.test(text)) return;
          waiting.delete(look);
          resolve(text);
        };
        waiting.add(look);
        void closed.then(() => reject(new Error(`closed before ${pattern}: ${text}`)));
        look();
      }),
  };
}

/** Resolves once a condition holds, looking again whenever the event loop has turned; vitest's timeout bounds it. */
export async function eventually(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setImmediate(resolve));
}
