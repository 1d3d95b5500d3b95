import { ANSWER_BYTES, BATCH_ENTRIES } from '../core/bounds.ts';
import { isExpired, isPurged } from '../core/claim.ts';
import {
  type Entry,
  type EntryChange,
  type EntryHead,
  entryBytes,
  FINAL_VERSION,
  type LogAddress,
} from '../core/entry.ts';
import { Limiter } from '../core/limiter.ts';
import { isFarTopic, logKey, nearLogOf } from '../core/log.ts';
import { tierOf } from '../core/priority.ts';
import type { Engine } from '../queue/engine.ts';
import { rangesOf } from '../queue/locate.ts';
import type { Log } from '../queue/log.ts';
import { asPending, groupBy, groupBySegment, type Mover } from '../queue/move.ts';
import { placeIn, type Topic } from '../queue/topics.ts';
import type { Turns } from './turns.ts';

const READS_AT_ONCE = 16;
/** Entries that are read before others get their turn: an embedded store answers at once. */
const IDS_PER_TURN = 1_000;
/** Destinations of moved entries that are looked at at the same time. */
const LOOKS_AT_ONCE = 32;

/** What an entry is taken to have where nothing is known yet. */
const LARGE_BYTES = 64 * 1024;

/** How an entry ends instead of being moved on. */
interface Ending {
  readonly topic: Topic;
  readonly entry: Entry;
  readonly status: 'cancelled' | 'expired';
  readonly reason: string;
}

/** Moves entries out of slots of delayed tasks, to their topics or from a far slot into near ones. */
export class SlotMover {
  readonly #engine: Engine;
  readonly #mover: Mover;
  readonly #turns: Turns;
  readonly #reads = new Limiter(READS_AT_ONCE);
  readonly #looks = new Limiter(LOOKS_AT_ONCE);

  constructor(engine: Engine, mover: Mover, turns: Turns) {
    this.#engine = engine;
    this.#mover = mover;
    this.#turns = turns;
  }

  /**
   * Sees to entries whose time has come. Where something goes wrong, the rest is done before that is told.
   *
   * @param entries as read
   * @param left their ids; each is taken out once there is nothing to be done for it any more. What stays
   *   without an error was changed by others meanwhile, and has to be looked at again.
   */
  async moveOn(log: Log, entries: ReadonlyMap<number, Entry>, left: Set<number>): Promise<void> {
    const pendings: Entry[] = [];
    const moved: Entry[] = [];
    const ready: Entry[] = [];
    const ended: Entry[] = [];
    for (const id of [...left]) {
      const entry = entries.get(id);
      if (entry?.status === 'pending') pendings.push(entry);
      else if (entry?.status === 'moved') moved.push(entry);
      else if (entry?.status === 'ready') ready.push(entry);
      else {
        if (entry !== undefined) ended.push(entry);
        else left.delete(id);
      }
    }
    await all([
      this.keep(log, ended).then(() => {
        for (const { id } of ended) left.delete(id);
      }),
      this.#moveReady(log, ready, left),
      this.arrive(moved).then(() => {
        for (const { id } of moved) left.delete(id);
      }),
      // They are ready then, or void: they stay, to be looked at again.
      pendings.length === 0
        ? Promise.resolve()
        : this.#mover.resolve(
            log,
            pendings.map((entry) => asPending(log, entry)),
          ),
    ]);
  }

  /** Makes sure that what moved has arrived; it may be passed, and deleted, only then. */
  async arrive(moved: readonly EntryHead[]): Promise<void> {
    await all(moved.map((head) => this.#looks.run(() => this.#mover.ensureArrived(head))));
  }

  /**
   * What ended while it waited can be looked at for the retention. Whoever ended it may have died before its message row
   * said so.
   */
  async keep(log: Log, entries: readonly EntryHead[]): Promise<void> {
    const ended = entries.filter(({ target, status }) => target !== null && hasEnded(status));
    for (const some of groupBy(ended, ({ target }) => target!)) {
      const topic = await this.#engine.book.topicOf(log, some[0]!.target!);
      for (const { updatedAt } of some) {
        log.slot!.keepUntil = Math.max(log.slot!.keepUntil, updatedAt + topic.settings.retentionMs);
      }
      await this.#settleRows(log, topic, some);
    }
  }

  async #settleRows(log: Log, topic: Topic, ended: readonly EntryHead[]): Promise<void> {
    const rows = ended.flatMap((head) => {
      const { status, updatedAt: at } = head;
      return hasEnded(status) ? [{ task: head, place: placeIn(log.address, head.id), status, at }] : [];
    });
    await this.#engine.messages.settle(topic.name, topic.settings, rows);
  }

  /** Entries by their ids. What a plain read misses beside a commit under way, a serial one finds. */
  async read(log: Log, ids: readonly number[]): Promise<ReadonlyMap<number, Entry>> {
    const { store } = this.#engine;
    const found = new Map<number, Entry>();
    const most = entriesIn(log, ANSWER_BYTES, BATCH_ENTRIES);
    const read = async (some: readonly number[], serial: boolean): Promise<void> => {
      const reads = rangesOf(some, store.meta.segmentSize, most).map(([from, to]) =>
        this.#reads.run(async () => {
          const range = { log: log.address, from, to, limit: to - from, serial };
          for (const entry of await store.readEntries(range)) found.set(entry.id, entry);
        }),
      );
      await all(reads);
    };
    for (let at = 0; at < ids.length; at += IDS_PER_TURN) {
      await read(ids.slice(at, at + IDS_PER_TURN), false);
      if (at + IDS_PER_TURN < ids.length) await this.#turns.othersFirst();
    }
    const missing = ids.filter((id) => !found.has(id));
    if (missing.length > 0) await read(missing, true);
    return found;
  }

  async #moveReady(log: Log, entries: readonly Entry[], left: Set<number>): Promise<void> {
    const groups = new Map<string, { readonly to: LogAddress; readonly entries: Entry[] }>();
    const endings: Ending[] = [];
    const { book, env } = this.#engine;
    const now = env.now();
    const isFar = isFarTopic(log.address.topic);
    for (const entry of entries) {
      const topic = book.peekTopicOf(log, entry.target!) ?? (await book.topicOf(log, entry.target!));
      if (isPurged(entry, topic.settings.purgedAt)) {
        endings.push({ topic, entry, status: 'cancelled', reason: 'purged' });
      } else if (isExpired(entry, now)) {
        endings.push({ topic, entry, status: 'expired', reason: 'time to live over' });
      } else {
        const waits = isFar && entry.dueAt! > now;
        const to = waits
          ? nearLogOf(topic.name, entry.dueAt!, this.#engine.store.meta)
          : { topic: topic.name, tier: tierOf(entry.priority, topic.settings, topic.turn++) };
        const group = groups.get(logKey(to));
        if (group === undefined) groups.set(logKey(to), { to, entries: [entry] });
        else group.entries.push(entry);
      }
    }
    const batches = [...groups.values()].flatMap(({ to, entries: some }) =>
      inBatches(some).map((batch) => this.#move(log, batch, to, now, left)),
    );
    await all([
      ...batches,
      ...groupBy(endings, ({ topic }) => topic.name).map((some) => this.#end(log, some, now, left)),
    ]);
  }

  async #move(log: Log, batch: readonly Entry[], to: LogAddress, now: number, left: Set<number>): Promise<void> {
    const places = await this.#mover.move(log, batch, to, ({ dueAt, target }) =>
      to.topic === target ? { placedAt: now, dueAt: null, target: null } : { placedAt: now, dueAt, target },
    );
    for (const [nth, place] of places.entries()) if (place !== null) left.delete(batch[nth]!.id);
  }

  /** Ends entries of one topic. */
  async #end(log: Log, endings: readonly Ending[], now: number, left: Set<number>): Promise<void> {
    const groups = groupBySegment(endings, ({ entry }) => entry.id, this.#engine.store.meta.segmentSize);
    await all(groups.flatMap(inBatches).map((batch) => this.#endBatch(log, batch, now, left)));
  }

  async #endBatch(log: Log, batch: readonly Ending[], now: number, left: Set<number>): Promise<void> {
    const { counters, signals } = this.#engine;
    const { topic } = batch[0]!;
    const counted = new Set(batch.filter(({ entry }) => log.slot!.counts(entry.id)));
    const answers = await log.change(
      batch.map(
        ({ entry, status, reason }): EntryChange => ({
          id: entry.id,
          expect: { uid: entry.uid, version: entry.version },
          set: { status, version: FINAL_VERSION, updatedAt: now, reason },
        }),
      ),
    );
    const ended = batch.filter((_, nth) => answers[nth]!.applied);
    for (const ending of ended) {
      const { entry, status } = ending;
      // Purged ones were taken off when they were purged.
      if (counted.has(ending) && status === 'expired') log.slot!.add(topic.name, -1, entryBytes(entry));
      if (status === 'expired') counters.expired++;
      log.slot!.keepUntil = Math.max(log.slot!.keepUntil, now + topic.settings.retentionMs);
      signals.settled(entry.uid);
    }
    signals.changed(topic);
    const heads = ended.map(({ entry, status }): EntryHead => ({ ...entry, status, updatedAt: now }));
    await this.#settleRows(log, topic, heads);
    for (const { entry } of ended) left.delete(entry.id);
  }
}

/** How many entries of a log to read into so many bytes, at most so many. */
export const entriesIn = (log: Log, bytes: number, most: number): number =>
  Math.max(1, Math.min(most, Math.floor(bytes / (log.averageBytes || LARGE_BYTES))));

const hasEnded = (status: EntryHead['status']): status is 'cancelled' | 'expired' =>
  status === 'cancelled' || status === 'expired';

/** Waits for all of them, also where one fails. */
async function all(parts: readonly Promise<unknown>[]): Promise<void> {
  const failed = (await Promise.allSettled(parts)).find((part) => part.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}

function inBatches<T>(items: readonly T[]): T[][] {
  const batches: T[][] = [];
  for (let at = 0; at < items.length; at += BATCH_ENTRIES) batches.push(items.slice(at, at + BATCH_ENTRIES));
  return batches;
}
