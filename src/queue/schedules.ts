/**
 * Schedules: their rows, and the firing of what is due of one.
 *
 * A firing is enqueued under a message id made of the schedule's name, its incarnation and the firing's time; only then
 * the row is written that says so, under the incarnation and version that were read. Who may be paused or die where?
 *
 * - Before the enqueue: nothing was done, and the row says so. Whoever runs the schedule next does it.
 * - Between the enqueue and the write: whoever runs it next enqueues it once more, finds the message id taken, and writes
 *   the row. The id is kept for FIRING_WINDOW_MS after its task was settled, whatever the window of the topic: a task may
 *   be done before its schedule has gone on, and a topic may have no window at all.
 * - Two at once, one of which has lost the shard and does not know: both enqueue the same ids, and one writes the row. One
 *   that has slept since before its enqueue finds the id taken when it wakes up.
 * - With an unknown outcome: an enqueue is repeated as any enqueue is; of the write it is told by the row as it is then.
 *
 * What is left: a process that sleeps for more than FIRING_WINDOW_MS right between looking for a message id and putting its
 * task into the log puts it there a second time.
 *
 * A change of a schedule is made by the server that runs it, in turn with its firings, and what was due before is fired
 * first, as it was defined then: so nothing is left out, and nothing fires in the old way and in the new one. (A
 * predecessor that is in the middle of a firing as the shard changes hands, with a clock that is ahead of its successor's,
 * could fire in the old topic what a change of topic in that moment lets fire in the new one.)
 */
import { SCHEDULE_PAGE } from '../core/bounds.ts';
import { QueueError, show } from '../core/errors.ts';
import { shardOf } from '../core/message.ts';
import { optionalInteger } from '../core/numbers.ts';
import {
  type DueFirings,
  dueFirings,
  firingId,
  SCHEDULE_METADATA,
  type ScheduleDefinition,
  type ScheduleHead,
  type ScheduleRow,
  type ScheduleState,
  stateOf,
} from '../core/schedule.ts';
import { timetableOf } from '../scheduler/cron.ts';
import type { EnqueueResult, ScheduleInfo, SchedulePage, ScheduleSummary, TaskInput } from './api.ts';
import type { Engine } from './engine.ts';
import type { Enqueuer } from './enqueue.ts';
import { decodePayload } from './lease.ts';
import { definitely } from './outcomes.ts';
import { checkScheduleName } from './validate.ts';

const TRIES = 10;
/** Shards that one list reads at the same time. */
const SHARDS_AT_ONCE = 16;
/** Firings that are told of in advance. */
const NEXT = 3;

export class Schedules {
  readonly #engine: Engine;
  readonly #enqueuer: Enqueuer;
  readonly #passedOn: () => Promise<void>;
  /** What is under way with a schedule, by its name: the last of those who wait for their turn. */
  readonly #turns = new Map<string, Promise<unknown>>();

  /** @param passedOn resolves once other servers know of what was enqueued here */
  constructor(engine: Engine, enqueuer: Enqueuer, passedOn: () => Promise<void>) {
    this.#engine = engine;
    this.#enqueuer = enqueuer;
    this.#passedOn = passedOn;
  }

  /** @throws QueueError `schedule-not-found` */
  async get(name: string): Promise<ScheduleInfo> {
    const row = await this.#read(name);
    if (row === null) throw scheduleNotFound(name);
    return this.describe(row);
  }

  describe(row: ScheduleRow): ScheduleInfo {
    const timetable = timetableOf(row.pattern, row.timeZone);
    const next: number[] = [];
    let at: number | null = Math.max(row.firedUpTo, this.#engine.env.now());
    while (next.length < NEXT) {
      at = timetable.next(at);
      if (at === null) break;
      next.push(at);
    }
    return {
      ...summaryOf(row),
      payload: decodePayload(row.payload),
      metadata: row.metadata === null ? {} : (JSON.parse(row.metadata) as Record<string, string>),
      next,
    };
  }

  async list(request: { readonly after?: string; readonly limit?: number }): Promise<SchedulePage> {
    const { store } = this.#engine;
    const limit = optionalInteger(request.limit, '/limit', 1, SCHEDULE_PAGE) ?? 100;
    const { shards } = store.meta;
    if (request.after !== undefined) checkScheduleName(request.after, '/after');
    const found: ScheduleHead[] = [];
    let after = request.after ?? null;
    for (let shard = after === null ? 0 : shardOf(after, shards); shard < shards && found.length < limit; ) {
      const some = Array.from({ length: Math.min(SHARDS_AT_ONCE, shards - shard) }, (_, nth) => shard + nth);
      const from = after;
      const pages = await Promise.all(some.map((one, nth) => store.readSchedules(one, nth === 0 ? from : null, limit)));
      found.push(...pages.flat());
      shard += some.length;
      after = null;
    }
    const page = found.slice(0, limit).map(summaryOf);
    return page.length < limit ? { schedules: page } : { schedules: page, after: page.at(-1)!.name };
  }

  /**
   * Makes a schedule, or another one of it; to be called where it is run.
   * @throws QueueError `not-holder`, `outcome-unknown`, `busy`
   */
  set(name: string, definition: ScheduleDefinition): Promise<ScheduleState> {
    return this.#inTurn(name, async () => {
      for (let tries = 0; tries < TRIES; tries++) {
        let round = await this.#fireSome(name, tries > 0);
        while (round.fired) round = await this.#fireSome(name, true);
        const { row } = round;
        if (row !== null && sameDefinition(row, definition)) return stateOf(row);
        const state = this.#stateUnder(definition, row);
        if (await this.#write({ name, expect: row, state, definition })) return state;
      }
      throw new QueueError('busy', 'the schedule changes faster than it can be set');
    });
  }

  /** @throws QueueError `schedule-not-found`, `outcome-unknown`, `busy` */
  delete(name: string): Promise<void> {
    return this.#inTurn(name, async () => {
      for (let tries = 0; tries < TRIES; tries++) {
        const row = await this.#read(name, tries > 0);
        // Gone after a try in doubt: by that one.
        if (row === null && tries > 0) return;
        if (row === null) throw scheduleNotFound(name);
        if (await this.#write({ name, expect: row, state: null })) return;
      }
      throw new QueueError('busy', 'the schedule changes faster than it can be deleted');
    });
  }

  /**
   * Enqueues what is due of a schedule, FIRINGS_AT_ONCE firings at the most.
   * @returns when it is to be looked at again (null: never); undefined where there is no such schedule
   * @throws QueueError `not-holder` where something is due, and another server runs the schedule
   */
  fire(name: string): Promise<number | null | undefined> {
    return this.#inTurn(name, async () => {
      const { row } = await this.#fireSome(name, false);
      return row === null ? undefined : row.nextAt;
    });
  }

  // ── firing ────────────────────────────────────────────────────────────────────────────────────────────────────

  async #fireSome(
    name: string,
    serial: boolean,
  ): Promise<{ readonly row: ScheduleRow | null; readonly fired: boolean }> {
    const { book, env } = this.#engine;
    const row = await this.#read(name, serial);
    if (row === null) return { row, fired: false };
    const due = dueFirings(row, timetableOf(row.pattern, row.timeZone), env.now());
    // As the rules of its time zone are known here, also where others were known when the row was written.
    const now = { ...row, nextAt: due.nextAt };
    if (due.times.length === 0) return { row: now, fired: false };
    if (!this.#engine.holds(book.tenureOf(name))) throw new QueueError('not-holder');
    const results = await this.#enqueue(row, due.times);
    const advanced = await this.#advance(row, due, results);
    return { row: advanced ? now : { ...row, nextAt: env.now() }, fired: true };
  }

  async #enqueue(row: ScheduleRow, times: readonly number[]): Promise<readonly EnqueueResult[]> {
    const tasks = times.map((at) => taskOf(row, at));
    const results = await this.#enqueuer.enqueue(row.topic, tasks, {});
    // As before any other answer to an enqueue: this server may die behind the write of the row.
    await this.#passedOn();
    return results;
  }

  /** @returns false where the row was changed by somebody else meanwhile, or the write was in doubt and landed */
  async #advance(row: ScheduleRow, due: DueFirings, results: readonly EnqueueResult[]): Promise<boolean> {
    const { counters, log } = this.#engine;
    const enqueued = results.flatMap(({ id }, at) => (id === null ? [] : [{ firedFor: due.times[at]!, task: id }]));
    const refused = results.find((result) => result.id === null);
    if (refused?.id === null) log.warn({ schedule: row.name, code: refused.code }, 'a firing was refused');
    const state: ScheduleState = {
      ...stateOf(row),
      version: row.version + 1,
      firedUpTo: due.times.at(-1)!,
      nextAt: due.nextAt,
      lastFiredFor: enqueued.at(-1)?.firedFor ?? row.lastFiredFor,
      lastTask: enqueued.at(-1)?.task ?? row.lastTask,
      fired: row.fired + enqueued.length,
      missed: row.missed + due.missed,
      refusal: refused?.id === null ? refused.detail : null,
    };
    const isWritten = await this.#write({ name: row.name, expect: row, state });
    if (isWritten) {
      counters.firings += enqueued.length;
      counters.firingsMissed += due.missed;
    }
    return isWritten;
  }

  // ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

  #read(name: string, serial = false): Promise<ScheduleRow | null> {
    const { store } = this.#engine;
    return store.readSchedule(shardOf(name, store.meta.shards), name, serial);
  }

  async #write(write: Parameters<Engine['store']['writeSchedule']>[1]): Promise<boolean> {
    const { store, env } = this.#engine;
    const shard = shardOf(write.name, store.meta.shards);
    return (await definitely(env, () => store.writeSchedule(shard, write))) === 'applied';
  }

  /** What fired up to now has fired for good: another pattern begins now. */
  #stateUnder({ pattern, timeZone }: ScheduleDefinition, row: ScheduleRow | null): ScheduleState {
    const { env } = this.#engine;
    const now = env.now();
    const timetable = timetableOf(pattern, timeZone);
    if (row === null) {
      return {
        incarnation: env.ulid(now),
        version: 1,
        createdAt: now,
        updatedAt: now,
        firedUpTo: now,
        nextAt: timetable.next(now),
        lastFiredFor: null,
        lastTask: null,
        fired: 0,
        missed: 0,
        refusal: null,
      };
    }
    const keepsTimes = row.pattern === pattern && row.timeZone === timeZone;
    const firedUpTo = keepsTimes ? row.firedUpTo : Math.max(row.firedUpTo, now);
    const nextAt = timetable.next(firedUpTo);
    return { ...stateOf(row), version: row.version + 1, updatedAt: now, firedUpTo, nextAt, refusal: null };
  }

  /** One after the other for each schedule. */
  async #inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(name);
    const turn = (async () => {
      await before?.catch(() => {});
      return work();
    })();
    this.#turns.set(name, turn);
    try {
      return await turn;
    } finally {
      if (this.#turns.get(name) === turn) this.#turns.delete(name);
    }
  }
}

/** A firing as it is enqueued; whoever works on it is told for when it is. */
function taskOf(row: ScheduleRow, at: number): TaskInput {
  const metadata = row.metadata === null ? {} : (JSON.parse(row.metadata) as Record<string, string>);
  return {
    payload: decodePayload(row.payload),
    messageId: firingId(row, at),
    metadata: {
      ...metadata,
      [SCHEDULE_METADATA.name]: row.name,
      [SCHEDULE_METADATA.firedFor]: new Date(at).toISOString(),
    },
    ...(row.priority === null ? {} : { priority: row.priority }),
    ...(row.ttlMs === null ? {} : { ttlMs: row.ttlMs }),
    ...(row.maxAttempts === null ? {} : { maxAttempts: row.maxAttempts }),
  };
}

export const scheduleNotFound = (name: string): QueueError =>
  new QueueError('schedule-not-found', `${show(name)}: there is no schedule of this name`);

function summaryOf(row: ScheduleHead): ScheduleSummary {
  const { name, topic, pattern, timeZone, priority, ttlMs, maxAttempts, catchUpMs } = row;
  const { incarnation: _incarnation, version: _version, ...progress } = stateOf(row);
  return { name, topic, pattern, timeZone, priority, ttlMs, maxAttempts, catchUpMs, ...progress };
}

const sameDefinition = (a: ScheduleDefinition, b: ScheduleDefinition): boolean =>
  a.topic === b.topic &&
  a.pattern === b.pattern &&
  a.timeZone === b.timeZone &&
  a.metadata === b.metadata &&
  a.priority === b.priority &&
  a.ttlMs === b.ttlMs &&
  a.maxAttempts === b.maxAttempts &&
  a.catchUpMs === b.catchUpMs &&
  typeof a.payload === typeof b.payload &&
  Buffer.compare(Buffer.from(a.payload), Buffer.from(b.payload)) === 0;
