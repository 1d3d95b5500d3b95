import { LRUCache } from 'lru-cache';
import { type Frontier, type FrontierTask, toInput } from './frontier.ts';
import type { Politeness } from './politeness.ts';
import type { Stats } from './progress.ts';
import { hostOf } from './url.ts';

/** Tasks of one enqueue call. */
const CHUNK = 1_000;
/** Addresses remembered as being in the queue; a page's links mostly lead to what is known. */
const KNOWN = 200_000;

/** A task to be put into the queue. */
export interface Link {
  readonly task: FrontierTask;
  /** 0 to 1; null where no sitemap says. */
  readonly sitemapPriority?: number | null;
  /** Also where it is settled already. */
  readonly again?: boolean;
}

/** Puts links into their hosts' topics. The queue's dedup decides; what is remembered here only spares calls. */
export class Outbox {
  readonly #frontier: Frontier;
  readonly #politeness: Politeness;
  readonly #stats: Stats;
  readonly #known = new LRUCache<string, true>({ max: KNOWN });

  constructor(frontier: Frontier, politeness: Politeness, stats: Stats) {
    this.#frontier = frontier;
    this.#politeness = politeness;
    this.#stats = stats;
  }

  /** Resolves once all of them are on disk. */
  async send(links: readonly Link[]): Promise<void> {
    const byHost = new Map<string, Map<string, Link>>();
    for (const link of links) {
      const key = `${link.task.kind} ${link.task.url}`;
      if (this.#known.has(key)) continue;
      const host = hostOf(link.task.url);
      const list = byHost.get(host) ?? new Map<string, Link>();
      if (!list.has(key)) list.set(key, link);
      byHost.set(host, list);
    }
    await Promise.all([...byHost].map(([host, list]) => this.#sendTo(host, [...list])));
  }

  async #sendTo(host: string, links: readonly (readonly [string, Link])[]): Promise<void> {
    await this.#politeness.prepare(host);
    for (let i = 0; i < links.length; i += CHUNK) {
      const chunk = links.slice(i, i + CHUNK);
      const inputs = chunk.map(([, { task, sitemapPriority, again }]) => ({
        ...toInput(task, sitemapPriority ?? null),
        ...(again === true && { onDuplicate: 'again' as const }),
      }));
      const results = await this.#frontier.enqueue(host, inputs);
      for (const result of results) {
        if (result.id === null) this.#stats.unqueued++;
        else if (!result.deduplicated) this.#stats.enqueued++;
      }
      for (const [key] of chunk) this.#known.set(key, true);
    }
  }
}
