import { FoldedTopic } from '../queue/folded.ts';
import type { KnownTopic, Topic } from '../queue/topics.ts';

/**
 * Topics in the order in which they are served: round after round, as many turns in a row as each weighs (weighted round
 * robin). One that leaves amid its turns and comes back goes on with them.
 */
export class Rounds {
  /** A Map keeps the order of insertion: the first is next. */
  readonly #amid = new Map<string, Topic>();
  readonly #next = new Map<string, KnownTopic>();

  get size(): number {
    return this.#next.size + this.#amid.size;
  }

  has(name: string): boolean {
    return this.#next.has(name) || this.#amid.has(name);
  }

  get(name: string): KnownTopic | undefined {
    return this.#next.get(name) ?? this.#amid.get(name);
  }

  add(topic: KnownTopic): void {
    if (topic instanceof FoldedTopic || topic.turnsTaken === 0) this.#next.set(topic.name, topic);
    else this.#amid.set(topic.name, topic);
  }

  /** Folded or unfolded, it stays where it is. */
  replace(topic: KnownTopic): void {
    if (this.#next.has(topic.name)) this.#next.set(topic.name, topic);
  }

  delete(name: string): void {
    if (!this.#next.delete(name)) this.#amid.delete(name);
  }

  /** A topic was served so many turns: it leaves, and is behind all others when it comes back, unless it has turns left. */
  served(topic: Topic, turns: number): void {
    this.delete(topic.name);
    topic.turnsTaken += turns;
    if (topic.turnsTaken >= topic.settings.weight) topic.turnsTaken = 0;
  }

  *values(): Generator<KnownTopic> {
    yield* this.#amid.values();
    yield* this.#next.values();
  }
}
