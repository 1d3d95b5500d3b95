/** Reads what the rules judge: segment by segment and row by row, and of anything else only what one of them names. */
import { type EntryHead, isFinal, type LogAddress, type Place, samePlace } from '../core/entry.ts';
import {
  type Checkpoint,
  DEAD_TIER,
  EMPTY_CHECKPOINT,
  isSlotTopic,
  logKey,
  segmentEnd,
  segmentOf,
  segmentStart,
  shardOfLog,
} from '../core/log.ts';
import { isLive, type MessageRow, messageKey } from '../core/message.ts';
import { DEFAULT_SETTINGS, parseSettings, type TopicSettings } from '../core/settings.ts';
import { readHeadsByIds } from '../queue/locate.ts';
import { rowTtlMs, topicOf } from '../queue/messages.ts';
import type { Page, ShardRow, Store, StoredMessage } from '../store/store.ts';
import {
  type CheckpointFacts,
  type EntryFacts,
  type Ids,
  isWaiting,
  type LogKind,
  type RowFacts,
  type SegmentFacts,
  type TaskState,
} from './rules.ts';
import { HashSet } from './sketch.ts';

const PAGE_ROWS = 1_000;
/** Reads that are under way at the same time. */
const READS_AT_ONCE = 32;
/** More moves than this in a row are a circle, which cannot be. */
const LONGEST_WAY = 10_000;

/** The row that says which periods a shard has, and its holder's term. */
export const readScheduler = async (store: Store, shard: number): Promise<ShardRow | null> =>
  (await store.readShards(true)).get(shard) ?? null;

/** The periods of a shard's activity index that were not deleted; as they begin where no server was there yet. */
export async function periodsOf(store: Store, shard: number): Promise<Pick<ShardRow, 'period' | 'oldestPeriod'>> {
  return (await readScheduler(store, shard)) ?? { period: 1, oldestPeriod: 1 };
}

type Links = Pick<EntryFacts, 'origin' | 'dest'>;
const UNLINKED: Links = { origin: null, dest: null };
type Ownership = Pick<EntryFacts, 'settings' | 'row' | 'rowIsBehind'>;
/** Of an entry whose row says nothing of it. */
const UNOWNED: Ownership = { settings: DEFAULT_SETTINGS, row: undefined, rowIsBehind: false };

const kindOf = ({ topic, tier }: LogAddress): LogKind =>
  isSlotTopic(topic) ? 'slot' : tier === DEAD_TIER ? 'dead' : 'tier';

export class Reader {
  readonly #store: Store;
  #recorded = new HashSet();
  readonly #terms = new Map<number, number>();
  /** Of the topic that was read last: rows of one topic mostly come together. */
  #settings: { readonly topic: string; readonly settings: TopicSettings } | null = null;
  #checkpoints: { readonly topic: string; readonly marks: ReadonlyMap<number, Checkpoint> } | null = null;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Reads anew what all the rest is held against: the index of active logs, the terms, checkpoints and settings. */
  async refresh(): Promise<void> {
    this.#settings = null;
    this.#checkpoints = null;
    const recorded = new HashSet();
    for (let shard = 0; shard < this.#store.meta.shards; shard++) {
      this.#terms.set(shard, (await readScheduler(this.#store, shard))?.term ?? 0);
      const { period, oldestPeriod } = await periodsOf(this.#store, shard);
      for (let at = oldestPeriod; at <= period; at++) await this.#readPeriod(recorded, shard, at);
    }
    this.#recorded = recorded;
  }

  async #readPeriod(recorded: HashSet, shard: number, period: number): Promise<void> {
    let from: string | null = null;
    do {
      const page: Awaited<ReturnType<Store['readActivity']>> = await this.#store.readActivity(
        shard,
        period,
        from,
        PAGE_ROWS,
      );
      for (const row of page.rows) recorded.add(logKey(row));
      from = page.next;
    } while (from !== null);
  }

  async settings(topic: string): Promise<TopicSettings> {
    if (this.#settings?.topic !== topic) {
      const row = await this.#store.readTopic(topic);
      this.#settings = { topic, settings: settingsOf(row?.settings ?? null) };
    }
    return this.#settings.settings;
  }

  async #checkpoint({ topic, tier }: LogAddress, serial: boolean): Promise<Checkpoint> {
    if (serial || this.#checkpoints?.topic !== topic) {
      this.#checkpoints = { topic, marks: await this.#store.readCheckpoints(topic) };
    }
    return this.#checkpoints.marks.get(tier) ?? EMPTY_CHECKPOINT;
  }

  // ── segments and entries ──────────────────────────────────────────────────────────────────────────────────────

  /**
   * Reads a segment.
   * @param each is given every entry, page by page
   */
  async segment(
    log: LogAddress,
    segment: number,
    serial: boolean,
    each: (entry: EntryFacts) => void,
  ): Promise<SegmentFacts> {
    const { segmentSize: size, slotMs, shards } = this.#store.meta;
    const checkpoint = await this.#checkpoint(log, serial);
    const header = await this.#store.readSegment(log, segment, serial);
    const facts = { log, kind: kindOf(log), checkpoint, now: this.#store.now(), header };
    const tally = new Tally(checkpoint.trimmed);
    const to = segmentEnd(segment, size);
    for (let from = segmentStart(segment, size); from < to; ) {
      const heads = await this.#store.readHeads({ log, from, to, limit: PAGE_ROWS, serial });
      for (const entry of await this.#entries(facts, heads, serial)) {
        tally.add(entry);
        each(entry);
      }
      if (heads.length < PAGE_ROWS) break;
      from = heads.at(-1)!.id + 1;
    }
    return {
      ...facts,
      ...(await this.#before(log, segment, serial)),
      ...tally.result(),
      segment,
      size,
      recorded: this.#recorded.has(logKey(log)),
      term: this.#terms.get(shardOfLog(log.topic, shards)) ?? 0,
      slotMs,
    };
  }

  async #before(log: LogAddress, segment: number, serial: boolean) {
    if (segment === 0) return { before: null, beforeIsEmpty: true };
    const before = await this.#store.readSegment(log, segment - 1, serial);
    const { segmentSize: size } = this.#store.meta;
    const to = segmentStart(segment, size);
    const [first] = await this.#store.readHeads({ log, from: to - size, to, limit: 1, serial });
    return { before, beforeIsEmpty: first === undefined };
  }

  async #entries(
    facts: Pick<EntryFacts, 'log' | 'kind' | 'checkpoint' | 'now' | 'header'>,
    heads: readonly EntryHead[],
    serial: boolean,
  ): Promise<readonly EntryFacts[]> {
    const rows = await this.#rowsOf(facts.log, heads.filter(needsRow), serial);
    const links = await this.#linksOf(heads, serial);
    const found: EntryFacts[] = [];
    for (const head of heads) {
      const { origin, dest } = links.get(head) ?? UNLINKED;
      const owned = needsRow(head) ? await this.#ownership(facts.log, head, rows, serial) : UNOWNED;
      const { settings, row, rowIsBehind } = owned;
      found.push({ ...facts, head, origin, dest, settings, row, rowIsBehind });
    }
    return found;
  }

  async #ownership(
    log: LogAddress,
    head: EntryHead,
    rows: ReadonlyMap<string, MessageRow>,
    serial: boolean,
  ): Promise<Ownership> {
    const topic = topicOf(log, head);
    const row = rows.get(`${messageKey(head)}/${topic}`) ?? null;
    return { settings: await this.settings(topic), row, rowIsBehind: await this.#isBehind(head, row, serial) };
  }

  /** Of a live entry with a row that says it ended: whether it ended before the last move, which was not passed yet. */
  async #isBehind(head: EntryHead, row: MessageRow | null, serial: boolean): Promise<boolean> {
    if (row?.uid !== head.uid || isLive(row.status) || row.hops >= head.hops || head.origin === null) return false;
    const origin = await this.#headAt(head.origin, serial);
    return origin?.uid === head.uid && !(await this.#isPassed(head.origin, serial));
  }

  /** What stands where pending entries came from, and where moved ones went. */
  async #linksOf(heads: readonly EntryHead[], serial: boolean): Promise<ReadonlyMap<EntryHead, Links>> {
    const linked = heads.filter(({ status }) => status === 'pending' || status === 'moved');
    const links = await inParallel(
      linked,
      async (head): Promise<Links> => ({
        origin: head.status === 'pending' ? await this.#headAt(head.origin, serial) : null,
        dest: head.status === 'moved' && head.dest !== null ? await this.#destination(head.dest, serial) : null,
      }),
    );
    return new Map(linked.map((head, at) => [head, links[at]!]));
  }

  /** The message rows of entries, by key and topic. */
  async #rowsOf(
    log: LogAddress,
    heads: readonly EntryHead[],
    serial: boolean,
  ): Promise<ReadonlyMap<string, MessageRow>> {
    const keys = new Map<string, string[]>();
    for (const head of heads) {
      const topic = topicOf(log, head);
      keys.set(topic, [...(keys.get(topic) ?? []), messageKey(head)!]);
    }
    const found = new Map<string, MessageRow>();
    for (const [topic, some] of keys) {
      for (const [key, row] of await this.#store.readMessages(topic, some, serial)) found.set(`${key}/${topic}`, row);
    }
    return found;
  }

  async #headAt(place: Place | null, serial: boolean): Promise<EntryHead | null> {
    if (place === null) return null;
    const heads = await this.#store.readHeads({ log: place, from: place.id, to: place.id + 1, limit: 1, serial });
    return heads[0] ?? null;
  }

  async #destination(dest: Place, serial: boolean): Promise<NonNullable<EntryFacts['dest']>> {
    const head = await this.#headAt(dest, serial);
    // A slot that is over begins with id 0 again.
    if (head !== null || isSlotTopic(dest.topic)) return { head, wasGiven: true };
    const header = await this.#store.readSegment(dest, segmentOf(dest.id, this.#store.meta.segmentSize), serial);
    return { head, wasGiven: header !== null && dest.id < header.nextId };
  }

  // ── checkpoints and message rows ──────────────────────────────────────────────────────────────────────────────

  async checkpoint(log: LogAddress, serial: boolean): Promise<CheckpointFacts> {
    const { segmentSize: size } = this.#store.meta;
    const checkpoint = await this.#checkpoint(log, serial);
    const segment = segmentOf(checkpoint.scan, size);
    const header = await this.#store.readSegment(log, segment, serial);
    const before = segment === 0 || header ? null : await this.#store.readSegment(log, segment - 1, serial);
    return { log, kind: kindOf(log), checkpoint, now: this.#store.now(), size, header, before };
  }

  /** A message row as it stands by now; null: it is gone. */
  async row(topic: string, key: string): Promise<MessageRow | null> {
    return (await this.#store.readMessages(topic, [key], true)).get(key) ?? null;
  }

  /** Rows of a page: what stands at their places is read together. */
  async rowFacts(rows: readonly StoredMessage[], serial: boolean): Promise<readonly RowFacts[]> {
    const live = rows.filter(({ row }) => isLive(row.status)).map(({ row }) => row);
    const heads = serial ? new Map<MessageRow, EntryHead>() : await this.#headsOf(live);
    const tasks = await inParallel(live, (row) => this.task(row, serial, heads.get(row)));
    const taskOf = new Map(live.map((row, at) => [row, tasks[at]!]));
    const facts: RowFacts[] = [];
    for (const { topic, row, expiresAt } of rows) {
      const ttlMs = rowTtlMs(row, await this.settings(topic));
      facts.push({ topic, row, expiresAt, ttlMs, now: this.#store.now(), task: taskOf.get(row) ?? null });
    }
    return facts;
  }

  async #headsOf(rows: readonly MessageRow[]): Promise<ReadonlyMap<MessageRow, EntryHead>> {
    const logs = new Map<string, MessageRow[]>();
    for (const row of rows) {
      const key = logKey(row.place);
      const some = logs.get(key);
      if (some === undefined) logs.set(key, [row]);
      else some.push(row);
    }
    const found = new Map<MessageRow, EntryHead>();
    await inParallel([...logs.values()], async (some) => {
      const ids = some.map(({ place }) => place.id);
      const heads = await readHeadsByIds(this.#store, some[0]!.place, ids);
      for (const row of some) if (heads.has(row.place.id)) found.set(row, heads.get(row.place.id)!);
    });
    return found;
  }

  /**
   * Follows a task along its moves.
   * @param known what stands at the row's place, where that was read already
   */
  async task(row: MessageRow, serial: boolean, known?: EntryHead): Promise<TaskState> {
    let place = row.place;
    for (let step = 0; step < LONGEST_WAY; step++) {
      const head = step === 0 && known !== undefined ? known : await this.#headAt(place, serial);
      if (head === null || head.uid !== row.uid) return { kind: 'gone', place };
      if (!isFinal(head.status)) return { kind: 'alive' };
      if (head.status !== 'moved' || head.dest === null || samePlace(head.dest, place)) {
        const passed = await this.#isPassed(place, serial);
        return { kind: 'final', place, status: head.status, updatedAt: head.updatedAt, passed };
      }
      place = head.dest;
    }
    return { kind: 'gone', place };
  }

  /** What ended in a slot is looked at when that is drained, and then is gone. */
  async #isPassed(place: Place, serial: boolean): Promise<boolean> {
    if (isSlotTopic(place.topic)) return false;
    if (place.id < (await this.#checkpoint(place, serial)).completion) return true;
    const segment = segmentOf(place.id, this.#store.meta.segmentSize);
    return (await this.#store.readSegment(place, segment, serial))?.closed ?? false;
  }

  // ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** Which of some places hold a live entry of a task. */
  async liveAt(uid: string, places: readonly Place[], serial: boolean): Promise<readonly Place[]> {
    const heads = await inParallel(places, (place) => this.#headAt(place, serial));
    return places.filter((_, at) => heads[at]?.uid === uid && isLeasable(heads[at]));
  }

  /** Whether the entry that was moved here says so: then where it was before, it is no more. */
  async hasArrived({ log, head }: EntryFacts): Promise<boolean> {
    const origin = await this.#headAt(head.origin, true);
    return origin?.uid === head.uid && samePlace(origin.dest, { ...log, id: head.id });
  }
}

/** Live by itself: not pending. */
export const isLeasable = ({ status }: EntryHead): boolean => status === 'ready' || status === 'leased';

/** Of most entries the row needs no look: nobody has taken them yet, or they are settled. */
const needsRow = (head: EntryHead): boolean =>
  messageKey(head) !== null &&
  (head.status === 'leased' || (head.status === 'ready' && (head.hops > 0 || head.attempt > 0)));

function settingsOf(text: string | null): TopicSettings {
  try {
    return parseSettings(text);
  } catch {
    return DEFAULT_SETTINGS;
  }
}

/** Counts the entries of a segment, and notes which ids have none. */
class Tally {
  readonly #trimmed: number;
  #first: number | null = null;
  #last: number | null = null;
  #hole: Ids['hole'] = null;
  #entries = 0;
  #live = 0;
  #final = 0;
  #firstLive: EntryHead | null = null;

  constructor(trimmed: number) {
    this.#trimmed = trimmed;
  }

  add(facts: EntryFacts): void {
    const { head } = facts;
    this.#entries++;
    if (isFinal(head.status)) this.#final++;
    else if (isWaiting(facts)) {
      this.#live++;
      this.#firstLive ??= head;
    }
    if (head.id < this.#trimmed) return;
    if (this.#last !== null && head.id > this.#last + 1) this.#hole ??= { from: this.#last + 1, to: head.id };
    this.#first ??= head.id;
    this.#last = head.id;
  }

  result(): Pick<SegmentFacts, 'ids' | 'entries' | 'live' | 'final' | 'firstLive'> {
    return {
      ids: { first: this.#first, last: this.#last, hole: this.#hole },
      entries: this.#entries,
      live: this.#live,
      final: this.#final,
      firstLive: this.#firstLive,
    };
  }
}

/** All rows of a table. */
export async function* allOf<T>(scan: (after: string | null, limit: number) => Promise<Page<T>>): AsyncGenerator<T> {
  for await (const rows of pagesOf(scan)) yield* rows;
}

/** The same, page by page. */
export async function* pagesOf<T>(
  scan: (after: string | null, limit: number) => Promise<Page<T>>,
): AsyncGenerator<readonly T[]> {
  let after: string | null = null;
  do {
    const page: Page<T> = await scan(after, PAGE_ROWS);
    yield page.rows;
    after = page.next;
  } while (after !== null);
}

/** Does something for each, not too much at once; the answers come in order. */
export async function inParallel<T, R>(items: readonly T[], act: (item: T) => Promise<R>): Promise<readonly R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += READS_AT_ONCE) {
    results.push(...(await Promise.all(items.slice(at, at + READS_AT_ONCE).map(act))));
  }
  return results;
}
