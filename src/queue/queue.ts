import { WAIT_MS } from '../core/bounds.ts';
import { isFinal } from '../core/entry.ts';
import { type ErrorCode, QueueError } from '../core/errors.ts';
import { DEAD_TIER, isSlotTopic } from '../core/log.ts';
import { checkTopic } from '../core/names.ts';
import { ActivityIndex } from '../scheduler/activity.ts';
import { HolderLease } from '../scheduler/holder.ts';
import { type Store, StoreUnavailableError } from '../store/store.ts';
import type {
  EnqueueOptions,
  EnqueueResult,
  LeasedTask,
  LeaseRequest,
  ListRequest,
  Queue,
  QueueStatus,
  Readiness,
  RedriveRequest,
  RedriveResult,
  SettingsPatch,
  SettleRequest,
  SettleResult,
  TaskInfo,
  TaskInput,
  TaskPage,
  TopicCursors,
  TopicInfo,
  TopicPage,
} from './api.ts';
import { Counters, type QueueLogger } from './engine.ts';
import type { Environment } from './environment.ts';
import type { Located } from './locate.ts';
import { Session } from './session.ts';
import type { Topic } from './topics.ts';
import { checkMessageId, optionalInteger } from './validate.ts';

/** How late the scanner, or the store's last answer, may be before the server is not ready, in milliseconds. */
const SCANNER_LATE_MS = 10_000;
const STORE_LATE_MS = 10_000;
const SWEEP_EVERY_MS = 60_000;
const SWEEP_ROWS = 10_000;
const OPEN_AGAIN_MS = 1_000;
/** How long a stop waits for a try to reach the store, which may take longer than a stop may. */
const LET_GO_MS = 1_000;
/** Where the settlement may happen on another server, a wait looks again this often. */
const LOOK_EVERY_MS = 500;

/** The queue over a store: schedules what the store holds while it has the lease to, and always takes tasks in. */
export class LocalQueue implements Queue {
  #env: Environment;
  readonly #log: QueueLogger;
  readonly #counters = new Counters();
  readonly #startedAt: number;
  #store: Store | null = null;
  #lease: HolderLease | null = null;
  #activity: ActivityIndex | null = null;
  #session: Session | null = null;
  /** The one that loads what is in the store, to hold it. */
  #next: Session | null = null;
  #changing: Promise<void> = Promise.resolve();
  /** Why the last session could not begin. */
  #failure: unknown = null;
  #cancelTimer: (() => void) | null = null;
  /** Whether somebody waits for the first try to open the store. */
  #starting = false;
  /** Why there is no store yet. */
  #unreached = 'the store was not reached yet';
  #opening: Promise<void> = Promise.resolve();
  #running = 0;
  #idle: (() => void) | null = null;
  #stopped: Promise<void> | null = null;

  private constructor(env: Environment, log: QueueLogger) {
    this.#env = env;
    this.#log = log;
    this.#startedAt = env.now();
  }

  /** Takes part in an open store, and schedules it at once if nobody else does. */
  static async start(store: Store, env: Environment, log: QueueLogger): Promise<LocalQueue> {
    const queue = new LocalQueue(env, log);
    await queue.#begin(store);
    return queue;
  }

  /**
   * The same for a store that may not be reachable yet: the queue then refuses calls with `store-unavailable`, and
   * begins when the store is there. Any other trouble than that rejects, if it is found in time.
   *
   * @param reachMs how long to wait for the first try, in milliseconds; until it ends when absent
   */
  static async startWhenReachable(
    open: () => Promise<Store>,
    env: Environment,
    log: QueueLogger,
    reachMs?: number,
  ): Promise<LocalQueue> {
    const queue = new LocalQueue(env, log);
    queue.#starting = true;
    queue.#opening = queue.#tryOpen(open);
    const { promise, resolve, reject } = deferred();
    const goOn = (): void => {
      queue.#starting = false;
      resolve();
    };
    const cancel = reachMs === undefined ? null : env.timer(reachMs, goOn);
    queue.#opening.then(goOn, reject);
    await promise.finally(() => cancel?.());
    return queue;
  }

  async #tryOpen(open: () => Promise<Store>): Promise<void> {
    try {
      await this.#begin(await open());
    } catch (error) {
      // At the start anything but an unreachable store is the caller's to know. Later there is nobody to tell but the
      // log and the readiness, and whatever it is may be put right: a schema that is missing, say.
      if (this.#starting && !(error instanceof StoreUnavailableError)) throw error;
      this.#unreached = `the store was not reached yet: ${(error as Error).message}`;
      this.#log.warn({ err: error }, 'the store cannot be used; it is tried again');
      this.#cancelTimer = this.#env.timer(OPEN_AGAIN_MS, () => {
        this.#opening = this.#tryOpen(open);
      });
    }
  }

  async #begin(store: Store): Promise<void> {
    if (this.#stopped !== null) {
      await store.close();
      return;
    }
    // One clock for all servers: the database's.
    this.#env = {
      ...this.#env,
      now: () => store.now(),
      resolved: (how) => {
        this.#counters.unknown[how]++;
      },
    };
    const lease = new HolderLease(store, this.#env, this.#log, this.#env.token(), {
      gained: (term) => this.#change(term),
      lost: () => this.#change(null),
    });
    this.#store = store;
    this.#lease = lease;
    this.#activity = new ActivityIndex(store, this.#env, lease);
    this.#change(null);
    await lease.start();
    await this.#changing;
    // Nobody else could schedule an embedded store: a start that failed is the caller's to know.
    if (store.exclusive && this.#failure !== null) throw this.#failure;
    this.#sweepLater();
  }

  /** Begins a new session, as the holder (with a term) or not; the one before ends. */
  #change(term: number | null): void {
    const before = this.#session;
    const session = new Session({
      store: this.#store!,
      env: this.#env,
      activity: this.#activity!,
      counters: this.#counters,
      log: this.#log,
      term,
      deposed: () => this.#lease!.deposed(),
      heard: (log) => {
        // A session that ended, or one between two that hold, finishes what it has under way: the next one hears of it.
        for (const other of new Set([this.#session, this.#next])) if (other !== session) other?.look(log);
      },
    });
    // A session that holds is used only once all is loaded; until then there is none that does.
    if (term === null) this.#session = session;
    else this.#next = session;
    this.#changing = this.#changing.then(async () => {
      if (before !== null && term === null) await before.stop('not-holder');
      try {
        await session.start();
      } catch (error) {
        this.#log.error({ err: error }, 'what is in the store could not be loaded');
        this.#failure = error;
        if (term !== null) this.#lease!.deposed();
        await session.stop('not-holder');
        return;
      }
      if (term === null) return;
      if (!this.#lease!.holding || this.#lease!.term !== term) {
        await session.stop('not-holder');
        return;
      }
      this.#session = session;
      if (before !== null) await before.stop('not-holder');
      this.#log.info({ term }, 'this server hands out tasks now');
    });
  }

  // ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

  enqueue(topic: string, tasks: readonly TaskInput[], options?: EnqueueOptions): Promise<readonly EnqueueResult[]>;
  enqueue(topic: string, task: TaskInput, options?: EnqueueOptions): Promise<EnqueueResult>;
  enqueue(
    topic: string,
    input: TaskInput | readonly TaskInput[],
    options: EnqueueOptions = {},
  ): Promise<EnqueueResult | readonly EnqueueResult[]> {
    return this.#run(async ({ enqueuer }) => {
      if (Array.isArray(input)) return enqueuer.enqueue(topic, input as readonly TaskInput[], options);
      const [result] = await enqueuer.enqueue(topic, [input as TaskInput], options);
      // A list has an answer a task; a single one that is refused must not look like one that was taken.
      if (result!.id === null) throw new QueueError(result!.code as ErrorCode, result!.detail);
      return result!;
    });
  }

  lease(request: LeaseRequest = {}): Promise<readonly LeasedTask[]> {
    return this.#runHolding(({ leaser }) => leaser.lease(request));
  }

  settle(request: SettleRequest): Promise<SettleResult> {
    return this.#run(({ settler }) => settler.settle(request));
  }

  task(
    name: string,
    id: string,
    options: { readonly waitMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<TaskInfo> {
    return this.#run(async (session) => {
      const topic = await topicOf(session, name);
      const waitMs = optionalInteger(options.waitMs, '/waitMs', 0, WAIT_MS) ?? 0;
      let located = await session.locator.find(name, id);
      const deadline = this.#env.now() + waitMs;
      while (
        !isSettled(located) &&
        this.#env.now() < deadline &&
        !options.signal?.aborted &&
        this.#session === session
      ) {
        const left = deadline - this.#env.now();
        // The settlement may happen on another server, which tells nobody here.
        const once = session.engine.store.exclusive ? left : Math.min(left, LOOK_EVERY_MS);
        await session.waits.forSettlement(located.head.uid, once, options.signal, async () =>
          isSettled(await session.locator.find(name, id)),
        );
        located = await session.locator.find(name, id);
      }
      return session.inspector.info(topic, located);
    });
  }

  taskByMessageId(name: string, messageId: string): Promise<TaskInfo> {
    return this.#run(async (session) => {
      checkMessageId(messageId, '/messageId');
      const topic = await topicOf(session, name);
      return session.inspector.info(topic, await session.locator.findByMessageId(name, messageId));
    });
  }

  tasks(name: string, request: ListRequest = {}): Promise<TaskPage> {
    return this.#runHolding(async (session) => session.inspector.list(await topicOf(session, name), request));
  }

  cancel(name: string, id: string, reason?: string): Promise<TaskInfo> {
    return this.#run(async (session) => {
      const topic = await topicOf(session, name);
      await session.manager.cancel(topic, id, reason);
      return session.inspector.info(topic, await session.locator.find(name, id));
    });
  }

  reschedule(
    name: string,
    id: string,
    change: { readonly priority?: number; readonly delayMs?: number; readonly runAt?: number },
  ): Promise<TaskInfo> {
    return this.#run(async (session) => {
      const topic = await topicOf(session, name);
      await session.rescheduler.reschedule(topic, id, change);
      return session.inspector.info(topic, await session.locator.find(name, id));
    });
  }

  // ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────

  topic(name: string): Promise<TopicInfo> {
    return this.#runHolding(async (session) => {
      const topic = await topicOf(session, name);
      await mustExist(session, topic);
      return describe(topic);
    });
  }

  configure(name: string, patch: SettingsPatch): Promise<TopicInfo> {
    return this.#runHolding(async (session) => {
      const topic = await topicOf(session, name);
      await session.manager.configure(topic, patch);
      return describe(topic);
    });
  }

  pause(name: string): Promise<TopicInfo> {
    return this.configure(name, { paused: true });
  }

  resume(name: string): Promise<TopicInfo> {
    return this.configure(name, { paused: false });
  }

  purge(name: string): Promise<void> {
    return this.#runHolding(async (session) => {
      const topic = await topicOf(session, name);
      await mustExist(session, topic);
      await session.manager.purge(topic);
    });
  }

  redrive(name: string, request: RedriveRequest = {}): Promise<RedriveResult> {
    return this.#runHolding(async (session) => session.manager.redrive(await topicOf(session, name), request));
  }

  topics(
    request: { readonly after?: string; readonly limit?: number; readonly prefix?: string } = {},
  ): Promise<TopicPage> {
    return this.#runHolding(async ({ inspector }) => inspector.topics(request));
  }

  cursors(name: string): Promise<TopicCursors> {
    return this.#runHolding(async (session) => session.inspector.cursors(await topicOf(session, name)));
  }

  scan(name: string): Promise<TopicCursors> {
    return this.#runHolding(async (session) => {
      const topic = await topicOf(session, name);
      for (const log of [...topic.logs.values()]) await session.scanner.passNow(log);
      return session.inspector.cursors(topic);
    });
  }

  drained(
    name: string,
    options: { readonly timeoutMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<boolean> {
    return this.#runHolding(async (session) => {
      const timeoutMs = optionalInteger(options.timeoutMs, '/timeoutMs', 0, Number.MAX_SAFE_INTEGER);
      return session.waits.forDrain(await topicOf(session, name), timeoutMs, options.signal);
    });
  }

  // ── the server ────────────────────────────────────────────────────────────────────────────────────────────────

  status(): QueueStatus {
    const counts = { ready: 0, delayed: 0, leased: 0, dead: 0 };
    for (const topic of this.#session?.engine.book.all() ?? []) {
      const some = topic.counts();
      counts.ready += some.ready;
      counts.delayed += some.delayed;
      counts.leased += some.leased;
      counts.dead += some.dead;
    }
    const { unknown, ...counted } = this.#counters;
    return {
      startedAt: this.#startedAt,
      store: this.#store?.description ?? 'not reached yet',
      activeTopics: this.#session?.engine.book.size ?? 0,
      ...counts,
      waiting: this.#session?.ring.waiting ?? 0,
      ...counted,
      unknown: { ...unknown },
      lastScanAt: this.#session?.scanner.lastPassAt ?? null,
    };
  }

  async readiness(): Promise<Readiness> {
    if (this.#stopped !== null) return { ready: false, reasons: ['the server is shutting down'] };
    if (this.#store === null || this.#session === null) return { ready: false, reasons: [this.#unreached] };
    const reasons: string[] = [];
    try {
      await this.#store.ping();
    } catch (error) {
      reasons.push(`the store does not answer: ${(error as Error).message}`);
    }
    const late = this.#session.scanner.lateBy(this.#env.now());
    if (late > SCANNER_LATE_MS) reasons.push(`the completion scanner is ${Math.round(late / 1000)} s late`);
    const silent = this.#env.monotonic() - this.#lease!.lastAnswerAt;
    if (silent > STORE_LATE_MS) {
      reasons.push(`the lease of the scheduler was last renewed or read ${Math.round(silent / 1000)} s ago`);
    }
    return { ready: reasons.length === 0, reasons };
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#cancelTimer?.();
    // A try that is under way lets go of the store by itself, should it get one after all.
    await Promise.race([this.#opening, new Promise<void>((resolve) => this.#env.timer(LET_GO_MS, resolve))]);
    await this.#changing;
    const session = this.#session;
    const ended = session?.stop('shutting-down');
    if (this.#running > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    await ended;
    await this.#lease?.stop();
    await this.#changing;
    if (this.#session !== session) await this.#session?.stop('shutting-down');
    await this.#store?.close();
  }

  /** Every call goes through here: refused once the queue stops, which waits for those under way. */
  async #run<T>(call: (session: Session) => Promise<T>): Promise<T> {
    if (this.#stopped !== null) throw new QueueError('shutting-down');
    if (this.#session === null) throw new QueueError('store-unavailable', this.#unreached);
    this.#running++;
    try {
      return await call(this.#session);
    } catch (error) {
      if (error instanceof StoreUnavailableError) throw new QueueError('store-unavailable', error.message, [], error);
      throw error;
    } finally {
      this.#running--;
      if (this.#running === 0) this.#idle?.();
    }
  }

  /** For calls that only the server that schedules can answer. */
  #runHolding<T>(call: (session: Session) => Promise<T>): Promise<T> {
    return this.#run((session) => {
      if (!session.holds) throw new QueueError('not-holder');
      return call(session);
    });
  }

  async #sweep(): Promise<void> {
    while (this.#stopped === null && (await this.#store!.sweep(this.#env.now(), SWEEP_ROWS)) >= SWEEP_ROWS);
  }

  #sweepLater(): void {
    if (this.#stopped !== null) return;
    this.#cancelTimer = this.#env.timer(SWEEP_EVERY_MS, () => {
      this.#sweep()
        .catch((error: unknown) => {
          if (this.#stopped === null)
            this.#log.warn({ err: error }, 'expired rows could not be deleted; it is tried again');
        })
        .finally(() => this.#sweepLater());
    });
  }
}

function deferred(): { promise: Promise<void>; resolve(): void; reject(reason: unknown): void } {
  let resolve = (): void => {};
  let reject = (_reason: unknown): void => {};
  const promise = new Promise<void>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}

const topicOf = (session: Session, name: string): Promise<Topic> => session.engine.book.topic(checkTopic(name));

/** @throws QueueError `topic-not-found` where nothing was ever put into it or set */
async function mustExist(session: Session, topic: Topic): Promise<void> {
  const tiers = await session.engine.book.tiersOf(topic.name);
  if (tiers.length === 0 && topic.version === null && topic.delayed === 0) throw new QueueError('topic-not-found');
}

const describe = (topic: Topic): TopicInfo => ({ topic: topic.name, counts: topic.counts(), settings: topic.settings });

const isSettled = ({ place, head }: Located): boolean =>
  isFinal(head.status) || (place.tier === DEAD_TIER && !isSlotTopic(place.topic));
