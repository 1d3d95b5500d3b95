import type { LogAddress } from '../core/entry.ts';
import { isSlotTopic } from '../core/log.ts';
import type { ActivityIndex } from '../scheduler/activity.ts';
import { Follower } from '../scheduler/follower.ts';
import { ReadyRing } from '../scheduler/ready-ring.ts';
import { recoverLog } from '../scheduler/recover.ts';
import { Scanner } from '../scheduler/scanner.ts';
import { Timers } from '../scheduler/timers.ts';
import type { Store } from '../store/store.ts';
import { Claimer } from './claim.ts';
import type { Counters, Engine, QueueLogger } from './engine.ts';
import { Enqueuer } from './enqueue.ts';
import type { Environment } from './environment.ts';
import { Inspector } from './inspect.ts';
import { Leaser } from './lease.ts';
import { Locator } from './locate.ts';
import type { Log } from './log.ts';
import { Manager } from './manage.ts';
import { Messages } from './messages.ts';
import { asPending, Mover } from './move.ts';
import { Rescheduler } from './reschedule.ts';
import { Settler } from './settle.ts';
import { type Topic, TopicBook } from './topics.ts';
import { Waits } from './waits.ts';

/** Logs that are loaded at the same time at the start. */
const LOADS_AT_ONCE = 32;
const PERIOD_MS = 3_600_000;
const FORGET_EVERY_MS = 15_000;

/** What a session takes from the server it belongs to. */
export interface SessionContext {
  readonly store: Store;
  readonly env: Environment;
  readonly activity: ActivityIndex;
  readonly counters: Counters;
  readonly log: QueueLogger;
  /** The term of the lease; null: another server schedules. */
  readonly term: number | null;
  deposed(): void;
  /** Something was put into a log, or settled in it, that the session which schedules does not know of. */
  heard(log: LogAddress): void;
}

/**
 * All that a server knows while it holds the lease of the scheduler, or while another one does: the state in memory
 * begins anew with each. What a session that ended has under way finishes by itself; its writes are conditional.
 */
export class Session {
  readonly engine: Engine;
  readonly holds: boolean;
  readonly ring: ReadyRing;
  readonly scanner: Scanner;
  readonly waits: Waits;
  readonly locator: Locator;
  readonly enqueuer: Enqueuer;
  readonly leaser: Leaser;
  readonly settler: Settler;
  readonly rescheduler: Rescheduler;
  readonly manager: Manager;
  readonly inspector: Inspector;
  readonly #timers: Timers;
  readonly #mover: Mover;
  readonly #follower: Follower;
  readonly #activity: ActivityIndex;
  readonly #heard: (log: LogAddress) => void;
  #cancelPeriod: (() => void) | null = null;
  #cancelForget: (() => void) | null = null;
  #advancing: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(context: SessionContext) {
    const { store, env, activity, counters, log, term, deposed } = context;
    this.holds = term !== null;
    this.#heard = context.heard;
    this.#activity = activity;
    const book = new TopicBook(store, env);
    this.ring = new ReadyRing(env);
    this.waits = new Waits(env);
    const messages = new Messages(store, env);
    const signals = this.holds ? this.#holderSignals() : this.#followerSignals();
    this.engine = { store, env, book, messages, activity, counters, log, term: term ?? 0, deposed, signals };
    this.#mover = new Mover(this.engine);
    const claimer = new Claimer(this.engine, this.#mover);
    this.scanner = new Scanner(this.engine, this.#mover, claimer, (idle) => book.forget(idle));
    this.#timers = new Timers(this.engine, this.#mover);
    this.#follower = new Follower(this.engine, activity, this.scanner, (slot) => this.#timers.note(slot));
    this.locator = new Locator(this.engine, this.#mover);
    this.rescheduler = new Rescheduler(this.engine, this.#mover, this.locator);
    this.enqueuer = new Enqueuer(this.engine, this.locator, this.rescheduler);
    this.settler = new Settler(this.engine, this.#mover);
    this.manager = new Manager(this.engine, this.#mover, this.locator);
    this.inspector = new Inspector(this.engine);
    this.leaser = new Leaser(this.engine, this.ring, claimer, async (leaseIds) => {
      await this.settler.settle({ release: leaseIds.map((leaseId) => ({ leaseId })) });
    });
    if (!this.holds) return;
    book.onLoad = (loaded, topic) => recoverLog(this.engine, loaded, topic);
    book.onLoaded = (loaded, topic) => this.#loaded(loaded, topic);
  }

  /** Loads what is active, and begins the background work. */
  async start(): Promise<void> {
    if (this.holds) {
      const active = await this.#activity.active();
      for (let at = 0; at < active.length && !this.#stopped; at += LOADS_AT_ONCE) {
        await Promise.all(active.slice(at, at + LOADS_AT_ONCE).map((address) => this.engine.book.log(address)));
      }
      this.#advanceLater();
      this.#forgetLater();
    }
    this.#follower.start(this.holds);
  }

  /** Ends its waits and its background work. Calls that write are let finish. */
  async stop(why: 'shutting-down' | 'not-holder'): Promise<void> {
    this.#stopped = true;
    this.leaser.stop(why);
    this.waits.stop();
    this.#cancelPeriod?.();
    this.#cancelForget?.();
    this.ring.stop();
    await Promise.all([this.scanner.stop(), this.#timers.stop(), this.#follower.stop(), this.#advancing]);
  }

  #holderSignals(): Engine['signals'] {
    return {
      ready: (topic) => {
        if (this.#stopped) for (const log of topic.logs.values()) this.#heard(log.address);
        else this.ring.offer(topic);
      },
      due: (log, at) => {
        if (this.#stopped) this.#heard(log.address);
        else if (!isSlotTopic(log.address.topic)) this.scanner.due(log, at);
      },
      delayed: (log) => {
        if (this.#stopped) this.#heard(log.address);
        else this.#timers.note(log);
      },
      settled: (uid) => this.waits.settled(uid),
      changed: (topic) => this.waits.changed(topic),
    };
  }

  #followerSignals(): Engine['signals'] {
    return {
      ready: (topic) => {
        for (const log of topic.logs.values()) if (log.ready > 0) this.#announce(log);
      },
      due: (log) => this.#announce(log),
      delayed: (log) => this.#announce(log),
      settled: (uid) => this.waits.settled(uid),
      changed: () => {},
    };
  }

  #announce(log: Log): void {
    log.ready = 0;
    log.open.clear();
    this.#heard(log.address);
    this.#follower.announce(log);
  }

  /** Looks at a log into which another session of this server has put something. */
  look(log: LogAddress): void {
    if (this.holds) this.#follower.heard(log);
  }

  #loaded(log: Log, topic: Topic | null): void {
    if (topic === null) this.#timers.note(log);
    else {
      this.scanner.due(log, this.engine.env.now());
      this.ring.offer(topic);
    }
    const pendings = log.interrupted.map((head) => asPending(log, head));
    log.interrupted = [];
    if (pendings.length === 0) return;
    // They count as ready until it is known which of them are.
    this.#mover
      .resolve(log, pendings)
      .catch((error: unknown) => {
        this.engine.log.warn({ err: error }, 'an interrupted move could not be finished; it is when its entry is met');
      })
      .finally(() => {
        log.countReady(-pendings.length);
        this.scanner.due(log, this.engine.env.now());
        if (topic !== null) this.waits.changed(topic);
      });
  }

  #forgetLater(): void {
    if (this.#stopped) return;
    this.#cancelForget = this.engine.env.timer(FORGET_EVERY_MS, () => {
      for (const topic of this.engine.book.forgetIdle()) this.ring.drop(topic);
      this.#forgetLater();
    });
  }

  #advanceLater(): void {
    if (this.#stopped) return;
    this.#cancelPeriod = this.engine.env.timer(PERIOD_MS, () => {
      this.#advancing = this.#activity
        .advance(this.engine.book)
        .catch((error: unknown) => {
          this.engine.log.warn({ err: error }, 'the activity index could not be advanced; it is tried again');
        })
        .finally(() => this.#advanceLater());
    });
  }
}
