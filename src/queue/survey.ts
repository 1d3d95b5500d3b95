import TinyQueue from 'tinyqueue';
import { Turns } from '../scheduler/turns.ts';
import type { Environment } from './environment.ts';
import type { KnownTopic, TopicBook } from './topics.ts';

/** So many are looked at whenever somebody asks. */
const FEW_TOPICS = 1_000;
/** Topics of which the busiest are known. */
export const BUSIEST = 20;
/** A look at all topics is not repeated within so long, in milliseconds. */
const LOOK_EVERY_MS = 1_000;

const busyness = (topic: KnownTopic): number => {
  const { ready, delayed, leased } = topic.counts();
  return ready + delayed + leased;
};

/**
 * What takes a look at all topics that are scheduled here: it is taken in slices, so that it holds up nothing however many
 * there are, and only when somebody asks.
 */
export class Survey {
  readonly #book: TopicBook;
  readonly #env: Environment;
  readonly #turns: Turns;
  #looking: Promise<void> | null = null;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #busiest: readonly string[] = [];
  /** Since when the ready task that has waited longest has waited, as of the last look. */
  #readySince: number | null = null;

  constructor(book: TopicBook, env: Environment) {
    this.#book = book;
    this.#env = env;
    this.#turns = new Turns(env);
  }

  stop(): void {
    this.#turns.stop();
  }

  /** The names of the busiest topics, as a second ago at the earliest. */
  async busiest(): Promise<readonly string[]> {
    await this.look();
    return this.#busiest;
  }

  /** Looks at all topics; where they are many, not if that was just done. */
  look(): Promise<void> {
    if (this.#looking !== null) return this.#looking;
    const isRecent = this.#env.monotonic() - this.#lookedAt < LOOK_EVERY_MS;
    if (isRecent && this.#book.size > FEW_TOPICS) return Promise.resolve();
    this.#looking = this.#lookAtAll().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  /** Since when a task has waited, at the most; null: none is ready. Of many topics, as they were at the last look. */
  readySince(): number | null {
    if (this.#book.size > FEW_TOPICS) return this.#readySince;
    let since: number | null = null;
    for (const topic of this.#book.held()) since = earlier(since, topic.readySince);
    return since;
  }

  async #lookAtAll(): Promise<void> {
    const top = new TinyQueue<{ readonly name: string; readonly busy: number }>([], (a, b) => a.busy - b.busy);
    let since: number | null = null;
    await this.#each((topic) => {
      since = earlier(since, topic.readySince);
      const busy = busyness(topic);
      if (top.length === BUSIEST && busy <= top.peek()!.busy) return;
      top.push({ name: topic.name, busy });
      if (top.length > BUSIEST) top.pop();
    });
    this.#readySince = since;
    this.#busiest = drained(top)
      .map(({ name }) => name)
      .reverse();
    this.#lookedAt = this.#env.monotonic();
  }

  /**
   * The first names, in their order, of topics that are scheduled here and have something in them, or settings.
   * @param after only names behind this one
   */
  async names(limit: number, after: string, prefix: string): Promise<readonly string[]> {
    // The last of those that are first so far is on top.
    const first = new TinyQueue<string>([], (a, b) => (a < b ? 1 : -1));
    await this.#each(({ name, hasLogs, delayed, version }) => {
      if (name <= after || !name.startsWith(prefix)) return;
      if (!hasLogs && delayed === 0 && version === null) return;
      if (first.length === limit && name > first.peek()!) return;
      first.push(name);
      if (first.length > limit) first.pop();
    });
    return drained(first).reverse();
  }

  #each(look: (topic: KnownTopic) => void): Promise<void> {
    return this.#turns.through(this.#book.held(), (topic) => {
      look(topic);
      return 1;
    });
  }
}

/** What is in a queue, first what comes first in it. */
function drained<T>(queue: TinyQueue<T>): T[] {
  const all: T[] = [];
  while (queue.length > 0) all.push(queue.pop()!);
  return all;
}

const earlier = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.min(a, b);
