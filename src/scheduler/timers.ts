/**
 * Delayed tasks. They wait in the logs of time slots; when a slot is over, so that each of its tasks is due and none
 * comes early, its entries are moved to their topics. A slot is known from the activity index, so none is forgotten:
 * one that is put into after its time is drained at once.
 */

import { isExpired, isPurged } from '../core/claim.ts';
import { type Entry, type EntryChange, type EntryHead, FINAL_VERSION, isFinal } from '../core/entry.ts';
import { segmentEnd, segmentOf, slotEnd } from '../core/log.ts';
import { tierOf } from '../core/priority.ts';
import type { Engine } from '../queue/engine.ts';
import type { Log } from '../queue/log.ts';
import { asPending, type Mover } from '../queue/move.ts';
import { definitely } from '../queue/outcomes.ts';
import { placeIn, type Topic } from '../queue/topics.ts';
import { AlarmClock } from './alarm.ts';

const ENTRIES_PER_PAGE = 200;
const RETRY_MS = 500;
/** How often it is looked whether a drained slot can be let go, in milliseconds. */
const LET_GO_EVERY_MS = 15_000;
/**
 * A slot's headers stay this long after its time: a write that timed out may be carried out late, and would be carried
 * out once more where its condition, that there is no header, holds again.
 */
const LATE_WRITES_MS = 60_000;

export class Timers {
  readonly #engine: Engine;
  readonly #mover: Mover;
  readonly #alarms: AlarmClock<Log>;
  readonly #draining = new Map<Log, Promise<void>>();
  #stopped = false;

  constructor(engine: Engine, mover: Mover) {
    this.#engine = engine;
    this.#mover = mover;
    this.#alarms = new AlarmClock(engine.env, (logs) => {
      for (const log of logs) void this.#start(log);
    });
  }

  /** A slot has entries. */
  note(log: Log): void {
    if (!log.tenure.holds) return;
    this.#alarms.set(log, slotEnd(log.address.tier, this.#engine.store.meta.slotMs));
  }

  /** The slots of a shard are scheduled elsewhere, or anew. */
  forgetShard(shard: number): void {
    for (const log of this.#alarms.keys()) if (log.tenure.shard === shard) this.#alarms.clear(log);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#alarms.stop();
    await Promise.allSettled(this.#draining.values());
  }

  async #start(log: Log): Promise<void> {
    if (this.#draining.has(log)) {
      // Put into while it is drained: the drain under way may have passed its end already.
      await this.#draining.get(log);
      return this.#start(log);
    }
    const drain = this.#drain(log)
      .catch((error: unknown) => {
        if (this.#stopped) return;
        this.#engine.log.warn({ err: error }, 'a slot of delayed tasks could not be drained; it is tried again');
        this.#alarms.set(log, this.#engine.env.now() + RETRY_MS);
      })
      .finally(() => this.#draining.delete(log));
    this.#draining.set(log, drain);
    return drain;
  }

  async #drain(log: Log): Promise<void> {
    const { store, env } = this.#engine;
    const size = store.meta.segmentSize;
    while (log.completion < log.nextId && !this.#stopped && log.tenure.holds) {
      // Not beyond the known tail: an append that was not answered yet may be repeated, and must find its entries.
      const to = Math.min(log.nextId, segmentEnd(segmentOf(log.completion, size), size));
      const page = await store.readEntries({ log: log.address, from: log.completion, to, limit: ENTRIES_PER_PAGE });
      if (page.length === 0) {
        // The rest of a sealed segment.
        log.completion = to;
        continue;
      }
      const pendings = page.filter((entry) => entry.status === 'pending');
      if (pendings.length > 0) {
        await this.#mover.resolve(
          log,
          pendings.map((entry) => asPending(log, entry)),
        );
        continue;
      }
      for (const entry of page) {
        if (entry.status === 'moved') await this.#mover.ensureArrived(entry);
        else if (isFinal(entry.status)) await this.#agree(log, entry);
      }
      if (
        !(await this.#moveOn(
          log,
          page.filter((entry) => entry.status === 'ready'),
        ))
      )
        continue;
      log.completion = page.at(-1)!.id + 1;
      log.scan = log.completion;
    }
    // What was cancelled in it, or expired, can be looked at for the retention.
    for (let at = log.trimmed; at < log.completion && log.keepUntil <= env.now(); ) {
      const segment = segmentOf(at, size);
      const end = Math.min(log.completion, segmentEnd(segment, size));
      await definitely(env, () => store.trim(log.address, segment, at, end));
      log.trimmed = at = end;
    }
    if (log.nextId <= log.completion) {
      for (const topic of this.#engine.book.undelay(log)) this.#engine.signals.changed(topic);
      if (this.#isOver(log)) await this.#letGo(log);
      else this.#alarms.set(log, env.now() + LET_GO_EVERY_MS);
    } else this.note(log);
  }

  /** What ended in the slot stays for the retention; whoever ended it may have died before its message row said so. */
  async #agree(log: Log, entry: EntryHead): Promise<void> {
    const { status, updatedAt: at } = entry;
    if (entry.target === null || (status !== 'cancelled' && status !== 'expired')) return;
    const topic = await this.#engine.book.topicOf(log, entry.target);
    log.keepUntil = Math.max(log.keepUntil, at + topic.settings.retentionMs);
    const place = placeIn(log.address, entry.id);
    await this.#engine.messages.settle(topic.name, topic.settings, [{ task: entry, place, status, at }]);
  }

  #isOver(log: Log): boolean {
    const { env, store } = this.#engine;
    const now = env.now();
    return (
      log.isForgettable(now) &&
      log.keepUntil <= now &&
      slotEnd(log.address.tier, store.meta.slotMs) + LATE_WRITES_MS <= now
    );
  }

  /** A slot that is over leaves nothing behind: its topics go on elsewhere. */
  async #letGo(log: Log): Promise<void> {
    const dropped = await log.dropHeaders();
    // Somebody may have looked it up meanwhile, and puts something into it now: then that is noted.
    if (dropped && this.#isOver(log)) this.#engine.book.forget(log);
    else this.#alarms.set(log, this.#engine.env.now() + LET_GO_EVERY_MS);
  }

  /** Moves due entries to their topics; whether each is on its way or ended. */
  async #moveOn(log: Log, entries: readonly Entry[]): Promise<boolean> {
    const groups = new Map<string, { readonly topic: Topic; readonly tier: number; readonly entries: Entry[] }>();
    const now = this.#engine.env.now();
    let all = true;
    for (const entry of entries) {
      const topic = await this.#engine.book.topicOf(log, entry.target!);
      if (isPurged(entry, topic.settings.purgedAt)) {
        all = (await this.#end(log, topic, entry, 'cancelled', 'purged', now)) && all;
      } else if (isExpired(entry, now)) {
        all = (await this.#end(log, topic, entry, 'expired', 'time to live over', now)) && all;
      } else {
        const tier = tierOf(entry.priority, topic.settings, topic.turn++);
        const key = `${tier}/${topic.name}`;
        const group = groups.get(key);
        if (group === undefined) groups.set(key, { topic, tier, entries: [entry] });
        else group.entries.push(entry);
      }
    }
    const moves = await Promise.all(
      [...groups.values()].map(({ topic, tier, entries: some }) =>
        this.#mover.move(log, some, { topic: topic.name, tier }, () => ({ placedAt: now, dueAt: null, target: null })),
      ),
    );
    return all && moves.every((places) => places.every((place) => place !== null));
  }

  async #end(
    log: Log,
    topic: Topic,
    entry: Entry,
    status: 'cancelled' | 'expired',
    reason: string,
    now: number,
  ): Promise<boolean> {
    const set: EntryChange['set'] = { status, version: FINAL_VERSION, updatedAt: now, reason };
    const [answer] = await log.change([{ id: entry.id, expect: { uid: entry.uid, version: entry.version }, set }]);
    if (!answer!.applied) return false;
    // Purged ones were taken off when they were purged.
    if (!isPurged(entry, topic.settings.purgedAt)) this.#engine.book.delay(log, topic.name, -1);
    if (status === 'expired') this.#engine.counters.expired++;
    await this.#agree(log, { ...entry, ...set });
    this.#engine.signals.settled(entry.uid);
    this.#engine.signals.changed(topic);
    return true;
  }
}
