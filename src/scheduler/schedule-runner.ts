/**
 * Wakes each schedule of the shards held here when it is due. Of a schedule nothing is kept but its name and when that is,
 * as its row said when it was read with the shard, or was last written here. Each time it is woken its row is read again:
 * what has changed meanwhile, or was deleted, is found then, so that nothing rests on what is kept. How a firing is made
 * exactly once, and who may be paused where, is in queue/schedules.ts.
 */
import { SCHEDULE_PAGE } from '../core/bounds.ts';
import { QueueError } from '../core/errors.ts';
import { Limiter } from '../core/limiter.ts';
import type { Engine } from '../queue/engine.ts';
import type { Schedules } from '../queue/schedules.ts';
import type { Tenure } from '../queue/tenure.ts';
import { AlarmClock } from './alarm.ts';

/** Schedules that are fired at the same time: those of midnight are many, and share writes. */
const FIRED_AT_ONCE = 32;
const LOADS_AT_ONCE = 8;
const AGAIN_MS = 500;
/** A pattern or time zone that this process cannot read, and another version may, is tried again after so long. */
const UNREADABLE_AGAIN_MS = 60_000;
/** A change with an unknown outcome may be carried out late: for so long its row is looked for. */
const DOUBT_MS = 60_000;
const DOUBT_AGAIN_MS = 5_000;

interface Armed {
  readonly name: string;
  readonly tenure: Tenure;
  /** Until then it is looked for again where it is not there. */
  doubtUntil: number;
}

export class ScheduleRunner {
  readonly #engine: Engine;
  readonly #schedules: Schedules;
  readonly #alarms: AlarmClock<Armed>;
  readonly #armed = new Map<Tenure, Map<string, Armed>>();
  readonly #loads = new Limiter(LOADS_AT_ONCE);
  readonly #firings = new Limiter(FIRED_AT_ONCE);
  /** What is under way. */
  readonly #busy = new Set<Promise<void>>();
  /** The last one could not be fired. */
  #isFailing = false;
  #stopped = false;

  constructor(engine: Engine, schedules: Schedules) {
    this.#engine = engine;
    this.#schedules = schedules;
    this.#alarms = new AlarmClock(engine.env, (due) => {
      for (const armed of due) this.#track(this.#firings.run(() => this.#wake(armed)));
    });
  }

  /** This server runs the schedules of the shard from now on. */
  begin(tenure: Tenure): void {
    this.#armed.set(tenure, new Map());
    this.#load(tenure, null);
  }

  forget(tenure: Tenure): void {
    for (const armed of this.#armed.get(tenure)?.values() ?? []) this.#alarms.clear(armed);
    this.#armed.delete(tenure);
  }

  /**
   * A schedule is due then.
   * @param inDoubt it may not be there yet
   */
  arm(name: string, at: number | null, inDoubt = false): void {
    const tenure = this.#engine.book.tenureOf(name);
    const shelf = this.#armed.get(tenure);
    if (shelf === undefined || this.#stopped) return;
    let armed = shelf.get(name);
    if (armed === undefined) {
      armed = { name, tenure, doubtUntil: 0 };
      shelf.set(name, armed);
    }
    const now = this.#engine.env.now();
    if (inDoubt) armed.doubtUntil = now + DOUBT_MS;
    this.#alarms.set(armed, inDoubt ? now + DOUBT_AGAIN_MS : (at ?? Number.POSITIVE_INFINITY));
  }

  /** A schedule was deleted. */
  disarm(name: string): void {
    const shelf = this.#armed.get(this.#engine.book.tenureOf(name));
    const armed = shelf?.get(name);
    if (armed === undefined) return;
    this.#alarms.clear(armed);
    shelf!.delete(name);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#alarms.stop();
    await Promise.all(this.#busy);
  }

  #load(tenure: Tenure, after: string | null): void {
    this.#track(
      this.#loads.run(async () => {
        const { store, env, log } = this.#engine;
        let at = after;
        try {
          for (let size = SCHEDULE_PAGE; size === SCHEDULE_PAGE && !tenure.ended && !this.#stopped; ) {
            const page = await store.readSchedules(tenure.shard, at, SCHEDULE_PAGE);
            if (!tenure.ended) for (const { name, nextAt } of page) this.arm(name, nextAt);
            size = page.length;
            at = page.at(-1)?.name ?? null;
          }
        } catch (error) {
          if (tenure.ended || this.#stopped) return;
          log.warn({ err: error, shard: tenure.shard }, 'schedules could not be loaded; it is tried again');
          env.timer(AGAIN_MS, () => {
            if (!tenure.ended && !this.#stopped) this.#load(tenure, at);
          });
        }
      }),
    );
  }

  async #wake(armed: Armed): Promise<void> {
    const { name, tenure } = armed;
    const { env, log } = this.#engine;
    if (tenure.ended || this.#stopped) return;
    try {
      const nextAt = await this.#schedules.fire(name);
      this.#isFailing = false;
      if (nextAt !== undefined) this.#set(armed, nextAt ?? Number.POSITIVE_INFINITY);
      else if (env.now() < armed.doubtUntil) this.#set(armed, env.now() + DOUBT_AGAIN_MS);
      else this.#armed.get(tenure)?.delete(name);
    } catch (error) {
      if (tenure.ended || this.#stopped) return;
      // Not sure for a moment whether it is still the one that runs it: who takes it over, or it, does it then.
      const code = error instanceof QueueError ? error.code : null;
      const isUnreadable = code === 'invalid-input';
      // While the store is away, all that are due fail, twice a second: one of them is enough to be told of.
      if (code !== 'not-holder' && (isUnreadable || !this.#isFailing)) {
        log.warn({ err: error, schedule: name }, 'a schedule could not be fired; it is tried again');
      }
      this.#isFailing ||= code !== 'not-holder' && !isUnreadable;
      this.#set(armed, env.now() + (isUnreadable ? UNREADABLE_AGAIN_MS : AGAIN_MS));
    }
  }

  #set(armed: Armed, at: number): void {
    if (!armed.tenure.ended) this.#alarms.set(armed, at);
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#busy.delete(tracked));
    this.#busy.add(tracked);
  }
}
