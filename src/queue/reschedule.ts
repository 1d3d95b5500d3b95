import { isExpired, isPurged } from '../core/claim.ts';
import type { Entry, LogAddress, Place } from '../core/entry.ts';
import { invalid, QueueError } from '../core/errors.ts';
import { DEAD_TIER, isSlotTopic, waitingLog } from '../core/log.ts';
import type { MessageRow } from '../core/message.ts';
import { priorityFault, tierOf } from '../core/priority.ts';
import type { Engine } from './engine.ts';
import { type Located, type Locator, readByIds } from './locate.ts';
import type { Mover } from './move.ts';
import { sameLog, type Topic } from './topics.ts';
import { type CheckedTask, checkDue } from './validate.ts';

/** How often a change is tried again after the task changed under it. */
const TRIES = 10;

/** Changes tasks that wait: their priority, due time or payload. Each is a move. */
export class Rescheduler {
  readonly #engine: Engine;
  readonly #mover: Mover;
  readonly #locator: Locator;

  constructor(engine: Engine, mover: Mover, locator: Locator) {
    this.#engine = engine;
    this.#mover = mover;
    this.#locator = locator;
  }

  /** Gives a waiting task another payload and priority; null where it doesn't wait any more. */
  async replace(topic: Topic, row: MessageRow, task: CheckedTask): Promise<Place | null> {
    for (let tries = 0; tries < TRIES; tries++) {
      const { located } = await this.#locator.followRow(topic.name, row);
      if (located === null || !waits(topic, located, this.#engine.env.now())) return null;
      const entry = (await readByIds(this.#engine.store, located.place, [located.place.id])).get(located.place.id);
      // It changed since it was looked at: it may be with a worker by now.
      if (entry?.version !== located.head.version) continue;
      const dueAt = task.dueAt ?? entry.dueAt;
      const { payload, metadata, priority } = task;
      const to = this.#destination(topic, priority, dueAt);
      const place = await this.#move(topic, located, entry, to, { payload, metadata, priority, dueAt });
      if (place !== null) return place;
    }
    throw new QueueError('busy', 'the task changes faster than it can be replaced');
  }

  /** @throws QueueError `task-not-found`, `task-settled`, `task-leased`, `invalid-input` */
  async reschedule(
    topic: Topic,
    id: string,
    change: { readonly priority?: number; readonly delayMs?: number; readonly runAt?: number },
  ): Promise<void> {
    if (change.priority === undefined && change.delayMs === undefined && change.runAt === undefined) {
      throw invalid('', change, 'a change: priority, delayMs or runAt', '{"priority": 9}');
    }
    if (change.priority !== undefined) {
      const fault = priorityFault(change.priority, topic.settings);
      if (fault) throw invalid('/priority', change.priority, fault, '9');
    }
    const now = this.#engine.env.now();
    const due = checkDue(change, now, '');
    for (let tries = 0; tries < TRIES; tries++) {
      const located = await this.#locator.find(topic.name, id);
      if (located.head.status === 'leased') throw new QueueError('task-leased');
      if (!waits(topic, located, this.#engine.env.now())) throw new QueueError('task-settled');
      const entry = (await readByIds(this.#engine.store, located.place, [located.place.id])).get(located.place.id);
      if (entry?.version !== located.head.version) continue;
      const dueAt = due === null ? entry.dueAt : due > now ? due : null;
      const priority = change.priority ?? entry.priority;
      const to = this.#destination(topic, priority, dueAt);
      const unchanged = sameLog(to, located.place) && priority === entry.priority && dueAt === entry.dueAt;
      if (unchanged || (await this.#move(topic, located, entry, to, { priority, dueAt })) !== null) return;
    }
    throw new QueueError('busy', 'the task changes faster than it can be rescheduled');
  }

  #destination(topic: Topic, priority: number, dueAt: number | null): LogAddress {
    if (dueAt === null) return { topic: topic.name, tier: tierOf(priority, topic.settings, topic.turn++) };
    return waitingLog(topic.name, dueAt, this.#engine.env.now(), this.#engine.store.meta);
  }

  async #move(
    topic: Topic,
    located: Located,
    entry: Entry,
    to: LogAddress,
    changes: Partial<Pick<Entry, 'payload' | 'metadata' | 'priority' | 'dueAt'>>,
  ): Promise<Place | null> {
    const target = isSlotTopic(to.topic) ? topic.name : null;
    const from = await this.#engine.book.log(located.place);
    const placedAt = this.#engine.env.now();
    const [place] = await this.#mover.move(from, [entry], to, () => ({ ...changes, target, placedAt }));
    return place ?? null;
  }
}

const waits = (topic: Topic, { place, head }: Located, now: number): boolean =>
  head.status === 'ready' &&
  place.tier !== DEAD_TIER &&
  !isPurged(head, topic.settings.purgedAt) &&
  !isExpired(head, now);
