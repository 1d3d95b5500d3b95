import type { LogAddress } from '../../core/entry.ts';
import type { Checkpoint } from '../../core/log.ts';
import {
  NODE_TTL_MS,
  type NodeRow,
  type Outcome,
  type ShardRow,
  type ShardWrite,
  StoreUnavailableError,
  type TopicRow,
} from '../store.ts';
import type { Cluster, Row } from './client.ts';
import { conditionally } from './conditional.ts';
import { outcomeOf } from './segments.ts';
import { bigint, numberOf } from './values.ts';

/** Answers without a definite outcome after which a hint is given up. */
const DOUBTS = 5;
/** Topics of which it is remembered that they have no row yet. */
const REMEMBERED = 10_000;

/** Where to start reading each log of a topic. Each mark is raised on its own and never falls (promise Q4). */
export class Checkpoints {
  readonly #cluster: Cluster;
  readonly #select: string;
  readonly #insert: string;
  readonly #raise: string;
  /** Topics without any row when last read: the first write begins with the insert. A guess that may be wrong. */
  readonly #empty = new Set<string>();

  constructor(cluster: Cluster) {
    const table = `${cluster.keyspace}.checkpoint`;
    this.#cluster = cluster;
    this.#select = `SELECT tier, scan, completion, trimmed FROM ${table} WHERE topic = ?`;
    this.#insert = `INSERT INTO ${table} (topic, tier, scan, completion, trimmed, updated_at) VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS`;
    // False for a row that is not there, as every comparison is.
    this.#raise = `UPDATE ${table} SET scan = ?, completion = ?, trimmed = ?, updated_at = ? WHERE topic = ? AND tier = ? IF scan <= ? AND completion <= ? AND trimmed <= ?`;
  }

  async read(topic: string): Promise<ReadonlyMap<number, Checkpoint>> {
    const rows = await this.#cluster.rows(this.#select, [topic]);
    if (rows.length === 0) this.#noteEmpty(topic);
    return new Map(rows.map((row) => [numberOf(row.tier), checkpointOf(row)]));
  }

  #noteEmpty(topic: string): void {
    this.#empty.add(topic);
    if (this.#empty.size > REMEMBERED) this.#empty.delete(this.#empty.values().next().value!);
  }

  /**
   * All three marks in one write where none of them would fall, which is the rule. Where one would, the row tells how far
   * it is, and the write is repeated with the higher of each; where there is no row, one is made.
   *
   * To repeat a write that was perhaps applied does no harm here, for the marks only rise.
   */
  async advance(log: LogAddress, checkpoint: Checkpoint, at: number): Promise<void> {
    const key = [log.topic, bigint(log.tier)];
    let marks = checkpoint;
    let doubts = 0;
    let isAbsent = this.#empty.delete(log.topic);
    while (doubts < DOUBTS) {
      const values = [bigint(marks.scan), bigint(marks.completion), bigint(marks.trimmed)];
      const answer = await conditionally(this.#cluster, [
        isAbsent
          ? { query: this.#insert, params: [...key, ...values, bigint(at)] }
          : { query: this.#raise, params: [...values, bigint(at), ...key, ...values] },
      ]);
      if (answer.kind === 'applied') return;
      if (answer.kind === 'unknown') {
        doubts++;
        continue;
      }
      const [row] = answer.rows;
      isAbsent = row === undefined;
      if (row === undefined) continue;
      const found = checkpointOf(row);
      const higher = highest(marks, found);
      if (isSame(higher, found)) return;
      marks = higher;
    }
    throw new StoreUnavailableError(`${this.#cluster.name}: no definite answer to the write of a checkpoint`);
  }
}

const checkpointOf = (row: Row): Checkpoint => ({
  scan: numberOf(row.scan),
  completion: numberOf(row.completion),
  trimmed: numberOf(row.trimmed),
});

const highest = (a: Checkpoint, b: Checkpoint): Checkpoint => ({
  scan: Math.max(a.scan, b.scan),
  completion: Math.max(a.completion, b.completion),
  trimmed: Math.max(a.trimmed, b.trimmed),
});

const isSame = (a: Checkpoint, b: Checkpoint): boolean =>
  a.scan === b.scan && a.completion === b.completion && a.trimmed === b.trimmed;

/** Settings of topics, each change conditional on the version before. */
export class Topics {
  readonly #cluster: Cluster;
  readonly #select: string;
  readonly #insert: string;
  readonly #update: string;

  constructor(cluster: Cluster) {
    const table = `${cluster.keyspace}.topic`;
    this.#cluster = cluster;
    this.#select = `SELECT settings, version FROM ${table} WHERE topic = ?`;
    this.#insert = `INSERT INTO ${table} (settings, version, topic) VALUES (?, ?, ?) IF NOT EXISTS`;
    this.#update = `UPDATE ${table} SET settings = ?, version = ? WHERE topic = ? IF version = ?`;
  }

  async read(topic: string): Promise<TopicRow | null> {
    const [row] = await this.#cluster.rows(this.#select, [topic]);
    return row === undefined ? null : { settings: row.settings as string, version: row.version as number };
  }

  async write(topic: string, expect: number | null, settings: string): Promise<Outcome> {
    const values = [settings, (expect ?? 0) + 1, topic];
    const statement =
      expect === null ? { query: this.#insert, params: values } : { query: this.#update, params: [...values, expect] };
    return outcomeOf(await conditionally(this.#cluster, [statement]));
  }
}

/** All shards in one partition, so that one statement reads them all, or changes several at once. */
const PART = 'all';

/** Rows of shards, each change conditional on the version before. */
export class Shards {
  readonly #cluster: Cluster;
  readonly #select: string;
  readonly #insert: string;
  readonly #update: string;

  constructor(cluster: Cluster) {
    const table = `${cluster.keyspace}.shard`;
    this.#cluster = cluster;
    this.#select = `SELECT shard, holder, term, version, period, oldest_period FROM ${table} WHERE part = ?`;
    this.#insert = `INSERT INTO ${table} (holder, term, version, period, oldest_period, part, shard) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS`;
    this.#update = `UPDATE ${table} SET holder = ?, term = ?, version = ?, period = ?, oldest_period = ? WHERE part = ? AND shard = ? IF version = ?`;
  }

  async read(serial?: boolean): Promise<ReadonlyMap<number, ShardRow>> {
    const rows = await this.#cluster.rows(this.#select, [PART], { serial });
    return new Map(rows.map((row) => [row.shard as number, shardOf(row)]));
  }

  async write(writes: readonly ShardWrite[]): Promise<Outcome> {
    const statements = writes.map(({ shard, expect, row }) => {
      const numbers = [row.term, (expect ?? 0) + 1, row.period, row.oldestPeriod].map(bigint);
      const params = [row.holder, ...numbers, PART, shard];
      return expect === null
        ? { query: this.#insert, params }
        : { query: this.#update, params: [...params, bigint(expect)] };
    });
    return outcomeOf(await conditionally(this.#cluster, statements));
  }
}

const shardOf = (row: Row): ShardRow => ({
  holder: row.holder as string | null,
  term: numberOf(row.term),
  version: numberOf(row.version),
  period: numberOf(row.period),
  oldestPeriod: numberOf(row.oldest_period),
});

/** Servers that take part. Plain writes, each of all columns with one time to live. */
export class Nodes {
  readonly #cluster: Cluster;
  readonly #select: string;
  readonly #insert: string;
  readonly #drop: string;

  constructor(cluster: Cluster) {
    const table = `${cluster.keyspace}.node`;
    const ttl = Math.ceil(NODE_TTL_MS / 1_000);
    this.#cluster = cluster;
    this.#select = `SELECT node, beat, address, secret, holds FROM ${table} WHERE part = ?`;
    this.#insert = `INSERT INTO ${table} (part, node, beat, address, secret, holds) VALUES (?, ?, ?, ?, ?, ?) USING TTL ${ttl}`;
    this.#drop = `DELETE FROM ${table} WHERE part = ? AND node = ?`;
  }

  async read(): Promise<readonly NodeRow[]> {
    const rows = await this.#cluster.rows(this.#select, [PART]);
    return rows.map((row) => ({
      id: row.node as string,
      beat: numberOf(row.beat),
      address: row.address as string | null,
      secret: row.secret as string,
      holds: row.holds as boolean,
    }));
  }

  async write({ id, beat, address, secret, holds }: NodeRow): Promise<void> {
    const params = [PART, id, bigint(beat), address, secret, holds];
    await this.#cluster.write([{ query: this.#insert, params }]);
  }

  async drop(id: string): Promise<void> {
    await this.#cluster.write([{ query: this.#drop, params: [PART, id] }]);
  }
}
