/**
 * The tables of a store in memory, as plain maps; each call is atomic and at once. Rows are frozen by type and replaced
 * when they change, so that what was handed out never changes under its reader.
 */
import {
  type Entry,
  type EntryChange,
  type EntryCondition,
  type EntryHead,
  FIRST_VERSION,
  type LogAddress,
  type NewEntry,
  type Payload,
  type Place,
} from '../../core/entry.ts';
import { type Checkpoint, logKey, type SegmentHeader, segmentEnd, segmentStart } from '../../core/log.ts';
import type { MessageCondition, MessageRow, MessageWrite } from '../../core/message.ts';
import { definitionOf, type ScheduleHead, type ScheduleRow, stateOf } from '../../core/schedule.ts';
import {
  type ActivityRow,
  APPLIED,
  type Append,
  type ChangeOutcome,
  CONFLICT,
  type KeysWrite,
  type MessageOutcome,
  type NodeRow,
  type Outcome,
  type ReadRange,
  type ScheduleWrite,
  type SegmentChange,
  type ShardRow,
  type ShardWrite,
  type StoredKeys,
  type StoreMeta,
  type TopicRow,
} from '../store.ts';

interface Segment {
  header: SegmentHeader;
  readonly rows: Map<number, Entry>;
}
interface TimedRow {
  readonly row: MessageRow;
  readonly expiresAt: number | null;
}
export interface StoredLog {
  readonly address: LogAddress;
  readonly segments: Map<number, Segment>;
}

/** Told of every change of a log; the auditors of the inside listen. */
export interface Witness {
  appended(log: LogAddress, entry: Entry): void;
  changed(log: LogAddress, before: Entry, after: Entry): void;
  /** A claim has moved the scan cursor of a segment, or taken its term. */
  claimed(log: LogAddress, before: SegmentHeader, after: SegmentHeader): void;
  /** These are settled, as is said by a checkpoint or by the closing of their segment. */
  passed(log: LogAddress, entries: readonly Entry[]): void;
  trimmed(log: LogAddress, entry: Entry): void;
}

export class Tables {
  readonly meta: StoreMeta;
  readonly logs = new Map<string, StoredLog>();
  readonly messages = new Map<string, Map<string, TimedRow>>();
  readonly checkpoints = new Map<string, Map<number, Checkpoint>>();
  readonly topics = new Map<string, TopicRow>();
  readonly shards = new Map<number, ShardRow>();
  readonly schedules = new Map<number, Map<string, ScheduleRow>>();
  keys: StoredKeys = { version: 0, keys: [] };
  readonly nodes = new Map<string, NodeRow>();
  readonly activity = new Map<string, ActivityRow[]>();
  readonly #now: () => number;
  witness: Witness | null = null;

  /** @param now the clock of the database, milliseconds since 1970 */
  constructor(meta: StoreMeta, now: () => number) {
    this.meta = meta;
    this.#now = now;
  }

  clock(): number {
    return Math.floor(this.#now());
  }

  // ── segments and entries ──────────────────────────────────────────────────────────────────────────────────────

  #segment(log: LogAddress, segment: number): Segment | undefined {
    return this.logs.get(logKey(log))?.segments.get(segment);
  }

  #create(log: LogAddress, segment: number, header: SegmentHeader): Segment {
    const key = logKey(log);
    let stored = this.logs.get(key);
    if (stored === undefined) {
      stored = { address: { topic: log.topic, tier: log.tier }, segments: new Map() };
      this.logs.set(key, stored);
    }
    const created: Segment = { header, rows: new Map() };
    stored.segments.set(segment, created);
    return created;
  }

  readSegment(log: LogAddress, segment: number): SegmentHeader | null {
    return this.#segment(log, segment)?.header ?? null;
  }

  readEntries({ log, from, to, limit }: ReadRange): readonly Entry[] {
    const found: Entry[] = [];
    const rows = this.#segment(log, Math.floor(from / this.meta.segmentSize))?.rows;
    if (rows === undefined) return found;
    for (let id = from; id < to && found.length < limit; id++) {
      const row = rows.get(id);
      if (row !== undefined) found.push(withOwnBytes(row));
    }
    return found;
  }

  append({ log, segment, expectNext, firstId, entries, bytes, seal }: Append): Outcome {
    const { segmentSize } = this.meta;
    const stored = this.#segment(log, segment);
    if ((stored?.header.nextId ?? null) !== expectNext) return CONFLICT;
    const start = segmentStart(segment, segmentSize);
    const end = segmentEnd(segment, segmentSize);
    const behind = firstId + entries.length;
    if (firstId !== (expectNext ?? start) || behind > end) {
      throw new RangeError(`ids ${firstId} to ${behind} don't fit into segment ${segment} of ${start} to ${end}`);
    }
    const before = stored?.header ?? { scan: start, term: 0, closed: false };
    const header = { ...before, nextId: seal ? end : behind, bytes, sealedAt: seal ? behind : null };
    const { rows } = stored ?? this.#create(log, segment, header);
    if (stored !== undefined) stored.header = header;
    for (const [nth, entry] of entries.entries()) {
      const row = appended(entry, firstId + nth);
      rows.set(row.id, row);
      this.witness?.appended(log, row);
    }
    return APPLIED;
  }

  change(change: SegmentChange): ChangeOutcome {
    const { log, segment, changes, scan } = change;
    const stored = this.#segment(log, segment);
    const header = stored?.header ?? null;
    const holds = changes.every(({ id, expect }) => meetsEntry(stored?.rows.get(id), expect));
    if (!holds || !this.#admitsScan(header, change)) {
      const rows = changes.flatMap(({ id }) => stored?.rows.get(id) ?? []).map(headOf);
      return { kind: 'conflict', rows, header };
    }
    for (const one of changes) {
      const before = stored!.rows.get(one.id)!;
      const after = patched(before, one);
      stored!.rows.set(one.id, after);
      this.witness?.changed(log, before, after);
    }
    if (scan === undefined) return APPLIED;
    if (stored !== undefined) {
      const before = stored.header;
      stored.header = { ...before, scan: scan.to, term: scan.term };
      this.witness?.claimed(log, before, stored.header);
    } else {
      const { from, to, term } = scan;
      this.#create(log, segment, { nextId: from, bytes: 0, scan: to, term, sealedAt: null, closed: false });
    }
    return APPLIED;
  }

  #admitsScan(header: SegmentHeader | null, { segment, scan }: SegmentChange): boolean {
    if (scan === undefined) return true;
    if (header !== null) return header.scan === scan.from && header.term === scan.seenTerm;
    return scan.from === segmentStart(segment, this.meta.segmentSize) && scan.to === scan.from && scan.seenTerm === 0;
  }

  closeSegment(log: LogAddress, segment: number): Outcome {
    const stored = this.#segment(log, segment);
    if (stored?.header.nextId !== segmentEnd(segment, this.meta.segmentSize)) return CONFLICT;
    stored.header = { ...stored.header, closed: true };
    this.witness?.passed(log, [...stored.rows.values()]);
    return APPLIED;
  }

  trim(log: LogAddress, segment: number, from: number, to: number): Outcome {
    const stored = this.#segment(log, segment);
    if (stored === undefined) return CONFLICT;
    for (let id = from; id < to; id++) {
      const row = stored.rows.get(id);
      if (row === undefined) continue;
      this.witness?.trimmed(log, row);
      stored.rows.delete(id);
    }
    return APPLIED;
  }

  dropSegment(log: LogAddress, segment: number, expectNext: number): Outcome {
    const stored = this.#segment(log, segment);
    if (stored?.header.nextId !== expectNext || stored.rows.size > 0) return CONFLICT;
    this.logs.get(logKey(log))!.segments.delete(segment);
    return APPLIED;
  }

  // ── registers ─────────────────────────────────────────────────────────────────────────────────────────────────

  readCheckpoints(topic: string): ReadonlyMap<number, Checkpoint> {
    return new Map(this.checkpoints.get(topic));
  }

  advanceCheckpoint({ topic, tier }: LogAddress, mark: Checkpoint): void {
    let tiers = this.checkpoints.get(topic);
    if (tiers === undefined) {
      tiers = new Map();
      this.checkpoints.set(topic, tiers);
    }
    const seen = tiers.get(tier);
    const old = seen ?? mark;
    this.#passed({ topic, tier }, seen?.completion ?? 0, mark.completion);
    tiers.set(tier, {
      scan: Math.max(old.scan, mark.scan),
      completion: Math.max(old.completion, mark.completion),
      trimmed: Math.max(old.trimmed, mark.trimmed),
    });
  }

  #passed(log: LogAddress, from: number, to: number): void {
    if (this.witness === null || to <= from) return;
    const segments = this.logs.get(logKey(log))?.segments.values() ?? [];
    const rows = [...segments].flatMap((segment) => [...segment.rows.values()]);
    this.witness.passed(
      log,
      rows.filter(({ id }) => id >= from && id < to),
    );
  }

  /** The entry at a place as it stands; for those who look on, not for the store. */
  entryAt(place: Place): Entry | undefined {
    return this.#segment(place, Math.floor(place.id / this.meta.segmentSize))?.rows.get(place.id);
  }

  readTopic(topic: string): TopicRow | null {
    return this.topics.get(topic) ?? null;
  }

  writeTopic(topic: string, expect: number | null, settings: string): Outcome {
    if ((this.topics.get(topic)?.version ?? null) !== expect) return CONFLICT;
    this.topics.set(topic, { settings, version: (expect ?? 0) + 1 });
    return APPLIED;
  }

  readShards(): ReadonlyMap<number, ShardRow> {
    return new Map(this.shards);
  }

  writeShards(writes: readonly ShardWrite[]): Outcome {
    if (writes.some(({ shard, expect }) => (this.shards.get(shard)?.version ?? null) !== expect)) return CONFLICT;
    for (const { shard, expect, row } of writes) this.shards.set(shard, { ...row, version: (expect ?? 0) + 1 });
    return APPLIED;
  }

  readNodes(): readonly NodeRow[] {
    return [...this.nodes.values()];
  }

  writeNode(node: NodeRow): void {
    this.nodes.set(node.id, node);
  }

  dropNode(id: string): void {
    this.nodes.delete(id);
  }

  // ── schedules ─────────────────────────────────────────────────────────────────────────────────────────────────

  readSchedule(shard: number, name: string): ScheduleRow | null {
    return this.schedules.get(shard)?.get(name) ?? null;
  }

  readSchedules(shard: number, after: string | null, limit: number): readonly ScheduleHead[] {
    const rows = [...(this.schedules.get(shard)?.values() ?? [])];
    const bytes = (text: string): Buffer => Buffer.from(text);
    return rows
      .filter(({ name }) => after === null || Buffer.compare(bytes(name), bytes(after)) > 0)
      .sort((a, b) => Buffer.compare(bytes(a.name), bytes(b.name)))
      .slice(0, limit)
      .map(({ payload, metadata, ...head }) => head);
  }

  writeSchedule(shard: number, { name, expect, state, definition }: ScheduleWrite): Outcome {
    const found = this.readSchedule(shard, name);
    if (found?.incarnation !== expect?.incarnation || found?.version !== expect?.version) return CONFLICT;
    let rows = this.schedules.get(shard);
    if (rows === undefined) {
      rows = new Map();
      this.schedules.set(shard, rows);
    }
    if (state === null) rows.delete(name);
    else rows.set(name, rowOf(name, { ...(definition ?? found!), ...state }));
    return APPLIED;
  }

  // ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────

  readKeys(): StoredKeys {
    return this.keys;
  }

  writeKeys({ expect, put, drop }: KeysWrite): Outcome {
    const { version, keys } = this.keys;
    if (version !== expect) return CONFLICT;
    const kept = keys.filter(({ id }) => id !== put.id && !drop.includes(id));
    this.keys = { version: version + 1, keys: [...kept, put] };
    return APPLIED;
  }

  // ── message rows ──────────────────────────────────────────────────────────────────────────────────────────────

  readMessages(topic: string, keys: readonly string[], now = this.clock()): ReadonlyMap<string, MessageRow> {
    const found = new Map<string, MessageRow>();
    for (const key of keys) {
      const row = this.#message(topic, key, now);
      if (row !== null) found.set(key, row);
    }
    return found;
  }

  #message(topic: string, key: string, now: number): MessageRow | null {
    const found = this.messages.get(topic)?.get(key);
    return found === undefined || (found.expiresAt !== null && found.expiresAt <= now) ? null : found.row;
  }

  writeMessages(topic: string, writes: readonly MessageWrite[], now: number): MessageOutcome {
    if (!writes.every(({ row, expect }) => meetsMessage(this.#message(topic, row.key, now), expect))) {
      const keys = writes.map(({ row }) => row.key);
      return { kind: 'conflict', rows: [...this.readMessages(topic, keys, now).values()] };
    }
    let rows = this.messages.get(topic);
    if (rows === undefined) {
      rows = new Map();
      this.messages.set(topic, rows);
    }
    for (const { row, ttlMs } of writes) rows.set(row.key, { row, expiresAt: ttlMs === null ? null : now + ttlMs });
    return APPLIED;
  }

  sweep(now: number, limit: number): number {
    let swept = 0;
    for (const rows of this.messages.values()) {
      for (const [key, { expiresAt }] of rows) {
        if (swept >= limit) return swept;
        if (expiresAt === null || expiresAt > now) continue;
        rows.delete(key);
        swept++;
      }
    }
    return swept;
  }

  // ── the activity index ────────────────────────────────────────────────────────────────────────────────────────

  recordActivity(shard: number, period: number, rows: readonly ActivityRow[]): void {
    const key = `${shard}/${period}`;
    let recorded = this.activity.get(key);
    if (recorded === undefined) {
      recorded = [];
      this.activity.set(key, recorded);
    }
    for (const { topic, tier, at } of rows) {
      if (recorded.some((row) => row.at === at && row.topic === topic && row.tier === tier)) continue;
      recorded.push({ topic, tier, at });
    }
  }

  /** In the order of times, and of their arrival; a cursor is the row behind which to go on. */
  readActivity(shard: number, period: number, from: string | number | null, limit: number) {
    const recorded = [...(this.activity.get(`${shard}/${period}`) ?? [])].sort((a, b) => a.at - b.at);
    const start =
      typeof from === 'string'
        ? recorded.findIndex((row) => cursorOf(row) === from) + 1
        : recorded.findIndex((row) => row.at >= (from ?? Number.NEGATIVE_INFINITY));
    const rows = start < 0 ? [] : recorded.slice(start, start + limit);
    const next = start >= 0 && start + rows.length < recorded.length ? cursorOf(rows.at(-1)!) : null;
    return { rows, next };
  }

  dropPeriod(shard: number, period: number): void {
    this.activity.delete(`${shard}/${period}`);
  }

  listPeriods(shard: number): readonly number[] {
    return [...this.activity.keys()]
      .filter((key) => key.startsWith(`${shard}/`))
      .map((key) => Number(key.slice(key.indexOf('/') + 1)));
  }

  // ── whole tables ──────────────────────────────────────────────────────────────────────────────────────────────

  scanSegments(after: string | null, limit: number) {
    const all = [...this.logs.values()].flatMap(({ address, segments }) =>
      [...segments.keys()].map((segment) => ({ ...address, segment })),
    );
    return pageOf(all, after, limit, ({ topic, tier, segment }) => [topic, tier, segment]);
  }

  scanCheckpoints(after: string | null, limit: number) {
    const all = [...this.checkpoints].flatMap(([topic, tiers]) =>
      [...tiers].map(([tier, checkpoint]) => ({ topic, tier, checkpoint })),
    );
    return pageOf(all, after, limit, ({ topic, tier }) => [topic, tier]);
  }

  scanMessages(after: string | null, limit: number) {
    const now = this.clock();
    const all = [...this.messages].flatMap(([topic, rows]) =>
      [...rows.values()].flatMap(({ row, expiresAt }) =>
        expiresAt === null || expiresAt > now ? [{ topic, row, expiresAt }] : [],
      ),
    );
    return pageOf(all, after, limit, ({ topic, row }) => [topic, row.key]);
  }

  scanTopics(after: string | null, limit: number) {
    const all = [...this.topics].map(([topic, row]) => ({ topic, ...row }));
    return pageOf(all, after, limit, ({ topic }) => [topic]);
  }
}

/** A page in the order of keys as texts; the cursor is the key of the last row. */
function pageOf<T>(all: readonly T[], after: string | null, limit: number, key: (row: T) => readonly unknown[]) {
  const keyed = all.map((row) => ({ row, text: JSON.stringify(key(row)) })).sort((a, b) => (a.text < b.text ? -1 : 1));
  const behind = after === null ? keyed : keyed.filter(({ text }) => text > after);
  const page = behind.slice(0, limit);
  return { rows: page.map(({ row }) => row), next: behind.length > limit ? page.at(-1)!.text : null };
}

const cursorOf = ({ at, topic, tier }: ActivityRow): string => `${at}/${tier}/${topic}`;

/** Bytes can be written to by whoever has them: what is stored is nobody's but the store's. */
const ownBytes = (payload: Payload): Payload => (typeof payload === 'string' ? payload : new Uint8Array(payload));
const withOwnBytes = (row: Entry): Entry =>
  typeof row.payload === 'string' ? row : { ...row, payload: ownBytes(row.payload) };

function appended(entry: NewEntry, id: number): Entry {
  return {
    id,
    uid: entry.uid,
    messageId: entry.messageId,
    payload: ownBytes(entry.payload),
    metadata: entry.metadata,
    priority: entry.priority,
    maxAttempts: entry.maxAttempts,
    attempt: entry.attempt,
    hops: entry.hops,
    history: entry.history,
    enqueuedAt: entry.enqueuedAt,
    expiresAt: entry.expiresAt,
    dueAt: entry.dueAt,
    target: entry.target,
    placedAt: entry.placedAt,
    origin: entry.origin === null ? null : plainPlace(entry.origin),
    originVersion: entry.originVersion,
    supersedes: entry.supersedes,
    taskId: entry.taskId,
    status: entry.status,
    version: FIRST_VERSION,
    leaseId: null,
    worker: null,
    leasedAt: null,
    leaseUntil: null,
    updatedAt: entry.placedAt,
    dest: null,
    result: null,
    progress: entry.progress,
    reason: entry.reason,
  };
}

/** The row as its columns are, whatever else came along. */
function rowOf(name: string, row: Omit<ScheduleRow, 'name'>): ScheduleRow {
  const { payload } = row;
  const own = typeof payload === 'string' ? payload : new Uint8Array(payload);
  return { name, ...definitionOf(row), payload: own, ...stateOf(row) };
}

const plainPlace = ({ topic, tier, id }: LogAddress & { readonly id: number }) => ({ topic, tier, id });

function patched(row: Entry, { set }: EntryChange): Entry {
  const after: Record<string, unknown> = { ...row };
  for (const key in set) {
    const value = set[key as keyof typeof set];
    if (value !== undefined) after[key] = value;
  }
  return after as unknown as Entry;
}

const meetsEntry = (row: Entry | undefined, expect: EntryCondition): boolean =>
  row !== undefined &&
  ('leaseId' in expect
    ? row.status === 'leased' && row.leaseId === expect.leaseId
    : row.uid === expect.uid && row.version === expect.version);

function meetsMessage(row: MessageRow | null, expect: MessageCondition): boolean {
  if ('absent' in expect) return row === null;
  if (row === null || row.uid !== expect.uid) return false;
  if (expect.statusIn !== undefined && !expect.statusIn.includes(row.status)) return false;
  return expect.hopsBelow === undefined || row.hops < expect.hopsBelow;
}

/** An entry without what a head leaves out; field by field, for rest properties are ten times as slow. */
export const headOf = (entry: Entry): EntryHead => ({
  id: entry.id,
  status: entry.status,
  version: entry.version,
  uid: entry.uid,
  leaseId: entry.leaseId,
  worker: entry.worker,
  leasedAt: entry.leasedAt,
  leaseUntil: entry.leaseUntil,
  updatedAt: entry.updatedAt,
  dest: entry.dest,
  reason: entry.reason,
  messageId: entry.messageId,
  priority: entry.priority,
  maxAttempts: entry.maxAttempts,
  attempt: entry.attempt,
  hops: entry.hops,
  enqueuedAt: entry.enqueuedAt,
  expiresAt: entry.expiresAt,
  dueAt: entry.dueAt,
  target: entry.target,
  placedAt: entry.placedAt,
  origin: entry.origin,
  originVersion: entry.originVersion,
  supersedes: entry.supersedes,
  taskId: entry.taskId,
});
