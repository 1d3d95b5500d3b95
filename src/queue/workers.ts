import { LRUCache } from 'lru-cache';

/** So long a worker is taken to be there after it got something, in milliseconds. */
const SEEN_MS = 60_000;
const TOPICS = 256;
const WORKERS_PER_TOPIC = 256;

/** Which workers have got tasks of which topics lately; of those topics and workers that were seen last. */
export class Workers {
  readonly #topics = new LRUCache<string, LRUCache<string, number>>({ max: TOPICS });

  saw(worker: string, topic: string, now: number): void {
    let workers = this.#topics.get(topic);
    if (workers === undefined) {
      workers = new LRUCache({ max: WORKERS_PER_TOPIC });
      this.#topics.set(topic, workers);
    }
    workers.set(worker, now);
  }

  /** Those that were seen within a minute. */
  lately(topic: string, now: number): ReadonlySet<string> {
    const found = new Set<string>();
    for (const [worker, at] of this.#topics.peek(topic)?.entries() ?? []) if (now - at < SEEN_MS) found.add(worker);
    return found;
  }
}
