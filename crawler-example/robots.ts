/**
 * robots.txt by RFC 9309: fetched once an origin and kept for a day, over restarts too. An answer of 4xx means there
 * are no rules; 5xx, 429 and no answer at all mean that nothing is allowed until it can be read. Crawl-delay and
 * Sitemap are not in the RFC, but are what hosts use.
 */
import { LRUCache } from 'lru-cache';
import robotsParserModule from 'robots-parser';
import type { FetchedResponse, Fetcher } from './fetch.ts';
import { parseRetryAfter } from './headers.ts';
import type { Pages, RobotsRow } from './pages.ts';
import { normaliseEscapes, normaliseUrl, originOf } from './url.ts';

/** RFC 9309 §2.5: at least 500 KiB have to be read; what comes behind is left out. */
const BYTES = 500 * 1024;
/** RFC 9309 §2.3.1.2. */
const REDIRECTS = 5;
/** RFC 9309 §2.4. */
const KEPT_MS = 24 * 3_600_000;
/** RFC 9309 §2.3.1.4: how long an old copy may stand in for one that can't be reached. */
const STALE_MS = 30 * 24 * 3_600_000;
/** A refused address may be a slip in the DNS. */
const REFUSED_MS = 3_600_000;
/** Longest Crawl-delay that is followed; a larger one is a mistake of the unit. */
const CRAWL_DELAY_MS = 3_600_000;
/** Matching costs the product of the lengths of path and pattern where a pattern has wildcards. */
const WILDCARD_CHARS = 64 * 1024;

export interface RobotsRules {
  allows(url: string): boolean;
  /** Between two fetches; null where the file asks for none. */
  readonly crawlDelayMs: number | null;
  /** As they stand there; a relative one is not allowed by sitemaps.org, but understood. */
  readonly sitemaps: readonly string[];
}

/** The package's types describe a default export that Node's view of its CommonJS module has one level down. */
const robotsParser = robotsParserModule as unknown as (
  url: string,
  text: string,
) => { isAllowed(url: string, agent: string): boolean | undefined; getCrawlDelay(agent: string): number | undefined };

/**
 * @param origin that the file speaks for
 * @param token our product token, in lower case
 */
export function parseRobots(origin: string, text: string, token: string): RobotsRules {
  const lines: string[] = [];
  const sitemaps: string[] = [];
  let wildcards = 0;
  for (const line of text.replace(/^\uFEFF/, '').split(/\r\n|\r|\n/)) {
    const match = /^\s*([a-z-]+)\s*:\s*([^#]*)/i.exec(line);
    const key = match?.[1]?.toLowerCase();
    const value = (match?.[2] ?? '').trim();
    // Other records must not end a group of user agents (§2.2.4), which they do in the parser.
    if (key === 'sitemap') sitemaps.push(line.slice(line.indexOf(':') + 1).trim());
    else if (key === 'user-agent') lines.push(`user-agent: ${/^(?:\*|[a-z_-]+)/i.exec(value)?.[0] ?? value}`);
    else if (key === 'allow' || key === 'disallow') {
      // §2.2.2 compares after unreserved characters are decoded; ours are by url.ts.
      lines.push(`${key}: ${normaliseEscapes(value)}`);
      if (value.includes('*')) wildcards += value.length;
    } else if (key === 'crawl-delay') lines.push(`${key}: ${value}`);
  }
  const parsed = robotsParser(`${origin}/robots.txt`, lines.join('\n'));
  const delay = parsed.getCrawlDelay(token);
  return {
    // Too costly to judge by: then everything is off limits, which is the safe side.
    allows: (url) =>
      wildcards <= WILDCARD_CHARS &&
      (new URL(url).pathname === '/robots.txt' || parsed.isAllowed(url, token) !== false),
    crawlDelayMs: delay === undefined || !(delay > 0) ? null : Math.min(Math.ceil(delay * 1000), CRAWL_DELAY_MS),
    sitemaps,
  };
}

export type RobotsAnswer =
  /** `fetched`: the host was asked just now. */
  | { readonly kind: 'rules'; readonly rules: RobotsRules; readonly fetched: boolean }
  /** Nothing is allowed before `retryAt`, in milliseconds since 1970. */
  | { readonly kind: 'later'; readonly retryAt: number }
  /** Nothing is allowed. */
  | { readonly kind: 'never'; readonly reason: string }
  | { readonly kind: 'aborted' };

export interface RobotsOptions {
  /** Our product token, in lower case. */
  readonly token: string;
  /** Wait before the second try of a file that can't be reached, in milliseconds; doubles with every further one. */
  readonly retryMs: number;
  /** Tries until the origin is given up for a day. */
  readonly tries: number;
  readonly now: () => number;
}

export class Robots {
  readonly #pages: Pages;
  readonly #fetcher: Fetcher;
  readonly #options: RobotsOptions;
  readonly #parsed = new LRUCache<string, { readonly body: string; readonly rules: RobotsRules }>({ max: 1_000 });
  readonly #fetching = new Map<string, Promise<RobotsAnswer>>();

  constructor(pages: Pages, fetcher: Fetcher, options: RobotsOptions) {
    this.#pages = pages;
    this.#fetcher = fetcher;
    this.#options = options;
  }

  /** What the origin of a URL allows, fetched where need be; workers that ask meanwhile share the fetch. */
  answer(url: string, signal: AbortSignal): Promise<RobotsAnswer> {
    const origin = originOf(url);
    const row = this.#pages.robots(origin);
    if (row !== undefined && row.expiresAt > this.#options.now()) return Promise.resolve(this.#read(row));
    const running = this.#fetching.get(origin);
    if (running !== undefined) return running;
    const fetching = this.#fetch(origin, row, signal).finally(() => this.#fetching.delete(origin));
    this.#fetching.set(origin, fetching);
    return fetching;
  }

  #read(row: RobotsRow): RobotsAnswer {
    if (row.state === 'rules') return { kind: 'rules', rules: this.#rules(row), fetched: false };
    if (row.state === 'refused') return { kind: 'never', reason: row.body };
    if (row.failures >= this.#options.tries) return { kind: 'never', reason: 'robots.txt unreachable' };
    return { kind: 'later', retryAt: row.expiresAt };
  }

  #rules({ origin, body }: RobotsRow): RobotsRules {
    const known = this.#parsed.get(origin);
    if (known?.body === body) return known.rules;
    const rules = parseRobots(origin, body, this.#options.token);
    this.#parsed.set(origin, { body, rules });
    return rules;
  }

  async #fetch(origin: string, old: RobotsRow | undefined, signal: AbortSignal): Promise<RobotsAnswer> {
    const got = await this.#get(`${origin}/robots.txt`, signal);
    if (got.kind === 'aborted') return got;
    const now = this.#options.now();
    if (got.kind === 'unreachable') return this.#unreachable(origin, old, got.retryMs, now);
    const row: RobotsRow = {
      origin,
      state: got.kind,
      body: got.body,
      fetchedAt: now,
      expiresAt: now + (got.kind === 'rules' ? KEPT_MS : REFUSED_MS),
      failures: 0,
    };
    this.#pages.putRobots(row);
    const answer = this.#read(row);
    return answer.kind === 'rules' ? { ...answer, fetched: true } : answer;
  }

  #unreachable(origin: string, old: RobotsRow | undefined, askedMs: number | null, now: number): RobotsAnswer {
    if (old?.state === 'rules' && now - old.fetchedAt < STALE_MS) {
      const row = { ...old, expiresAt: now + Math.max(askedMs ?? 0, KEPT_MS / 24) };
      this.#pages.putRobots(row);
      return this.#read(row);
    }
    // Given up and expired: tries start anew.
    const failures = old?.state === 'unreachable' && old.failures < this.#options.tries ? old.failures + 1 : 1;
    const waitMs = Math.max(askedMs ?? 0, this.#options.retryMs * 2 ** (failures - 1));
    const expiresAt = now + (failures >= this.#options.tries ? KEPT_MS : waitMs);
    const row: RobotsRow = { origin, state: 'unreachable', body: '', fetchedAt: now, expiresAt, failures };
    this.#pages.putRobots(row);
    return this.#read(row);
  }

  async #get(
    first: string,
    signal: AbortSignal,
  ): Promise<
    | { readonly kind: 'rules' | 'refused'; readonly body: string }
    | { readonly kind: 'unreachable'; readonly retryMs: number | null }
    | { readonly kind: 'aborted' }
  > {
    let url = first;
    for (let hop = 0; hop <= REDIRECTS; hop++) {
      const got = await this.#fetcher.get(url, { maxBytes: BYTES, over: 'cut', keep: () => true, signal });
      if (got.kind === 'aborted') return got;
      if (got.kind === 'refused') return { kind: 'refused', body: got.reason };
      if (got.kind !== 'response') return { kind: 'unreachable', retryMs: null };
      const { status } = got;
      if (status >= 200 && status < 300) return { kind: 'rules', body: got.body?.toString('utf8') ?? '' };
      if (status >= 500 || status === 429) return { kind: 'unreachable', retryMs: this.#retryAfter(got) };
      const location = status >= 300 && status < 400 ? got.header('location')[0] : undefined;
      const next = location === undefined ? null : normaliseUrl(location, url);
      if (next === null) return { kind: 'rules', body: '' };
      url = next;
    }
    return { kind: 'rules', body: '' };
  }

  #retryAfter(response: FetchedResponse): number | null {
    return parseRetryAfter(response.header('retry-after')[0], this.#options.now());
  }
}
