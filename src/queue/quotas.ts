/**
 * Quotas of what may wait in a topic, and of what the embedded store may hold: new tasks beyond them are refused, what is in
 * already never is, wherever it moves.
 *
 * The server that schedules a topic knows what waits in it, and counts what calls under way are about to put there before
 * it lets another one in: so the quota is exact there. Any other server asks it first, each call once, and counts its own
 * calls under way; what several of them let in at the same moment may together go beyond the quota, by what they have
 * under way, which is at most ENQUEUE_TASKS a call. Where nobody answers, tasks are let in: a quota is no reason to
 * refuse work while shards change hands.
 */
import { QueueError } from '../core/errors.ts';
import type { TopicSettings } from '../core/settings.ts';
import type { Engine } from './engine.ts';
import type { Topic } from './topics.ts';

/** What waits in a topic, ready or delayed. */
export interface Waiting {
  readonly tasks: number;
  readonly bytes: number;
}

const NOTHING: Waiting = { tasks: 0, bytes: 0 };

/** Room that a call has taken in its topic until what it brings is counted there. */
export interface Room {
  /** Why each of its tasks may not come in; null: it may. */
  readonly refusals: readonly (QueueError | null)[];
  /** A task that was let in is counted where it waits, or did not come. */
  leave(bytes: number): void;
}

export const hasQuota = ({ maxWaiting, maxWaitingBytes }: TopicSettings): boolean =>
  maxWaiting !== null || maxWaitingBytes !== null;

export class Quotas {
  readonly #engine: Engine;
  readonly #askHolder: (topic: string) => Promise<Waiting | null>;
  /** What calls under way are about to bring, by topic. */
  readonly #coming = new Map<Topic, { tasks: number; bytes: number }>();

  /** @param askHolder what waits in a topic, as the server says that schedules it; null: it gives no answer */
  constructor(engine: Engine, askHolder: (topic: string) => Promise<Waiting | null>) {
    this.#engine = engine;
    this.#askHolder = askHolder;
  }

  /** What waits in a topic as known here, with what is about to come. */
  waiting(topic: Topic): Waiting {
    const { ready, delayed } = topic.counts();
    const coming = this.#coming.get(topic) ?? NOTHING;
    const bytes = topic.hasByteQuota ? this.#engine.book.waitingBytes(topic) : 0;
    return { tasks: ready + delayed + coming.tasks, bytes: bytes + coming.bytes };
  }

  /** Whether new tasks of a topic have to be admitted. */
  concern(topic: Topic): boolean {
    return hasQuota(topic.settings) || this.#engine.store.isFull();
  }

  /**
   * Takes room for new tasks, in their order; each is judged by itself.
   * @param sizes bytes of each
   */
  async admit(topic: Topic, sizes: readonly number[]): Promise<Room> {
    if (this.#engine.store.isFull()) return { refusals: sizes.map(() => new QueueError('store-full')), leave() {} };
    const there = topic.tenure.holds ? null : await this.#askHolder(topic.name);
    // Where nobody has answered, what calls here have under way is all that is known.
    const known = topic.tenure.holds ? this.waiting(topic) : (there ?? NOTHING);
    const coming = this.#coming.get(topic) ?? { tasks: 0, bytes: 0 };
    const own = topic.tenure.holds ? NOTHING : coming;
    let [tasks, bytes] = [known.tasks + own.tasks, known.bytes + own.bytes];
    const refusals = sizes.map((size) => {
      const refusal = refusalOf(topic.settings, { tasks, bytes }, size);
      if (refusal !== null) return refusal;
      tasks++;
      bytes += size;
      coming.tasks++;
      coming.bytes += size;
      return null;
    });
    if (coming.tasks > 0) this.#coming.set(topic, coming);
    return { refusals, leave: (size) => this.#leave(topic, size) };
  }

  #leave(topic: Topic, bytes: number): void {
    const coming = this.#coming.get(topic);
    if (coming === undefined) return;
    coming.tasks--;
    coming.bytes -= bytes;
    if (coming.tasks <= 0) this.#coming.delete(topic);
  }
}

function refusalOf(settings: TopicSettings, { tasks, bytes }: Waiting, size: number): QueueError | null {
  const { maxWaiting, maxWaitingBytes } = settings;
  if (maxWaiting !== null && tasks >= maxWaiting) {
    return new QueueError('topic-full', `${tasks} tasks wait in the topic, which may hold ${maxWaiting} (maxWaiting)`);
  }
  if (maxWaitingBytes === null) return null;
  if (size > maxWaitingBytes) {
    const detail = `the task takes ${size} bytes, and the topic may hold ${maxWaitingBytes} (maxWaitingBytes)`;
    return new QueueError('payload-too-large', detail);
  }
  if (bytes + size <= maxWaitingBytes) return null;
  const detail = `${bytes} bytes wait in the topic, which may hold ${maxWaitingBytes} (maxWaitingBytes): no room for ${size}`;
  return new QueueError('topic-full', detail);
}
