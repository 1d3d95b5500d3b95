import { backoffMs } from '../core/backoff.ts';
import { DELAY_MS, LEASE_MS, PROGRESS_BYTES, RESULT_BYTES, SETTLE_ITEMS } from '../core/bounds.ts';
import { isPurged } from '../core/claim.ts';
import {
  donePatch,
  type Entry,
  type EntryChange,
  type EntryHead,
  type EntryPatch,
  FINAL_VERSION,
  type LogAddress,
} from '../core/entry.ts';
import { ERROR_CODES, type ErrorCode, invalid, QueueError } from '../core/errors.ts';
import { checkFields } from '../core/fields.ts';
import { type AttemptOutcome, withAttempt } from '../core/history.ts';
import { parseLeaseToken } from '../core/lease-token.ts';
import { DEAD_TIER, isSlotTopic, segmentOf, waitingLog } from '../core/log.ts';
import { topicNameFault } from '../core/names.ts';
import { integer, optionalInteger } from '../core/numbers.ts';
import { failedAttempt } from '../core/scan.ts';
import type { SettleItem, SettleRequest, SettleResult } from './api.ts';
import type { Engine } from './engine.ts';
import { type Moment, momentOf } from './environment.ts';
import { readByIds, readHeadsByIds } from './locate.ts';
import type { ChangeResult, Log } from './log.ts';
import type { Known } from './messages.ts';
import type { Mover } from './move.ts';
import type { OpenEntry } from './open-entries.ts';
import { placeIn, type Topic } from './topics.ts';
import { checkCount, checkReason, encodeJson } from './validate.ts';

const KINDS = ['ack', 'nack', 'extend', 'progress', 'release'] as const;
type Kind = (typeof KINDS)[number];
/** How often an extension is tried again after another change of the same lease. */
const TRIES = 10;

/** One item of a call, whose token could be read. */
interface Item<T> {
  readonly index: number;
  readonly token: string;
  readonly leaseId: string;
  readonly id: number;
  readonly input: T;
}
interface Group<T> {
  readonly log: Log;
  readonly topic: Topic;
  readonly items: readonly Item<T>[];
}
type Ack = NonNullable<SettleRequest['ack']>[number];
type Nack = NonNullable<SettleRequest['nack']>[number];
type Extend = NonNullable<SettleRequest['extend']>[number];
type Progress = NonNullable<SettleRequest['progress']>[number];

/** Where a delivery that ended goes. */
interface Ending {
  readonly to: LogAddress;
  readonly attempt: number;
  readonly dueAt: number | null;
  readonly outcome: AttemptOutcome;
  readonly reason: string | null;
}

/** Settles what was leased: only who shows the lease that an entry is under can (promise Q3). */
export class Settler {
  readonly #engine: Engine;
  readonly #mover: Mover;

  constructor(engine: Engine, mover: Mover) {
    this.#engine = engine;
    this.#mover = mover;
  }

  async settle(request: SettleRequest): Promise<SettleResult> {
    checkShape(request);
    // First what keeps the lease, then what ends it: a position saved along with a nack or a release is kept.
    const [extend, progress] = await Promise.all([
      this.#each(request.extend, (group, results) => this.#extend(group, results)),
      this.#each(request.progress, (group, results) => this.#progress(group, results)),
    ]);
    const [ack, nack, release] = await Promise.all([
      this.#each(request.ack, (group, results) => this.#ack(group, results)),
      this.#each(request.nack, (group, results) => this.#nack(group, results)),
      this.#each(request.release, (group, results) => this.#release(group, results)),
    ]);
    return { ack, nack, extend, progress, release };
  }

  /** Groups a list by log and segment, and has each group done. */
  async #each<T extends { readonly leaseId: string }>(
    list: readonly T[] | undefined,
    act: (group: Group<T>, results: SettleItem[]) => Promise<void>,
  ): Promise<readonly SettleItem[]> {
    if (list === undefined || list.length === 0) return [];
    const results = new Array<SettleItem>(list.length);
    const groups = new Map<string, { readonly address: LogAddress; readonly items: Item<T>[] }>();
    for (const [index, input] of list.entries()) {
      const token = typeof input?.leaseId === 'string' ? parseLeaseToken(input.leaseId) : null;
      if (token === null || topicNameFault(token.place.topic) !== null) {
        results[index] = refused(String(input?.leaseId), 'lease-invalid');
        continue;
      }
      const { leaseId, place } = token;
      const key = `${segmentOf(place.id, this.#engine.store.meta.segmentSize)}/${place.tier}/${place.topic}`;
      let group = groups.get(key);
      if (group === undefined) {
        group = { address: { topic: place.topic, tier: place.tier }, items: [] };
        groups.set(key, group);
      }
      group.items.push({ index, token: input.leaseId, leaseId, id: place.id, input });
    }
    await Promise.all(
      [...groups.values()].map(async ({ address, items }) => {
        const { book } = this.#engine;
        const log = book.peekLog(address) ?? (await book.log(address));
        const topic = book.peekTopicOf(log) ?? (await book.topicOf(log));
        await act({ log, topic, items }, results);
      }),
    );
    return results;
  }

  async #ack({ log, topic, items }: Group<Ack>, results: SettleItem[]): Promise<void> {
    const moment = momentOf(this.#engine.env);
    const { now } = moment;
    const plain = donePatch(null, now);
    const accepted: Item<Ack>[] = [];
    const changes: EntryChange[] = [];
    for (const item of items) {
      const { result } = item.input;
      try {
        const set = result === undefined ? plain : donePatch(encodeJson(result, '/result', RESULT_BYTES), now);
        accepted.push(item);
        changes.push({ id: item.id, expect: { leaseId: item.leaseId }, set });
      } catch (error) {
        if (!(error instanceof QueueError)) throw error;
        results[item.index] = refused(
          item.token,
          error.code === 'payload-too-large' ? 'result-too-large' : error.code,
          error.detail,
        );
      }
    }
    if (changes.length === 0) return;
    const answers = await this.#change(log, changes);
    const done: Item<Ack>[] = [];
    const repeated = new Set<number>();
    for (const [at, item] of accepted.entries()) {
      const answer = answers[at]!;
      if (answer.applied) this.#engine.counters.succeeded++;
      else repeated.add(item.id);
      // The lease id stays on the row: an ack that is repeated was good.
      const good = answer.applied || (answer.row?.status === 'done' && answer.row.leaseId === item.leaseId);
      // What follows a settlement follows a repeated one as well: whoever did it first may have died in between.
      if (good) done.push(item);
      results[item.index] = good ? { leaseId: item.token, ok: true } : refused(item.token, 'lease-lost');
    }
    await this.#ended(log, topic, done, repeated, moment);
  }

  /** Chunks keep a batch small; chunks of one segment go through its group commit together with others. */
  async #change(log: Log, changes: readonly EntryChange[]): Promise<readonly ChangeResult[]> {
    const size = 200;
    if (changes.length <= size) return log.change(changes);
    const parts: Promise<readonly ChangeResult[]>[] = [];
    for (let at = 0; at < changes.length; at += size) parts.push(log.change(changes.slice(at, at + size)));
    return (await Promise.all(parts)).flat();
  }

  /**
   * What follows an ack: limits count it, the message rows say so, and the scanner may pass.
   * @param repeated ids of those that were done before
   */
  async #ended(
    log: Log,
    topic: Topic,
    done: readonly Item<unknown>[],
    repeated: ReadonlySet<number>,
    { now, monotonic }: Moment,
  ): Promise<void> {
    const { signals } = this.#engine;
    const succeeded = (id: number, enqueuedAt: number): void => {
      if (!repeated.has(id)) this.#engine.measures.ageAtSuccess.observe(Math.max(0, now - enqueuedAt) / 1000);
    };
    if (done.length === 0) return;
    const ended: { readonly task: Known; readonly id: number }[] = [];
    const unknown: number[] = [];
    for (const { id } of done) {
      const open = log.open.get(id);
      if (open === undefined) {
        unknown.push(id);
        continue;
      }
      succeeded(id, open.enqueuedAt);
      if (open.key === null) log.settled(id);
      else {
        log.open.endLease(id);
        ended.push({ task: knownOf(open), id });
      }
      signals.settled(open.uid);
    }
    topic.leaseEnded(monotonic);
    if (unknown.length > 0) {
      for (const head of (await readHeadsByIds(this.#engine.store, log.address, unknown)).values()) {
        succeeded(head.id, head.enqueuedAt);
        ended.push({ task: head, id: head.id });
        signals.settled(head.uid);
      }
    }
    if (topic.limited) signals.ready(topic);
    signals.due(log, now);
    signals.changed(topic);
    if (ended.length > 0) await this.#agree(log, topic, ended, now);
    await signals.left(
      log,
      done.map(({ id }) => id),
    );
  }

  async #agree(
    log: Log,
    topic: Topic,
    ended: readonly { readonly task: Known; readonly id: number }[],
    now: number,
  ): Promise<void> {
    const { messages, signals } = this.#engine;
    await messages.settle(
      topic.name,
      topic.settings,
      ended.map(({ task, id }) => ({ task, place: placeIn(log.address, id), status: 'done', at: now })),
    );
    for (const { id } of ended) log.settled(id);
    signals.due(log, now);
  }

  async #nack({ log, topic, items }: Group<Nack>, results: SettleItem[]): Promise<void> {
    const checked = check(items, results, (input) => ({
      delayMs: optionalInteger(input.delayMs, '/delayMs', 0, DELAY_MS.max),
      reason: checkReason(input.reason, '/reason'),
      dead: checkFlag(input.dead, '/dead'),
    }));
    await this.#giveBack(log, topic, items, results, (entry, item) => {
      const input = checked.get(item);
      if (input === undefined) return null;
      const { reason } = input;
      const now = this.#engine.env.now();
      const failed = failedAttempt(entry, topic.settings, reason ?? '');
      if (input.dead || failed.kind === 'bury') {
        const to = { topic: topic.name, tier: DEAD_TIER };
        return { to, attempt: failed.attempt, dueAt: null, outcome: 'dead', reason };
      }
      const delayMs = input.delayMs ?? backoffMs(failed.attempt, topic.settings, this.#engine.env.random());
      // No later than it expires, so that it is seen to.
      const dueAt = delayMs > 0 ? Math.min(now + delayMs, entry.expiresAt ?? Number.POSITIVE_INFINITY) : null;
      const to = dueAt === null ? log.address : waitingLog(topic.name, dueAt, now, this.#engine.store.meta);
      return { to, attempt: failed.attempt, dueAt, outcome: 'nack', reason };
    });
  }

  async #release({ log, topic, items }: Group<{ readonly leaseId: string }>, results: SettleItem[]): Promise<void> {
    await this.#giveBack(log, topic, items, results, (entry) => ({
      to: log.address,
      attempt: entry.attempt,
      dueAt: null,
      outcome: 'released',
      reason: null,
    }));
  }

  /** Moves leased entries on; `decide` says where each goes, or null where its item was refused already. */
  async #giveBack<T>(
    log: Log,
    topic: Topic,
    items: readonly Item<T>[],
    results: SettleItem[],
    decide: (entry: Entry, item: Item<T>) => Ending | null,
  ): Promise<void> {
    let waiting = items;
    for (let tries = 0; waiting.length > 0 && tries < TRIES; tries++) {
      waiting = await this.#tryGiveBack(log, topic, waiting, results, decide);
    }
    for (const item of waiting) results[item.index] = refused(item.token, 'busy');
  }

  /** Returns the items whose entry was changed since it was read, as by an extension: they are looked at again. */
  async #tryGiveBack<T>(
    log: Log,
    topic: Topic,
    items: readonly Item<T>[],
    results: SettleItem[],
    decide: (entry: Entry, item: Item<T>) => Ending | null,
  ): Promise<readonly Item<T>[]> {
    const entries = await readByIds(
      this.#engine.store,
      log.address,
      items.map((item) => item.id),
    );
    const groups = new Map<string, { readonly entries: Entry[]; readonly items: Item<T>[]; readonly to: LogAddress }>();
    const endings = new Map<Entry, Ending>();
    const purged: Item<T>[] = [];
    const repeated: Entry[] = [];
    for (const item of items) {
      if (results[item.index] !== undefined) continue;
      const entry = entries.get(item.id);
      if (entry?.status !== 'leased' || entry.leaseId !== item.leaseId || endings.has(entry)) {
        const isRepeated = entry?.status === 'moved' && entry.leaseId === item.leaseId;
        if (isRepeated) repeated.push(entry);
        results[item.index] = isRepeated ? { leaseId: item.token, ok: true } : refused(item.token, 'lease-lost');
        continue;
      }
      const ending = decide(entry, item);
      if (ending === null) continue;
      if (isPurged(entry, topic.settings.purgedAt)) {
        purged.push(item);
        continue;
      }
      endings.set(entry, ending);
      const key = `${ending.to.tier}/${ending.to.topic}`;
      const group = groups.get(key);
      if (group === undefined) groups.set(key, { entries: [entry], items: [item], to: ending.to });
      else {
        group.entries.push(entry);
        group.items.push(item);
      }
    }
    const again: Item<T>[] = [];
    await Promise.all([
      this.#cancelPurged(log, topic, purged, entries, results),
      ...repeated.map((entry) => this.#movedAlready(log, topic, entry)),
      ...[...groups.values()].map(async (group) => {
        const changes = (entry: Entry) => this.#moveChanges(topic, entry, endings.get(entry)!);
        const places = await this.#mover.move(log, group.entries, group.to, changes, true);
        for (const [at, item] of group.items.entries()) {
          if (places[at] === null) {
            again.push(item);
            continue;
          }
          results[item.index] = { leaseId: item.token, ok: true };
          this.#count(endings.get(group.entries[at]!)!, group.entries[at]!.uid);
        }
      }),
    ]);
    return again;
  }

  /**
   * The first call of the two may still be at it, or have been at a server that died in it: before this one is answered,
   * limits know, and the task is where whoever schedules it hears that it is.
   */
  async #movedAlready(log: Log, topic: Topic, entry: Entry): Promise<void> {
    if (log.open.endLease(entry.id)) {
      topic.leaseEnded(this.#engine.env.monotonic());
      this.#engine.signals.ready(topic);
      this.#engine.signals.due(log, this.#engine.env.now());
    }
    const dest = await this.#mover.ensureArrived(entry);
    await this.#mover.tellMoved(log, dest, [entry.id]);
  }

  #moveChanges(topic: Topic, entry: Entry, { to, attempt, dueAt, outcome, reason }: Ending) {
    const at = this.#engine.env.now();
    return {
      placedAt: at,
      attempt,
      dueAt,
      target: isSlotTopic(to.topic) ? topic.name : null,
      history: withAttempt(entry.history, entry, { at, outcome, reason }),
      reason,
    };
  }

  #count(ending: Ending, uid: string): void {
    const { counters, signals } = this.#engine;
    if (ending.outcome === 'released') return;
    counters.failed++;
    if (ending.outcome !== 'dead') return;
    counters.deadLettered++;
    signals.settled(uid);
  }

  /** The topic was purged meanwhile: what was leased then is not tried again. */
  async #cancelPurged<T>(
    log: Log,
    topic: Topic,
    items: readonly Item<T>[],
    entries: ReadonlyMap<number, Entry>,
    results: SettleItem[],
  ): Promise<void> {
    if (items.length === 0) return;
    const { env } = this.#engine;
    const at = env.now();
    const endedAt = env.monotonic();
    const set: EntryPatch = { status: 'cancelled', version: FINAL_VERSION, updatedAt: at, reason: 'purged' };
    const answers = await this.#change(
      log,
      items.map(({ id, leaseId }) => ({ id, expect: { leaseId }, set })),
    );
    const done = items.filter((item, nth) => {
      const ok = answers[nth]!.applied;
      results[item.index] = ok ? { leaseId: item.token, ok: true } : refused(item.token, 'lease-lost');
      return ok;
    });
    await this.#engine.messages.settle(
      topic.name,
      topic.settings,
      done.map(({ id }) => ({ task: entries.get(id)!, place: placeIn(log.address, id), status: 'cancelled', at })),
    );
    if (done.some(({ id }) => log.open.get(id)?.leased)) topic.leaseEnded(endedAt);
    for (const { id } of done) {
      log.settled(id);
      this.#engine.signals.settled(entries.get(id)!.uid);
    }
    await this.#engine.signals.left(
      log,
      done.map(({ id }) => id),
    );
    this.#engine.signals.ready(topic);
    this.#engine.signals.due(log, at);
    this.#engine.signals.changed(topic);
  }

  async #extend({ log, topic, items }: Group<Extend>, results: SettleItem[]): Promise<void> {
    const checked = check(items, results, (input) => integer(input.leaseMs, '/leaseMs', LEASE_MS.min, LEASE_MS.max));
    await this.#whileLeased(log, items, results, (head, item) => {
      const now = this.#engine.env.now();
      const { maxRunMs } = topic.settings;
      const last = maxRunMs === null ? Number.POSITIVE_INFINITY : head.leasedAt! + maxRunMs;
      if (last <= now) return 'run-limit';
      return { leaseUntil: Math.min(now + checked.get(item)!, last) };
    });
  }

  async #progress({ log, items }: Group<Progress>, results: SettleItem[]): Promise<void> {
    const checked = check(items, results, (input) => encodeJson(input.position, '/position', PROGRESS_BYTES));
    await this.#whileLeased(log, items, results, (_head, item) => ({ progress: checked.get(item)! }));
  }

  /** Changes entries under their lease, on the version read: a late change cannot undo a later one. */
  async #whileLeased<T>(
    log: Log,
    items: readonly Item<T>[],
    results: SettleItem[],
    decide: (head: EntryHead, item: Item<T>) => Partial<EntryPatch> | ErrorCode,
  ): Promise<void> {
    let waiting = items.filter((item) => results[item.index] === undefined);
    for (let tries = 0; waiting.length > 0 && tries < TRIES; tries++) {
      const heads = await readHeadsByIds(
        this.#engine.store,
        log.address,
        waiting.map((item) => item.id),
      );
      const asked: Item<T>[] = [];
      const changes: EntryChange[] = [];
      for (const item of waiting) {
        const head = heads.get(item.id);
        if (head?.status !== 'leased' || head.leaseId !== item.leaseId) {
          results[item.index] = refused(item.token, 'lease-lost');
          continue;
        }
        const patch = decide(head, item);
        if (typeof patch === 'string') {
          results[item.index] = refused(item.token, patch);
          continue;
        }
        asked.push(item);
        const set: EntryPatch = {
          status: 'leased',
          version: head.version + 1,
          updatedAt: this.#engine.env.now(),
          ...patch,
        };
        changes.push({ id: item.id, expect: { uid: head.uid, version: head.version }, set });
      }
      if (changes.length === 0) return;
      const answers = await this.#change(log, changes);
      waiting = asked.filter((item, nth) => {
        if (!answers[nth]!.applied) return true;
        const leaseUntil = changes[nth]!.set.leaseUntil ?? heads.get(item.id)!.leaseUntil!;
        const open = log.open.get(item.id);
        if (open !== undefined) open.until = leaseUntil;
        this.#engine.signals.due(log, leaseUntil);
        results[item.index] = { leaseId: item.token, ok: true, leaseUntil };
        return false;
      });
    }
    for (const item of waiting) results[item.index] = refused(item.token, 'busy');
  }
}

export const knownOf = (open: OpenEntry): Known => ({
  uid: open.uid,
  messageId: open.key?.startsWith('m') ? open.key.slice(1) : null,
  hops: open.hops,
  enqueuedAt: open.enqueuedAt,
});

const refused = (leaseId: string, code: ErrorCode, detail: string = ERROR_CODES[code]): SettleItem => ({
  leaseId,
  ok: false,
  code,
  detail,
});

/** Checks each item's input; one that breaks a rule is refused, the others go on. */
function check<T, C>(items: readonly Item<T>[], results: SettleItem[], read: (input: T) => C): ReadonlyMap<Item<T>, C> {
  const checked = new Map<Item<T>, C>();
  for (const item of items) {
    try {
      checked.set(item, read(item.input));
    } catch (error) {
      if (!(error instanceof QueueError)) throw error;
      results[item.index] = refused(item.token, error.code, error.detail);
    }
  }
  return checked;
}

function checkFlag(value: unknown, path: string): boolean {
  if (value === undefined || typeof value === 'boolean') return value ?? false;
  throw invalid(path, value, 'true or false', 'true');
}

const SETTLE_FIELDS: ReadonlySet<string> = new Set(KINDS);
const ITEM = '{"leaseId": "pBLH0mH7xyzw2OeQ3yIcfA.5.17.mail.example.org"}';
const ITEM_FIELDS: Readonly<Record<Kind, ReadonlySet<string>>> = {
  ack: new Set(['leaseId', 'result']),
  nack: new Set(['leaseId', 'delayMs', 'reason', 'dead']),
  extend: new Set(['leaseId', 'leaseMs']),
  progress: new Set(['leaseId', 'position']),
  release: new Set(['leaseId']),
};

function checkShape(request: SettleRequest): void {
  if (typeof request !== 'object' || request === null) throw invalid('', request, 'an object of lists', '{"ack": []}');
  checkFields(request, '', 'a settle request', SETTLE_FIELDS, '{"ack": []}');
  let items = 0;
  for (const kind of KINDS) {
    const list = request[kind];
    if (list === undefined) continue;
    checkCount(list, `/${kind}`, SETTLE_ITEMS, `[${ITEM}]`);
    for (const [nth, item] of list.entries()) {
      const path = `/${kind}/${nth}`;
      if (typeof item !== 'object' || item === null) throw invalid(path, item, 'an object with a lease id', ITEM);
      checkFields(item, path, `what settles (${kind})`, ITEM_FIELDS[kind], ITEM);
    }
    items += list.length;
  }
  if (items > SETTLE_ITEMS)
    throw invalid('', `${items} items`, `at most ${SETTLE_ITEMS} items in all`, 'several calls');
}
