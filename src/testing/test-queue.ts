import { invalid } from '../core/errors.ts';
import { checkFields } from '../core/fields.ts';
import { integer, optionalInteger } from '../core/numbers.ts';
import type {
  EnqueueOptions,
  EnqueueResult,
  LeaseRequest,
  ListRequest,
  Queue,
  RedriveRequest,
  ScheduleInput,
  SettingsPatch,
  SettleRequest,
  TaskInfo,
  TaskInput,
} from '../queue/api.ts';
import { silentLogger } from '../queue/engine.ts';
import type { Environment } from '../queue/environment.ts';
import { LocalQueue } from '../queue/queue.ts';
import { MemoryStore } from '../store/memory/store.ts';
import { Tables } from '../store/memory/tables.ts';
import { EMBEDDED_META } from '../store/store.ts';
import { Drain, type DrainHandler, type DrainOptions, type DrainReport } from './drain.ts';
import { allTopics, unsettledOf } from './look.ts';
import { Pace } from './pace.ts';
import { VirtualClock } from './virtual-clock.ts';
import { type TaskFilter, TaskSearch, type WaitOptions, waitUntil } from './wait-for.ts';

export interface TestQueueOptions {
  /** Where its clock begins: a Date, or milliseconds since 1970. The first of January 2024, UTC, when absent. */
  readonly now?: Date | number;
  /** Settings by topic, as `configure` takes them. */
  readonly settings?: Readonly<Record<string, SettingsPatch>>;
  /** What all ids and all jitter follow from, an integer; 1 when absent. Same seed and same calls, same ids. */
  readonly seed?: number;
}

const OPTIONS: ReadonlySet<string> = new Set<keyof TestQueueOptions>(['now', 'settings', 'seed']);
const BEGINNING = Date.UTC(2024, 0, 1);
/** The last time that a Date can tell, by far enough for all that is added to times. */
const LAST_TIME = Date.UTC(9999, 0, 1);

/**
 * The queue itself, in memory and on a clock that stands still until a test moves it: for tests of what works with a
 * queue. Nothing of it is a copy: the same code runs on SQLite and on Cassandra.
 *
 * Whatever waits for time (a delayed task, a back-off, a lease with `waitMs`, the end of a lease) waits for `advance`,
 * `advanceTo`, `waitFor` or `drain`. Real work is never waited for by `advance`, which passes over tasks in hand like
 * time over a process that is paused: their leases run out. `waitFor` and `drain` let the clock stand still while a task
 * is in hand.
 *
 * It has no handle that keeps a process alive; `stop` ends the waits of those who forgot to.
 */
export class TestQueue implements Queue {
  readonly #queue: LocalQueue;
  readonly #pace: Pace;

  private constructor(queue: LocalQueue, pace: Pace) {
    this.#queue = queue;
    this.#pace = pace;
  }

  /** @throws QueueError `invalid-input` where an option breaks a rule */
  static async start(options: TestQueueOptions = {}): Promise<TestQueue> {
    checkFields(options, '', 'what starts a test queue', OPTIONS, '{"seed": 7}');
    const { now = BEGINNING, settings = {} } = options;
    const seed = optionalInteger(options.seed, '/seed', 0, 2 ** 32 - 1) ?? 1;
    const clock = new VirtualClock(checkTime(now, '/now', 0), seed);
    const store = new MemoryStore(new Tables(EMBEDDED_META, () => clock.now));
    const queue = await LocalQueue.start(store, clock.environment, silentLogger);
    const pace = new Pace(clock, () => queue.status().leased > 0);
    const testQueue = new TestQueue(queue, pace);
    for (const [topic, patch] of Object.entries(settings)) await testQueue.configure(topic, patch);
    return testQueue;
  }

  // ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

  /** What its clock shows, in milliseconds since 1970. */
  get now(): number {
    return this.#pace.clock.now;
  }

  /** Time, randomness and timers of the queue, for what else is to live by its clock. */
  get environment(): Environment {
    return this.#pace.clock.environment;
  }

  /**
   * Moves the clock on, and runs all that falls due on the way, in order: delayed tasks, back-offs, waits, leases that run
   * out. In between, promises are carried on and Node's event loop turns: some turns more where a task is in hand, but
   * real work that takes longer (a file, a connection) is not waited for. Calls follow each other.
   *
   * @param ms a whole number of milliseconds; 0 only lets go on what can
   * @throws QueueError `invalid-input`
   */
  async advance(ms: number): Promise<void> {
    integer(ms, '/ms', 0, LAST_TIME - this.now);
    await this.#pace.moveTo(() => this.now + ms);
  }

  /** The same up to a time, which must not be over. */
  async advanceTo(time: Date | number): Promise<void> {
    const at = checkTime(time, '/time', this.now);
    await this.#pace.moveTo(() => at);
  }

  // ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Waits for a task, or until a function answers with something that is true, and moves the clock where that is needed:
   * to what falls due next, and no further than it takes. While a task is in hand the clock stands still, and its worker
   * has `realMs` to bring the queue further.
   *
   * @returns the task as it is then; or what the function answered
   * @throws TestTimeoutError
   */
  waitFor(task: TaskFilter, options?: WaitOptions): Promise<TaskInfo>;
  waitFor<T>(condition: () => T | Promise<T>, options?: WaitOptions): Promise<T>;
  async waitFor<T>(what: TaskFilter | (() => T | Promise<T>), options: WaitOptions = {}): Promise<TaskInfo | T> {
    if (typeof what === 'function') {
      return waitUntil(this.#queue, this.#pace, () => 'what was asked for', what, options);
    }
    const search = new TaskSearch(what);
    const found = await waitUntil(
      this.#queue,
      this.#pace,
      () => `${search}`,
      () => search.find(this.#queue),
      options,
    );
    return found!;
  }

  /**
   * Works the queue off: until nothing is ready, delayed or in hand any more. With a handler it leases, acks and nacks by
   * itself; without one, those do who work on the queue already. The clock goes on over delays, back-offs and limits, up
   * to `withinMs` (a week when absent); while a task is in hand it stands still, and the worker has `realMs`.
   *
   * @throws TestTimeoutError where something is left, which it lists
   */
  async drain(handler?: DrainHandler | null, options: DrainOptions = {}): Promise<DrainReport> {
    return new Drain(this, this.#pace, handler ?? null, options).run();
  }

  /** What is not settled, of a topic or of all: tasks in hand, ready ones, delayed ones. */
  async pending(topic?: string): Promise<readonly TaskInfo[]> {
    if (topic !== undefined) return unsettledOf(this.#queue, topic);
    const all: TaskInfo[] = [];
    for await (const each of allTopics(this.#queue)) all.push(...(await unsettledOf(this.#queue, each.topic)));
    return all;
  }

  // ── the queue ─────────────────────────────────────────────────────────────────────────────────────────────────

  enqueue(topic: string, tasks: readonly TaskInput[], options?: EnqueueOptions): Promise<readonly EnqueueResult[]>;
  enqueue(topic: string, task: TaskInput, options?: EnqueueOptions): Promise<EnqueueResult>;
  enqueue(
    topic: string,
    input: TaskInput & readonly TaskInput[],
    options?: EnqueueOptions,
  ): Promise<EnqueueResult | readonly EnqueueResult[]> {
    return this.#change(this.#queue.enqueue(topic, input, options));
  }

  lease(request?: LeaseRequest) {
    return this.#queue.lease(request);
  }

  settle(request: SettleRequest) {
    return this.#change(this.#queue.settle(request));
  }

  task(topic: string, id: string, options?: { readonly waitMs?: number; readonly signal?: AbortSignal }) {
    return this.#queue.task(topic, id, options);
  }

  taskByMessageId(topic: string, messageId: string) {
    return this.#queue.taskByMessageId(topic, messageId);
  }

  tasks(topic: string, request?: ListRequest) {
    return this.#queue.tasks(topic, request);
  }

  cancel(topic: string, id: string, reason?: string) {
    return this.#change(this.#queue.cancel(topic, id, reason));
  }

  reschedule(topic: string, id: string, change: Parameters<Queue['reschedule']>[2]) {
    return this.#change(this.#queue.reschedule(topic, id, change));
  }

  topic(topic: string) {
    return this.#queue.topic(topic);
  }

  configure(topic: string, patch: SettingsPatch) {
    return this.#change(this.#queue.configure(topic, patch));
  }

  pause(topic: string) {
    return this.#change(this.#queue.pause(topic));
  }

  resume(topic: string) {
    return this.#change(this.#queue.resume(topic));
  }

  /** Moves the clock on by a millisecond: what is enqueued after a purge is told by that from what was before. */
  async purge(topic: string): Promise<void> {
    await this.#change(Promise.all([this.#queue.purge(topic), this.advance(1)]));
  }

  redrive(topic: string, request?: RedriveRequest) {
    return this.#change(this.#queue.redrive(topic, request));
  }

  topics(request?: Parameters<Queue['topics']>[0]) {
    return this.#queue.topics(request);
  }

  cursors(topic: string) {
    return this.#queue.cursors(topic);
  }

  why(topic: string, id?: string) {
    return this.#queue.why(topic, id);
  }

  scan(topic: string) {
    return this.#change(this.#queue.scan(topic));
  }

  drained(topic: string, options?: Parameters<Queue['drained']>[1]) {
    return this.#queue.drained(topic, options);
  }

  setSchedule(name: string, input: ScheduleInput) {
    return this.#change(this.#queue.setSchedule(name, input));
  }

  schedule(name: string) {
    return this.#queue.schedule(name);
  }

  schedules(request?: Parameters<Queue['schedules']>[0]) {
    return this.#queue.schedules(request);
  }

  deleteSchedule(name: string) {
    return this.#change(this.#queue.deleteSchedule(name));
  }

  /** There is no file: it rejects with `unsupported`. */
  backup() {
    return this.#queue.backup();
  }

  status() {
    return this.#queue.status();
  }

  measures() {
    return this.#queue.measures();
  }

  busiest() {
    return this.#queue.busiest();
  }

  readiness() {
    return this.#queue.readiness();
  }

  stop(): Promise<void> {
    return this.#queue.stop();
  }

  async #change<T>(call: Promise<T>): Promise<T> {
    const value = await call;
    this.#pace.changed();
    return value;
  }
}

function checkTime(time: unknown, path: string, earliest: number): number {
  const at = time instanceof Date ? time.getTime() : time;
  if (typeof at === 'number' && Number.isSafeInteger(at) && at >= earliest && at <= LAST_TIME) return at;
  const shown = time instanceof Date && !Number.isNaN(at) ? time.toISOString() : String(time);
  const from = new Date(earliest).toISOString();
  throw invalid(
    path,
    shown,
    `a Date or milliseconds since 1970 from ${from} on (a clock does not go back)`,
    `new Date('${new Date(Math.max(earliest, BEGINNING) + 60_000).toISOString()}')`,
  );
}
