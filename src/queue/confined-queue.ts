import { randomUUID } from 'node:crypto';
import { mayUse, within } from '../core/api-key.ts';
import { ANSWER_BYTES, PAGE_TASKS, SCHEDULE_PAGE } from '../core/bounds.ts';
import { QueueError, show } from '../core/errors.ts';
import { parseLeaseToken } from '../core/lease-token.ts';
import { Limiter } from '../core/limiter.ts';
import { checkSelector, checkTopic } from '../core/names.ts';
import { optionalInteger } from '../core/numbers.ts';
import type {
  EnqueueOptions,
  EnqueueResult,
  Explanation,
  LeasedTask,
  LeaseRequest,
  ListRequest,
  Queue,
  RedriveRequest,
  RedriveResult,
  ScheduleInfo,
  ScheduleInput,
  SchedulePage,
  ScheduleSummary,
  SettingsPatch,
  SettleItem,
  SettleRequest,
  SettleResult,
  TaskInfo,
  TaskInput,
  TaskPage,
  TopicCursors,
  TopicInfo,
  TopicPage,
  TopicSummary,
} from './api.ts';
import type { CursorSeal } from './cursor-seal.ts';
import { noCursor } from './inspect.ts';
import { scheduleNotFound } from './schedules.ts';
import { checkScheduleName } from './validate.ts';

/** What can be asked of a queue about topics. */
export type TopicQueue = Omit<
  Queue,
  'enqueue' | 'tasks' | 'schedules' | 'status' | 'busiest' | 'measures' | 'backup' | 'readiness' | 'stop'
> & {
  enqueue(topic: string, tasks: readonly TaskInput[], options?: EnqueueOptions): Promise<readonly EnqueueResult[]>;
  /** @param signal aborted once nobody waits for the page any more: it rejects then, perhaps */
  tasks(topic: string, request?: ListRequest, signal?: AbortSignal): Promise<TaskPage>;
  schedules(request?: SchedulesRequest, signal?: AbortSignal): Promise<SchedulePage>;
};

type SchedulesRequest = Parameters<Queue['schedules']>[0];

/** A name that nobody gives a topic: what is asked about a topic outside is asked about this one. */
const NOWHERE = `nowhere-${randomUUID()}`;
/** @throws QueueError `shutting-down` where nobody waits any more */
function mustBeAwaited(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new QueueError('shutting-down');
}

/** What is read as no lease token. */
const NO_TOKEN = '';

/**
 * The queue as who may use some topics alone sees it. To them a topic outside is one that is not there:
 *
 * - a read is answered as for such a topic, by asking the queue for one;
 * - a change is refused before anything is looked at, by what was asked alone;
 * - a lease asks for what is both asked for and inside; a lease token of a topic outside is one that was never given out;
 * - lists leave out what is outside, and their cursors name nothing of it;
 * - a schedule is inside where its name and its topic are: names are the store's own, so that who could take any would learn
 *   which are taken.
 */
export class ConfinedQueue implements TopicQueue {
  readonly #queue: TopicQueue;
  readonly #prefixes: readonly string[];
  readonly #seal: CursorSeal;
  /** A list looks through what is outside as well: one at a time, so that nobody keeps the store busy with many. */
  readonly #lists = new Limiter(1);

  /** @param prefixes what the names of topics inside begin with; none covers another, and they are in order */
  constructor(queue: TopicQueue, prefixes: readonly string[], seal: CursorSeal) {
    this.#queue = queue;
    this.#prefixes = prefixes;
    this.#seal = seal;
  }

  // ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

  async enqueue(
    topic: string,
    tasks: readonly TaskInput[],
    options: EnqueueOptions = {},
  ): Promise<readonly EnqueueResult[]> {
    this.#mayChange(topic);
    return this.#queue.enqueue(topic, tasks, withoutPlaces(tasks, options));
  }

  async lease(request: LeaseRequest = {}): Promise<readonly LeasedTask[]> {
    return this.#queue.lease({ ...request, topics: this.#narrowed(request.topics) });
  }

  async settle(request: SettleRequest): Promise<SettleResult> {
    const { ack, nack, extend, progress, release } = request;
    const result = await this.#queue.settle({
      ...(ack && { ack: this.#known(ack) }),
      ...(nack && { nack: this.#known(nack) }),
      ...(extend && { extend: this.#known(extend) }),
      ...(progress && { progress: this.#known(progress) }),
      ...(release && { release: this.#known(release) }),
    });
    return {
      ack: asAsked(ack, result.ack),
      nack: asAsked(nack, result.nack),
      extend: asAsked(extend, result.extend),
      progress: asAsked(progress, result.progress),
      release: asAsked(release, result.release),
    };
  }

  async task(topic: string, id: string, options?: Parameters<Queue['task']>[2]): Promise<TaskInfo> {
    return this.#queue.task(this.#seen(topic), id, options);
  }

  async taskByMessageId(topic: string, messageId: string): Promise<TaskInfo> {
    return this.#queue.taskByMessageId(this.#seen(topic), messageId);
  }

  /** A page is filled, however much of others lies between; the queue's own are short where there is much to look through. */
  tasks(topic: string, request: ListRequest = {}, signal?: AbortSignal): Promise<TaskPage> {
    return this.#lists.run(() => this.#tasks(topic, request, signal));
  }

  async #tasks(topic: string, request: ListRequest, signal: AbortSignal | undefined): Promise<TaskPage> {
    const limit = optionalInteger(request.limit, '/limit', 1, PAGE_TASKS) ?? 100;
    const tasks: TaskInfo[] = [];
    let bytes = 0;
    let after = request.after === undefined ? undefined : this.#opened(request.after);
    do {
      mustBeAwaited(signal);
      const rest = { ...request, limit: limit - tasks.length, ...(after !== undefined && { after }) };
      const page = await this.#queue.tasks(this.#seen(topic), rest);
      for (const task of page.tasks) {
        tasks.push(task);
        bytes += sizeOf(task);
      }
      after = page.after;
    } while (after !== undefined && tasks.length < limit && bytes < ANSWER_BYTES);
    return after === undefined ? { tasks } : { tasks, after: this.#seal.close(after) };
  }

  async cancel(topic: string, id: string, reason?: string): Promise<TaskInfo> {
    this.#mayChange(topic);
    return this.#queue.cancel(topic, id, reason);
  }

  async reschedule(topic: string, id: string, change: Parameters<Queue['reschedule']>[2]): Promise<TaskInfo> {
    this.#mayChange(topic);
    return this.#queue.reschedule(topic, id, change);
  }

  // ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────

  async topic(topic: string): Promise<TopicInfo> {
    return this.#queue.topic(this.#seen(topic));
  }

  async drained(topic: string, options?: Parameters<Queue['drained']>[1]): Promise<boolean> {
    return this.#queue.drained(this.#seen(topic), options);
  }

  async configure(topic: string, patch: SettingsPatch): Promise<TopicInfo> {
    this.#mayChange(topic);
    return this.#queue.configure(topic, patch);
  }

  async pause(topic: string): Promise<TopicInfo> {
    this.#mayChange(topic);
    return this.#queue.pause(topic);
  }

  async resume(topic: string): Promise<TopicInfo> {
    this.#mayChange(topic);
    return this.#queue.resume(topic);
  }

  async purge(topic: string): Promise<void> {
    this.#mayChange(topic);
    return this.#queue.purge(topic);
  }

  async redrive(topic: string, request?: RedriveRequest): Promise<RedriveResult> {
    this.#mayChange(topic);
    return this.#queue.redrive(topic, request);
  }

  async scan(topic: string): Promise<TopicCursors> {
    this.#mayChange(topic);
    return this.#queue.scan(topic);
  }

  async cursors(topic: string): Promise<TopicCursors> {
    return { ...(await this.#queue.cursors(this.#seen(topic))), topic };
  }

  async why(topic: string, id?: string): Promise<Explanation> {
    return { ...(await this.#queue.why(this.#seen(topic), id)), topic };
  }

  async topics({ prefix = '', limit = 100, after }: Parameters<Queue['topics']>[0] = {}): Promise<TopicPage> {
    const found: TopicSummary[] = [];
    for (const one of within(this.#prefixes, prefix)) {
      // Where the page is full: whether there is one more.
      const isFull = found.length === limit;
      const request = { prefix: one, limit: isFull ? 1 : limit - found.length, ...(after !== undefined && { after }) };
      const page = await this.#queue.topics(request);
      if (!isFull) found.push(...page.topics);
      const goesOn = isFull ? page.topics.length > 0 : page.after !== undefined;
      if (goesOn) return { topics: found, after: found.at(-1)!.topic };
    }
    return { topics: found };
  }

  // ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────

  async setSchedule(name: string, schedule: ScheduleInput): Promise<ScheduleInfo> {
    this.#mayName(name);
    this.#mayChange(schedule?.topic);
    const before = await this.#queue.schedule(name).catch(unlessMissing);
    if (before !== null && !mayUse(this.#prefixes, before.topic)) {
      throw new QueueError('forbidden', `${show(name)}: somebody else's schedule has this name`);
    }
    return this.#queue.setSchedule(name, schedule);
  }

  async schedule(name: string): Promise<ScheduleInfo> {
    const isInside = mayUse(this.#prefixes, checkScheduleName(name));
    const found = isInside ? await this.#queue.schedule(name) : null;
    if (found === null || !mayUse(this.#prefixes, found.topic)) throw scheduleNotFound(name);
    return found;
  }

  async deleteSchedule(name: string): Promise<void> {
    this.#mayName(name);
    await this.schedule(name);
    return this.#queue.deleteSchedule(name);
  }

  schedules(request: SchedulesRequest = {}, signal?: AbortSignal): Promise<SchedulePage> {
    return this.#lists.run(() => this.#schedules(request, signal));
  }

  async #schedules(request: NonNullable<SchedulesRequest>, signal: AbortSignal | undefined): Promise<SchedulePage> {
    const limit = optionalInteger(request.limit, '/limit', 1, SCHEDULE_PAGE) ?? 100;
    const found: ScheduleSummary[] = [];
    let after = request.after;
    do {
      mustBeAwaited(signal);
      const page = await this.#queue.schedules({ limit: SCHEDULE_PAGE, ...(after !== undefined && { after }) });
      found.push(...page.schedules.filter((one) => this.#mayUseBoth(one)));
      after = page.after;
    } while (after !== undefined && found.length < limit);
    const schedules = found.slice(0, limit);
    return schedules.length < limit ? { schedules } : { schedules, after: schedules.at(-1)!.name };
  }

  // ── what is inside ────────────────────────────────────────────────────────────────────────────────────────────

  /** @throws QueueError `topic-invalid`; `forbidden` for a topic outside */
  #mayChange(topic: string): void {
    if (!mayUse(this.#prefixes, checkTopic(topic))) throw this.#outside('topics');
  }

  #mayName(schedule: string): void {
    if (!mayUse(this.#prefixes, checkScheduleName(schedule))) throw this.#outside('schedules');
  }

  #mayUseBoth({ name, topic }: Pick<ScheduleSummary, 'name' | 'topic'>): boolean {
    return mayUse(this.#prefixes, name) && mayUse(this.#prefixes, topic);
  }

  #outside(what: string): QueueError {
    return new QueueError(
      'forbidden',
      `This key is for ${what} whose names begin with ${this.#prefixes.map(show).join(' or ')}`,
    );
  }

  /** The topic as a read asks for it. @throws QueueError `topic-invalid` */
  #seen(topic: string): string {
    return mayUse(this.#prefixes, checkTopic(topic)) ? topic : NOWHERE;
  }

  /** @throws QueueError `invalid-input` */
  #opened(cursor: string): string {
    const opened = this.#seal.open(cursor);
    if (opened === null) throw noCursor(cursor);
    return opened;
  }

  #narrowed(topics: readonly string[] = ['*']): readonly string[] {
    const names = new Set<string>();
    const prefixes: string[] = [];
    for (const [index, selector] of topics.entries()) {
      const { text, prefix } = checkSelector(selector, `/topics/${index}`);
      if (prefix) prefixes.push(...within(this.#prefixes, text));
      else if (mayUse(this.#prefixes, text)) names.add(text);
    }
    const inside = [
      ...[...names].filter((name) => !mayUse(prefixes, name)),
      ...[...new Set(prefixes)].map((one) => `${one}*`),
    ];
    return inside.length === 0 ? [NOWHERE] : inside;
  }

  /** Items as they are passed on: a token of a topic outside is none. */
  #known<T extends { readonly leaseId: string }>(items: readonly T[]): readonly T[] {
    return items.map((item) => {
      const token = parseLeaseToken(item.leaseId);
      return token === null || mayUse(this.#prefixes, token.place.topic) ? item : { ...item, leaseId: NO_TOKEN };
    });
  }
}

/** Results under the tokens that were shown. */
const asAsked = (
  asked: readonly { readonly leaseId: string }[] = [],
  results: readonly SettleItem[],
): readonly SettleItem[] => results.map((result, nth) => ({ ...result, leaseId: asked[nth]!.leaseId }));

/**
 * Delayed tasks of all topics wait together, and the id of one that has no message id tells its place there, and so how many
 * were put in before: such tasks get a message id, as by an idempotency key.
 */
const withoutPlaces = (tasks: readonly TaskInput[], options: EnqueueOptions): EnqueueOptions =>
  options.idempotencyKey === undefined &&
  tasks.some(({ delayMs, runAt }) => delayMs !== undefined || runAt !== undefined)
    ? { ...options, idempotencyKey: randomUUID() }
    : options;

const sizeOf = ({ payload, result, metadata }: TaskInfo): number =>
  JSON.stringify([result, metadata]).length +
  (payload instanceof Uint8Array ? payload.length : JSON.stringify(payload).length);

function unlessMissing(error: unknown): null {
  if (error instanceof QueueError && error.code === 'schedule-not-found') return null;
  throw error;
}
