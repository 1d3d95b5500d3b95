/**
 * What keeps servers on one store informed of each other. Who is not the holder announces logs it has put something
 * into, or settled something in, by another row in the activity index; the holder follows the newest rows, and looks
 * at the logs they name. All this is for speed: what is missed is found at the next period.
 */
import type { LogAddress } from '../core/entry.ts';
import { isSlotTopic, logKey } from '../core/log.ts';
import type { Engine } from '../queue/engine.ts';
import type { Log } from '../queue/log.ts';
import type { ActivityIndex } from './activity.ts';
import { recountDead } from './recover.ts';
import type { Scanner } from './scanner.ts';

const FOLLOW_EVERY_MS = 300;
const ANNOUNCE_EVERY_MS = 200;
const REFRESH_EVERY_MS = 5_000;
/** Rows may come in this much out of order: servers' clocks differ, and writes take their time. */
const OVERLAP_MS = 15_000;
/** A log that was not used for this long is let go by a server that doesn't schedule it. */
const UNUSED_MS = 30_000;
const HEARD_AGAIN_MS = 500;
const SHARDS_AT_ONCE = 32;

export class Follower {
  readonly #engine: Engine;
  readonly #activity: ActivityIndex;
  readonly #scanner: Scanner;
  readonly #noteSlot: (log: Log) => void;
  readonly #announced = new Set<Log>();
  readonly #cancels = new Set<() => void>();
  /** Rows seen lately, by when they say they were written. */
  readonly #seen = new Map<string, number>();
  #running: Promise<void> = Promise.resolve();
  #announcing = false;
  #stopped = false;

  constructor(engine: Engine, activity: ActivityIndex, scanner: Scanner, noteSlot: (log: Log) => void) {
    this.#engine = engine;
    this.#activity = activity;
    this.#scanner = scanner;
    this.#noteSlot = noteSlot;
  }

  /** @param holds whether this server is the one that follows, or one that announces */
  start(holds: boolean): void {
    if (this.#engine.store.exclusive) return;
    if (holds) this.#every(FOLLOW_EVERY_MS, () => this.#follow());
    else this.#every(REFRESH_EVERY_MS, () => this.#refresh());
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    for (const cancel of this.#cancels) cancel();
    await this.#running;
  }

  /** Tells the holder of a log, soon, together with others. */
  announce(log: Log): void {
    if (this.#stopped) return;
    this.#announced.add(log);
    if (this.#announcing) return;
    this.#announcing = true;
    this.#later(ANNOUNCE_EVERY_MS, async () => {
      const logs = [...this.#announced];
      this.#announced.clear();
      this.#announcing = false;
      await this.#activity.announce(logs);
    });
  }

  #every(ms: number, work: () => Promise<void>): void {
    this.#later(ms, async () => {
      try {
        await work();
      } finally {
        if (!this.#stopped) this.#every(ms, work);
      }
    });
  }

  #later(ms: number, work: () => Promise<void>): void {
    const cancel = this.#engine.env.timer(ms, () => {
      this.#cancels.delete(cancel);
      this.#running = work().catch((error: unknown) => {
        if (!this.#stopped) this.#engine.log.warn({ err: error }, 'other servers could not be followed or told');
      });
    });
    this.#cancels.add(cancel);
  }

  async #follow(): Promise<void> {
    const { shards } = this.#engine.store.meta;
    const since = this.#engine.env.now() - OVERLAP_MS;
    for (const [key, at] of this.#seen) if (at < since - OVERLAP_MS) this.#seen.delete(key);
    for (let first = 0; first < shards && !this.#stopped; first += SHARDS_AT_ONCE) {
      const some = Array.from({ length: Math.min(SHARDS_AT_ONCE, shards - first) }, (_, nth) => first + nth);
      await Promise.all(some.map((shard) => this.#followShard(shard, since)));
    }
  }

  async #followShard(shard: number, since: number): Promise<void> {
    for await (const row of this.#activity.newest(shard, since)) {
      const key = `${row.at}/${logKey(row)}`;
      if (this.#seen.has(key)) continue;
      await this.#look(row);
      // Only now: a look that failed is taken again.
      this.#seen.set(key, row.at);
    }
  }

  /** Another session of this server has put something into a log, or settled something in it. */
  heard(log: LogAddress): void {
    if (this.#stopped) return;
    this.#later(0, async () => {
      try {
        await this.#look(log);
      } catch (error) {
        this.#later(HEARD_AGAIN_MS, async () => this.heard(log));
        throw error;
      }
    });
  }

  /** Something was put into a log, or settled in it, by another server. */
  async #look(address: LogAddress): Promise<void> {
    const { book, env, signals } = this.#engine;
    // Where it is loaded just now, that may have begun before what it is looked at for.
    const known = await book.log({ topic: address.topic, tier: address.tier });
    const added = await known.findNewTail();
    if (isSlotTopic(address.topic)) {
      if (added.length > 0) await this.#countDelayed(known, added);
      this.#noteSlot(known);
      return;
    }
    this.#scanner.recheck(known);
    const topic = await book.topic(address.topic);
    if (known.isDead) await recountDead(this.#engine, known, topic);
    if (added.length > 0) signals.ready(topic);
    signals.due(known, env.now());
  }

  async #countDelayed(log: Log, added: readonly { readonly from: number; readonly to: number }[]): Promise<void> {
    const { book, store } = this.#engine;
    for (const { from, to } of added) {
      const heads = await store.readHeads({ log: log.address, from, to, limit: to - from });
      for (const head of heads) {
        if (head.status === 'ready' && head.target !== null) book.delay(log, head.target, 1);
      }
    }
  }

  /** A server that doesn't schedule keeps only what it uses, and follows changes of settings. */
  async #refresh(): Promise<void> {
    const { book, env } = this.#engine;
    for (const log of [...book.logs()]) if (env.now() - log.touchedAt > UNUSED_MS) book.forget(log);
    for (const topic of [...book.all()]) {
      if (topic.logs.size === 0) book.drop(topic);
      else await book.reload(topic);
    }
  }
}
