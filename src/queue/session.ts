import { isSlotTopic, slotTimes } from '../core/log.ts';
import { ActivityIndex } from '../scheduler/activity.ts';
import { Holdings, type Self } from '../scheduler/holdings.ts';
import { Neighbours } from '../scheduler/neighbours.ts';
import { ReadyRing } from '../scheduler/ready-ring.ts';
import { recoverLog } from '../scheduler/recover.ts';
import { Scanner } from '../scheduler/scanner.ts';
import { ScheduleRunner } from '../scheduler/schedule-runner.ts';
import { SlotCounter } from '../scheduler/slot-counter.ts';
import { Timers } from '../scheduler/timers.ts';
import { Turns } from '../scheduler/turns.ts';
import type { NodeRow, Store } from '../store/store.ts';
import { Claimer } from './claim.ts';
import { collectSoon } from './collect.ts';
import type { Counters, Engine, QueueLogger } from './engine.ts';
import { Enqueuer } from './enqueue.ts';
import type { Environment } from './environment.ts';
import { Inspector } from './inspect.ts';
import { Leaser } from './lease.ts';
import { Locator } from './locate.ts';
import type { Log } from './log.ts';
import { Manager } from './manage.ts';
import type { Measures } from './measures.ts';
import { Messages } from './messages.ts';
import { asPending, Mover } from './move.ts';
import type { Hint, Transport } from './peers.ts';
import { Quotas } from './quotas.ts';
import { Rescheduler } from './reschedule.ts';
import { Schedules } from './schedules.ts';
import { Settler } from './settle.ts';
import { Survey } from './survey.ts';
import type { Tenure } from './tenure.ts';
import { type Topic, TopicBook } from './topics.ts';
import { TICK_MS } from './uptime.ts';
import { Waits } from './waits.ts';
import { Explainer } from './why.ts';
import { Workers } from './workers.ts';

/** Shards, and logs of each, that are loaded at the same time. */
const SHARDS_AT_ONCE = 32;
const LOADS_AT_ONCE = 16;
const LOAD_AGAIN_MS = 1_000;
const PERIOD_MS = 3_600_000;
/** To fold a topic takes as long as so many looks. */
const LOOKS_PER_FOLD = 20;
/** Folded topics that leave some 20 MB behind. */
const MANY_FOLDED = 20_000;

/** What a session takes from the server it belongs to. */
export interface SessionContext {
  readonly store: Store;
  readonly env: Environment;
  readonly counters: Counters;
  readonly measures: Measures;
  readonly log: QueueLogger;
  readonly transport: Transport;
  readonly self: Self;
  /** Whether it is to have a share of the shards from the start. */
  readonly holds: boolean;
  /** Which server holds what has changed, as far as it concerns those who wait here. */
  moved(): void;
}

/** All that works on an open store, from its start until it is stopped. */
export class Session {
  readonly engine: Engine;
  readonly holdings: Holdings;
  readonly ring: ReadyRing;
  readonly scanner: Scanner;
  readonly waits: Waits;
  readonly locator: Locator;
  readonly quotas: Quotas;
  readonly enqueuer: Enqueuer;
  readonly leaser: Leaser;
  readonly settler: Settler;
  readonly rescheduler: Rescheduler;
  readonly manager: Manager;
  readonly survey: Survey;
  readonly inspector: Inspector;
  readonly explainer: Explainer;
  readonly schedules: Schedules;
  readonly scheduleRunner: ScheduleRunner;
  readonly neighbours: Neighbours;
  readonly #counter: SlotCounter;
  readonly #timers: Timers;
  readonly #mover: Mover;
  readonly #activity: ActivityIndex;
  readonly #turns: Turns;
  readonly #moved: () => void;
  readonly #cancels = new Map<Tenure | Session, () => void>();
  readonly #background = new Set<Promise<void>>();
  readonly #toLoad: Tenure[] = [];
  #loading = 0;
  #failure: unknown = null;
  /** Topics that were folded since garbage was last to be collected for it. */
  #folded = 0;
  #stopped = false;

  constructor(context: SessionContext) {
    const { store, env, counters, measures, log, transport, self } = context;
    this.#moved = context.moved;
    this.#turns = new Turns(env);
    this.holdings = new Holdings(store, env, log, self, context.holds, {
      gained: (shard, term) => this.#begin(shard, term),
      lost: (shard) => this.#begin(shard, null),
      changed: (nodes) => this.#tellOthers(transport, nodes),
    });
    this.#activity = new ActivityIndex(store, env, this.holdings);
    const book = new TopicBook(store, env);
    this.ring = new ReadyRing(env, (folded) => book.unfold(folded));
    book.onUnfolded = (folded, topic) => this.ring.replace(folded, topic);
    this.waits = new Waits(env, (topic) => this.isCounted(topic));
    this.engine = {
      store,
      env,
      book,
      messages: new Messages(store, env),
      activity: this.#activity,
      counters,
      measures,
      log,
      holds: (tenure) => this.holdings.holds(tenure),
      mayClaim: (tenure) => tenure.serves && this.holdings.holds(tenure),
      deposed: (tenure) => {
        if (!tenure.ended) this.holdings.deposed(tenure.shard);
      },
      signals: this.#signals(),
    };
    this.#mover = new Mover(this.engine);
    const claimer = new Claimer(this.engine, this.#mover);
    this.scanner = new Scanner(this.engine, this.#mover, claimer, (idle) => book.forget(idle));
    this.#counter = new SlotCounter(this.engine, this.#mover, () => this.waits.counted());
    this.#timers = new Timers(this.engine, this.#mover, this.#counter);
    this.neighbours = new Neighbours(this.engine, this.#activity, this.holdings, transport, this.scanner, (slot) =>
      this.#timers.noteAddress(slot),
    );
    this.locator = new Locator(this.engine, this.#mover);
    this.rescheduler = new Rescheduler(this.engine, this.#mover, this.locator);
    this.quotas = new Quotas(this.engine, (name) => this.neighbours.askWaiting(name));
    this.enqueuer = new Enqueuer(this.engine, this.locator, this.rescheduler, this.quotas);
    this.schedules = new Schedules(this.engine, this.enqueuer, () => this.neighbours.passedOn());
    this.scheduleRunner = new ScheduleRunner(this.engine, this.schedules);
    this.settler = new Settler(this.engine, this.#mover);
    this.manager = new Manager(this.engine, this.#mover, claimer, this.locator);
    const workers = new Workers();
    this.survey = new Survey(book, env);
    this.inspector = new Inspector(this.engine, this.survey, this.ring, workers);
    this.explainer = new Explainer(this.engine, this.locator, this.inspector);
    this.leaser = new Leaser(this.engine, this.ring, claimer, workers);
    book.takeTurn = (log) => this.neighbours.takeTurn(log);
    book.onAppended = (log, appended) => {
      // Told of the log itself: the topic that is known here may have been let go of, and loaded anew, meanwhile.
      if (appended !== null && !log.tenure.holds) {
        this.#tell(log, appended === 'partly' ? { put: true } : { appended: [appended] });
      }
      // Another server may have taken the shard over, and have looked for what is in it before this was there.
      if (log.tenure.term !== null && !this.holdings.holds(log.tenure)) this.engine.signals.news(log);
    };
    book.onFound = (log) => this.#found(log);
    book.onUncounted = (slot) => {
      if (slot.tenure.holds) this.#counter.want(slot);
    };
    book.onLoad = async (loaded, topic) => {
      if (loaded.tenure.term !== null) await recoverLog(this.engine, loaded, topic);
    };
    book.onLoaded = (loaded, topic) => {
      if (loaded.tenure.holds) this.#loaded(loaded, topic);
    };
  }

  /**
   * Takes its share of the shards, and begins the background work.
   * @throws where nobody else could schedule the store, and what is in it could not be loaded
   */
  async start(): Promise<void> {
    await this.holdings.start();
    this.neighbours.start();
    this.#forgetLater();
    await this.loaded();
    if (this.engine.store.exclusive && this.#failure !== null) throw this.#failure;
  }

  /** Resolves once what this server holds now is loaded, or cannot be. */
  async loaded(): Promise<void> {
    while (this.#loading > 0 && this.#failure === null) await Promise.race(this.#background);
  }

  /** Refuses to hand out more, ends waits, and hands the shards over. Calls that write go on. */
  async leave(): Promise<void> {
    this.leaser.stop();
    this.waits.stop();
    await this.holdings.stop();
  }

  /** Ends the background work. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const cancel of this.#cancels.values()) cancel();
    this.ring.stop();
    this.survey.stop();
    this.#turns.stop();
    const parts = [this.scanner, this.#timers, this.#counter, this.scheduleRunner];
    await Promise.all([...parts.map((part) => part.stop()), ...this.#background]);
    await this.neighbours.stop();
  }

  // ── shards come and go ────────────────────────────────────────────────────────────────────────────────────────

  /** From here on the shard is scheduled here under a term, or by another server (null). */
  #begin(shard: number, term: number | null): void {
    const { before, tenure } = this.engine.book.begin(shard, term);
    this.#cancels.get(before)?.();
    this.#cancels.delete(before);
    this.#timers.forget(before);
    this.scheduleRunner.forget(before);
    for (const topic of this.engine.book.knownOf(before)) this.ring.drop(topic);
    for (const topic of this.engine.book.topicsOf(before)) this.waits.end(topic);
    if (term === null) {
      this.engine.log.info({ shard }, 'this server no longer hands out the tasks of a shard');
      this.#moved();
    } else {
      this.scheduleRunner.begin(tenure);
      this.#toLoad.push(tenure);
      this.#loadNext();
    }
  }

  #loadNext(): void {
    while (this.#loading < SHARDS_AT_ONCE && this.#toLoad.length > 0) {
      const tenure = this.#toLoad.shift()!;
      this.#loading++;
      this.#track(
        this.#load(tenure).finally(() => {
          this.#loading--;
          this.#loadNext();
        }),
      );
    }
  }

  async #load(tenure: Tenure): Promise<void> {
    const { book, log } = this.engine;
    while (!tenure.ended && !this.#stopped) {
      try {
        const active = await this.#toBeLoaded(tenure);
        for (let at = 0; at < active.length && !tenure.ended; at += LOADS_AT_ONCE) {
          await Promise.all(
            active.slice(at, at + LOADS_AT_ONCE).map(async ({ period, ...address }) => {
              const loaded = await book.log(address);
              loaded.recordedPeriod = Math.max(loaded.recordedPeriod, period);
            }),
          );
        }
        break;
      } catch (error) {
        log.error({ err: error, shard: tenure.shard }, 'what is in the store could not be loaded; it is tried again');
        this.#failure = error;
        if (this.engine.store.exclusive) return;
        await new Promise<void>((resolve) => this.engine.env.timer(LOAD_AGAIN_MS, resolve));
      }
    }
    if (tenure.ended || this.#stopped) return;
    this.#failure = null;
    tenure.isLoaded = true;
    this.#counter.begin();
    log.info({ shard: tenure.shard, term: tenure.term }, 'this server hands out the tasks of a shard now');
    for (const topic of book.topicsOf(tenure)) this.ring.offer(topic);
    this.#advanceLater(tenure);
    this.#moved();
  }

  /** The logs of a shard that may hold work. Of delayed tasks whose time is still to come, nothing is read yet. */
  async #toBeLoaded(tenure: Tenure): ReturnType<ActivityIndex['active']> {
    const { env, store } = this.engine;
    const now = env.now();
    const active = await this.#activity.active(tenure.shard);
    return active.filter((address) => {
      const waits = isSlotTopic(address.topic) && slotTimes(address, store.meta.slotMs).opensAt > now;
      if (waits && tenure.holds) this.#timers.noteAddress(address);
      return !waits;
    });
  }

  /** Whether all delayed tasks of a topic are known: not from the start on. */
  isCounted({ tenure }: Topic): boolean {
    return tenure.serves && this.engine.book.slotsOf(tenure).isCounted;
  }

  #tellOthers(transport: Transport, nodes: readonly NodeRow[]): void {
    this.#moved();
    for (const node of nodes) {
      // Best effort: whoever does not hear of it sees it in a moment.
      if (node.address !== null) transport.call(node, 'look', {}, { timeoutMs: LOAD_AGAIN_MS }).catch(() => {});
    }
  }

  #signals(): Engine['signals'] {
    return {
      ready: (topic) => {
        if (topic.tenure.holds) this.ring.offer(topic);
        else for (const log of topic.logs) if (log.ready > 0) this.#tell(log, { put: true });
      },
      due: (log, at) => {
        if (!log.tenure.holds) {
          if (log.isDead || log.tenure.ended) this.#tell(log, { put: true });
        } else if (!isSlotTopic(log.address.topic)) this.scanner.due(log, at);
      },
      news: (log) => this.neighbours.heard({ ...log.address, put: true }),
      delayed: (log) => {
        if (log.tenure.holds) this.#timers.note(log);
        else this.#tell(log, { put: true });
      },
      left: async (log, ids) => {
        if (log.tenure.holds) return;
        this.#tell(log, { left: ids });
        const topic = this.engine.book.peekTopicOf(log);
        if (topic !== undefined && topic.settings.cooldownMs !== null) await this.neighbours.told();
      },
      settled: (uid) => this.waits.settled(uid),
      changed: (topic) => this.waits.changed(topic),
    };
  }

  /** What this server did in a log that it does not schedule, or that it began to schedule anew meanwhile. */
  #tell(log: Log, hint: Pick<Hint, 'put' | 'appended' | 'left'>): void {
    // One that was scheduled here until a moment ago keeps what it knows: a pass over it may be under way.
    if (log.tenure.term === null) {
      if (hint.put || hint.appended) log.ready = 0;
      log.forgetOpen();
    }
    this.neighbours.heard({ ...log.address, ...hint });
  }

  #found(log: Log): void {
    if (!log.tenure.holds) return;
    const { book, env, signals } = this.engine;
    if (log.slot !== null) {
      this.#timers.note(log);
      return;
    }
    if (log.isDead) log.recount = true;
    const topic = book.peekTopicOf(log);
    if (topic !== undefined) signals.ready(topic);
    signals.due(log, env.now());
  }

  #loaded(log: Log, topic: Topic | null): void {
    if (topic === null) this.#timers.note(log);
    else {
      this.scanner.due(log, this.engine.env.now());
      this.ring.offer(topic);
    }
    if (log.interrupted.length === 0) return;
    const pendings = log.interrupted.map((head) => asPending(log, head));
    log.interrupted = [];
    this.#mover
      .resolve(log, pendings)
      .catch((error: unknown) => {
        this.engine.log.warn({ err: error }, 'an interrupted move could not be finished; it is when its entry is met');
      })
      .finally(() => this.engine.signals.due(log, this.engine.env.now()));
  }

  // ── now and then ──────────────────────────────────────────────────────────────────────────────────────────────

  #forgetLater(): void {
    if (this.#stopped) return;
    const again = (): void => {
      this.engine.book.uptime.tick();
      for (const topic of this.engine.book.forgetIdle()) this.ring.drop(topic);
      const folded = this.#foldWaiting()
        .catch((error: unknown) => this.engine.log.error({ err: error }, 'topics that only wait could not be folded'))
        .finally(() => this.#forgetLater());
      this.#track(folded);
    };
    this.#cancels.set(this, this.engine.env.timer(TICK_MS, again));
  }

  /** Folds topics whose turn will come, and with which nobody is busy. In slices: there may be millions. */
  async #foldWaiting(): Promise<void> {
    const { book } = this.engine;
    for (const tenure of book.tenures) {
      if (tenure.serves) await this.#turns.through(book.topicsOf(tenure), (topic) => this.#fold(topic));
    }
    if (this.#folded < MANY_FOLDED) return;
    this.#folded = 0;
    collectSoon();
  }

  /** @returns for how many looks it counts */
  #fold(topic: Topic): number {
    if (this.#stopped || !this.ring.has(topic) || this.waits.has(topic) || this.scanner.has(topic)) return 1;
    const folded = this.engine.book.fold(topic);
    if (folded === null) return 1;
    this.ring.replace(topic, folded);
    this.#folded++;
    return LOOKS_PER_FOLD;
  }

  #advanceLater(tenure: Tenure): void {
    if (this.#stopped || tenure.ended) return;
    const { env, book, log } = this.engine;
    // Not all shards of a server at once.
    const inMs = PERIOD_MS * (0.75 + env.random() / 2);
    const advance = (): void => {
      const advanced = this.#activity
        .advance(tenure.shard, book)
        .catch((error: unknown) => {
          log.warn({ err: error }, 'the activity index could not be advanced; it is tried again');
        })
        .finally(() => this.#advanceLater(tenure));
      this.#track(advanced);
    };
    this.#cancels.set(tenure, env.timer(inMs, advance));
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#background.delete(tracked));
    this.#background.add(tracked);
  }
}
