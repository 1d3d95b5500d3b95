import { timingSafeEqual } from 'node:crypto';
import { LEASE_TASKS, WAIT_MS } from '../core/bounds.ts';
import { isFinal } from '../core/entry.ts';
import { type ErrorCode, QueueError } from '../core/errors.ts';
import { DEAD_TIER, isSlotTopic } from '../core/log.ts';
import { checkTopic } from '../core/names.ts';
import { optionalInteger } from '../core/numbers.ts';
import { DEFAULT_SETTINGS, type TopicSettings } from '../core/settings.ts';
import { type NodeRow, type Store, StoreUnavailableError } from '../store/store.ts';
import type {
  Backup,
  BusyTopic,
  EnqueueOptions,
  EnqueueResult,
  Explanation,
  LeasedTask,
  LeaseRequest,
  ListRequest,
  Queue,
  QueueStatus,
  Readiness,
  RedriveRequest,
  RedriveResult,
  ScheduleInfo,
  ScheduleInput,
  SchedulePage,
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
import { deferred } from './deferred.ts';
import { Dispatcher } from './dispatch.ts';
import { Counters, type QueueLogger } from './engine.ts';
import { type Environment, within } from './environment.ts';
import {
  type HolderAnswer,
  type HolderCall,
  type HolderMethod,
  holderCalls,
  isAboutSchedule,
  scheduleCalls,
  wireDefinition,
} from './holder-calls.ts';
import { Keyring } from './keys.ts';
import type { Located } from './locate.ts';
import { MeasuredStore } from './measured-store.ts';
import { type Distribution, Measures, type QueueMeasures } from './measures.ts';
import { asToldToCallers } from './outcomes.ts';
import {
  type Interest,
  measuredTransport,
  NO_TRANSPORT,
  type PeerCalls,
  type PeerMethod,
  type PeerService,
  type Transport,
  unlessUnreachable,
} from './peers.ts';
import { Session } from './session.ts';
import { tellEnqueue, tellLease, tellSettle } from './spans.ts';
import { isTelling } from './telling.ts';
import type { Topic } from './topics.ts';
import { checkLease, checkMessageId, checkSchedule, checkScheduleName, checkScheduleTopic } from './validate.ts';
import { withoutHolder } from './why.ts';

/** How old what this server does over and over may be, the last time it went well, before it is not ready, in milliseconds. */
const SCANNER_LATE_MS = 20_000;
/** It has let go of its shards by then. */
const BEAT_LATE_MS = 7_000;
const NEIGHBOURS_LATE_MS = 10_000;
const BELL_LATE_MS = 10_000;
const SETTINGS_LATE_MS = 20_000;
/** How long the store may take to say that it is there. */
const PING_MS = 2_000;
const SWEEP_EVERY_MS = 60_000;
const SWEEP_ROWS = 10_000;
const OPEN_AGAIN_MS = 1_000;
/** How long a stop waits for a try to reach the store, which may take longer than a stop may. */
const LET_GO_MS = 1_000;
/** Where the settlement may happen on another server, a wait looks again this often. */
const LOOK_EVERY_MS = 500;
/** How long a call waits for a shard to have a holder that answers, and how often it looks. */
const HOLDER_MS = 5_000;
const HOLDER_AGAIN_MS = 100;
const CALL_TIMEOUT_MS = 30_000;
/** A drain at another server is asked for again after so long. */
const DRAIN_MS = 20_000;
/** A process that listens nowhere holds shards for so long after its last lease. */
const USED_MS = 10_000;

/** What a keyspace cannot be asked for. */
export const NO_FILE =
  'this goes with a store in a SQLite file; a keyspace of Cassandra is backed up, restored and compacted by its own tools (nodetool snapshot): see «Backup» in docs/operations.md';

/** The queue over a store: schedules the shards that it holds, passes calls on to who holds the others, always takes tasks in. */
export class LocalQueue implements Queue {
  #env: Environment;
  readonly #log: QueueLogger;
  readonly #transport: Transport;
  readonly #secret: string;
  /** The API keys of the store. */
  readonly keys: Keyring;
  /** Where other servers reach this one, as the beginning of a URL; null: nowhere. */
  #address: string | null = null;
  /** How often it is taking its share of the shards just now. */
  #joining = 0;
  readonly #counters = new Counters();
  readonly #measures = new Measures();
  readonly #startedAt: number;
  #store: Store | null = null;
  #session: Session | null = null;
  #dispatcher: Dispatcher | null = null;
  #cancelTimer: (() => void) | null = null;
  #cancelUse: (() => void) | null = null;
  #leasing = 0;
  /** Whether somebody waits for the first try to open the store. */
  #starting = false;
  /** Why there is no store yet. */
  #unreached = 'the store was not reached yet';
  #opening: Promise<void> = Promise.resolve();
  #running = 0;
  #idle: (() => void) | null = null;
  #stopped: Promise<void> | null = null;

  private constructor(env: Environment, log: QueueLogger, transport: Transport) {
    this.#env = env;
    this.#log = log;
    this.#transport = measuredTransport(transport, this.#measures, env.monotonic);
    this.#secret = env.token();
    this.#startedAt = env.now();
    this.keys = new Keyring(() => this.#reached(), env);
  }

  #reached(): Store {
    if (this.#store === null) throw new QueueError('store-unavailable', this.#unreached);
    return this.#store;
  }

  /** Takes part in an open store, and schedules it at once if nobody else does. */
  static async start(store: Store, env: Environment, log: QueueLogger, transport = NO_TRANSPORT): Promise<LocalQueue> {
    const queue = new LocalQueue(env, log, transport);
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
    { reachMs, transport }: { readonly reachMs?: number | undefined; readonly transport: Transport },
  ): Promise<LocalQueue> {
    const queue = new LocalQueue(env, log, transport);
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
      this.#unreached = `the store was not reached yet: ${reasonOf(error)}`;
      this.#log.warn({ err: error }, 'the store cannot be used; it is tried again');
      this.#cancelTimer = this.#env.timer(OPEN_AGAIN_MS, () => {
        this.#opening = this.#tryOpen(open);
      });
    }
  }

  async #begin(opened: Store): Promise<void> {
    if (this.#stopped !== null) {
      await opened.close();
      return;
    }
    const store = new MeasuredStore(opened, this.#measures, this.#env.monotonic);
    // One clock for all servers: the database's.
    this.#env = {
      ...this.#env,
      now: () => store.now(),
      resolved: (how) => {
        this.#counters.unknown[how]++;
      },
    };
    const transport = this.#transport;
    const address = this.#address;
    const session = new Session({
      store,
      env: this.#env,
      counters: this.#counters,
      measures: this.#measures,
      log: this.#log,
      transport,
      self: { id: this.#env.token(), address, secret: this.#secret },
      // Where nobody can ask for what is in its shards, it holds some only while it asks itself.
      holds: store.exclusive || address !== null,
      moved: () => this.#dispatcher?.moved(),
    });
    this.#store = store;
    this.#dispatcher = new Dispatcher({
      env: this.#env,
      measures: this.#measures,
      transport,
      leaser: session.leaser,
      ring: session.ring,
      holders: holdersOf(session),
      release: async (leaseIds) => {
        await session.settler.settle({ release: leaseIds.map((leaseId) => ({ leaseId })) });
      },
    });
    try {
      await session.start();
    } catch (error) {
      await session.leave();
      await session.stop();
      throw error;
    }
    this.#session = session;
    if (this.#address !== address) await this.reachableAt(this.#address!);
    this.#sweepLater();
  }

  /**
   * Other servers reach this one from now on: it has a share of the shards, and gets what is passed on to it. Resolves
   * once what it holds is loaded.
   * @param address the beginning of a URL
   */
  async reachableAt(address: string): Promise<void> {
    this.#address = address;
    if (this.#session === null || this.#session.engine.store.exclusive) return;
    this.#joining++;
    try {
      await this.#session.holdings.join(address);
      await this.#session.loaded();
    } finally {
      this.#joining--;
    }
  }

  // ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

  enqueue(topic: string, tasks: readonly TaskInput[], options?: EnqueueOptions): Promise<readonly EnqueueResult[]>;
  enqueue(topic: string, task: TaskInput, options?: EnqueueOptions): Promise<EnqueueResult>;
  enqueue(
    topic: string,
    input: TaskInput | readonly TaskInput[],
    options: EnqueueOptions = {},
  ): Promise<EnqueueResult | readonly EnqueueResult[]> {
    return tellEnqueue(topic, input, (input) =>
      this.#change(async ({ enqueuer }) => {
        if (Array.isArray(input)) return enqueuer.enqueue(topic, input as readonly TaskInput[], options);
        const [result] = await enqueuer.enqueue(topic, [input as TaskInput], options);
        // A list has an answer a task; a single one that is refused must not look like one that was taken.
        if (result!.id === null) throw new QueueError(result!.code as ErrorCode, result!.detail);
        return result!;
      }, this.#measures.enqueue),
    );
  }

  lease(request: LeaseRequest = {}): Promise<readonly LeasedTask[]> {
    return tellLease(() => this.#lease(request));
  }

  #lease(request: LeaseRequest): Promise<readonly LeasedTask[]> {
    return this.#run(async (session) => {
      if (session.engine.store.exclusive || this.#address !== null) return this.#dispatcher!.lease(request);
      this.#leasing++;
      try {
        await this.#use(session, request.topics);
        return await this.#dispatcher!.lease(request);
      } finally {
        this.#leasing--;
      }
    });
  }

  /** A process that listens nowhere takes its share of the shards while it leases, so that no task waits with it alone. */
  async #use(session: Session, topics: readonly string[] | undefined): Promise<void> {
    const { holdings } = session;
    // One that asks for some topics alone leaves the others to servers that can be asked for them.
    const isForAll = topics === undefined || topics.includes('*');
    if (!isForAll && holdings.others.some(({ address }) => address !== null)) return;
    this.#releaseLater(session);
    await holdings.want(true);
    await session.loaded();
  }

  #releaseLater(session: Session): void {
    this.#cancelUse?.();
    this.#cancelUse = this.#env.timer(USED_MS, () => {
      if (this.#leasing > 0) this.#releaseLater(session);
      else void session.holdings.want(false);
    });
  }

  settle(request: SettleRequest): Promise<SettleResult> {
    return tellSettle(request, () => this.#change(({ settler }) => settler.settle(request), this.#measures.settle));
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
      const deadline = this.#env.monotonic() + waitMs;
      while (
        !isSettled(located) &&
        this.#env.monotonic() < deadline &&
        !options.signal?.aborted &&
        this.#stopped === null &&
        this.#session === session
      ) {
        const left = deadline - this.#env.monotonic();
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
    return this.#atHolder('tasks', name, request);
  }

  cancel(name: string, id: string, reason?: string): Promise<TaskInfo> {
    return this.#change(async (session) => {
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
    return this.#change(async (session) => {
      const topic = await topicOf(session, name);
      await session.rescheduler.reschedule(topic, id, change);
      return session.inspector.info(topic, await session.locator.find(name, id));
    });
  }

  // ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────

  topic(name: string): Promise<TopicInfo> {
    return this.#atHolder('topic', name);
  }

  configure(name: string, patch: SettingsPatch): Promise<TopicInfo> {
    return this.#atHolder('configure', name, patch);
  }

  pause(name: string): Promise<TopicInfo> {
    return this.configure(name, { paused: true });
  }

  resume(name: string): Promise<TopicInfo> {
    return this.configure(name, { paused: false });
  }

  purge(name: string): Promise<void> {
    return this.#atHolder('purge', name);
  }

  redrive(name: string, request: RedriveRequest = {}): Promise<RedriveResult> {
    return this.#atHolder('redrive', name, request);
  }

  topics(
    request: { readonly after?: string; readonly limit?: number; readonly prefix?: string } = {},
  ): Promise<TopicPage> {
    return this.#run(async (session) => {
      const here = await session.inspector.topics(request);
      const limit = request.limit ?? 100;
      const pages = await Promise.all(
        session.holdings.others
          .filter(({ address }) => address !== null)
          .map(async (node) => {
            const body = { method: 'topics', topic: null, args: [request] };
            const answer = await unlessUnreachable(
              this.#transport.call(node, 'call', body, { timeoutMs: CALL_TIMEOUT_MS }),
            );
            return answer === null ? { topics: [] } : (answer.value as TopicPage);
          }),
      );
      const all = [here, ...pages];
      const topics = all.flatMap((page) => page.topics).sort((a, b) => (a.topic < b.topic ? -1 : 1));
      const page = topics.slice(0, limit);
      const goesOn = topics.length > limit || all.some(({ after }) => after !== undefined);
      return goesOn ? { topics: page, after: page.at(-1)!.topic } : { topics: page };
    });
  }

  cursors(name: string): Promise<TopicCursors> {
    return this.#atHolder('cursors', name);
  }

  async why(name: string, id?: string): Promise<Explanation> {
    try {
      return await this.#atHolder('why', name, id ?? null);
    } catch (error) {
      if (!(error instanceof QueueError) || error.code !== 'not-holder') throw error;
      return withoutHolder(name);
    }
  }

  scan(name: string): Promise<TopicCursors> {
    return this.#atHolder('scan', name);
  }

  async drained(
    name: string,
    options: { readonly timeoutMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<boolean> {
    const timeoutMs = optionalInteger(options.timeoutMs, '/timeoutMs', 0, Number.MAX_SAFE_INTEGER);
    const deadline = timeoutMs === null ? Number.POSITIVE_INFINITY : this.#env.monotonic() + timeoutMs;
    // The shard may go to another server meanwhile: it is asked again.
    for (;;) {
      const onceMs = Math.min(Math.max(0, deadline - this.#env.monotonic()), DRAIN_MS);
      const drained = await this.#atHolder('drained', name, onceMs, options.signal);
      if (drained || options.signal?.aborted || this.#env.monotonic() >= deadline) return drained;
    }
  }

  /** Answers a call that only the holder of the shard of a topic, or of a schedule's name, can answer: here, or there. */
  #atHolder<M extends HolderMethod>(method: M, name: string, ...args: HolderCall<M>): HolderAnswer<M> {
    return this.#run(async (session) => {
      if (!isAboutSchedule(method)) checkTopic(name);
      const { tenures } = session.engine.book;
      const { shard } = session.engine.book.tenureOf(name);
      const deadline = this.#env.monotonic() + HOLDER_MS;
      for (;;) {
        if (tenures[shard]!.serves) {
          const done = await this.#here(session, method, name, args);
          if (done !== null) return done.value;
        }
        const holder = session.holdings.holderOf(shard);
        if (holder?.address != null) {
          const signal = args.find((arg) => arg instanceof AbortSignal);
          const options = { signal, timeoutMs: CALL_TIMEOUT_MS };
          const body = { method, topic: name, args: args.filter((arg) => arg !== signal) };
          const answer = await unlessUnreachable(this.#transport.call(holder, 'call', body, options));
          if (answer !== null) return withAllSettings(answer.value);
        }
        if (holder === null && this.#address === null) await this.#use(session, undefined);
        if (this.#stopped !== null || this.#env.monotonic() >= deadline) throw new QueueError('not-holder');
        await new Promise<void>((resolve) => this.#env.timer(HOLDER_AGAIN_MS, resolve));
      }
    }) as HolderAnswer<M>;
  }

  /** @returns null where the shard has just gone to another server */
  async #here(
    session: Session,
    method: HolderMethod,
    name: string,
    args: readonly unknown[],
  ): Promise<{ readonly value: unknown } | null> {
    const { book } = session.engine;
    type Call = (session: Session, about: Topic | string, ...args: readonly unknown[]) => unknown;
    const call = (isAboutSchedule(method) ? scheduleCalls[method] : holderCalls[method]) as Call;
    const about = isAboutSchedule(method) ? name : await book.topic(name);
    const tenure = typeof about === 'string' ? book.tenureOf(about) : about.tenure;
    if (!tenure.serves) return null;
    return unlessUnreachable(Promise.resolve(call(session, about, ...args)).then((value) => ({ value })));
  }

  // ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────

  setSchedule(name: string, input: ScheduleInput): Promise<ScheduleInfo> {
    return this.#run(async (session) => {
      checkScheduleName(name);
      const { settings } = await topicOf(session, checkScheduleTopic(input));
      const definition = checkSchedule(name, input, settings, this.#env.now());
      const state = await this.#atHolder('setSchedule', name, wireDefinition(definition));
      return session.schedules.describe({ name, ...definition, ...state });
    });
  }

  schedule(name: string): Promise<ScheduleInfo> {
    return this.#run(({ schedules }) => schedules.get(checkScheduleName(name)));
  }

  schedules(request: { readonly after?: string; readonly limit?: number } = {}): Promise<SchedulePage> {
    return this.#run(({ schedules }) => schedules.list(request));
  }

  deleteSchedule(name: string): Promise<void> {
    return this.#run(() => this.#atHolder('deleteSchedule', checkScheduleName(name)));
  }

  // ── other servers ─────────────────────────────────────────────────────────────────────────────────────────────

  /** What other servers on the store may ask of this one. */
  get peers(): PeerService {
    return {
      id: this.#session?.holdings.id ?? '',
      knows: (secret) => isSame(secret, this.#secret),
      answer: (method, body, signal) => this.#answer(method, body, signal) as never,
    };
  }

  #answer(method: PeerMethod, body: unknown, signal?: AbortSignal): Promise<PeerCalls[PeerMethod]['answer']> {
    return this.#run(async (session) => {
      switch (method) {
        case 'lease':
          return this.#dispatcher!.leaseHere(body as PeerCalls['lease']['body']);
        case 'census':
          return { ready: session.ring.census(checkLease(body as LeaseRequest)) };
        case 'wait':
          return { woken: await this.#waitFor(session, body as PeerCalls['wait']['body'], signal) };
        case 'hints':
          return { missed: session.neighbours.receive((body as PeerCalls['hints']['body']).hints) };
        case 'turn':
          return session.neighbours.lend(body as PeerCalls['turn']['body'], signal);
        case 'look':
          session.holdings.nudge();
          return {};
        case 'call':
          return { value: await this.#answerCall(session, body as PeerCalls['call']['body']) };
      }
    });
  }

  async #answerCall(session: Session, { method, topic, args }: PeerCalls['call']['body']): Promise<unknown> {
    if (method === 'topics') return session.inspector.topics(args[0] as Parameters<Queue['topics']>[0] & object);
    const isKnown = Object.hasOwn(holderCalls, method) || isAboutSchedule(method);
    if (!isKnown || topic === null) throw new QueueError('not-found');
    const serves = session.engine.book.tenureOf(checkTopic(topic)).serves;
    const done = serves ? await this.#here(session, method as HolderMethod, topic, args) : null;
    if (done === null) throw new QueueError('not-holder');
    return done.value ?? null;
  }

  async #waitFor(
    session: Session,
    { interests, waitMs }: PeerCalls['wait']['body'],
    signal: AbortSignal | undefined,
  ): Promise<PeerCalls['wait']['answer']['woken']> {
    const requests = interests.map(({ slots, ...interest }: Interest) =>
      checkLease({ ...interest, max: Math.min(LEASE_TASKS, Math.max(1, slots)) }),
    );
    const now = requests.flatMap((request, nth) => {
      const ready = session.ring.readyFor(request);
      return ready > 0 ? [{ nth, ready: Math.min(ready, request.max) }] : [];
    });
    if (now.length > 0 || this.#stopped !== null) return now;
    const woken: { nth: number; ready: number }[] = [];
    await new Promise<void>((resolve) => {
      const cancels: (() => void)[] = [];
      const done = (): void => {
        for (const cancel of cancels.splice(0)) cancel();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      cancels.push(this.#env.timer(Math.min(waitMs, WAIT_MS), done));
      for (const [nth, request] of requests.entries()) {
        const wake = (ready: number): void => {
          if (ready > 0) woken.push({ nth, ready });
          done();
        };
        cancels.push(session.leaser.wait(request, wake));
      }
      signal?.addEventListener('abort', done, { once: true });
      if (signal?.aborted) done();
    });
    return woken;
  }

  backup(): Promise<Backup> {
    return this.#run(async ({ engine: { store } }) => {
      if (store.file === null) throw new QueueError('unsupported', NO_FILE);
      const snapshot = store.file.snapshot();
      if (snapshot === null) throw new QueueError('busy', 'a backup is under way; one is made at a time');
      return snapshot;
    });
  }

  // ── the server ────────────────────────────────────────────────────────────────────────────────────────────────

  status(): QueueStatus {
    const session = this.#session;
    const { topics = 0, ...counts } = session?.engine.book.totals() ?? { ready: 0, delayed: 0, leased: 0, dead: 0 };
    const oldest = session?.survey.readySince() ?? null;
    const { unknown, ...counted } = this.#counters;
    return {
      startedAt: this.#startedAt,
      store: this.#store?.description ?? 'not reached yet',
      space: this.#store?.file?.space() ?? null,
      activeTopics: topics,
      shards: { held: this.#session?.holdings.held.length ?? 0, of: this.#store?.meta.shards ?? 0 },
      servers: 1 + (this.#session?.holdings.others.length ?? 0),
      ...counts,
      oldestReadyMs: oldest === null ? null : Math.max(0, this.#env.now() - oldest),
      waiting: this.#dispatcher?.waiting ?? 0,
      ...counted,
      unknown: { ...unknown },
      lastScanAt: this.#session?.scanner.lastPassAt ?? null,
    };
  }

  measures(): QueueMeasures {
    this.#measures.scannerLateSeconds = (this.#session?.scanner.lateBy() ?? 0) / 1000;
    return this.#measures;
  }

  /** Leases that are open in the shards held here, whoever gave them out. */
  get leasesHeld(): number {
    return this.#session?.engine.book.leased ?? 0;
  }

  busiest(): Promise<readonly BusyTopic[]> {
    return this.#run(({ inspector }) => inspector.busiest());
  }

  async readiness(): Promise<Readiness> {
    if (this.#stopped !== null) return { ready: false, reasons: ['the server is shutting down'] };
    if (this.#store === null || this.#session === null) return { ready: false, reasons: [this.#unreached] };
    const { scanner, holdings, neighbours } = this.#session;
    const reasons: string[] = [];
    const silence = await this.#silenceOf(this.#store);
    if (silence !== null) reasons.push(`the store does not answer: ${silence}`);
    if (this.#joining > 0) reasons.push('what this server is to hand out is being loaded');
    const late = scanner.lateBy();
    if (late > SCANNER_LATE_MS) reasons.push(`the completion scanner is ${inSeconds(late)} late`);
    if (!this.#store.exclusive) {
      const now = this.#env.monotonic();
      const last: readonly (readonly [number, number, string])[] = [
        [holdings.lastBeatAt, BEAT_LATE_MS, "this server's beat was last raised"],
        [holdings.lastAnswerAt, NEIGHBOURS_LATE_MS, 'which servers there are, and what they hold, was last read'],
        [neighbours.lastFollowedAt, BELL_LATE_MS, 'what other servers put here was last looked for'],
        [neighbours.lastRefreshedAt, SETTINGS_LATE_MS, 'settings of topics of other servers were last read'],
      ];
      for (const [at, mayBe, what] of last) {
        if (now - at > mayBe) reasons.push(`${what} ${inSeconds(now - at)} ago`);
      }
    }
    return { ready: reasons.length === 0, reasons };
  }

  /** Why a store does not say that it is there; null: it does. */
  async #silenceOf(store: Store): Promise<string | null> {
    const ping = store.ping().then(() => null, reasonOf);
    return within(this.#env, PING_MS, ping, `not within ${inSeconds(PING_MS)}`);
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#cancelTimer?.();
    // A try that is under way lets go of the store by itself, should it get one after all.
    await Promise.race([this.#opening, new Promise<void>((resolve) => this.#env.timer(LET_GO_MS, resolve))]);
    this.#cancelUse?.();
    this.#dispatcher?.stop();
    // Others go on with the shards at once; what is under way here needs none.
    await this.#session?.leave();
    if (this.#running > 0) await new Promise<void>((resolve) => (this.#idle = resolve));
    await this.#session?.stop();
    await this.#store?.close();
  }

  /**
   * Every call goes through here: refused once the queue stops, which waits for those under way.
   * @param seconds is told how long it took
   */
  async #run<T>(call: (session: Session) => Promise<T>, seconds?: Distribution): Promise<T> {
    if (this.#stopped !== null) throw new QueueError('shutting-down');
    if (this.#session === null) throw new QueueError('store-unavailable', this.#unreached);
    this.#running++;
    const startedAt = seconds === undefined ? 0 : this.#env.monotonic();
    try {
      return await call(this.#session);
    } catch (error) {
      throw asToldToCallers(error);
    } finally {
      seconds?.observe((this.#env.monotonic() - startedAt) / 1000);
      this.#running--;
      if (this.#running === 0) this.#idle?.();
    }
  }

  /** A call that changes something is answered once those who schedule it know: this server may die in the next moment. */
  #change<T>(call: (session: Session) => Promise<T>, seconds?: Distribution): Promise<T> {
    return this.#run(async (session) => {
      const value = await call(session);
      await session.neighbours.passedOn();
      return value;
    }, seconds);
  }

  async #sweep(): Promise<void> {
    while (this.#stopped === null && (await this.#store!.sweep(this.#env.now(), SWEEP_ROWS)) >= SWEEP_ROWS);
    if (this.#stopped === null) await this.#store!.file?.reclaim();
  }

  #sweepLater(): void {
    if (this.#stopped !== null) return;
    this.#cancelTimer = this.#env.timer(SWEEP_EVERY_MS, () => {
      this.#sweep()
        .catch((error: unknown) => {
          if (this.#stopped === null)
            this.#log.warn(
              { err: error },
              'what has expired could not be deleted, or its space not be given back; it is tried again',
            );
        })
        .finally(() => this.#sweepLater());
    });
  }
}

/** Takes as long whichever characters differ. */
const isSame = (text: string, secret: string): boolean => {
  const [given, known] = [Buffer.from(text), Buffer.from(secret)];
  return given.length === known.length && timingSafeEqual(given, known);
};

/** What a session knows of who holds what, as lease calls ask for it. */
function holdersOf({ holdings, engine: { book } }: Session): ConstructorParameters<typeof Dispatcher>[0]['holders'] {
  const shardsOf = (names: readonly string[]) => new Set(names.map((name) => book.tenureOf(name).shard));
  return {
    holdsAnyOf: (names) =>
      names === null ? holdings.held.length > 0 : [...shardsOf(names)].some((shard) => holdings.termOf(shard) !== null),
    lookAgain: () => holdings.lookAgain(),
    othersFor(names) {
      if (names === null) return holdings.others.filter(({ address, id }) => address !== null && holdings.holdsAny(id));
      const nodes = new Map<string, NodeRow>();
      for (const shard of shardsOf(names)) {
        const holder = holdings.holderOf(shard);
        if (holder?.address != null) nodes.set(holder.id, holder);
      }
      return [...nodes.values()];
    },
  };
}

const topicOf = (session: Session, name: string): Promise<Topic> => session.engine.book.topic(checkTopic(name));

const inSeconds = (ms: number): string => `${Math.round(ms / 1000)} s`;

const isSettled = ({ place, head }: Located): boolean =>
  isFinal(head.status) || (place.tier === DEAD_TIER && !isSlotTopic(place.topic));

/** Anyone may ask whether a server is ready. */
/** A topic as a server of an older version tells of it: settings that it does not know are what they are by default. */
const withAllSettings = (answer: unknown): unknown =>
  typeof answer === 'object' && answer !== null && 'settings' in answer
    ? { ...answer, settings: { ...DEFAULT_SETTINGS, ...(answer.settings as Partial<TopicSettings>) } }
    : answer;

const reasonOf = (error: unknown): string =>
  error instanceof Error && isTelling(error) ? error.message : 'an unforeseen error; the log has it';
