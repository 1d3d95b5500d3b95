import { isPurged } from '../core/claim.ts';
import {
  type Entry,
  type EntryChange,
  type EntryHead,
  entryBytes,
  FIRST_VERSION,
  isFinal,
  type LogAddress,
  type Place,
} from '../core/entry.ts';
import { segmentOf } from '../core/log.ts';
import { endedStatus } from '../core/message.ts';
import {
  commitPatch,
  type MoveChanges,
  type PendingMove,
  pendingEntry,
  verdictOf,
  verdictPatch,
} from '../core/move.ts';
import type { Store } from '../store/store.ts';
import type { Engine } from './engine.ts';
import { type ChangeResult, LOOKED_UP_MS, type Log } from './log.ts';
import { type Known, topicOf } from './messages.ts';
import { placeIn, type Topic } from './topics.ts';

/** A pending entry to be carried to an end. */
export type Pending = PendingMove &
  Known &
  Pick<EntryHead, 'target' | 'reason' | 'supersedes'> & {
    /** How large it is; null where its head alone was read. */
    readonly bytes: number | null;
  };

/** Carries out moves: see core/move.ts for the protocol and for who may stop where. */
export class Mover {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /**
   * Moves entries of one log to another.
   *
   * @param origins as read; each is moved only if nobody has changed it since
   * @param changes what differs at the destination
   * @param byHolder whether it is their leases' holders who give them back
   * @returns the new place of each, null where the origin had changed
   */
  async move(
    from: Log,
    origins: readonly Entry[],
    to: LogAddress,
    changes: (origin: Entry) => MoveChanges,
    byHolder = false,
  ): Promise<readonly (Place | null)[]> {
    const { book, activity } = this.#engine;
    const dest = await book.log(to);
    const entries = origins.map((origin) => pendingEntry(origin, placeIn(from.address, origin.id), changes(origin)));
    const [ids] = await Promise.all([dest.append(entries), activity.ensure(dest)]);
    for (const id of ids) dest.addOnItsWay(id);
    await activity.confirm(dest);
    const pendings = entries.map((entry, index): Pending => {
      const place = placeIn(to, ids[index]!);
      const { origin, originVersion } = entry;
      return { ...entry, place, origin: origin!, originVersion: originVersion!, bytes: entryBytes(entry) };
    });
    const arrived = await this.#settleEach(groupByTarget(pendings), pendings, (group) =>
      this.#settle(from, dest, group, byHolder),
    );
    return arrived.map((ready, index) => (ready ? pendings[index]!.place : null));
  }

  /**
   * Carries pending entries of one log, met by whoever, to an end. Who appended them may have died before it recorded
   * the log, or still be about to, so that is made sure of before anything is committed.
   * @returns for each whether it is ready now (false: void, or final by somebody else)
   */
  async resolve(dest: Log, pendings: readonly Pending[]): Promise<readonly boolean[]> {
    await this.#engine.activity.confirm(dest);
    return this.#settleEach(groupByOrigin(pendings), pendings, async (group) =>
      this.#settle(await this.#engine.book.log(group[0]!.origin), dest, group, false),
    );
  }

  /** Settles groups at the same time; where one fails, the others are done before that is told. */
  async #settleEach(
    groups: readonly (readonly Pending[])[],
    pendings: readonly Pending[],
    settle: (group: readonly Pending[]) => Promise<readonly boolean[]>,
  ): Promise<readonly boolean[]> {
    if (groups.length === 1) return settle(groups[0]!);
    const results = new Map<Pending, boolean>();
    const settled = await Promise.allSettled(
      groups.map(async (group) => {
        for (const [index, ready] of (await settle(group)).entries()) results.set(group[index]!, ready);
      }),
    );
    const failed = settled.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    return pendings.map((pending) => results.get(pending)!);
  }

  /**
   * Steps 2 and 3: commit on the origins where that may still be done, then mark by what they say. Where a write fails,
   * what the others did is accounted for before that is told.
   */
  async #settle(from: Log, dest: Log, pendings: readonly Pending[], byHolder: boolean): Promise<readonly boolean[]> {
    const { env, book, signals } = this.#engine;
    const name = topicOf(dest.address, pendings[0]!);
    // The logs may have been looked up in two tenures of their shard.
    const [topic, formerly] = await Promise.all([book.topicOf(dest, name), book.topicOf(from, name)]);
    const at = env.now();
    topic.moving += pendings.length;
    const notCounted = new Set(pendings.filter(({ origin }) => from.slot?.counts(origin.id) === false));
    try {
      const commits = await this.#changeEach(from, pendings, ({ origin, uid, originVersion, place, reason }) => ({
        id: origin.id,
        expect: { uid, version: originVersion },
        set: commitPatch(place, at, reason, byHolder),
      }));
      const steps = new Map<Pending, 'mark-ready' | 'mark-void'>();
      for (const [pending, answer] of commits.answers) steps.set(pending, verdictOf(pending, answer));
      const marks = await this.#changeEach(dest, [...steps.keys()], (pending) => ({
        id: pending.place.id,
        expect: { uid: pending.uid, version: FIRST_VERSION },
        set: verdictPatch(steps.get(pending)!, at),
      }));
      const ready = [...steps.keys()].filter((pending) => steps.get(pending) === 'mark-ready');
      for (const pending of ready) {
        this.#left(formerly, from, pending, commits.answers.get(pending)!.applied && !notCounted.has(pending));
      }
      // Those whose mark failed have left their origin as well: they count from now on, and whoever meets them marks them.
      const arrived = ready.filter((pending) => {
        const wasMarked = marks.answers.get(pending)?.applied ?? true;
        // Where another server has marked it, nobody here has counted it yet.
        return dest.deleteOnItsWay(pending.place.id) || wasMarked;
      });
      // Another server has appended some, and has not told of them yet: they are counted as they are found.
      const known = arrived.filter(({ place }) => place.id < dest.nextId);
      if (known.length < arrived.length) signals.news(dest);
      const waiting = known.filter((pending) => counts(topic, pending));
      this.#arrived(topic, dest, waiting);
      for (const pending of waiting) if (!marks.answers.has(pending)) dest.addCountedEarly(pending.place.id);
      for (const [pending, step] of steps) {
        if (step !== 'mark-void') continue;
        dest.deleteOnItsWay(pending.place.id);
        this.#didNotHappen(topic, dest, pending);
      }
      if (ready.length > 0) signals.due(from, at);
      // What is void, or was purged, waits for nobody: it is passed soon.
      if (ready.length < steps.size || !arrived.every((pending) => counts(topic, pending))) {
        dest.sweep = true;
        signals.due(dest, at);
      }
      const fault = commits.fault ?? marks.fault;
      if (fault !== null) throw fault;
      if (ready.length > 0) {
        const areOwn = await this.#updateRows(topic, dest, ready, at);
        // Who enqueued one may still write the row, and looks from where it was put whether it has moved.
        if (!areOwn && from.slot !== null) from.slot.keepUntil = Math.max(from.slot.keepUntil, at + LOOKED_UP_MS);
        // The origins are passed only now: their destination is ready, and the rows know where it is.
        for (const pending of ready) from.settled(pending.origin.id);
        const ids = ready.map(({ origin }) => origin.id);
        await this.tellMoved(from, dest, ids);
      }
      return pendings.map((pending) => steps.get(pending) === 'mark-ready');
    } finally {
      topic.moving -= pendings.length;
      signals.changed(topic);
    }
  }

  /** Changes an entry for each pending one, segment by segment; tells the answers there are, and what went wrong first. */
  async #changeEach(
    log: Log,
    pendings: readonly Pending[],
    change: (pending: Pending) => EntryChange,
  ): Promise<{ readonly answers: ReadonlyMap<Pending, ChangeResult>; readonly fault: unknown }> {
    const changes = pendings.map((pending) => ({ pending, change: change(pending) }));
    const groups = groupBySegment(changes, (one) => one.change.id, this.#engine.store.meta.segmentSize);
    const settled = await Promise.allSettled(groups.map((group) => log.change(group.map((one) => one.change))));
    const answers = new Map<Pending, ChangeResult>();
    let fault: unknown = null;
    for (const [nth, group] of groups.entries()) {
      const result = settled[nth]!;
      if (result.status === 'rejected') fault ??= result.reason;
      else for (const [at, { pending }] of group.entries()) answers.set(pending, result.value[at]!);
    }
    return { answers, fault };
  }

  /**
   * Dead letters are settled as far as dedup goes; all others are live, and elsewhere.
   * @returns whether the rows are their own
   */
  async #updateRows(
    topic: Topic,
    dest: Log,
    moved: readonly (Known & Pick<EntryHead, 'supersedes'> & { readonly place: Place })[],
    at: number,
  ): Promise<boolean> {
    const { messages } = this.#engine;
    const rows = moved.map((task) => ({ task, place: task.place }));
    if (!dest.isDead) return messages.relocate(topic.name, rows);
    const ended = rows.map((row) => ({ ...row, status: 'dead' as const, at }));
    await messages.settle(topic.name, topic.settings, ended);
    return true;
  }

  /** The origin is final now: it no longer counts as in flight, ready or delayed. */
  #left(topic: Topic, from: Log, pending: Pending, byUs: boolean): void {
    const { signals, env } = this.#engine;
    const { origin } = pending;
    const counted = byUs && counts(topic, pending);
    if (from.slot !== null) {
      if (counted) from.slot.add(topic.name, -1, pending.bytes);
      return;
    }
    if (from.open.endLease(origin.id)) {
      topic.leaseEnded(env.monotonic());
      signals.ready(topic);
    } else if (!from.open.has(origin.id) && counted && (from.isDead || origin.id >= from.scan)) {
      from.recount = from.isDead;
      from.countReady(-1);
    }
  }

  #arrived(topic: Topic, dest: Log, pendings: readonly Pending[]): void {
    const { signals, env } = this.#engine;
    if (pendings.length === 0) return;
    const uncounted = pendings.filter(({ place }) => !dest.deleteCountedEarly(place.id));
    if (dest.slot !== null) {
      const bytes = uncounted.reduce<number | null>(
        (sum, one) => (sum === null || one.bytes === null ? null : sum + one.bytes),
        0,
      );
      dest.slot.arrived(
        topic.name,
        uncounted.map(({ place }) => place.id),
        bytes,
      );
      signals.delayed(dest);
      return;
    }
    dest.countReady(uncounted.length);
    if (dest.isDead) {
      dest.recount = true;
      signals.due(dest, env.now());
    } else {
      signals.ready(topic);
      signals.due(dest, dest.expiresAt);
    }
  }

  /** What counted while it was pending counts no longer. */
  #didNotHappen(topic: Topic, dest: Log, pending: Pending): void {
    if (dest.deleteCountedEarly(pending.place.id) && counts(topic, pending)) dest.countReady(-1);
  }

  /**
   * Whoever schedules them hears that entries have moved. Where they went is told in one message with that they left:
   * whoever hears of that looks no more at where they went.
   */
  async tellMoved(from: Log, dest: Log, ids: readonly number[]): Promise<void> {
    const { signals } = this.#engine;
    if (!this.#engine.holds(dest.tenure)) signals.news(dest);
    await signals.left(from, ids);
  }

  /**
   * Makes sure that the destination of a moved entry is ready, and that its row does not say any more that it is here; then
   * it may be passed, and deleted.
   * @returns the log it moved to
   */
  async ensureArrived(moved: EntryHead): Promise<Log> {
    const place = moved.dest!;
    const dest = await this.#engine.book.log(place);
    const head = await readHead(this.#engine.store, place);
    if (head === null || head.uid !== moved.uid) return dest;
    if (head.status === 'pending') {
      await this.resolve(dest, [asPending(dest, head)]);
      return dest;
    }
    // One that has gone on, or ended, sees to its row itself; but not soon enough for who deletes the way there.
    if (head.status === 'moved') {
      await this.ensureArrived(head);
      return dest;
    }
    const topic = await this.#engine.book.topicOf(dest, topicOf(place, head));
    const status = endedStatus(head);
    if (status !== null) {
      const ended = { task: head, place, status, at: head.updatedAt };
      await this.#engine.messages.settle(topic.name, topic.settings, [ended]);
    } else if (!isFinal(head.status)) {
      // Whoever moved it may have died before it told whoever schedules the destination.
      if (place.id >= dest.nextId) this.#engine.signals.news(dest);
      await this.#updateRows(topic, dest, [{ ...head, place }], head.placedAt);
    }
    return dest;
  }
}

/** The entry at a place as it stands, writes under way settled; null: there is none. */
export async function readHead(store: Store, place: Place): Promise<EntryHead | null> {
  const heads = await store.readHeads({ log: place, from: place.id, to: place.id + 1, limit: 1, serial: true });
  return heads[0] ?? null;
}

/** A pending entry as it was read. */
export const asPending = (log: Log, head: EntryHead): Pending => ({
  ...head,
  place: placeIn(log.address, head.id),
  origin: head.origin!,
  originVersion: head.originVersion!,
  bytes: null,
});

/** Purged tasks count nowhere, wherever they stand. */
const counts = (topic: Topic, task: Known): boolean => !isPurged(task, topic.settings.purgedAt);

export const groupBySegment = <T>(items: readonly T[], idOf: (item: T) => number, size: number): T[][] =>
  groupBy(items, (item) => segmentOf(idOf(item), size));

/** By the log they come from and, in time slots, the topic they belong to. */
const groupByOrigin = (pendings: readonly Pending[]): Pending[][] =>
  groupBy(pendings, ({ origin, target }) => `${origin.tier}/${target ?? ''}/${origin.topic}`);

/** By the topic they belong to, where they are in a time slot. */
const groupByTarget = (pendings: readonly Pending[]): Pending[][] => groupBy(pendings, ({ target }) => target ?? '');

export function groupBy<T>(items: readonly T[], keyOf: (item: T) => string | number): T[][] {
  const groups = new Map<string | number, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return [...groups.values()];
}
