import { ENQUEUE_TASKS } from '../core/bounds.ts';
import { isExpired, isPurged } from '../core/claim.ts';
import {
  bytesOf,
  entryBytes,
  FINAL_VERSION,
  FIRST_VERSION,
  isFinal,
  type LogAddress,
  type NewEntry,
  type Place,
} from '../core/entry.ts';
import { invalid, QueueError } from '../core/errors.ts';
import { waitingLog } from '../core/log.ts';
import {
  type MessageCondition,
  type MessageRow,
  type MessageWrite,
  messageIdFromKey,
  messageIdKey,
} from '../core/message.ts';
import { checkTopic } from '../core/names.ts';
import { tierOf } from '../core/priority.ts';
import { formatTaskId } from '../core/task-id.ts';
import { StoreUnavailableError } from '../store/store.ts';
import type { EnqueueOptions, EnqueueResult, OnDuplicate, TaskInput } from './api.ts';
import { endEntry } from './end-entry.ts';
import type { Engine } from './engine.ts';
import type { Locator } from './locate.ts';
import type { Log } from './log.ts';
import { liveRow, type MessageResult, ownsMessageId, supersedes } from './messages.ts';
import type { Quotas, Room } from './quotas.ts';
import type { Rescheduler } from './reschedule.ts';
import { placeIn, type Topic } from './topics.ts';
import { type CheckedTask, checkCount, checkTask } from './validate.ts';

/** A task on its way into a log. */
interface Fresh {
  readonly index: number;
  readonly log: LogAddress;
  readonly entry: NewEntry;
  /** The row whose message id it takes over, as it was found. */
  readonly superseded: MessageRow | null;
}

/** Tasks that were appended, and where each stands. */
interface Placed {
  readonly tasks: readonly Fresh[];
  readonly places: readonly Place[];
}

/** What an enqueue has done so far. */
interface Call {
  readonly results: EnqueueResult[];
  /** Something was appended. */
  hasWritten: boolean;
}

/** How long a row may be live before a duplicate makes sure that its task still is, in milliseconds. */
const DOUBT_LIVE_MS = 60_000;
const SETTLED = ['done', 'dead', 'expired', 'cancelled'] as const;

/**
 * Puts tasks into their logs.
 *
 * A task with a message id is appended first, its row is written next, and only then is it acknowledged: where the
 * process dies in between, the entry gets its row when it is claimed, and nothing is lost. Who finds another task's
 * row marks its own entry a duplicate.
 */
export class Enqueuer {
  readonly #engine: Engine;
  readonly #locator: Locator;
  readonly #rescheduler: Rescheduler;
  readonly #quotas: Quotas;

  constructor(engine: Engine, locator: Locator, rescheduler: Rescheduler, quotas: Quotas) {
    this.#engine = engine;
    this.#locator = locator;
    this.#rescheduler = rescheduler;
    this.#quotas = quotas;
  }

  async enqueue(
    name: string,
    inputs: readonly TaskInput[],
    options: EnqueueOptions,
  ): Promise<readonly EnqueueResult[]> {
    checkTopic(name);
    checkCount(inputs, '/tasks', ENQUEUE_TASKS, '[{"payload": 1}]');
    const key = checkIdempotencyKey(options.idempotencyKey);
    const topic = this.#engine.book.peek(name) ?? (await this.#engine.book.topic(name));
    const now = this.#engine.env.now();
    const results = new Array<EnqueueResult>(inputs.length);
    const plain: Fresh[] = [];
    const named: { readonly index: number; readonly task: CheckedTask }[] = [];
    for (let index = 0; index < inputs.length; index++) {
      try {
        const checked = checkTask(inputs[index]!, topic.settings, now, `/tasks/${index}`);
        const task =
          checked.messageId === null && key !== null
            ? { ...checked, messageId: messageIdFromKey(key, index), onDuplicate: 'keep' as const }
            : checked;
        if (task.messageId === null) plain.push(this.#fresh(topic, index, task, null, now));
        else named.push({ index, task });
      } catch (error) {
        results[index] = refusal(error);
      }
    }
    const call: Call = { results, hasWritten: false };
    const parts: Promise<unknown>[] = [];
    if (plain.length > 0) parts.push(this.#append(topic, plain, call));
    if (named.length > 0) parts.push(this.#enqueueNamed(topic, named, call, now));
    try {
      await whole(parts);
    } catch (error) {
      // "Nothing was written" would be wrong: an append stands, and what should have followed could not be done.
      if (!call.hasWritten || !(error instanceof StoreUnavailableError)) throw error;
      throw new QueueError('outcome-unknown', undefined, [], error);
    }
    return results;
  }

  #fresh(topic: Topic, index: number, task: CheckedTask, superseded: MessageRow | null, now: number): Fresh {
    const delayed = task.dueAt !== null;
    const log = delayed
      ? waitingLog(topic.name, task.dueAt, now, this.#engine.store.meta)
      : { topic: topic.name, tier: tierOf(task.priority, topic.settings, topic.settings.buckets ? topic.turn++ : 0) };
    return {
      index,
      log,
      superseded,
      entry: {
        uid: this.#engine.env.ulid(now),
        messageId: task.messageId,
        payload: task.payload,
        metadata: task.metadata,
        priority: task.priority,
        maxAttempts: task.maxAttempts,
        attempt: 0,
        hops: 0,
        history: null,
        enqueuedAt: now,
        expiresAt: task.expiresAt,
        dueAt: task.dueAt,
        target: delayed ? topic.name : null,
        placedAt: now,
        origin: null,
        originVersion: null,
        supersedes: superseded?.uid ?? null,
        taskId: null,
        status: 'ready',
        progress: null,
        reason: null,
      },
    };
  }

  /** Appends tasks that are new, as far as there is room for them. @returns those that were */
  async #append(topic: Topic, tasks: readonly Fresh[], call: Call): Promise<Placed> {
    if (!this.#quotas.concern(topic)) return { tasks, places: await this.#appendAll(topic, tasks, call, null) };
    const room = await this.#quotas.admit(
      topic,
      tasks.map(({ entry }) => entryBytes(entry)),
    );
    const admitted = tasks.filter(({ index }, at) => {
      const refused = room.refusals[at]!;
      if (refused !== null) call.results[index] = refusal(refused);
      return refused === null;
    });
    this.#engine.counters.refused += tasks.length - admitted.length;
    if (admitted.length === 0) return { tasks: admitted, places: [] };
    return { tasks: admitted, places: await this.#appendAll(topic, admitted, call, room) };
  }

  /** Appends tasks to their logs, log by log, and answers for each. */
  async #appendAll(topic: Topic, tasks: readonly Fresh[], call: Call, room: Room | null): Promise<readonly Place[]> {
    const places = new Array<Place>(tasks.length);
    await whole(
      groupByLog(tasks).map(async (group) => {
        const entries = group.map((at) => tasks[at]!.entry);
        const ids = await this.#appendGroup(topic, tasks[group[0]!]!.log, entries, call, room);
        for (const [nth, at] of group.entries()) {
          const task = tasks[at]!;
          const place = placeIn(task.log, ids[nth]!);
          places[at] = place;
          call.results[task.index] = { id: formatTaskId(task.entry, place), deduplicated: false };
        }
      }),
    );
    this.#engine.counters.enqueued += tasks.length;
    return places;
  }

  async #appendGroup(
    topic: Topic,
    address: LogAddress,
    entries: readonly NewEntry[],
    call: Call,
    room: Room | null,
  ): Promise<readonly number[]> {
    let log: Log;
    let ids: readonly number[];
    let recorded: Promise<void> | null;
    try {
      log = this.#engine.book.peekLog(address) ?? (await this.#engine.book.log(address));
      // Where another server schedules it, that records it, and says so with the turn.
      recorded = log.tenure.holds ? this.#engine.activity.ensure(log) : null;
      const appended = log.append(entries);
      // It is awaited behind the append, which may fail first.
      recorded?.catch(() => {});
      ids = await appended;
      call.hasWritten = true;
      // It is there, whatever comes of the rest.
      const known = log.tenure === topic.tenure ? topic : await this.#engine.book.topicOf(log, topic.name);
      this.#arrived(known, log, ids, entries, isPurged(entries[0]!, topic.settings.purgedAt));
    } finally {
      // It is counted where it waits now, in the same moment.
      if (room !== null) for (const entry of entries) room.leave(entryBytes(entry));
    }
    const recordedIn = log.recordedPeriod;
    if (recorded !== null) await recorded;
    await this.#engine.activity.confirm(log);
    // Told again: who began to schedule meanwhile may have read the index before the log was in it.
    const wasNew = recorded !== null || log.recordedPeriod !== recordedIn;
    if (wasNew && !this.#engine.holds(log.tenure)) this.#engine.signals.news(log);
    return ids;
  }

  /** @param purged while it was on its way: it ends when it is met, and counts no more */
  #arrived(topic: Topic, log: Log, ids: readonly number[], entries: readonly NewEntry[], purged: boolean): void {
    const { env, signals } = this.#engine;
    if (log.slot !== null) {
      if (!purged) log.slot.arrived(topic.name, ids, bytesOf(entries));
      this.#tell(topic, log);
    } else if (purged) {
      log.countReady(-ids.length);
      log.sweep = true;
      signals.due(log, env.now());
    } else this.#tell(topic, log);
  }

  #tell(topic: Topic, log: Log): void {
    const { signals } = this.#engine;
    // Whoever schedules it elsewhere was told with the append.
    if (!log.tenure.holds) return;
    if (log.slot !== null) {
      signals.delayed(log);
      return;
    }
    signals.ready(topic);
    signals.due(log, log.expiresAt);
  }

  async #enqueueNamed(
    topic: Topic,
    named: readonly { readonly index: number; readonly task: CheckedTask }[],
    call: Call,
    now: number,
  ): Promise<void> {
    const { results } = call;
    // An id that occurs twice in a call is one task.
    const first = new Map<string, number>();
    const repeats: { readonly index: number; readonly of: number }[] = [];
    const wanted = named.filter(({ index, task }) => {
      const of = first.get(task.messageId!);
      if (of === undefined) first.set(task.messageId!, index);
      else repeats.push({ index, of });
      return of === undefined;
    });
    const rows = await this.#engine.messages.read(
      topic.name,
      wanted.map(({ task }) => messageIdKey(task.messageId!)),
    );
    const fresh: Fresh[] = [];
    await whole(
      wanted.map(async ({ index, task }) => {
        const found = rows.get(messageIdKey(task.messageId!));
        const row = found === undefined ? undefined : await this.#believed(topic, found, task.onDuplicate, now);
        if (row === undefined || !ownsMessageId(row, topic.settings, now)) {
          fresh.push(this.#fresh(topic, index, task, row ?? null, now));
        } else if (task.onDuplicate === 'again' && row.status !== 'live') {
          fresh.push(this.#fresh(topic, index, task, row, now));
        } else {
          const replaces = task.onDuplicate === 'replace' && row.status === 'live';
          // A move once begun may be carried to its end by whoever meets it.
          if (replaces) call.hasWritten = true;
          const place = replaces ? await this.#rescheduler.replace(topic, row, task) : null;
          results[index] = await this.#known(row, task.messageId!, place);
        }
      }),
    );
    fresh.sort((a, b) => a.index - b.index);
    if (fresh.length > 0) await this.#own(topic, await this.#append(topic, fresh, call), results, now);
    for (const { index, of } of repeats) {
      const result = results[of]!;
      results[index] = result.id === null ? result : { id: result.id, deduplicated: true };
    }
  }

  /** The answer for an id that is taken; not before the log of its task is recorded in the current period. */
  async #known(row: MessageRow, messageId: string, place: Place | null): Promise<EnqueueResult> {
    if (row.status === 'live') {
      const at = place ?? row.place;
      const log = await this.#engine.book.log(at);
      await this.#engine.activity.confirm(log);
      // Whoever put it in may sleep, or have died, before it told.
      if (at.id >= log.nextId || !this.#engine.holds(log.tenure)) this.#engine.signals.news(log);
    }
    this.#engine.counters.deduplicated++;
    return { id: formatTaskId({ uid: row.uid, messageId }, row.place), deduplicated: true };
  }

  /**
   * A row that has been live for long: where its task is final or gone, the process died that should have said so.
   * @returns the row as it is to be taken; undefined: there is none any more
   */
  async #believed(
    topic: Topic,
    found: MessageRow,
    onDuplicate: OnDuplicate,
    now: number,
  ): Promise<MessageRow | undefined> {
    const purged = isPurged(found, topic.settings.purgedAt);
    const inDoubt = purged || onDuplicate !== 'keep' || now - found.enqueuedAt >= DOUBT_LIVE_MS;
    if (found.status !== 'live' || !inDoubt) return found;
    const { row, located } = await this.#locator.followRow(topic.name, found);
    if (row?.uid !== found.uid || row.status !== 'live') return row ?? undefined;
    const ended = located?.head.status;
    if (located !== null && ended === 'ready') {
      const expired = isExpired(located.head, now);
      if (!expired && !purged) return row;
      // A claim of it may be under way: it is over only once it says so itself.
      const why = expired ? 'time to live over' : 'purged';
      await endEntry(this.#engine, topic, located, expired ? 'expired' : 'cancelled', why);
    } else {
      if (ended !== undefined && !isFinal(ended)) return row;
      const status = ended === 'expired' || ended === 'cancelled' ? ended : 'done';
      const { place, head } = located ?? { place: row.place, head: { hops: row.hops, updatedAt: now } };
      const task = { uid: row.uid, messageId: row.key.slice(1), hops: head.hops, enqueuedAt: row.enqueuedAt };
      await this.#engine.messages.settle(topic.name, topic.settings, [{ task, place, status, at: head.updatedAt }]);
    }
    // As it stands by now: who ended the task may have said so first, and a dead letter may have been redriven.
    const again = await this.#engine.messages.readOne(topic.name, row.key);
    return again === null ? undefined : this.#believed(topic, again, onDuplicate, now);
  }

  /** Writes the rows of tasks just appended; a task that comes second becomes a duplicate. */
  async #own(topic: Topic, { tasks, places }: Placed, results: EnqueueResult[], now: number): Promise<void> {
    if (tasks.length === 0) return;
    const writes = tasks.map(({ entry, superseded }, at): MessageWrite => {
      const row = liveRow(messageIdKey(entry.messageId!), entry, places[at]!);
      return { expect: superseded === null ? { absent: true } : isStillSettled(superseded), row, ttlMs: null };
    });
    const answers = [...(await this.#engine.messages.write(topic.name, writes))];
    const gone = answers.flatMap((answer, at) => (answer === 'absent' ? [at] : []));
    if (gone.length > 0) {
      // The row that was to be superseded ran out meanwhile.
      const inserts = gone.map((at): MessageWrite => ({ ...writes[at]!, expect: { absent: true } }));
      const again = await this.#engine.messages.write(topic.name, inserts);
      for (const [nth, at] of gone.entries()) answers[at] = again[nth]!;
    }
    await this.#followMoved(topic, tasks, places, answers);
    for (const [at, found] of answers.entries()) {
      const { entry, index, log: address } = tasks[at]!;
      if (!isOfAnother(entry, found)) continue;
      const log = await this.#engine.book.log(address);
      const { answer, version } = await this.#ownAfterAll(topic, log, entry, places[at]!.id, writes[at]!, found);
      if (!isOfAnother(entry, answer)) continue;
      const isCounted = log.slot?.counts(places[at]!.id) ?? false;
      const [change] = await log.change([
        {
          id: places[at]!.id,
          expect: { uid: entry.uid, version },
          set: {
            status: 'duplicate',
            version: FINAL_VERSION,
            updatedAt: now,
            reason: `message id owned by ${answer.uid}`,
          },
        },
      ]);
      if (!change!.applied && (await this.#hadItsTurn(places[at]!, entry.uid, answer))) continue;
      if (change!.applied) {
        if (log.slot === null) log.countReady(-1);
        else if (isCounted) log.slot.add(topic.name, -1, entryBytes(entry));
        this.#engine.signals.changed(topic);
      }
      this.#engine.counters.enqueued--;
      results[index] = await this.#known(answer, entry.messageId!, null);
    }
  }

  /**
   * A row that was to be superseded, and was live meanwhile: the task it is of, a dead letter, was redriven, and has ended
   * again. The id is free, but a claim may be under way that has seen the row when it was live, and makes the new task a
   * duplicate, or one that has seen it now, and writes the row. So the new task's version is raised first: a claim that
   * comes later sees the row as it is by then.
   * @returns what the row was found to be in the end, and the version of the entry
   */
  async #ownAfterAll(
    topic: Topic,
    log: Log,
    entry: NewEntry,
    id: number,
    write: MessageWrite,
    found: MessageRow,
  ): Promise<{ readonly answer: MessageResult; readonly version: number }> {
    let answer: MessageResult = found;
    let version = FIRST_VERSION;
    while (isOfAnother(entry, answer) && supersedes(entry, answer)) {
      // What moves a task out of a slot must find it as it has seen it.
      if (log.slot !== null) break;
      const raised = { status: 'ready', version: version + 1, updatedAt: this.#engine.env.now() } as const;
      const [change] = await log.change([{ id, expect: { uid: entry.uid, version }, set: raised }]);
      if (!change!.applied) break;
      version++;
      const again: MessageWrite = { ...write, expect: isStillSettled(answer) };
      answer = (await this.#engine.messages.write(topic.name, [again]))[0]!;
    }
    return { answer, version };
  }

  /** Delayed tasks whose time came before their rows were written: those say where they are now. */
  async #followMoved(
    topic: Topic,
    tasks: readonly Fresh[],
    places: readonly Place[],
    answers: readonly MessageResult[],
  ): Promise<void> {
    const now = this.#engine.env.now();
    const due = tasks.flatMap(({ entry }, at) =>
      answers[at] === null && entry.dueAt !== null && entry.dueAt <= now ? [{ entry, place: places[at]! }] : [],
    );
    const moved = await Promise.all(due.map(({ entry, place }) => this.#locator.follow(place, entry.uid)));
    const rows = moved.flatMap((located) =>
      located !== null && located.head.hops > 0 ? [{ task: located.head, place: located.place }] : [],
    );
    if (rows.length > 0) await this.#engine.messages.relocate(topic.name, rows);
  }

  /**
   * Whether a task was handed out, or ended, before its row was written: then the id was its own while it lived.
   * @param owner the row of the task that has the id now
   */
  async #hadItsTurn(place: Place, uid: string, owner: MessageRow): Promise<boolean> {
    const located = await this.#locator.follow(place, uid);
    if (located === null) {
      // A delayed one that moved on, its slot trimmed since: it had the id if the one that has it now took it from it, and
      // else may have ended as a duplicate like any other.
      const next = await this.#locator.follow(owner.place, owner.uid);
      return next?.head.supersedes === uid;
    }
    const { status } = located.head;
    return status === 'expired' || status === 'cancelled' || located.head.attempt > 0 || located.head.leasedAt !== null;
  }
}

/**
 * A row as it was found, of a task that had ended. A dead letter that was redriven since, and has ended again, was live
 * meanwhile: whoever met the new task then has made it a duplicate.
 */
const isStillSettled = ({ uid, hops }: MessageRow): MessageCondition => ({
  uid,
  statusIn: SETTLED,
  hopsBelow: hops + 1,
});

/** What was found where a task's row was to be written is the row of another task. */
const isOfAnother = ({ uid }: NewEntry, found: MessageResult): found is MessageRow =>
  found !== null && found !== 'absent' && found.uid !== uid;

/** Waits for all of them, also where one fails: only then is it known what was written. What is in doubt is told first. */
async function whole(parts: readonly Promise<unknown>[]): Promise<void> {
  const settled = await Promise.allSettled(parts);
  const failures = settled.flatMap((part) => (part.status === 'rejected' ? [part.reason as unknown] : []));
  if (failures.length === 0) return;
  throw failures.find((failure) => failure instanceof QueueError && failure.code === 'outcome-unknown') ?? failures[0];
}

const groupByLog = (tasks: readonly Fresh[]): number[][] => {
  const firstLog = tasks[0]!.log;
  if (tasks.every(({ log }) => log.tier === firstLog.tier && log.topic === firstLog.topic)) return [[...tasks.keys()]];
  const groups = new Map<string, number[]>();
  for (const [at, { log }] of tasks.entries()) {
    const key = `${log.tier}/${log.topic}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [at]);
    else group.push(at);
  }
  return [...groups.values()];
};

function refusal(error: unknown): EnqueueResult {
  if (!(error instanceof QueueError)) throw error;
  return { id: null, deduplicated: false, code: error.code, detail: error.detail };
}

function checkIdempotencyKey(key: string | undefined): string | null {
  if (key === undefined) return null;
  if (typeof key === 'string' && /^[\x21-\x7e]{1,255}$/.test(key)) return key;
  throw invalid('/idempotencyKey', key, '1 to 255 visible ASCII characters', '"6f1c1f0e-order-17"');
}
