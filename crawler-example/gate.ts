import { LRUCache } from 'lru-cache';
import type { FrontierTask } from './frontier.ts';
import type { Outbox } from './outbox.ts';
import type { Politeness } from './politeness.ts';
import type { Robots } from './robots.ts';
import type { Scope } from './scope.ts';
import { hostOf, normaliseUrl, originOf } from './url.ts';

/** Sitemaps that one robots.txt may name. */
const SITEMAPS = 1_000;

export interface GateParts {
  readonly robots: Robots;
  readonly politeness: Politeness;
  readonly scope: Scope;
  readonly outbox: Outbox;
  /** Whether sitemaps are looked for. */
  readonly sitemaps: boolean;
  /** Ends the fetches of robots.txt, which workers share. */
  readonly ended: AbortSignal;
}

/**
 * - `pass`: go ahead
 * - `later`: give the task back; its host is at peace until then
 * - `refused`: for good
 */
export type GateAnswer = 'pass' | 'later' | { readonly refused: string };

/** What stands between a task and its fetch: robots.txt, and what follows from it for the host. */
export class Gate {
  readonly #parts: GateParts;
  /** Origins whose robots.txt was acted upon in this run. */
  readonly #greeted = new LRUCache<string, true>({ max: 10_000 });

  constructor(parts: GateParts) {
    this.#parts = parts;
  }

  async ask(url: string): Promise<GateAnswer> {
    const { robots, politeness, ended } = this.#parts;
    const host = hostOf(url);
    const answer = await robots.answer(url, ended);
    if (answer.kind === 'aborted') return 'later';
    if (answer.kind === 'never') return { refused: answer.reason };
    if (answer.kind === 'later') {
      await politeness.block(host, answer.retryAt);
      return 'later';
    }
    const origin = originOf(url);
    if (!this.#greeted.has(origin)) {
      // Once a run and not once a fetch of the file: a crash may have come between the two.
      if (answer.rules.crawlDelayMs !== null) await politeness.slowDown(host, answer.rules.crawlDelayMs);
      await this.#sendSitemaps(origin, answer.rules.sitemaps);
      this.#greeted.set(origin, true);
    }
    if (!answer.rules.allows(url)) return { refused: 'robots.txt' };
    // Fetching robots.txt was a fetch as well: given back, the task returns after the host's pause.
    return answer.fetched && politeness.isSpaced(host) ? 'later' : 'pass';
  }

  /** Those that robots.txt names, wherever they are, and the usual place. */
  async #sendSitemaps(origin: string, named: readonly string[]): Promise<void> {
    const { sitemaps, scope, outbox } = this.#parts;
    if (!sitemaps || !scope.allows(`${origin}/`, 0)) return;
    const urls = [...named.slice(0, SITEMAPS), '/sitemap.xml'].map((name) => normaliseUrl(name, `${origin}/`));
    const found = urls.filter((url) => url !== null);
    await outbox.send(found.map((url) => ({ task: sitemapTask(url, 0, `${origin}/robots.txt`) })));
  }
}

/** @param level of indexes above it */
export const sitemapTask = (url: string, level: number, referrer: string): FrontierTask => ({
  kind: 'sitemap',
  url,
  depth: level,
  referrer,
  hops: 0,
  seed: false,
  lastModified: null,
});
