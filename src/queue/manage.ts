import { ENQUEUE_TASKS } from '../core/bounds.ts';
import { isExpired, isPurged } from '../core/claim.ts';
import { QueueError } from '../core/errors.ts';
import { DEAD_TIER, isSlotTopic } from '../core/log.ts';
import { type MessageWrite, messageKey } from '../core/message.ts';
import { optionalInteger } from '../core/numbers.ts';
import { tierOf } from '../core/priority.ts';
import type { TopicSettings } from '../core/settings.ts';
import { measureDelayed } from '../scheduler/slot-counter.ts';
import type { RedriveRequest, RedriveResult, SettingsPatch } from './api.ts';
import { applySettings } from './check-settings.ts';
import type { Claimer } from './claim.ts';
import { endEntry } from './end-entry.ts';
import type { Engine } from './engine.ts';
import { type Locator, readByIds } from './locate.ts';
import type { Log } from './log.ts';
import { liveRow } from './messages.ts';
import type { Mover } from './move.ts';
import { definitely } from './outcomes.ts';
import { placeIn, type Topic } from './topics.ts';
import { checkCount, checkReason } from './validate.ts';

const TRIES = 10;
/** By how much the clocks of two servers on one store may differ at the most, in milliseconds. */
const CLOCKS_DIFFER_MS = 1_000;
const REDRIVE_BATCH = 100;
const REDRIVE_MOST = 1_000_000;

/** What operators and producers do to tasks and topics from outside. */
export class Manager {
  readonly #engine: Engine;
  readonly #mover: Mover;
  readonly #claimer: Claimer;
  readonly #locator: Locator;

  constructor(engine: Engine, mover: Mover, claimer: Claimer, locator: Locator) {
    this.#engine = engine;
    this.#mover = mover;
    this.#claimer = claimer;
    this.#locator = locator;
  }

  /** @throws QueueError `task-not-found`, `task-settled` */
  async cancel(topic: Topic, id: string, reason: unknown): Promise<void> {
    const why = checkReason(reason, '/reason');
    for (let tries = 0; tries < TRIES; tries++) {
      const { place, head } = await this.#locator.find(topic.name, id);
      const isExpiredNow = place.tier !== DEAD_TIER && isExpired(head, this.#engine.env.now());
      const waits = head.status === 'ready' && !isExpiredNow && !isPurged(head, topic.settings.purgedAt);
      if (!waits && head.status !== 'leased') throw new QueueError('task-settled');
      if (await endEntry(this.#engine, topic, { place, head }, 'cancelled', why)) return;
    }
    throw new QueueError('busy', 'the task changes faster than it can be cancelled');
  }

  configure(topic: Topic, patch: SettingsPatch): Promise<void> {
    return topic.during(() => this.#configure(topic, patch));
  }

  async #configure(topic: Topic, patch: SettingsPatch): Promise<void> {
    const wasLimited = topic.limited;
    const { maxWaiting, maxWaitingBytes } = topic.settings;
    await this.#write(topic, (settings) => applySettings(settings, patch));
    const isNew = (now: number | null, before: number | null): boolean => now !== null && before === null;
    const hasNewBytes = isNew(topic.settings.maxWaitingBytes, maxWaitingBytes);
    if (hasNewBytes || isNew(topic.settings.maxWaiting, maxWaiting)) await this.#claimer.measure(topic);
    if (hasNewBytes) await measureDelayed(this.#engine, topic);
    if (wasLimited || !topic.limited) return;
    await this.#claimer.countExactly(topic);
    this.#engine.signals.ready(topic);
  }

  /** @param then done in the moment in which the settings come into force here */
  async #write(
    topic: Topic,
    change: (settings: TopicSettings) => TopicSettings,
    then: () => void = () => {},
  ): Promise<void> {
    const { store, env, book, signals } = this.#engine;
    for (let tries = 0; tries < TRIES; tries++) {
      const settings = change(topic.settings);
      const seen = topic.version;
      const outcome = await definitely(env, () => store.writeTopic(topic.name, seen, JSON.stringify(settings)));
      if (outcome === 'applied') {
        topic.learn(settings, (seen ?? 0) + 1, env);
        then();
        signals.ready(topic);
        return;
      }
      await book.reload(topic);
    }
    throw new QueueError('settings-conflict');
  }

  /**
   * Marks the topic as purged up to now; what was enqueued before ends when it is met. Answered only once the clock
   * has moved on, so that a task enqueued after the answer is not taken for one from before.
   */
  purge(topic: Topic): Promise<void> {
    return topic.during(() => this.#purge(topic));
  }

  async #purge(topic: Topic): Promise<void> {
    const { store, env, book, signals } = this.#engine;
    const purgedAt = env.now();
    // What waits now counts no more from the moment on in which that is written, but for what is taken until then; what
    // comes meanwhile does.
    const delayed = book.slotsOf(topic.tenure).holding(topic.name);
    const ready = [...topic.logs].map((log) => ({ log, count: log.ready, takenOff: log.takenOff }));
    await this.#write(
      topic,
      (settings) => ({ ...settings, purgedAt }),
      () => {
        for (const [slot, count] of delayed) slot.add(topic.name, -Math.min(count, slot.waiting.get(topic.name) ?? 0));
        for (const { log, count, takenOff } of ready) log.countReady(Math.min(0, log.takenOff - takenOff - count));
      },
    );
    const over = purgedAt + (store.exclusive ? 0 : CLOCKS_DIFFER_MS);
    while (env.now() <= over) await new Promise<void>((resolve) => env.timer(over + 1 - env.now(), resolve));
    // The entries themselves end as they are met.
    for (const log of topic.logs) {
      log.sweep = true;
      signals.due(log, env.now());
    }
    signals.changed(topic);
  }

  async redrive(topic: Topic, request: RedriveRequest): Promise<RedriveResult> {
    const limit = optionalInteger(request.limit, '/limit', 1, REDRIVE_MOST) ?? REDRIVE_MOST;
    const refused: { id: string; code: string; detail: string }[] = [];
    const log = await this.#engine.book.scheduledLog({ topic: topic.name, tier: DEAD_TIER });
    let redriven = 0;
    if (request.ids !== undefined) {
      checkCount(request.ids, '/ids', ENQUEUE_TASKS, '["01ARZ3NDEKTSV4RRFFQ69G5FAV.5.17"]');
      for (const id of request.ids.slice(0, limit)) {
        try {
          const { place, head } = await this.#locator.find(topic.name, id);
          if (place.tier !== DEAD_TIER || isSlotTopic(place.topic) || head.status !== 'ready') {
            throw new QueueError('invalid-input', 'the task is not dead');
          }
          redriven += await this.#redriveSome(topic, log, [place.id], refused);
        } catch (error) {
          if (!(error instanceof QueueError)) throw error;
          refused.push({ id, code: error.code, detail: error.detail });
        }
      }
      return { redriven, refused };
    }
    const end = log.nextId;
    for (let at = log.completion; at < end && redriven < limit; ) {
      const ids = Array.from({ length: Math.min(REDRIVE_BATCH, end - at, limit - redriven) }, (_, nth) => at + nth);
      redriven += await this.#redriveSome(topic, log, ids, refused);
      at += ids.length;
    }
    return { redriven, refused };
  }

  /** The message row first: where another task owns the id by now, the dead letter stays. */
  async #redriveSome(
    topic: Topic,
    log: Log,
    ids: readonly number[],
    refused: { id: string; code: string; detail: string }[],
  ): Promise<number> {
    const entries = [...(await readByIds(this.#engine.store, log.address, ids)).values()].filter(
      (entry) => entry.status === 'ready' && !isPurged(entry, topic.settings.purgedAt),
    );
    const writes = entries.map((entry): MessageWrite => {
      const row = liveRow(messageKey(entry)!, entry, placeIn(log.address, entry.id));
      // Nothing of a later time: the write may be carried out late, when the task has gone on, or ended.
      return { expect: { uid: entry.uid, statusIn: ['live', 'dead'], hopsBelow: entry.hops + 1 }, row, ttlMs: null };
    });
    const answers = [...(await this.#engine.messages.write(topic.name, writes))];
    const gone = answers.flatMap((answer, at) => (answer === 'absent' ? [at] : []));
    const inserted = await this.#engine.messages.write(
      topic.name,
      gone.map((at) => ({ ...writes[at]!, expect: { absent: true } })),
    );
    for (const [nth, at] of gone.entries()) answers[at] = inserted[nth]!;
    const mine = entries.filter((entry, at) => {
      const answer = answers[at]!;
      if (answer === null || (answer !== 'absent' && answer.uid === entry.uid)) return true;
      refused.push({
        id: entry.taskId ?? entry.uid,
        code: 'task-replaced',
        detail: 'another task owns its message id by now',
      });
      return false;
    });
    let redriven = 0;
    const tiers = new Map<number, typeof mine>();
    for (const entry of mine) {
      const tier = tierOf(entry.priority, topic.settings, topic.turn++);
      tiers.set(tier, [...(tiers.get(tier) ?? []), entry]);
    }
    for (const [tier, some] of tiers) {
      const placedAt = this.#engine.env.now();
      const places = await this.#mover.move(log, some, { topic: topic.name, tier }, () => ({ placedAt, attempt: 0 }));
      redriven += places.filter((place) => place !== null).length;
    }
    return redriven;
  }
}
