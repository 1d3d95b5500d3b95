import type { ApiKey } from '../core/api-key.ts';
import { ERROR_CODES, type ErrorCode, type InputIssue, QueueError } from '../core/errors.ts';
import type { TlsSource } from '../core/tls.ts';
import type { Status } from '../http/status-page.ts';
import type {
  Backup,
  EnqueueOptions,
  EnqueueResult,
  Explanation,
  LeasedTask,
  LeaseRequest,
  Queue,
  ScheduleInfo,
  ScheduleInput,
  SchedulePage,
  SettleRequest,
  SettleResult,
  TaskInfo,
  TaskInput,
  TaskPage,
  TaskPayload,
  TopicCursors,
  TopicInfo,
  TopicPage,
} from '../queue/api.ts';
import type { KeyCalls, KeyInput, KeyList, NewKey } from '../queue/keys.ts';
import { ConnectionError } from './errors.ts';
import { type HttpAnswer, type HttpCall, HttpTransport } from './http-transport.ts';

/** What can be asked of a queue, whether it is in this process or behind a server. */
export type QueueCalls = Omit<
  Queue,
  'enqueue' | 'drained' | 'status' | 'busiest' | 'measures' | 'readiness' | 'stop'
> & {
  enqueue(topic: string, tasks: readonly TaskInput[], options?: EnqueueOptions): Promise<readonly EnqueueResult[]>;
};

type Query = Readonly<Record<string, string | number | undefined>>;
type WireTask = { readonly payloadBase64?: string };
type CallOptions = Pick<HttpCall, 'headers' | 'signal'> & { readonly waitMs?: number | undefined };

export interface HttpQueueOptions {
  /** How long an answer may take beyond what the call waits for, in milliseconds; 300,000 when absent. */
  readonly requestTimeoutMs?: number;
  /** The API key that each call shows; none where null or absent. */
  readonly key?: string | null;
  /** Where the address is one of https. */
  readonly tls?: TlsSource | undefined;
}

/**
 * A running server's queue. Every call rejects with the QueueError that the server gave, or with a ConnectionError
 * where none answers.
 */
export class HttpQueue implements QueueCalls, KeyCalls {
  readonly #transport: HttpTransport;
  readonly #timeoutMs: number;

  /** @throws QueueError `invalid-input` where the address is none, or the certificates are */
  constructor(url: string | URL, { requestTimeoutMs = 300_000, key = null, tls }: HttpQueueOptions = {}) {
    this.#transport = new HttpTransport(url, key, tls);
    this.#timeoutMs = requestTimeoutMs;
  }

  async enqueue(
    topic: string,
    tasks: readonly TaskInput[],
    options: EnqueueOptions = {},
  ): Promise<readonly EnqueueResult[]> {
    const headers = options.idempotencyKey === undefined ? {} : { 'idempotency-key': options.idempotencyKey };
    try {
      const answer = await this.#call(
        'POST',
        `${topicPath(topic)}/tasks`,
        { tasks: tasks.map(toWire) },
        {},
        { headers },
      );
      return (answer as { tasks: readonly EnqueueResult[] }).tasks;
    } catch (error) {
      const results = error instanceof QueueError ? refusals(error.issues) : [];
      if (results.length !== tasks.length) throw error;
      return results;
    }
  }

  async lease({ signal, ...request }: LeaseRequest = {}): Promise<readonly LeasedTask[]> {
    const answer = await this.#transport.send({
      method: 'POST',
      path: '/v1/leases',
      body: JSON.stringify(request),
      timeoutMs: this.#timeoutMs + (request.waitMs ?? 0),
      signal,
      onAbort: 'ask',
    });
    if (answer === null) return [];
    return (this.#read(answer) as { tasks: readonly (LeasedTask & WireTask)[] }).tasks.map(fromWire);
  }

  async settle(request: SettleRequest): Promise<SettleResult> {
    return (await this.#call('POST', '/v1/leases/settle', request)) as SettleResult;
  }

  async task(topic: string, id: string, { waitMs, signal }: Parameters<Queue['task']>[2] = {}): Promise<TaskInfo> {
    return fromWire(
      (await this.#call('GET', taskPath(topic, id), undefined, { waitMs }, { waitMs, signal })) as TaskInfo,
    );
  }

  async taskByMessageId(topic: string, messageId: string): Promise<TaskInfo> {
    const { tasks } = (await this.#call('GET', `${topicPath(topic)}/tasks`, undefined, { messageId })) as TaskPage;
    if (tasks[0] === undefined) throw new QueueError('task-not-found');
    return fromWire(tasks[0]);
  }

  async tasks(topic: string, { state, after, limit }: Parameters<Queue['tasks']>[1] = {}): Promise<TaskPage> {
    const page = (await this.#call('GET', `${topicPath(topic)}/tasks`, undefined, { state, after, limit })) as TaskPage;
    return { ...page, tasks: page.tasks.map(fromWire) };
  }

  async cancel(topic: string, id: string, reason?: string): Promise<TaskInfo> {
    return fromWire((await this.#call('DELETE', taskPath(topic, id), undefined, { reason })) as TaskInfo);
  }

  async reschedule(topic: string, id: string, change: Parameters<Queue['reschedule']>[2]): Promise<TaskInfo> {
    return fromWire((await this.#call('PATCH', taskPath(topic, id), change)) as TaskInfo);
  }

  async topic(topic: string): Promise<TopicInfo> {
    return (await this.#call('GET', topicPath(topic))) as TopicInfo;
  }

  async configure(topic: string, patch: Parameters<Queue['configure']>[1]): Promise<TopicInfo> {
    return (await this.#call('PUT', topicPath(topic), patch)) as TopicInfo;
  }

  async pause(topic: string): Promise<TopicInfo> {
    return (await this.#call('POST', adminPath(topic, 'pause'))) as TopicInfo;
  }

  async resume(topic: string): Promise<TopicInfo> {
    return (await this.#call('POST', adminPath(topic, 'resume'))) as TopicInfo;
  }

  async purge(topic: string): Promise<void> {
    await this.#call('DELETE', topicPath(topic));
  }

  async redrive(topic: string, request: Parameters<Queue['redrive']>[1] = {}): ReturnType<Queue['redrive']> {
    return (await this.#call('POST', adminPath(topic, 'redrive'), request)) as Awaited<ReturnType<Queue['redrive']>>;
  }

  async topics(request: Parameters<Queue['topics']>[0] = {}): Promise<TopicPage> {
    return (await this.#call('GET', '/v1/topics', undefined, request)) as TopicPage;
  }

  async cursors(topic: string): Promise<TopicCursors> {
    return (await this.#call('GET', adminPath(topic, 'cursors'))) as TopicCursors;
  }

  async why(topic: string, id?: string): Promise<Explanation> {
    return (await this.#call('GET', adminPath(topic, 'why'), undefined, { task: id })) as Explanation;
  }

  async scan(topic: string): Promise<TopicCursors> {
    return (await this.#call('POST', adminPath(topic, 'scan'))) as TopicCursors;
  }

  async setSchedule(name: string, schedule: ScheduleInput): Promise<ScheduleInfo> {
    return fromWire((await this.#call('PUT', schedulePath(name), toWire(schedule))) as ScheduleInfo);
  }

  async schedule(name: string): Promise<ScheduleInfo> {
    return fromWire((await this.#call('GET', schedulePath(name))) as ScheduleInfo);
  }

  async schedules(request: Parameters<Queue['schedules']>[0] = {}): Promise<SchedulePage> {
    return (await this.#call('GET', '/v1/schedules', undefined, request)) as SchedulePage;
  }

  async deleteSchedule(name: string): Promise<void> {
    await this.#call('DELETE', schedulePath(name));
  }

  async createKey(input: KeyInput): Promise<NewKey> {
    return (await this.#call('POST', '/v1/admin/keys', input)) as NewKey;
  }

  async listKeys(request: Parameters<KeyCalls['listKeys']>[0] = {}): Promise<KeyList> {
    return (await this.#call('GET', '/v1/admin/keys', undefined, request)) as KeyList;
  }

  async revokeKey(id: string): Promise<ApiKey> {
    return (await this.#call('DELETE', `/v1/admin/keys/${encodeURIComponent(id)}`)) as ApiKey;
  }

  async backup(): Promise<Backup> {
    const answer = await this.#transport.stream('/v1/admin/backup', '*/*', this.#timeoutMs);
    const pieces = answer[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
    const failed = (error: unknown) =>
      new ConnectionError(this.#transport.url, `broke the backup off (${(error as Error).message}); its log says why`, {
        mayHaveArrived: true,
      });
    const read = async (): Promise<Uint8Array | null> => {
      try {
        const { done, value } = await pieces.next();
        return done ? null : value;
      } catch (error) {
        throw failed(error);
      }
    };
    const bytes = Number(answer.headers['content-length']);
    if (answer.statusCode === 200 && Number.isSafeInteger(bytes)) return { bytes, read, close: () => answer.destroy() };
    const chunks: Uint8Array[] = [];
    for (let piece = await read(); piece !== null; piece = await read()) chunks.push(piece);
    this.#read({ status: answer.statusCode!, text: Buffer.concat(chunks).toString('utf8') });
    throw failed(new Error(`answered ${answer.statusCode} without a length`));
  }

  async status(): Promise<Status> {
    return (await this.#call('GET', '/status')) as Status;
  }

  /** Cuts all calls, and lets go of the connections. */
  close(): void {
    this.#transport.close();
  }

  async #call(
    method: HttpCall['method'],
    path: string,
    body?: unknown,
    query: Query = {},
    { waitMs = 0, ...options }: CallOptions = {},
  ): Promise<unknown> {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value));
    const answer = await this.#transport.send({
      method,
      path: search.size === 0 ? path : `${path}?${search}`,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      timeoutMs: this.#timeoutMs + waitMs,
      ...options,
    });
    return this.#read(answer);
  }

  /** @throws QueueError as the server gave it; ConnectionError where it is none of ours */
  #read({ status, text }: HttpAnswer): unknown {
    if (status === 204) return undefined;
    const answer = parseJson(text);
    if (status >= 200 && status < 300 && answer !== undefined) return answer;
    throw (
      problemError(answer) ?? new ConnectionError(this.#transport.url, `answered ${status}, and not as Ebbmark does`)
    );
  }
}

const schedulePath = (name: string): string => `/v1/schedules/${encodeURIComponent(name)}`;
const topicPath = (topic: string): string => `/v1/topics/${encodeURIComponent(topic)}`;
const taskPath = (topic: string, id: string): string => `${topicPath(topic)}/tasks/${encodeURIComponent(id)}`;
const adminPath = (topic: string, what: string): string => `/v1/admin/topics/${encodeURIComponent(topic)}/${what}`;

function toWire({ payload, ...rest }: TaskInput | ScheduleInput): object {
  return payload instanceof Uint8Array
    ? { ...rest, payloadBase64: Buffer.from(payload).toString('base64') }
    : { ...rest, payload };
}

function fromWire<T extends { readonly payload: TaskPayload }>(task: T & WireTask): T {
  const { payloadBase64, ...rest } = task;
  return payloadBase64 === undefined
    ? task
    : ({ ...rest, payload: new Uint8Array(Buffer.from(payloadBase64, 'base64')) } as unknown as T);
}

/** @returns undefined where it is none */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function problemError(answer: unknown): QueueError | null {
  const { code, detail, errors } = (answer ?? {}) as {
    code?: unknown;
    detail?: string;
    errors?: readonly InputIssue[];
  };
  const isOurs = typeof code === 'string' && Object.hasOwn(ERROR_CODES, code);
  return isOurs ? new QueueError(code as ErrorCode, detail, errors ?? []) : null;
}

/** The results of a call whose every task was refused: the server answers it as a problem that names each. */
const refusals = (issues: readonly InputIssue[]): readonly EnqueueResult[] =>
  (issues as readonly (InputIssue & { readonly code?: string })[]).flatMap(({ code, message }) =>
    code === undefined ? [] : [{ id: null, deduplicated: false, code, detail: message }],
  );
