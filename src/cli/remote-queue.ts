import { type ErrorCode, type InputIssue, QueueError } from '../core/errors.ts';
import type { Status } from '../http/status-page.ts';
import type {
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
import { CommandError } from './failure.ts';

/** The part of the queue that commands use, whether it is in this process or behind a server. */
export type CommandQueue = Omit<Queue, 'enqueue' | 'drained' | 'status' | 'readiness' | 'stop'> & {
  enqueue(topic: string, tasks: readonly TaskInput[], options?: EnqueueOptions): Promise<readonly EnqueueResult[]>;
};

type Query = Readonly<Record<string, string | number | undefined>>;
type WireTask = { readonly payloadBase64?: string };

/** A running server's queue. */
export class RemoteQueue implements CommandQueue {
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  async enqueue(
    topic: string,
    tasks: readonly TaskInput[],
    options: EnqueueOptions = {},
  ): Promise<readonly EnqueueResult[]> {
    const headers = options.idempotencyKey === undefined ? {} : { 'idempotency-key': options.idempotencyKey };
    try {
      const answer = await this.#call('POST', `${topicPath(topic)}/tasks`, { tasks: tasks.map(toWire) }, {}, headers);
      return (answer as { tasks: readonly EnqueueResult[] }).tasks;
    } catch (error) {
      const results = error instanceof QueueError ? refusals(error.issues) : [];
      if (results.length !== tasks.length) throw error;
      return results;
    }
  }

  async lease({ signal: _signal, ...request }: LeaseRequest = {}): Promise<readonly LeasedTask[]> {
    const answer = await this.#call('POST', '/v1/leases', request);
    return (answer as { tasks: readonly (LeasedTask & WireTask)[] }).tasks.map(fromWire);
  }

  async settle(request: SettleRequest): Promise<SettleResult> {
    return (await this.#call('POST', '/v1/leases/settle', request)) as SettleResult;
  }

  async task(topic: string, id: string, options: { readonly waitMs?: number } = {}): Promise<TaskInfo> {
    return fromWire((await this.#call('GET', taskPath(topic, id), undefined, { waitMs: options.waitMs })) as TaskInfo);
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

  async status(): Promise<Status> {
    return (await this.#call('GET', '/status', undefined, {}, { accept: 'application/json' })) as Status;
  }

  /** @throws QueueError as the server gave it; CommandError where none answers */
  async #call(method: string, path: string, body?: unknown, query: Query = {}, headers: object = {}): Promise<unknown> {
    const url = new URL(`${this.#url}${path}`);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value));
    let response: Response;
    let text: string;
    try {
      response = await fetch(url, {
        method,
        headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      text = await response.text();
    } catch (error) {
      throw new CommandError(unreachable(this.#url, error));
    }
    if (response.ok) return text === '' ? undefined : JSON.parse(text);
    throw problemError(text) ?? new CommandError(`${this.#url} answered ${response.status}, and not as Ebbmark does`);
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

function problemError(text: string): QueueError | null {
  try {
    const { code, detail, errors } = JSON.parse(text) as {
      code?: ErrorCode;
      detail?: string;
      errors?: readonly InputIssue[];
    };
    return code === undefined ? null : new QueueError(code, detail, errors ?? []);
  } catch {
    return null;
  }
}

/** The results of a call whose every task was refused: the server answers it as a problem that names each. */
const refusals = (issues: readonly InputIssue[]): readonly EnqueueResult[] =>
  (issues as readonly (InputIssue & { readonly code?: string })[]).flatMap(({ code, message }) =>
    code === undefined ? [] : [{ id: null, deduplicated: false, code, detail: message }],
  );

function unreachable(url: string, error: unknown): string {
  const cause = (error as { cause?: { code?: unknown; message?: unknown } }).cause;
  return [
    `No server answers at ${url} (${String(cause?.code ?? cause?.message ?? (error as Error).message)}).`,
    'Start one:              ebbmark serve',
    'Say where it runs:      --url URL, or EBBMARK_URL',
    'Open the store itself:  --store sqlite:PATH, or --store cassandra://…',
  ].join('\n');
}
