import { WAIT_MS } from '../core/bounds.ts';
import { isFinal } from '../core/entry.ts';
import { QueueError } from '../core/errors.ts';
import { DEAD_TIER, isSlotTopic } from '../core/log.ts';
import { checkTopic } from '../core/names.ts';
import { ActivityIndex } from '../scheduler/activity.ts';
import { ReadyRing } from '../scheduler/ready-ring.ts';
import { recoverLog } from '../scheduler/recover.ts';
import { Scanner } from '../scheduler/scanner.ts';
import { Timers } from '../scheduler/timers.ts';
import type { Store } from '../store/store.ts';
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
import { Claimer } from './claim.ts';
import { Counters, type Engine, type QueueLogger } from './engine.ts';
import { Enqueuer } from './enqueue.ts';
import type { Environment } from './environment.ts';
import { Inspector } from './inspect.ts';
import { Leaser } from './lease.ts';
import { type Located, Locator } from './locate.ts';
import { Manager } from './manage.ts';
import { Messages } from './messages.ts';
import { asPending, Mover } from './move.ts';
import { Rescheduler } from './reschedule.ts';
import { Settler } from './settle.ts';
import { type Topic, TopicBook } from './topics.ts';
import { checkMessageId, optionalInteger } from './validate.ts';
import { Waits } from './waits.ts';

/** How late the scanner may be before the server is not ready, in milliseconds. */
const SCANNER_LATE_MS = 10_000;
const SWEEP_EVERY_MS = 60_000;
const SWEEP_ROWS = 10_000;
/** Logs that are loaded at the same time at the start. */
const LOADS_AT_ONCE = 32;

/** The queue over a store; it alone schedules what the store holds. */
export class LocalQueue implements Queue {
  readonly #engine: Engine;
  readonly #activity: ActivityIndex;
  readonly #ring: ReadyRing;
  readonly #scanner: Scanner;
  readonly #timers: Timers;
  readonly #mover: Mover;
  readonly #locator: Locator;
  readonly #enqueuer: Enqueuer;
  readonly #leaser: Leaser;
  readonly #settler: Settler;
  readonly #rescheduler: Rescheduler;
  readonly #manager: Manager;
  readonly #inspector: Inspector;
  readonly #waits: Waits;
  readonly #startedAt: number;
  #cancelSweep: (() => void) | null = null;
  #running = 0;
  #idle: (() => void) | null = null;
  #stopped: Promise<void> | null = null;

  private constructor(store: Store, env: Environment, log: QueueLogger) {
    this.#startedAt = env.now();
    const book = new TopicBook(store, env);
    this.#activity = new ActivityIndex(store, env, log, env.token());
    this.#ring = new ReadyRing(env);
    this.#waits = new Waits(env);
    this.#engine = {
      store,
      env,
      book,
      messages: new Messages(store, env),
      activity: this.#activity,
      counters: new Counters(),
      log,
      term: (topic) => this.#activity.term(topic),
      signals: {
        ready: (topic) => this.#ring.offer(topic),
        due: (log, at) => {
          if (!isSlotTopic(log.address.topic)) this.#scanner.due(log, at);
        },
        delayed: (log) => this.#timers.note(log),
        settled: (uid) => this.#waits.settled(uid),
        changed: (topic) => this.#waits.changed(topic),
      },
    };
    this.#mover = new Mover(this.#engine);
    const claimer = new Claimer(this.#engine, this.#mover);
    this.#scanner = new Scanner(this.#engine, this.#mover, claimer, (log) => {
      const topic = book.peek(log.address.topic);
      book.forget(log);
      if (topic !== undefined && book.peek(topic.name) === undefined) this.#ring.drop(topic);
    });
    this.#timers = new Timers(this.#engine, this.#mover);
    this.#locator = new Locator(this.#engine, this.#mover);
    this.#rescheduler = new Rescheduler(this.#engine, this.#mover, this.#locator);
    this.#enqueuer = new Enqueuer(this.#engine, this.#locator, this.#rescheduler);
    this.#settler = new Settler(this.#engine, this.#mover);
    this.#manager = new Manager(this.#engine, this.#mover, this.#locator);
    this.#inspector = new Inspector(this.#engine);
    this.#leaser = new Leaser(this.#engine, this.#ring, claimer, async (leaseIds) => {
      await this.#settler.settle({ release: leaseIds.map((leaseId) => ({ leaseId })) });
    });
    book.onLoad = (loaded, topic) => recoverLog(this.#engine, loaded, topic);
    book.onLoaded = (loaded, topic) => {
      if (topic === null) this.#timers.note(loaded);
      else {
        this.#scanner.due(loaded, env.now());
        this.#ring.offer(topic);
      }
      const pendings = loaded.interrupted.map((head) => asPending(loaded, head));
      loaded.interrupted = [];
      if (pendings.length === 0) return;
      this.#mover.resolve(loaded, pendings).catch((error: unknown) => {
        log.warn({ err: error }, 'an interrupted move could not be finished; it is when its entry is met');
        loaded.ready = loaded.unscanned;
      });
    };
  }

  /** Takes the store over, and loads what is active in it. */
  static async start(store: Store, env: Environment, log: QueueLogger): Promise<LocalQueue> {
    const queue = new LocalQueue(store, env, log);
    const active = await queue.#activity.start();
    for (let at = 0; at < active.length; at += LOADS_AT_ONCE) {
      await Promise.all(active.slice(at, at + LOADS_AT_ONCE).map((address) => queue.#engine.book.log(address)));
    }
    queue.#activity.run(queue.#engine.book);
    queue.#sweepLater();
    return queue;
  }

  // ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

  enqueue(topic: string, tasks: readonly TaskInput[], options?: EnqueueOptions): Promise<readonly EnqueueResult[]>;
  enqueue(topic: string, task: TaskInput, options?: EnqueueOptions): Promise<EnqueueResult>;
  enqueue(
    topic: string,
    input: TaskInput | readonly TaskInput[],
    options: EnqueueOptions = {},
  ): Promise<EnqueueResult | readonly EnqueueResult[]> {
    return this.#run(async () => {
      if (Array.isArray(input)) return this.#enqueuer.enqueue(topic, input as readonly TaskInput[], options);
      const [result] = await this.#enqueuer.enqueue(topic, [input as TaskInput], options);
      return result!;
    });
  }

  lease(request: LeaseRequest = {}): Promise<readonly LeasedTask[]> {
    return this.#run(() => this.#leaser.lease(request));
  }

  settle(request: SettleRequest): Promise<SettleResult> {
    return this.#run(() => this.#settler.settle(request));
  }

  task(
    name: string,
    id: string,
    options: { readonly waitMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<TaskInfo> {
    return this.#run(async () => {
      const topic = await this.#topic(name);
      const waitMs = optionalInteger(options.waitMs, '/waitMs', 0, WAIT_MS) ?? 0;
      const located = await this.#locator.find(name, id);
      if (waitMs > 0 && !this.#isSettled(located)) {
        await this.#waits.forSettlement(located.head.uid, waitMs, options.signal, async () =>
          this.#isSettled(await this.#locator.find(name, id)),
        );
        return this.#inspector.info(topic, await this.#locator.find(name, id));
      }
      return this.#inspector.info(topic, located);
    });
  }

  #isSettled({ place, head }: Located): boolean {
    return isFinal(head.status) || (place.tier === DEAD_TIER && !isSlotTopic(place.topic));
  }

  taskByMessageId(name: string, messageId: string): Promise<TaskInfo> {
    return this.#run(async () => {
      checkMessageId(messageId, '/messageId');
      const topic = await this.#topic(name);
      return this.#inspector.info(topic, await this.#locator.findByMessageId(name, messageId));
    });
  }

  tasks(name: string, request: ListRequest = {}): Promise<TaskPage> {
    return this.#run(async () => this.#inspector.list(await this.#topic(name), request));
  }

  cancel(name: string, id: string, reason?: string): Promise<TaskInfo> {
    return this.#run(async () => {
      const topic = await this.#topic(name);
      await this.#manager.cancel(topic, id, reason);
      return this.#inspector.info(topic, await this.#locator.find(name, id));
    });
  }

  reschedule(
    name: string,
    id: string,
    change: { readonly priority?: number; readonly delayMs?: number; readonly runAt?: number },
  ): Promise<TaskInfo> {
    return this.#run(async () => {
      const topic = await this.#topic(name);
      await this.#rescheduler.reschedule(topic, id, change);
      return this.#inspector.info(topic, await this.#locator.find(name, id));
    });
  }

  // ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────

  topic(name: string): Promise<TopicInfo> {
    return this.#run(async () => {
      const topic = await this.#topic(name);
      const tiers = await this.#engine.book.tiersOf(name);
      if (tiers.length === 0 && topic.version === null && topic.delayed === 0) {
        this.#engine.book.forgetTopic(topic);
        throw new QueueError('topic-not-found');
      }
      return describe(topic);
    });
  }

  configure(name: string, patch: SettingsPatch): Promise<TopicInfo> {
    return this.#run(async () => {
      const topic = await this.#topic(name);
      await this.#manager.configure(topic, patch);
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
    return this.#run(async () => this.#manager.purge(await this.#topic(name)));
  }

  redrive(name: string, request: RedriveRequest = {}): Promise<RedriveResult> {
    return this.#run(async () => this.#manager.redrive(await this.#topic(name), request));
  }

  topics(
    request: { readonly after?: string; readonly limit?: number; readonly prefix?: string } = {},
  ): Promise<TopicPage> {
    return this.#run(async () => this.#inspector.topics(request));
  }

  cursors(name: string): Promise<TopicCursors> {
    return this.#run(async () => this.#inspector.cursors(await this.#topic(name)));
  }

  scan(name: string): Promise<TopicCursors> {
    return this.#run(async () => {
      const topic = await this.#topic(name);
      for (const log of [...topic.logs.values()]) await this.#scanner.passNow(log);
      return this.#inspector.cursors(topic);
    });
  }

  drained(
    name: string,
    options: { readonly timeoutMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<boolean> {
    return this.#run(async () => {
      const timeoutMs = optionalInteger(options.timeoutMs, '/timeoutMs', 0, Number.MAX_SAFE_INTEGER);
      const topic = await this.#topic(name);
      return this.#waits.forDrain(topic, timeoutMs, options.signal);
    });
  }

  // ── the server ────────────────────────────────────────────────────────────────────────────────────────────────

  status(): QueueStatus {
    const { counters, store, book } = this.#engine;
    const counts = { ready: 0, delayed: 0, leased: 0, dead: 0 };
    for (const topic of book.all()) {
      const some = topic.counts();
      counts.ready += some.ready;
      counts.delayed += some.delayed;
      counts.leased += some.leased;
      counts.dead += some.dead;
    }
    const { deadLettered, ...counted } = counters;
    return {
      startedAt: this.#startedAt,
      store: store.description,
      activeTopics: book.size,
      ...counts,
      waiting: this.#ring.waiting,
      ...counted,
      dead_lettered: deadLettered,
      lastScanAt: this.#scanner.lastPassAt,
    };
  }

  async readiness(): Promise<Readiness> {
    if (this.#stopped !== null) return { ready: false, reasons: ['the server is shutting down'] };
    const reasons: string[] = [];
    try {
      await this.#engine.store.ping();
    } catch (error) {
      reasons.push(`the store does not answer: ${(error as Error).message}`);
    }
    const late = this.#scanner.lateBy(this.#engine.env.now());
    if (late > SCANNER_LATE_MS) reasons.push(`the completion scanner is ${Math.round(late / 1000)} s late`);
    return { ready: reasons.length === 0, reasons };
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#leaser.stop();
    this.#waits.stop();
    if (this.#running > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    this.#cancelSweep?.();
    this.#ring.stop();
    await Promise.all([this.#scanner.stop(), this.#timers.stop(), this.#activity.stop()]);
    await this.#engine.store.close();
  }

  /** Every call goes through here: refused once the queue stops, which waits for those under way. */
  async #run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#stopped !== null) throw new QueueError('shutting-down');
    this.#running++;
    try {
      return await call();
    } finally {
      this.#running--;
      if (this.#running === 0) this.#idle?.();
    }
  }

  #topic(name: string): Promise<Topic> {
    return this.#engine.book.topic(checkTopic(name));
  }

  #sweepLater(): void {
    this.#cancelSweep = this.#engine.env.timer(SWEEP_EVERY_MS, () => {
      this.#engine.store
        .sweep(this.#engine.env.now(), SWEEP_ROWS)
        .catch((error: unknown) =>
          this.#engine.log.warn({ err: error }, 'expired rows could not be deleted; it is tried again'),
        )
        .finally(() => {
          if (this.#stopped === null) this.#sweepLater();
        });
    });
  }
}

const describe = (topic: Topic): TopicInfo => ({ topic: topic.name, counts: topic.counts(), settings: topic.settings });
