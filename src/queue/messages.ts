import { FIRING_WINDOW_MS } from '../core/bounds.ts';
import type { EntryTask, Place } from '../core/entry.ts';
import { isSlotTopic } from '../core/log.ts';
import {
  bucketOf,
  isLive,
  type MessageCondition,
  type MessageRow,
  type MessageStatus,
  type MessageWrite,
  messageKey,
} from '../core/message.ts';
import { isFiringId } from '../core/schedule.ts';
import type { TopicSettings } from '../core/settings.ts';
import type { Store } from '../store/store.ts';
import type { Environment } from './environment.ts';
import { GroupCommits } from './group-commit.ts';
import { meetsMessage, writeMessagesDefinitely } from './outcomes.ts';

/** How a write of one row went: null where it was applied, else the row that stands there, or `absent`. */
export type MessageResult = null | MessageRow | 'absent';

/** What a task's message row is made of. */
export type Known = Pick<EntryTask, 'uid' | 'messageId' | 'hops' | 'enqueuedAt'>;

const ROWS_PER_BATCH = 100;

/**
 * The message rows: which task a message id belongs to, and where tasks that have moved are. Writes of concurrent
 * callers are grouped by topic and bucket, as conditional batches of one partition.
 */
export class Messages {
  readonly #store: Store;
  readonly #env: Environment;
  /** By bucket and topic. */
  readonly #groups: GroupCommits<string, MessageWrite, MessageResult>;

  constructor(store: Store, env: Environment) {
    this.#store = store;
    this.#env = env;
    this.#groups = new GroupCommits((key, writes) => {
      const at = key.indexOf('/');
      return this.#writeBatch(key.slice(at + 1), Number(key.slice(0, at)), writes);
    }, ROWS_PER_BATCH);
  }

  read(topic: string, keys: readonly string[]): Promise<ReadonlyMap<string, MessageRow>> {
    return this.#store.readMessages(topic, keys);
  }

  async readOne(topic: string, key: string): Promise<MessageRow | null> {
    return (await this.#store.readMessages(topic, [key])).get(key) ?? null;
  }

  /** Writes rows, each under its condition; they may be of several buckets. */
  async write(topic: string, writes: readonly MessageWrite[]): Promise<readonly MessageResult[]> {
    const buckets = this.#store.meta.messageBuckets;
    const byBucket = new Map<number, number[]>();
    for (const [index, write] of writes.entries()) {
      const bucket = bucketOf(write.row.key, buckets);
      const list = byBucket.get(bucket);
      if (list === undefined) byBucket.set(bucket, [index]);
      else list.push(index);
    }
    const results = new Array<MessageResult>(writes.length);
    await Promise.all(
      [...byBucket].map(async ([bucket, indexes]) => {
        for (let at = 0; at < indexes.length; at += ROWS_PER_BATCH) {
          const some = indexes.slice(at, at + ROWS_PER_BATCH);
          const batch = some.map((index) => writes[index]!);
          const answers = await this.#groups.submit(`${bucket}/${topic}`, batch);
          for (const [nth, index] of some.entries()) results[index] = answers[nth]!;
        }
      }),
    );
    return results;
  }

  async #writeBatch(topic: string, bucket: number, writes: readonly MessageWrite[]): Promise<readonly MessageResult[]> {
    const results = new Map<MessageWrite, MessageResult>();
    let waiting = [...writes];
    while (waiting.length > 0) {
      // Two writes of one key in a batch would mix: the later one waits.
      const keys = new Set<string>();
      const batch = waiting.filter((write) => !keys.has(write.row.key) && keys.add(write.row.key));
      const later = batch.length === waiting.length ? [] : waiting.filter((write) => !batch.includes(write));
      const outcome = await writeMessagesDefinitely(this.#store, this.#env, topic, bucket, batch, this.#env.now());
      if (outcome.kind === 'applied') {
        for (const write of batch) results.set(write, null);
        waiting = later;
        continue;
      }
      const rows = new Map(outcome.rows.map((row) => [row.key, row]));
      const again: MessageWrite[] = [];
      for (const write of batch) {
        const row = rows.get(write.row.key) ?? null;
        if (meetsMessage(row, write.expect)) again.push(write);
        else results.set(write, row ?? 'absent');
      }
      waiting = [...again, ...later];
    }
    return writes.map((write) => results.get(write)!);
  }

  /**
   * Settles the rows of tasks that ended (dead letters included): only from now on does the dedup window count. A row
   * that is missing, or still that of the task to be superseded, is written as settled, so that no writer that was
   * paused writes it as live; one that another task owns by now stays.
   */
  async settle(
    topic: string,
    settings: TopicSettings,
    ended: readonly {
      readonly task: Known & Partial<Pick<EntryTask, 'supersedes'>>;
      readonly place: Place;
      readonly status: MessageStatus;
      readonly at: number;
    }[],
  ): Promise<void> {
    let waiting = ended.flatMap(({ task, place, status, at }) => {
      const key = messageKey(task);
      if (key === null) return [];
      const row: MessageRow = { ...liveRow(key, task, place), status, settledAt: at };
      const write: MessageWrite = { row, ttlMs: rowTtlMs(row, settings), expect: isUnsettled(row) };
      return [{ task, write }];
    });
    for (let tries = 0; waiting.length > 0 && tries < ROW_TRIES; tries++) {
      const results = await this.write(
        topic,
        waiting.map(({ write }) => write),
      );
      waiting = waiting.flatMap(({ task, write }, index) => {
        const expect = nextToSettle(task, write, results[index]!, this.#env.now());
        return expect === null ? [] : [{ task, write: { ...write, expect } }];
      });
    }
  }

  /**
   * Lets the rows of tasks that moved say where they are now. One that moved before its row was written, a delayed one
   * that was due soon, gets it now: who enqueued it would write where it once was, from where no way leads on.
   */
  async relocate(
    topic: string,
    moved: readonly { readonly task: Known & Pick<EntryTask, 'supersedes'>; readonly place: Place }[],
  ): Promise<boolean> {
    let areOwn = true;
    let waiting = moved.flatMap(({ task, place }) => {
      const key = messageKey(task);
      return key === null
        ? []
        : [{ task, row: liveRow(key, task, place), expect: isFirst(task) ? ABSENT : isBehind(task) }];
    });
    for (let tries = 0; waiting.length > 0 && tries < ROW_TRIES; tries++) {
      const results = await this.write(
        topic,
        waiting.map(({ row, expect }) => ({ expect, row, ttlMs: null })),
      );
      waiting = waiting.flatMap((one, index) => {
        const found = results[index]!;
        const expect = nextToRelocate(one.task, found);
        if (found !== null && found !== 'absent' && found.uid !== one.task.uid && expect === null) areOwn = false;
        return expect === null ? [] : [{ ...one, expect }];
      });
    }
    return areOwn && waiting.length === 0;
  }
}

/** A row may be written by others in between; each of them does so once. */
const ROW_TRIES = 5;

/** The row is the task's, and does not say yet that it ended; of a dead letter, that it went on since. */
const isUnsettled = ({ uid, hops }: MessageRow): MessageCondition => ({
  uid,
  statusIn: ['live', 'dead'],
  hopsBelow: hops + 1,
});

/** Under which condition an ended task's row is to be written, by what stood there; null: not at all. */
function nextToSettle(
  task: Known & Partial<Pick<EntryTask, 'supersedes'>>,
  write: MessageWrite,
  found: MessageResult,
  now: number,
): MessageCondition | null {
  if (found === null) return null;
  if (found === 'absent') return isWithin(write, now) ? { absent: true } : null;
  // Who moved the task, or enqueued it, wrote its row after it was found to be missing.
  if (found.uid === task.uid) return meetsMessage(found, isUnsettled(write.row)) ? isUnsettled(write.row) : null;
  return supersedes(task, found) && isWithin(write, now) ? { uid: found.uid, statusIn: [found.status] } : null;
}

/** The row is that of a settled task whose message id this one takes over. */
export const supersedes = (task: Partial<Pick<EntryTask, 'supersedes'>>, found: MessageRow): boolean =>
  found.uid === task.supersedes && !isLive(found.status);

/**
 * The row is the task's, and does not know yet that it moved. It may say that the task is dead, as who finished the move
 * to the dead letters has found it: one that went on from there was redriven.
 */
const isBehind = (task: Known): MessageCondition => ({
  uid: task.uid,
  statusIn: ['live', 'dead'],
  hopsBelow: task.hops,
});

/** A task without a message id has a row only once it has moved. */
const isFirst = (task: Known): boolean => task.messageId === null && task.hops === 1;
const ABSENT: MessageCondition = { absent: true };

/** Under which condition a moved task's row is to be written, by what stood there; null: not at all. */
function nextToRelocate(task: Known & Pick<EntryTask, 'supersedes'>, found: MessageResult): MessageCondition | null {
  if (found === null) return null;
  if (found === 'absent') return { absent: true };
  if (found.uid === task.uid) return meetsMessage(found, isBehind(task)) ? isBehind(task) : null;
  return supersedes(task, found) ? { uid: found.uid, statusIn: [found.status] } : null;
}

/** The row of a task that is not settled. */
export function liveRow(key: string, task: Known, place: Place): MessageRow {
  return {
    key,
    uid: task.uid,
    place,
    hops: task.hops,
    status: 'live',
    enqueuedAt: task.enqueuedAt,
    settledAt: null,
  };
}

/** How long a settled row stays: as long as its task can be looked at, and its id is remembered. */
export function rowTtlMs(row: MessageRow, settings: TopicSettings): number | null {
  const kept = row.status === 'dead' ? settings.deadRetentionMs : settings.retentionMs;
  if (row.key.startsWith('u')) return kept;
  const window = windowOf(row, settings);
  return window === null ? null : Math.max(kept, window);
}

const isWithin = (write: MessageWrite, now: number): boolean =>
  write.ttlMs === null || write.row.settledAt! + write.ttlMs > now;

/** Whether a row keeps others from using its message id. */
export function ownsMessageId(row: MessageRow, settings: TopicSettings, now: number): boolean {
  const window = windowOf(row, settings);
  return row.status === 'live' || window === null || row.settledAt! + window > now;
}

/** How long a settled task keeps its message id; null: for ever. That of a firing must not be forgotten before its schedule has gone on. */
const windowOf = ({ key }: MessageRow, { dedupWindowMs }: TopicSettings): number | null =>
  dedupWindowMs === null || !isFiringId(key.slice(1)) ? dedupWindowMs : Math.max(dedupWindowMs, FIRING_WINDOW_MS);

/** The user's topic that an entry belongs to, wherever it stands. */
export const topicOf = (place: { readonly topic: string }, entry: { readonly target: string | null }): string =>
  isSlotTopic(place.topic) ? entry.target! : place.topic;
