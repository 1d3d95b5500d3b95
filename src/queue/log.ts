import { BATCH_BYTES, BATCH_ENTRIES, SEGMENT_SEAL_BYTES } from '../core/bounds.ts';
import { type EntryChange, type EntryHead, entryBytes, type LogAddress, type NewEntry } from '../core/entry.ts';
import { QueueError } from '../core/errors.ts';
import {
  type Checkpoint,
  DEAD_TIER,
  EMPTY_CHECKPOINT,
  entriesEnd,
  isSlotTopic,
  planAppend,
  type SegmentHeader,
  segmentEnd,
  segmentOf,
  segmentStart,
  unseenUpTo,
} from '../core/log.ts';
import { type Store, StoreUnavailableError } from '../store/store.ts';
import { deferred } from './deferred.ts';
import type { Environment } from './environment.ts';
import { GroupCommit, GroupCommits } from './group-commit.ts';
import { NONE_OPEN, OpenEntries, type OpenEntry } from './open-entries.ts';
import { appendDefinitely, changeDefinitely, definitely, meetsEntry } from './outcomes.ts';
import type { Appended, LogEnd } from './peers.ts';
import type { Slot } from './slots.ts';
import type { Tenure } from './tenure.ts';
import type { Uptime } from './uptime.ts';

/** How a change of one entry went: applied, or the row as it stands (null: there is none). */
export type ChangeResult = { readonly applied: true } | { readonly applied: false; readonly row: EntryHead | null };
const CHANGED: ChangeResult = { applied: true };

/** That all up to `completion` was settled at `at`; later settlements join for a while after `openedAt`. */
interface SettledMark {
  readonly openedAt: number;
  at: number;
  completion: number;
}

/** What a log has to do with other servers. */
export interface LogPeers {
  /**
   * Asks whoever schedules a log where it ends, or reads that where it is not known otherwise.
   * @param inTurn others wait until it is known that something was put there
   * @returns null: nothing new
   */
  askEnd(log: Log, inTurn: boolean): Promise<LogEnd | null>;
  /** Something was put into the log here; null: it is on its way, and nobody is told of it yet; 'partly': some of it is. */
  appended(log: Log, appended: Appended | 'partly' | null): void;
  /** What others have put into the log is known now. */
  found(log: Log): void;
}

interface FoundTail {
  readonly from: number;
  readonly to: number;
  readonly segment: number;
  readonly header: SegmentHeader | null;
  /** Where it was thought to end before. */
  readonly before: LogEnd | null;
}

/** What a log is in which tasks wait and nothing else goes on, so that it can be gone on with later. */
export interface LogAtRest {
  readonly tier: number;
  /** Both cursors stand here, and all below it was deleted. */
  readonly cursor: number;
  readonly end: LogEnd;
  readonly averageBefore: number;
  readonly ready: number;
  readonly isUnclaimed: boolean;
  readonly readySince: number;
  readonly servedNth: number;
  readonly recordedPeriod: number;
}

/** A slot of delayed tasks, and its log once that was needed. */
export type TimeSlot = Slot<Log>;

/** What all logs of a process share. */
export interface LogHome {
  readonly store: Store;
  readonly env: Environment;
  readonly peers: LogPeers;
  readonly appends: GroupCommits<Log, NewEntry, number>;
  /** Bytes from the scan cursor on, of logs of topics that have a quota of them. */
  readonly waitingBytes: WeakMap<Log, number>;
  readonly uptime: Uptime;
}

export function logHome(store: Store, env: Environment, peers: LogPeers, uptime: Uptime): LogHome {
  const leastWeight = Math.floor(BATCH_BYTES / Math.min(BATCH_ENTRIES, store.meta.segmentSize));
  const weigh = (entry: NewEntry): number => Math.max(leastWeight, entryBytes(entry));
  const appends = new GroupCommits<Log, NewEntry, number>(
    (log, entries) => log.appendBatch(entries),
    BATCH_BYTES,
    weigh,
  );
  return { store, env, peers, appends, waitingBytes: new WeakMap(), uptime };
}

/**
 * One log as known here: its tail, both cursors, and what is open between them. Appends and changes of concurrent
 * callers are grouped, each group one conditional batch in one partition.
 *
 * There may be millions of them in memory, most of which only hold what waits: what few need is there only while it is
 * needed.
 */
export class Log {
  readonly address: LogAddress;
  /** Whether, and under which term, this server schedules it. */
  readonly tenure: Tenure;
  readonly #home: LogHome;
  #changes: Map<number, GroupCommit<EntryChange, ChangeResult>> | null = null;
  #tail: LogEnd | null = null;
  /** Bytes an entry took on average in the segment before the tail. */
  #averageBefore = 0;
  #finding: Promise<void> | null = null;
  /** From which id on another server is putting something there, and what ends its turn. */
  #lent: { readonly from: number; end(): void } | null = null;
  /** Appends wait for it. */
  #dropping: Promise<boolean> | null = null;

  /** Ids below this were handed out. */
  scan = 0;
  /** Ids below this are settled. */
  completion = 0;
  /** Ids below this were deleted. */
  trimmed = 0;
  #ready = 0;
  /** How often something that was ready was taken off the count. */
  takenOff = 0;
  /** Ready entries that claims under way will take. */
  reserved = 0;
  #open: OpenEntries | null = null;
  /** The term last seen in the header of the scan cursor's segment, and how far that segment reaches. */
  scanHeader: { segment: number; term: number; end: number; full: boolean; averageBytes: number } | null = null;
  /** The scan cursor's segment was begun just now, so its header needs not be read. Had somebody claimed in it, a claim would learn it. */
  #isUnclaimed = false;
  /** No ready entry was put there before; where some are ready. */
  readySince = 0;
  /** When it was last handed out from, counted in leases. */
  servedNth = 0;
  #touchedAt = 0;
  /**
   * Ids below the scan cursor that were handed out, nobody here knows to whom: a claim whose outcome stayed unknown, or
   * one that a predecessor had sent, was carried out after all. To be looked at before the completion cursor may pass.
   */
  unseen: { readonly from: number; readonly to: number } | null = null;
  #expiry: { at: number; againAt: number } | null = null;
  /** Purged tasks may stand at the scan cursor, which no lease may meet for long. */
  sweep = false;
  /** Of dead letters: others may have put some into it or taken some out, or it is in doubt who did; they are counted anew. */
  recount = false;
  /** Of a time slot: what is known of it besides; null: it is none. */
  slot: TimeSlot | null = null;
  #countedEarly: Set<number> | null = null;
  #onTheirWay: Set<number> | null = null;
  /** Pending entries met when it was loaded; their moves are carried to an end once it is. */
  interrupted: readonly EntryHead[] = NO_HEADS;
  /** The period of the activity index in which this log is recorded. */
  recordedPeriod = -1;
  /** What was last written to its checkpoint. */
  saved: Checkpoint = EMPTY_CHECKPOINT;
  settledMarks: readonly SettledMark[] = NO_MARKS;
  #closed: Map<number, number> | null = null;

  constructor(address: LogAddress, tenure: Tenure, home: LogHome) {
    this.address = address;
    this.tenure = tenure;
    this.#home = home;
  }

  /** A log as it was at rest. What waits in it is counted already. */
  static goingOn(address: LogAddress, tenure: Tenure, home: LogHome, rest: LogAtRest): Log {
    const log = new Log(address, tenure, home);
    log.#tail = rest.end;
    log.#averageBefore = rest.averageBefore;
    log.#ready = rest.ready;
    log.#isUnclaimed = rest.isUnclaimed;
    log.scan = log.completion = log.trimmed = rest.cursor;
    if (rest.cursor > 0) log.saved = { scan: rest.cursor, completion: rest.cursor, trimmed: rest.cursor };
    log.readySince = rest.readySince;
    log.servedNth = rest.servedNth;
    log.recordedPeriod = rest.recordedPeriod;
    log.touched();
    return log;
  }

  /** What it is, where tasks wait in it, nothing else goes on, and nobody who looked it up can still be busy with it; else null. */
  atRest(): LogAtRest | null {
    if (this.#tail === null || this.#ready === 0 || this.#ready !== this.ready || this.#isLookedUp) return null;
    if (!this.#isQuiet || this.slot !== null || this.isDead || this.waitingBytes !== null) return null;
    const { scan: cursor, saved } = this;
    if (this.completion !== cursor || this.trimmed !== cursor) return null;
    if (saved.scan !== cursor || saved.completion !== cursor || saved.trimmed !== cursor) return null;
    return {
      tier: this.address.tier,
      cursor,
      end: this.#tail,
      averageBefore: this.#averageBefore,
      ready: this.#ready,
      isUnclaimed: this.#isUnclaimed,
      readySince: this.readySince,
      servedNth: this.servedNth,
      recordedPeriod: this.recordedPeriod,
    };
  }

  /** Nothing is under way in it, in doubt, or to be seen to. */
  get #isQuiet(): boolean {
    return (
      this.#open === null &&
      this.unseen === null &&
      this.reserved === 0 &&
      this.#expiry === null &&
      !this.sweep &&
      !this.recount &&
      this.#countedEarly === null &&
      this.#onTheirWay === null &&
      this.interrupted.length === 0 &&
      this.settledMarks.length === 0 &&
      this.#closed === null &&
      this.#changes === null &&
      this.#finding === null &&
      this.#lent === null &&
      this.#dropping === null &&
      this.#home.appends.isIdle(this)
    );
  }

  get #store(): Store {
    return this.#home.store;
  }

  get #env(): Environment {
    return this.#home.env;
  }

  get #peers(): LogPeers {
    return this.#home.peers;
  }

  /** Entries in [completion, scan) that are not known to be settled, by id, in the order of ids. */
  get open(): OpenEntries {
    return this.#open ?? NONE_OPEN;
  }

  /** One more is open, behind all that are. */
  opens(id: number, entry: OpenEntry): void {
    this.#open ??= new OpenEntries(this.tenure.totals);
    this.#open.set(id, entry);
  }

  /** Takes an entry off the list of those that are open. */
  settled(id: number): void {
    if (this.#open?.delete(id) && this.#open.size === 0) this.#open = null;
  }

  /** What is open is another server's to see to. */
  forgetOpen(): void {
    this.#open?.clear();
    this.#open = null;
  }

  /** When the first task that waits here may expire, as far as is known. */
  get expiresAt(): number {
    return this.#expiry?.at ?? Number.POSITIVE_INFINITY;
  }

  set expiresAt(at: number) {
    if (this.#expiry !== null) this.#expiry.at = at;
    else if (at !== Number.POSITIVE_INFINITY) this.#expiry = { at, againAt: 0 };
  }

  /** Not before then is it looked through for tasks that expired. */
  get expireAgainAt(): number {
    return this.#expiry?.againAt ?? 0;
  }

  set expireAgainAt(at: number) {
    this.#expiry ??= { at: Number.POSITIVE_INFINITY, againAt: 0 };
    this.#expiry.againAt = at;
  }

  /** A pending entry counts as ready: its move is committed, or may be, and nobody could mark it yet. */
  addCountedEarly(id: number): void {
    this.#countedEarly ??= new Set();
    this.#countedEarly.add(id);
  }

  countsEarly(id: number): boolean {
    return this.#countedEarly?.has(id) ?? false;
  }

  /** @returns whether it counted early until now */
  deleteCountedEarly(id: number): boolean {
    const counted = this.#countedEarly?.delete(id) ?? false;
    if (this.#countedEarly?.size === 0) this.#countedEarly = null;
    return counted;
  }

  /** A pending entry was put there by this server and counts once it is ready, whoever marks it so. */
  addOnItsWay(id: number): void {
    this.#onTheirWay ??= new Set();
    this.#onTheirWay.add(id);
  }

  /** @returns whether it was on its way until now */
  deleteOnItsWay(id: number): boolean {
    const wasOnItsWay = this.#onTheirWay?.delete(id) ?? false;
    if (this.#onTheirWay?.size === 0) this.#onTheirWay = null;
    return wasOnItsWay;
  }

  /** Full segments above the completion cursor in which all is settled, and when that was found. */
  get closed(): ReadonlyMap<number, number> {
    return this.#closed ?? NO_SEGMENTS;
  }

  close(segment: number, at: number): void {
    this.#closed ??= new Map();
    this.#closed.set(segment, at);
  }

  forgetClosed(segment: number): void {
    this.#closed?.delete(segment);
    if (this.#closed?.size === 0) this.#closed = null;
  }

  get isDead(): boolean {
    return this.address.tier === DEAD_TIER && !isSlotTopic(this.address.topic);
  }

  /** The next id that an append will get, as known here. */
  get nextId(): number {
    if (this.#tail === null) return this.scan;
    // What a predecessor sent late may have been scanned before it was found at the tail.
    return Math.max(this.scan, this.#idOf(this.#tail));
  }

  /** The scan cursor stands at the beginning of a segment that is not there yet. */
  get isAtNewSegment(): boolean {
    return this.#tail?.next === null && this.scan === segmentStart(this.#tail.segment, this.#size);
  }

  /** Whether it may be forgotten: it is idle, and nobody who looked it up can still be about to append. */
  get isForgettable(): boolean {
    return this.isIdle && !this.#isLookedUp;
  }

  get #isLookedUp(): boolean {
    return this.untouchedFor <= LOOKED_UP_MS;
  }

  /** It was looked up: who did may be about to append. */
  touched(): void {
    this.#touchedAt = this.#home.uptime.now();
  }

  /** For how long nobody has looked it up, in milliseconds in which this process ran. */
  get untouchedFor(): number {
    return this.#home.uptime.now() - this.#touchedAt;
  }

  /** Bytes an entry takes on average, as far as is known. */
  get averageBytes(): number {
    // Of a time slot, the header may be older than most of what is in it.
    if (this.slot === null && this.scanHeader !== null && this.scanHeader.averageBytes > 0)
      return this.scanHeader.averageBytes;
    const count = this.#tail?.next == null ? 0 : this.#tail.next - segmentStart(this.#tail.segment, this.#size);
    return count > 0 ? this.#tail!.bytes / count : this.#averageBefore;
  }

  /**
   * Bytes of what stands from the scan cursor on, whether it still waits there or has ended; null: they are not kept.
   * What is put there adds to them, whoever does it, and a claim that passes it takes it off.
   */
  get waitingBytes(): number | null {
    return this.#home.waitingBytes.get(this) ?? null;
  }

  /** From now on they are kept; what stands there already is to be added. */
  keepWaitingBytes(): void {
    this.#home.waitingBytes.set(this, 0);
  }

  addWaitingBytes(by: number): void {
    const kept = this.#home.waitingBytes.get(this);
    if (kept !== undefined) this.#home.waitingBytes.set(this, this.unscanned === 0 ? 0 : Math.max(0, kept + by));
  }

  /** Where it ends, as far as is known here. */
  get end(): LogEnd | null {
    return this.#tail;
  }

  /** Ids at and above the scan cursor: entries, and what a sealed segment leaves out. */
  get unscanned(): number {
    return Math.max(0, this.nextId - this.scan);
  }

  /**
   * Entries at and above the scan cursor that are ready, as far as known. Too many do no harm; where it says none and
   * there is something, the scanner counts anew.
   */
  get ready(): number {
    return Math.min(this.#ready, this.unscanned);
  }

  set ready(count: number) {
    const { totals } = this.tenure;
    if (this.isDead) totals.dead += count - this.#ready;
    else if (!isSlotTopic(this.address.topic)) totals.ready += count - this.#ready;
    this.#ready = count;
  }

  /** So many more are ready, or fewer; where nothing is left, what was counted too often is forgotten. */
  countReady(by: number): void {
    if (by < 0) this.takenOff -= by;
    if (this.#ready === 0) this.readySince = this.#env.now();
    this.ready = this.unscanned === 0 ? 0 : Math.max(0, this.#ready + by);
  }

  /** Up to here it is known what was handed out. */
  get seen(): number {
    return this.unseen?.from ?? this.scan;
  }

  /** Nothing is unscanned, open, or waiting to be trimmed. */
  get isIdle(): boolean {
    return (
      this.unscanned === 0 &&
      this.unseen === null &&
      this.#open === null &&
      this.trimmed >= this.completion &&
      this.#home.appends.isIdle(this)
    );
  }

  get #size(): number {
    return this.#store.meta.segmentSize;
  }

  /** Appends entries, in chunks of one batch that are atomic each, together with others that wait; returns their ids. */
  append(entries: readonly NewEntry[]): Promise<readonly number[]> {
    const chunks = chunksOf(entries, Math.min(BATCH_ENTRIES, this.#size));
    if (chunks.length === 1) return this.#home.appends.submit(this, entries);
    return this.#appendAll(chunks);
  }

  async #appendAll(chunks: readonly (readonly NewEntry[])[]): Promise<readonly number[]> {
    const parts = await Promise.allSettled(chunks.map((chunk) => this.#home.appends.submit(this, chunk)));
    const failed = parts.find((part) => part.status === 'rejected');
    if (failed === undefined) return parts.flatMap((part) => (part.status === 'fulfilled' ? part.value : []));
    // "Nothing was written" would be wrong where some of it was.
    const isPartly = parts.some((part) => part.status === 'fulfilled');
    if (!isPartly || !(failed.reason instanceof StoreUnavailableError)) throw failed.reason;
    throw new QueueError('outcome-unknown', undefined, [], failed.reason);
  }

  /** Changes entries of one segment, each under its condition, together with others that wait. */
  change(changes: readonly EntryChange[]): Promise<readonly ChangeResult[]> {
    const segment = segmentOf(changes[0]!.id, this.#size);
    this.#changes ??= new Map();
    const groups = this.#changes;
    let group = groups.get(segment);
    if (group === undefined) {
      group = new GroupCommit(
        (items) => this.#change(segment, items),
        BATCH_BYTES,
        (item) => Math.max(CHANGE_WEIGHT, changeBytes(item)),
        () => {
          groups.delete(segment);
          if (groups.size === 0) this.#changes = null;
        },
      );
      groups.set(segment, group);
    }
    return group.submit(changes);
  }

  /**
   * Reads where the log ends, walking on from a known id by doubling and halving. A look that is older than what was
   * learnt meanwhile, by an append or another look, tells nothing.
   *
   * @param isWrong what is known here was found to be wrong: the log may also end before it
   * @returns from which id to which it was found to go on, and the header of its last segment; null: nothing new
   */
  async findTail(from: number, isWrong = false): Promise<FoundTail | null> {
    const known = this.#tail;
    // Of the last segment that was found not to be full: where the walk ends.
    let header: SegmentHeader | null = null;
    const isFull = async (segment: number): Promise<boolean> => {
      const found = await this.#store.readSegment(this.address, segment);
      if (found !== null && found.nextId >= segmentEnd(segment, this.#size)) return true;
      header = found;
      return false;
    };
    let low = segmentOf(from, this.#size);
    let step = 1;
    // Every segment below `low` is full, and so is each below a full one.
    while (await isFull(low + step - 1)) {
      low += step;
      step *= 2;
    }
    let high = low + step - 1;
    while (low < high) {
      const middle = low + Math.floor((high - low) / 2);
      if (await isFull(middle)) low = middle + 1;
      else high = middle;
    }
    if (header === null && low > 0 && (await this.#store.readSegment(this.address, low - 1)) === null) {
      return this.findTail(0, isWrong);
    }
    const before = this.nextId;
    const found = tailOf(low, header);
    const mayFall = isWrong && this.#tail === known;
    if (this.#tail !== null && !mayFall && this.#idOf(found) <= this.#idOf(this.#tail)) return null;
    const last = this.#tail;
    this.#endsAt(found);
    // A time slot whose headers were deleted when it was drained begins anew.
    if (header === null && low === 0) this.#restart();
    return { from: before, to: this.nextId, segment: low, header, before: last };
  }

  #endsAt(tail: LogEnd): void {
    this.#tail = tail;
    if (this.#lent !== null && this.#idOf(tail) > this.#lent.from) this.#lent.end();
  }

  #idOf(tail: LogEnd): number {
    return tail.next ?? segmentStart(tail.segment, this.#size);
  }

  /**
   * Looks whether others have appended behind the tail as it is known here, and counts what they did as ready; in a time
   * slot, that is to be looked at. One look at a time: whoever looks knows what an earlier one has found, and has counted.
   */
  findNewTail(isWrong = false): Promise<void> {
    const found = (this.#finding ?? Promise.resolve()).then(() => this.#findNewTail(isWrong));
    const over = found
      .catch(() => {})
      .then(() => {
        if (this.#finding === over) this.#finding = null;
      });
    this.#finding = over;
    return found;
  }

  async #findNewTail(isWrong: boolean): Promise<void> {
    const added: { from: number; to: number }[] = [];
    const found = await this.findTail(this.nextId, isWrong);
    // Whoever only puts into it counts nothing.
    if (this.tenure.term === null) return;
    for (let at = found?.from ?? 0; at < (found?.to ?? 0); ) {
      const segment = segmentOf(at, this.#size);
      const isLast = segment === found!.segment;
      const header = isLast ? found!.header : await this.#store.readSegment(this.address, segment);
      if (header === null) break;
      const to = Math.min(found!.to, Math.max(at, entriesEnd(header)));
      if (to > at) added.push({ from: at, to });
      this.addWaitingBytes(header.bytes - (found!.before?.segment === segment ? found!.before.bytes : 0));
      if (this.scanHeader?.segment === segment) this.scanHeader = null;
      at = segmentEnd(segment, this.#size);
    }
    for (const { from, to } of added) this.#countAdded(from, to);
    if (added.length > 0) this.#peers.found(this);
  }

  #countAdded(from: number, to: number): void {
    if (this.slot === null) this.countReady(to - from);
    else this.slot.uncount(from, to);
  }

  /**
   * Lets another server put something behind the end: what is appended here, or by others, waits until that is known, or
   * for TURN_MS. Resolves once it is its turn; with null where that took too long.
   * @param signal the asker has gone
   */
  lend(signal?: AbortSignal): Promise<LogEnd | null> {
    return new Promise((resolve, reject) => {
      let isLate = false;
      const cancelWait = this.#env.timer(TURN_WAIT_MS, () => {
        isLate = true;
        resolve(null);
      });
      this.#home.appends.between(this, async () => {
        cancelWait();
        if (isLate) return;
        if (signal?.aborted) {
          resolve(null);
          return;
        }
        try {
          if (this.#tail === null) await this.findTail(Math.max(this.completion, this.scan));
        } catch (error) {
          reject(error);
          return;
        }
        const ended = deferred();
        this.#lent = { from: this.#idOf(this.#tail!), end: ended.resolve };
        const cancel = this.#env.timer(TURN_MS, ended.resolve);
        resolve(this.#tail!);
        await ended.promise;
        cancel();
        this.#lent = null;
      });
    });
  }

  async #learnEnd(inTurn: boolean): Promise<void> {
    const known = this.#tail;
    const end = await this.#peers.askEnd(this, inTurn);
    if (end === null) return;
    if (this.#tail === null || this.#tail === known || this.#idOf(end) >= this.#idOf(this.#tail)) this.#tail = end;
  }

  /** Whether its end is known, as it once was. */
  get hasEnd(): boolean {
    return this.#tail !== null;
  }

  /**
   * Takes in what another server says that it has put there.
   * @returns whether that follows on what is known here: otherwise it has to be looked at
   */
  learnAppended(appended: Appended): boolean {
    const { segment, from, to } = appended;
    const tail = this.#tail;
    if (tail === null || tail.segment !== segment || this.#idOf(tail) !== from) return false;
    this.#appended(tail, appended);
    this.#countAdded(from, to);
    this.#peers.found(this);
    return true;
  }

  /** One round of appends; for the group commit. */
  async appendBatch(entries: readonly NewEntry[]): Promise<readonly number[]> {
    const size = this.#size;
    if (this.#dropping !== null) await this.#dropping.catch(() => {});
    const isReady = entries.every(({ status }) => status === 'ready');
    // Who comes to the end of a move tells of it when it is done: others need not wait for that.
    if (!this.tenure.holds && (isReady || this.#tail === null)) await this.#learnEnd(isReady);
    for (;;) {
      if (this.#tail === null) await this.findTail(Math.max(this.completion, this.scan));
      const tail = this.#tail!;
      const { firstId, fits } = planAppend(tail, entries.length, size);
      let bytes = tail.bytes;
      if (fits) for (const entry of entries) bytes += entryBytes(entry);
      // A call is written as one: where the segment's end would cut it, the segment is sealed instead.
      const seal = !fits || bytes >= SEGMENT_SEAL_BYTES;
      const outcome = await appendDefinitely(this.#store, this.#env, {
        log: this.address,
        segment: tail.segment,
        expectNext: tail.next,
        firstId,
        entries: fits ? entries : [],
        bytes,
        seal,
      });
      if (outcome === 'conflict') {
        await this.findNewTail(true);
        continue;
      }
      const next = firstId + (fits ? entries.length : 0);
      const full = seal || next >= segmentEnd(tail.segment, size);
      const expiresAt = fits ? firstExpiry(entries) : null;
      const appended: Appended = { segment: tail.segment, from: firstId, to: next, bytes, full, expiresAt };
      this.#appended(tail, appended);
      if (fits) {
        if (this.#ready === 0) this.readySince = entries[0]!.placedAt;
        const ready = isReady ? entries.length : entries.filter(({ status }) => status === 'ready').length;
        this.ready = this.#ready + ready;
        // A move whose entries are in the same batch may come to nothing, and then tells nobody.
        this.#peers.appended(this, isReady ? appended : ready > 0 ? 'partly' : null);
        return entries.map((_, index) => firstId + index);
      }
    }
  }

  /** It ends behind what was put there now. */
  #appended(before: LogEnd, { segment, from, to, bytes, full, expiresAt }: Appended): void {
    const after = full ? { segment: segment + 1, next: null, bytes: 0 } : { segment, next: to, bytes };
    // A look that was answered before this append may have found it, and what others put behind it.
    const isNew = this.#tail === null || this.#idOf(after) > this.#idOf(this.#tail);
    if (this.#tail === null || this.#idOf(after) >= this.#idOf(this.#tail)) this.#endsAt(after);
    if (isNew) this.addWaitingBytes(bytes - before.bytes);
    if (expiresAt !== null && expiresAt < this.expiresAt) this.expiresAt = expiresAt;
    if (full) this.#averageBefore = Math.round(bytes / Math.max(1, to - segmentStart(segment, this.#size)));
    if (this.scanHeader?.segment === segment) {
      this.scanHeader.end = to;
      this.scanHeader.full = full;
    } else if (before.next === null && this.scan === from && !full) this.#isUnclaimed = true;
  }

  /**
   * Deletes the headers of a time slot that is drained and trimmed, after which it begins with id 0 again. What is put
   * into it meanwhile waits: it must not find half of them.
   * @returns whether they are gone; not where something is being put into it, or was by others
   */
  dropHeaders(): Promise<boolean> {
    if (!this.#home.appends.isIdle(this)) return Promise.resolve(false);
    this.#dropping ??= this.#dropHeaders().finally(() => {
      this.#dropping = null;
    });
    return this.#dropping;
  }

  /** From the last one back, so that what is left where it stops still tells where the log ends. */
  async #dropHeaders(): Promise<boolean> {
    const end = this.nextId;
    for (let segment = segmentOf(end, this.#size); segment >= 0; segment--) {
      const header = await this.#store.readSegment(this.address, segment);
      if (header === null) continue;
      // Others have put something into it since.
      if (header.nextId > Math.max(end, segmentStart(segment, this.#size))) return false;
      this.#tail = null;
      const drop = () => this.#store.dropSegment(this.address, segment, header.nextId);
      if ((await definitely(this.#env, drop)) !== 'applied') return false;
    }
    this.#tail = null;
    this.#restart();
    return true;
  }

  /** Its ids begin anew. */
  #restart(): void {
    this.scan = this.completion = this.trimmed = 0;
    this.scanHeader = null;
    this.#isUnclaimed = false;
    this.#countedEarly = null;
    this.#onTheirWay = null;
    this.slot?.restart();
  }

  #unclaimedHeader(segment: number): SegmentHeader | null {
    const tail = this.#tail;
    if (!this.#isUnclaimed || tail?.segment !== segment || tail.next === null) return null;
    return { nextId: tail.next, bytes: tail.bytes, scan: this.scan, term: 0, sealedAt: null, closed: false };
  }

  async #change(segment: number, changes: readonly EntryChange[]): Promise<readonly ChangeResult[]> {
    const results = new Map<EntryChange, ChangeResult>();
    let waiting = changes;
    while (waiting.length > 0) {
      const { batch, later } = withoutRepeats(waiting);
      const outcome = await changeDefinitely(this.#store, this.#env, { log: this.address, segment, changes: batch });
      if (outcome.kind === 'applied') {
        for (const change of batch) results.set(change, CHANGED);
        waiting = later;
        continue;
      }
      // All or nothing: those whose condition is not met are answered, the others go again without them.
      const rows = new Map(outcome.rows.map((row) => [row.id, row]));
      const again: EntryChange[] = [];
      for (const change of batch) {
        const row = rows.get(change.id) ?? null;
        if (row !== null && meetsEntry(row, change.expect)) again.push(change);
        else results.set(change, { applied: false, row });
      }
      waiting = later.length === 0 ? again : [...again, ...later];
    }
    return changes.map((change) => results.get(change)!);
  }

  /** The header of the segment in which the scan cursor stands; moves on where that is scanned to its end. */
  async enterScanSegment(): Promise<NonNullable<Log['scanHeader']> | null> {
    for (;;) {
      const segment = segmentOf(this.scan, this.#size);
      if (this.scanHeader?.segment !== segment) {
        const header = this.#unclaimedHeader(segment) ?? (await this.#store.readSegment(this.address, segment));
        if (header === null) return null;
        this.#isUnclaimed = false;
        const unseen = unseenUpTo(this.scan, this.seen, header.scan);
        if (unseen !== null) {
          this.unseen = unseen;
          this.scan = header.scan;
        }
        // An append may have been answered since the header was read.
        const tail = this.#tail?.segment === segment ? (this.#tail.next ?? 0) : 0;
        const end = Math.max(entriesEnd(header), tail);
        const first = segmentStart(segment, this.#size);
        this.scanHeader = {
          segment,
          term: header.term,
          end,
          full: header.nextId >= segmentEnd(segment, this.#size),
          averageBytes: end > first ? Math.round(header.bytes / (end - first)) : 0,
        };
      }
      const { end, full } = this.scanHeader;
      if (!full || this.scan < end) return this.scanHeader;
      this.scan = segmentEnd(segment, this.#size);
      this.scanHeader = null;
    }
  }
}

const NO_HEADS: readonly EntryHead[] = [];
const NO_MARKS: readonly SettledMark[] = [];
const NO_SEGMENTS: ReadonlyMap<number, number> = new Map();

const tailOf = (segment: number, header: SegmentHeader | null): LogEnd => ({
  segment,
  next: header?.nextId ?? null,
  bytes: header?.bytes ?? 0,
});

function firstExpiry(entries: readonly NewEntry[]): number | null {
  let first: number | null = null;
  for (const { expiresAt } of entries)
    if (expiresAt !== null && (first === null || expiresAt < first)) first = expiresAt;
  return first;
}

/** A row may stand only once in a conditional batch: two changes of one row in it would mix. */
function withoutRepeats(changes: readonly EntryChange[]): {
  readonly batch: readonly EntryChange[];
  readonly later: readonly EntryChange[];
} {
  const seen = new Set<number>();
  let repeats = false;
  for (const change of changes) {
    if (seen.has(change.id)) repeats = true;
    seen.add(change.id);
  }
  if (!repeats) return { batch: changes, later: [] };
  seen.clear();
  const batch: EntryChange[] = [];
  const later: EntryChange[] = [];
  for (const change of changes) {
    (seen.has(change.id) ? later : batch).push(change);
    seen.add(change.id);
  }
  return { batch, later };
}

/** Cuts entries into chunks of at most one batch, by number and by bytes. */
function chunksOf(entries: readonly NewEntry[], maxEntries: number): readonly (readonly NewEntry[])[] {
  const chunks: NewEntry[][] = [];
  let chunk: NewEntry[] = [];
  let bytes = 0;
  for (const entry of entries) {
    const more = entryBytes(entry);
    if (chunk.length === maxEntries || (chunk.length > 0 && bytes + more > BATCH_BYTES)) {
      chunks.push(chunk);
      chunk = [];
      bytes = 0;
    }
    chunk.push(entry);
    bytes += more;
  }
  return [...chunks, chunk];
}

/**
 * Between looking a log up and being done with it lie some calls of the store, each of which may be in doubt for 15 s
 * (outcomes.ts), and one that timed out may be carried out some time after that; this much is sure. Milliseconds in which
 * the process ran.
 */
export const LOOKED_UP_MS = 60_000;
/** How long another server waits for its turn, and how long it may take until others no longer wait, in milliseconds. */
const TURN_WAIT_MS = 500;
const TURN_MS = 500;
const CHANGE_WEIGHT = Math.floor(BATCH_BYTES / BATCH_ENTRIES);
const changeBytes = (change: EntryChange): number =>
  100 + (change.set.result?.length ?? 0) + (change.set.progress?.length ?? 0) + (change.set.reason?.length ?? 0);
