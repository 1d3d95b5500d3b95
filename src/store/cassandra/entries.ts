import { type Entry, type EntryHead, FIRST_VERSION, type NewEntry, type Payload } from '../../core/entry.ts';
import { segmentOf } from '../../core/log.ts';
import type { Append, Outcome, ReadRange } from '../store.ts';
import type { Cluster, Row, Statement } from './client.ts';
import { conditionally } from './conditional.ts';
import { bodyId, ENTRY_COLUMNS, entryOf, HEAD_COLUMNS, headOf, payloadOf, placeText } from './rows.ts';
import { IN_PARTITION, outcomeOf, type PartitionKey, partitionKey, type Segments } from './segments.ts';
import { bigint, bigintUnlessNull, numberOf, unlessNull } from './values.ts';

/** Payloads above this stand apart from their entry: see schema/cassandra/001_tables.cql. */
export const INLINE_BYTES = 2 * 1024;
/** Rows of a page of payloads that stand apart, of up to 256 KiB each. */
const BODY_ROWS = 16;

/** Reads entries and appends them. */
export class Entries {
  readonly #cluster: Cluster;
  readonly #segments: Segments;
  readonly #segmentSize: number;
  readonly #selectEntries: string;
  readonly #selectHeads: string;
  readonly #selectBodies: string;
  readonly #insertBody: string;
  readonly #table: string;
  /** An INSERT for each set of columns; there are eight. */
  readonly #inserts = new Map<readonly Column[], string>();

  constructor(cluster: Cluster, segments: Segments, segmentSize: number) {
    this.#cluster = cluster;
    this.#segments = segments;
    this.#segmentSize = segmentSize;
    this.#table = `${cluster.keyspace}.task`;
    const page = `FROM ${this.#table} ${IN_PARTITION} AND id >= ? AND id < ? LIMIT ?`;
    this.#selectEntries = `SELECT ${ENTRY_COLUMNS} ${page}`;
    this.#selectHeads = `SELECT ${HEAD_COLUMNS} ${page}`;
    this.#selectBodies = `SELECT id, payload, payload_bytes FROM ${this.#table} ${IN_PARTITION} AND id >= ? AND id <= ?`;
    this.#insertBody = `INSERT INTO ${this.#table} (topic, tier, segment, id, payload, payload_bytes) VALUES (?, ?, ?, ?, ?, ?)`;
  }

  async read(range: ReadRange): Promise<readonly Entry[]> {
    const { topic } = range.log;
    const rows = await this.#page(this.#selectEntries, range);
    const payloads = rows.map(payloadOf);
    if (payloads.includes(null)) await this.#fill(range, rows, payloads);
    // Where there still is no payload, the entry was trimmed between the two reads.
    return rows.flatMap((row, i) => (payloads[i] === null ? [] : [entryOf(row, topic, payloads[i]!)]));
  }

  async readHeads(range: ReadRange): Promise<readonly EntryHead[]> {
    const { topic } = range.log;
    return (await this.#page(this.#selectHeads, range)).map((row) => headOf(row, topic));
  }

  async append(append: Append): Promise<Outcome> {
    const { log, entries, firstId } = append;
    const key = partitionKey(log, append.segment);
    const statements: Statement[] = [this.#segments.take(key, append)];
    for (let i = 0; i < entries.length; i++) {
      const entry = entries[i]!;
      const body = payloadBuffer(entry.payload);
      const isApart = body.byteLength > INLINE_BYTES;
      statements.push(this.#insert(key, log.topic, firstId + i, entry, isApart ? null : body));
      if (isApart) statements.push(this.#insertApart(key, firstId + i, entry.payload, body));
    }
    return outcomeOf(await conditionally(this.#cluster, statements));
  }

  async #page(query: string, { log, from, to, limit, serial }: ReadRange): Promise<readonly Row[]> {
    if (to <= from || limit < 1) return [];
    const key = partitionKey(log, segmentOf(from, this.#segmentSize));
    return this.#cluster.rows(query, [...key, bigint(from), bigint(to), limit], { serial });
  }

  /** Reads payloads that stand apart. */
  async #fill({ log, serial }: ReadRange, rows: readonly Row[], payloads: (Payload | null)[]): Promise<void> {
    const missing = (): readonly number[] => rows.flatMap((row, i) => (payloads[i] === null ? [numberOf(row.id)] : []));
    // A commit under way may show the entry before its payload; a serial read waits for it.
    for (const isSerial of serial ? [true] : [false, true]) {
      const ids = missing();
      if (ids.length === 0) return;
      const found = await this.#bodies(log, ids, isSerial);
      rows.forEach((row, i) => {
        payloads[i] ??= found.get(numberOf(row.id)) ?? null;
      });
    }
  }

  async #bodies(log: ReadRange['log'], ids: readonly number[], serial: boolean): Promise<ReadonlyMap<number, Payload>> {
    const key = partitionKey(log, segmentOf(ids[0]!, this.#segmentSize));
    const params = [...key, bigint(bodyId(ids.at(-1)!)), bigint(bodyId(ids[0]!))];
    const rows = await this.#cluster.rows(this.#selectBodies, params, { serial, pageRows: BODY_ROWS });
    return new Map(rows.map((row) => [bodyId(numberOf(row.id)), payloadOf(row)!]));
  }

  #insertApart(key: PartitionKey, id: number, payload: Payload, body: Buffer): Statement {
    const params = [
      ...key,
      bigint(bodyId(id)),
      ...(typeof payload === 'string' ? [body, undefined] : [undefined, body]),
    ];
    return { query: this.#insertBody, params };
  }

  #insert(key: PartitionKey, topic: string, id: number, entry: NewEntry, body: Buffer | null): Statement {
    const columns = isPlain(entry) ? plainColumns(entry) : FULL;
    const params: unknown[] = [...key, bigint(id)];
    for (const column of columns) params.push(VALUES[column](entry, topic, body));
    return { query: this.#insertOf(columns), params };
  }

  #insertOf(columns: readonly Column[]): string {
    let query = this.#inserts.get(columns);
    if (query === undefined) {
      const status = columns === FULL ? '' : ', status';
      const ready = columns === FULL ? '' : ", 'ready'";
      const marks = ', ?'.repeat(columns.length);
      query = `INSERT INTO ${this.#table} (topic, tier, segment, id, ${columns.join(', ')}, version${status}) VALUES (?, ?, ?, ?${marks}, ${FIRST_VERSION}${ready})`;
      this.#inserts.set(columns, query);
    }
    return query;
  }
}

const payloadBuffer = (payload: Payload): Buffer =>
  typeof payload === 'string'
    ? Buffer.from(payload)
    : Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);

type ValueOf = (entry: NewEntry, topic: string, body: Buffer | null) => unknown;

/** What stands in each column of a new entry; `undefined` is not written. */
const VALUES = {
  uid: (entry) => entry.uid,
  priority: (entry) => entry.priority,
  enqueued_at: (entry) => bigint(entry.enqueuedAt),
  payload: (entry, _, body) => (body !== null && typeof entry.payload === 'string' ? body : undefined),
  payload_bytes: (entry, _, body) => (body !== null && typeof entry.payload !== 'string' ? body : undefined),
  message_id: (entry) => unlessNull(entry.messageId),
  metadata: (entry) => unlessNull(entry.metadata),
  placed_at: (entry) => (entry.placedAt === entry.enqueuedAt ? undefined : bigint(entry.placedAt)),
  status: (entry) => entry.status,
  max_attempts: (entry) => unlessNull(entry.maxAttempts),
  attempt: (entry) => entry.attempt || undefined,
  hops: (entry) => entry.hops || undefined,
  expires_at: (entry) => bigintUnlessNull(entry.expiresAt),
  due_at: (entry) => bigintUnlessNull(entry.dueAt),
  target: (entry) => unlessNull(entry.target),
  origin: (entry, topic) => (entry.origin === null ? undefined : placeText(entry.origin, topic)),
  origin_version: (entry) => unlessNull(entry.originVersion),
  supersedes: (entry) => unlessNull(entry.supersedes),
  task_id: (entry) => unlessNull(entry.taskId),
  progress: (entry) => unlessNull(entry.progress),
  reason: (entry) => unlessNull(entry.reason),
  history: (entry) => unlessNull(entry.history),
} satisfies Readonly<Record<string, ValueOf>>;
type Column = keyof typeof VALUES;

const FULL = Object.keys(VALUES) as Column[];
/** The columns of an entry that was just enqueued; each bound value costs time, on both sides. */
const PLAIN: readonly Column[] = ['uid', 'priority', 'enqueued_at', 'placed_at', 'payload'];
const PLAIN_SETS: readonly (readonly Column[])[] = [
  PLAIN,
  [...PLAIN, 'message_id'],
  [...PLAIN, 'metadata'],
  [...PLAIN, 'message_id', 'metadata'],
];

const plainColumns = (entry: NewEntry): readonly Column[] =>
  PLAIN_SETS[(entry.messageId === null ? 0 : 1) + (entry.metadata === null ? 0 : 2)]!;

const isPlain = (entry: NewEntry): boolean =>
  entry.status === 'ready' &&
  entry.attempt === 0 &&
  entry.hops === 0 &&
  typeof entry.payload === 'string' &&
  entry.maxAttempts === null &&
  entry.expiresAt === null &&
  entry.dueAt === null &&
  entry.target === null &&
  entry.origin === null &&
  entry.originVersion === null &&
  entry.supersedes === null &&
  entry.taskId === null &&
  entry.progress === null &&
  entry.reason === null &&
  entry.history === null;
