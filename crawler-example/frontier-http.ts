import { setTimeout as sleep } from 'node:timers/promises';
import { Agent } from 'undici';
import type {
  EnqueueResult,
  LeasedTask,
  LeaseRequest,
  SettingsPatch,
  SettleRequest,
  SettleResult,
  TaskInput,
  TlsCredentials,
  TopicPage,
} from '../src/index.ts';
import { type Frontier, type FrontierCounts, sumTopics } from './frontier.ts';

/** A lease call may wait for as long as it asked for, and then some. */
const GRACE_MS = 10_000;

/** One task of an enqueue whose every task was refused. */
interface TaskRefusal {
  readonly code: string;
  readonly message: string;
}

export class ServerError extends Error {
  override readonly name = 'ServerError';
  constructor(
    readonly status: number,
    /** Of the problem document. */
    readonly code: string,
    detail: string,
    /** One a task, where every task of an enqueue was refused. */
    readonly refusals: readonly TaskRefusal[] = [],
  ) {
    super(`queue server: ${code} (${status}): ${detail}`);
  }
}

export interface HttpFrontierOptions {
  /** For example `http://127.0.0.1:8080`. */
  readonly server: string;
  /** The API key, for a server that asks for one; null: none. */
  readonly key: string | null;
  /** What this crawl's topics begin with; several crawlers with one prefix share a frontier. */
  readonly prefix: string;
  /** How long a call is tried again while the server can't be reached, in milliseconds. */
  readonly patienceMs: number;
  /** For a server of https: who signed its certificate, and the one to show to it. */
  readonly tls?: TlsCredentials;
}

/**
 * The frontier on a queue server. Every call may be repeated: enqueues have message ids, settlements name their lease,
 * and tasks leased by an answer that got lost come back when their lease ends.
 */
export class HttpFrontier implements Frontier {
  readonly #options: HttpFrontierOptions;
  readonly #agent: Agent;
  readonly #origin: string;
  readonly #path: string;

  constructor(options: HttpFrontierOptions) {
    const url = new URL(options.server);
    this.#options = options;
    this.#agent = new Agent({ connections: 64, connect: { ...options.tls } });
    this.#origin = url.origin;
    this.#path = url.pathname.replace(/\/$/, '');
  }

  async enqueue(host: string, tasks: readonly TaskInput[]): Promise<readonly EnqueueResult[]> {
    try {
      const answer = await this.#call<{ tasks: EnqueueResult[] }>('POST', `${this.#topic(host)}/tasks`, { tasks });
      return answer.tasks;
    } catch (error) {
      // Where all were refused, the call is, with an error for each.
      if (!(error instanceof ServerError) || error.refusals.length !== tasks.length) throw error;
      return error.refusals.map(({ code, message }) => ({ id: null, deduplicated: false, code, detail: message }));
    }
  }

  async lease({ signal, ...request }: LeaseRequest): Promise<readonly LeasedTask[]> {
    const topics = [`${this.#options.prefix}*`];
    const { tasks } = await this.#call<{ tasks: LeasedTask[] }>('POST', '/v1/leases', { ...request, topics }, signal);
    return tasks.map((task) => ({ ...task, topic: task.topic.slice(this.#options.prefix.length) }));
  }

  settle(request: SettleRequest): Promise<SettleResult> {
    return this.#call('POST', '/v1/leases/settle', request);
  }

  async configure(host: string, patch: SettingsPatch): Promise<void> {
    await this.#call('PUT', this.#topic(host), patch);
  }

  counts(): Promise<FrontierCounts> {
    return sumTopics((after) => {
      const query = new URLSearchParams({ limit: '1000', prefix: this.#options.prefix });
      if (after !== undefined) query.set('after', after);
      return this.#call<TopicPage>('GET', `/v1/topics?${query}`);
    });
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  #topic(host: string): string {
    return `/v1/topics/${encodeURIComponent(this.#options.prefix + host)}`;
  }

  /** @throws ServerError where the server refuses; the network's error once patience is over */
  async #call<T>(method: 'GET' | 'POST' | 'PUT', path: string, body?: object, signal?: AbortSignal): Promise<T> {
    const until = performance.now() + this.#options.patienceMs;
    for (let waitMs = 100; ; waitMs = Math.min(waitMs * 2, 5_000)) {
      try {
        return await this.#once<T>(method, path, body, signal);
      } catch (error) {
        const refused = error instanceof ServerError && error.status < 500 && error.status !== 429;
        if (refused || signal?.aborted || performance.now() + waitMs > until) throw error;
        await sleep(waitMs, undefined, signal && { signal });
      }
    }
  }

  async #once<T>(method: 'GET' | 'POST' | 'PUT', path: string, body?: object, signal?: AbortSignal): Promise<T> {
    const waitMs = body !== undefined && 'waitMs' in body ? Number(body.waitMs) : 0;
    const response = await this.#agent.request({
      origin: this.#origin,
      path: this.#path + path,
      method,
      headersTimeout: waitMs + GRACE_MS,
      bodyTimeout: GRACE_MS,
      ...(signal && { signal }),
      headers: {
        ...(this.#options.key !== null && { authorization: `Bearer ${this.#options.key}` }),
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.body.text();
    if (response.statusCode < 300) return JSON.parse(text) as T;
    throw problemOf(response.statusCode, text);
  }
}

function problemOf(status: number, text: string): ServerError {
  try {
    const {
      code,
      detail,
      errors = [],
    } = JSON.parse(text) as {
      code?: unknown;
      detail?: unknown;
      errors?: readonly (Omit<TaskRefusal, 'code'> & Partial<TaskRefusal>)[];
    };
    const refusals = errors.filter((error): error is TaskRefusal => error.code !== undefined);
    return new ServerError(status, String(code ?? 'unknown'), String(detail ?? ''), refusals);
  } catch {
    return new ServerError(status, 'unknown', text.slice(0, 200));
  }
}
