import { type Entry, type EntryHead, entryBytes, type Place } from '../core/entry.ts';
import { QueueError, show } from '../core/errors.ts';
import { type MessageRow, messageIdKey, uidKey } from '../core/message.ts';
import { parseTaskId } from '../core/task-id.ts';
import type { Store } from '../store/store.ts';
import type { Engine } from './engine.ts';
import { asPending, type Mover, readHead } from './move.ts';

/** An entry, where it stands. */
export interface Located {
  readonly place: Place;
  readonly head: EntryHead;
}

/** More moves than this in a row are a circle, which cannot be. */
const LONGEST_WAY = 10_000;
/** Entries this close together are read at once. */
const READ_GAP = 16;
/** Entries of which no more than an answer's worth is in memory, read for their sizes, gaps included. */
const SIZES_AT_ONCE = 16;

/** Finds tasks: by the place in their id, by their message row, and along their moves. */
export class Locator {
  readonly #engine: Engine;
  readonly #mover: Mover;

  constructor(engine: Engine, mover: Mover) {
    this.#engine = engine;
    this.#mover = mover;
  }

  /** The newest entry of a task, from a place where it once stood; null where the way is lost. */
  async follow(from: Place, uid: string): Promise<Located | null> {
    let place = from;
    for (let step = 0; step < LONGEST_WAY; step++) {
      const head = await readHead(this.#engine.store, place);
      if (head === null || head.uid !== uid) return null;
      if (head.status === 'pending') {
        const log = await this.#engine.book.log(place);
        await this.#mover.resolve(log, [asPending(log, head)]);
        continue;
      }
      if (head.status !== 'moved') return { place, head };
      place = head.dest!;
    }
    return null;
  }

  /**
   * The newest entry of a task from its message row, and the row as it is by then; null where the way is lost. The task
   * may move on, and what it left be trimmed, after the row was read: the row says so before that.
   */
  async followRow(
    topic: string,
    row: MessageRow,
  ): Promise<{ readonly row: MessageRow | null; readonly located: Located | null }> {
    for (let current = row; ; ) {
      const located = await this.follow(current.place, current.uid);
      if (located !== null) return { row: current, located };
      const again = await this.#engine.messages.readOne(topic, row.key);
      if (again === null || again.uid !== row.uid || again.hops <= current.hops) return { row: again, located: null };
      current = again;
    }
  }

  /** @throws QueueError `task-not-found` */
  async find(topic: string, id: string): Promise<Located> {
    const parsed = typeof id === 'string' ? parseTaskId(id, topic, this.#engine.store.meta.shards) : null;
    if (parsed === null) throw new QueueError('task-not-found', `${show(id)} is not an id that an enqueue gave out`);
    if ('messageId' in parsed) {
      const row = await this.#engine.messages.readOne(topic, messageIdKey(parsed.messageId));
      if (row?.uid === parsed.uid) return this.#byRow(topic, row, id);
      throw notFound(id);
    }
    const direct = await this.follow(parsed.place, parsed.uid);
    // A slot of delayed tasks is shared: the id of another topic's task is none here.
    if (direct !== null && (direct.place.topic === topic || direct.head.target === topic)) return direct;
    const row = await this.#engine.messages.readOne(topic, uidKey(parsed.uid));
    if (row === null) throw notFound(id);
    return this.#byRow(topic, row, id);
  }

  /** @throws QueueError `task-not-found` */
  async findByMessageId(topic: string, messageId: string): Promise<Located> {
    const row = await this.#engine.messages.readOne(topic, messageIdKey(messageId));
    if (row === null) throw notFound(messageId);
    return this.#byRow(topic, row, messageId);
  }

  async #byRow(topic: string, row: MessageRow, id: string): Promise<Located> {
    const { located } = await this.followRow(topic, row);
    if (located !== null) return located;
    throw new QueueError(
      'task-not-found',
      `${show(id)} was settled (${row.status}); what it held was deleted after the topic's retention`,
    );
  }
}

const notFound = (id: string): QueueError =>
  new QueueError('task-not-found', `${show(id)}: no such task, or it was settled longer ago than the retention`);

/** Entries by their ids; those that are close together are read together. */
export async function readByIds(
  store: Store,
  log: Place | Omit<Place, 'id'>,
  ids: readonly number[],
): Promise<Map<number, Entry>> {
  return only(ids, store.meta.segmentSize, (from, to) => store.readEntries({ log, from, to, limit: to - from }));
}

export async function readHeadsByIds(
  store: Store,
  log: Omit<Place, 'id'>,
  ids: readonly number[],
): Promise<Map<number, EntryHead>> {
  return only(ids, store.meta.segmentSize, (from, to) => store.readHeads({ log, from, to, limit: to - from }));
}

/** How large entries are, by their ids; they are read for it, a few at a time. */
export async function sizesOf(
  store: Store,
  log: Omit<Place, 'id'>,
  ids: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const sizes = new Map<number, number>();
  for (let at = 0; at < ids.length; at += SIZES_AT_ONCE) {
    const entries = await readByIds(store, log, ids.slice(at, at + SIZES_AT_ONCE));
    for (const [id, entry] of entries) sizes.set(id, entryBytes(entry));
  }
  return sizes;
}

/** What was asked for, and nothing of what stands between. */
async function only<T extends EntryHead>(
  ids: readonly number[],
  segmentSize: number,
  read: (from: number, to: number) => Promise<readonly T[]>,
): Promise<Map<number, T>> {
  const asked = new Set(ids);
  const found = new Map<number, T>();
  for (const [from, to] of rangesOf(ids, segmentSize)) {
    for (const one of await read(from, to)) if (asked.has(one.id)) found.set(one.id, one);
  }
  return found;
}

/**
 * Ranges that cover the ids without much between them, none across segments.
 * @param most ids that a range spans
 */
export function rangesOf(
  ids: readonly number[],
  segmentSize: number,
  most = Number.POSITIVE_INFINITY,
): readonly (readonly [number, number])[] {
  const sorted = [...ids].sort((a, b) => a - b);
  const ranges: [number, number][] = [];
  for (const id of sorted) {
    const last = ranges.at(-1);
    const sameSegment = last !== undefined && Math.floor(last[0] / segmentSize) === Math.floor(id / segmentSize);
    if (last !== undefined && sameSegment && id - last[1] < READ_GAP && id - last[0] < most)
      last[1] = Math.max(last[1], id + 1);
    else ranges.push([id, id + 1]);
  }
  return ranges;
}
