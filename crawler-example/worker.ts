/**
 * What is done with one task. Everything that follows from it is on disk before the verdict: links in the queue first,
 * then the page's row, then the acknowledgement. A crash in between repeats the task, and loses nothing.
 */
import type { LeasedTask } from '../src/index.ts';
import type { FetchedResponse, Fetcher, FetchFailure } from './fetch.ts';
import { type FrontierTask, readTask } from './frontier.ts';
import { type Gate, sitemapTask } from './gate.ts';
import { canonicalOfLink, parseMediaType, parseRetryAfter, parseXRobotsTag } from './headers.ts';
import type { CrawlSettings } from './options.ts';
import type { Link, Outbox } from './outbox.ts';
import { isHtml, type ParsedPage, parsePage } from './page.ts';
import type { PageRow, PageState, Pages } from './pages.ts';
import type { Politeness } from './politeness.ts';
import type { Stats } from './progress.ts';
import type { Scope } from './scope.ts';
import { parseSitemap, type Sitemap } from './sitemap.ts';
import { hostOf, normaliseUrl } from './url.ts';

/** What becomes of a task's lease. */
export type Verdict =
  | { readonly kind: 'ack' }
  /** Without a delay of its own: the queue's backoff. */
  | { readonly kind: 'retry'; readonly reason: string; readonly delayMs?: number }
  /** Given back unworked; no attempt is counted. */
  | { readonly kind: 'release' }
  | { readonly kind: 'dead'; readonly reason: string };

const ACK: Verdict = { kind: 'ack' };
const RELEASE: Verdict = { kind: 'release' };

/** Once a page is in one of these states its links are in the queue: a task that comes again needs only its ack. */
const SETTLED: ReadonlySet<PageState> = new Set(['stored', 'alias', 'redirect', 'noindex']);
/** Indexes of sitemaps, and one more level for those who nest them against the protocol. */
const SITEMAP_LEVELS = 2;

export interface WorkerParts {
  readonly settings: CrawlSettings;
  readonly pages: Pages;
  readonly fetcher: Fetcher;
  readonly gate: Gate;
  readonly outbox: Outbox;
  readonly politeness: Politeness;
  readonly scope: Scope;
  readonly stats: Stats;
}

/** A task, and what belongs to it while it is worked on. */
interface Job {
  readonly task: FrontierTask;
  readonly host: string;
  readonly attempt: number;
  readonly signal: AbortSignal;
  readonly fetchId: number;
}

type Answer = FetchedResponse | Exclude<FetchFailure, { kind: 'aborted' }>;

export class Worker {
  readonly #parts: WorkerParts;

  constructor(parts: WorkerParts) {
    this.#parts = parts;
  }

  /** @param signal ends the work: the lease is lost, or the crawl stops */
  async work(leased: LeasedTask, signal: AbortSignal): Promise<Verdict> {
    const { pages, settings, fetcher, gate, stats } = this.#parts;
    const task = readTask(leased.payload);
    if (task === null) return { kind: 'dead', reason: 'not a task of this crawler' };
    const host = hostOf(task.url);
    const isPage = task.kind === 'page';
    const state = isPage ? pages.page(task.url)?.state : undefined;
    if (state !== undefined && SETTLED.has(state)) return ACK;

    const passed = await gate.ask(task.url);
    if (passed === 'later' || signal.aborted) return RELEASE;
    if (passed !== 'pass') {
      if (isPage) this.#record(blankRow(task, host, 'refused', passed.refused), null);
      return ACK;
    }
    const job: Job = { task, host, attempt: leased.attempt, signal, fetchId: pages.beginFetch(task.url, Date.now()) };
    const got = await fetcher.get(task.url, {
      maxBytes: isPage ? settings.maxBytes : settings.maxSitemapBytes,
      over: 'refuse',
      keep: (type) => !isPage || isHtml(parseMediaType(type).type),
      signal,
    });
    stats.fetched++;
    if (got.kind === 'aborted') return this.#end(job, 'aborted', RELEASE);
    const retry = await this.#retryOf(job, got);
    if (retry === null) return isPage ? this.#readPage(job, got) : this.#readSitemap(job, got);
    if (retry.kind === 'dead' && isPage) return this.#fail(job, got, 'failed', retry.reason, retry);
    return this.#end(job, retry.reason, retry);
  }

  /** Whether to try again: null where the answer counts. `dead` after the last attempt. */
  async #retryOf({ host, attempt }: Job, got: Answer): Promise<Extract<Verdict, { reason: string }> | null> {
    const { settings, politeness, stats } = this.#parts;
    const status = got.kind === 'response' ? got.status : 0;
    const again = got.kind === 'network' ? got.retry : status >= 500 || status === 429 || status === 408;
    if (!again) return null;
    const reason = got.kind === 'network' ? got.reason : `status ${status}`;
    const askedMs = got.kind === 'response' ? parseRetryAfter(got.header('retry-after')[0], Date.now()) : null;
    // Whoever has enough of us means all of us, not this one page.
    const blockMs = askedMs ?? (status === 429 ? settings.backoffMs * 2 ** attempt : 0);
    if (blockMs > 0) await politeness.block(host, Date.now() + blockMs);
    if (attempt >= settings.attempts) return { kind: 'dead', reason };
    stats.retried++;
    return { kind: 'retry', reason, ...(askedMs !== null && { delayMs: askedMs }) };
  }

  async #readPage(job: Job, got: Answer): Promise<Verdict> {
    if (got.kind === 'refused') return this.#fail(job, got, 'refused', got.reason);
    if (got.kind === 'network') return this.#fail(job, got, 'failed', got.reason);
    if (got.kind === 'too-large') return this.#fail(job, got, 'failed', 'larger than allowed');
    if (got.status >= 300 && got.status < 400) return this.#readRedirect(job, got);
    if (got.status >= 400 || got.status < 200) return this.#fail(job, got, 'failed', `status ${got.status}`);

    const { settings, scope, stats, outbox } = this.#parts;
    const { task, host } = job;
    const media = parseMediaType(got.header('content-type')[0]);
    let page: ParsedPage | null = null;
    try {
      if (got.body !== null) page = parsePage(got.body, task.url, media.charset, settings.product);
    } catch (error) {
      // One page that the parser can't bear must not end the crawl.
      return this.#fail(job, got, 'failed', `unreadable: ${(error as Error).message}`.slice(0, 200));
    }
    const tag = parseXRobotsTag(got.header('x-robots-tag'), settings.product);
    const named = canonicalOfLink(got.header('link'));
    const canonical = page?.canonical ?? (named === null ? null : normaliseUrl(named, task.url));
    const isAlias =
      canonical !== null &&
      canonical !== task.url &&
      task.hops < settings.maxRedirects &&
      scope.allows(canonical, task.depth);

    const next = { kind: 'page', referrer: task.url, hops: 0, seed: false, lastModified: null } as const;
    const links: Link[] = [];
    for (const url of tag.nofollow ? [] : (page?.links ?? [])) {
      if (scope.allows(url, task.depth + 1)) links.push({ task: { ...next, url, depth: task.depth + 1 } });
    }
    if (isAlias) links.push({ task: { ...next, url: canonical, depth: task.depth, hops: task.hops + 1 } });
    await outbox.send(links);
    if (job.signal.aborted) return this.#end(job, 'aborted', RELEASE);

    const noindex = tag.noindex || (page?.robots.noindex ?? false);
    stats.bytes += got.bytes;
    const row: PageRow = {
      ...blankRow(task, host, noindex ? 'noindex' : isAlias ? 'alias' : 'stored', null),
      status: got.status,
      contentType: media.type || null,
      title: noindex ? null : (page?.title ?? null),
      bytes: got.bytes,
      hash: got.hash,
      canonical,
    };
    this.#record(row, job.fetchId);
    return ACK;
  }

  async #readRedirect(job: Job, got: FetchedResponse): Promise<Verdict> {
    const { settings, scope, pages, outbox } = this.#parts;
    const { task, host } = job;
    const location = got.header('location')[0];
    const target = location === undefined ? null : normaliseUrl(location, task.url);
    if (target === null) return this.#fail(job, got, 'failed', `status ${got.status} to nowhere`);
    if (target === task.url) return this.#fail(job, got, 'failed', 'redirects to itself');
    if (task.hops >= settings.maxRedirects) return this.#fail(job, got, 'failed', 'too many redirects');
    // example.org leads to www.example.org: whoever names the one means the other.
    if (task.seed && !scope.allows(target, task.depth)) {
      const known = pages.host(hostOf(target)) ?? { host: hostOf(target), delayMs: 0, settings: null };
      pages.putHost({ ...known, admitted: 1 });
      scope.admit(target);
    }
    // A task of its own, in its own host's topic: there it passes robots.txt, the guard and the host's pause.
    if (scope.allows(target, task.depth)) {
      await outbox.send([{ task: { ...task, url: target, hops: task.hops + 1, referrer: task.url } }]);
    }
    if (job.signal.aborted) return this.#end(job, 'aborted', RELEASE);
    const row = blankRow(task, host, 'redirect', null);
    this.#record({ ...row, status: got.status, canonical: target }, job.fetchId);
    return ACK;
  }

  async #readSitemap(job: Job, got: Answer): Promise<Verdict> {
    const { settings, scope, outbox } = this.#parts;
    const { task } = job;
    if (got.kind !== 'response') return this.#end(job, got.kind, ACK);
    if (got.status >= 300 && got.status < 400) {
      const location = got.header('location')[0];
      const target = location === undefined ? null : normaliseUrl(location, task.url);
      if (target === null || task.hops >= settings.maxRedirects) return this.#end(job, 'redirect to nowhere', ACK);
      await outbox.send([{ task: { ...task, url: target, hops: task.hops + 1, referrer: task.url } }]);
      return this.#end(job, 'redirect', ACK);
    }
    if (got.status !== 200 || got.body === null) return this.#end(job, `status ${got.status}`, ACK);
    let sitemap: Sitemap;
    try {
      sitemap = await parseSitemap(got.body, task.url, settings.maxSitemapBytes);
    } catch (error) {
      return this.#end(job, `unreadable: ${(error as Error).message}`, ACK);
    }
    const links: Link[] = [];
    for (const { url, lastModified, priority } of sitemap.pages) {
      const page = { kind: 'page', url, depth: 1, referrer: task.url, hops: 0, seed: false, lastModified } as const;
      if (scope.allows(url, 1)) links.push({ task: page, sitemapPriority: priority });
    }
    for (const { url } of task.depth < SITEMAP_LEVELS ? sitemap.sitemaps : []) {
      const near = hostOf(url) === job.host || scope.allows(url, 0);
      if (near) links.push({ task: sitemapTask(url, task.depth + 1, task.url) });
    }
    await outbox.send(links);
    return this.#end(job, 'sitemap', ACK);
  }

  #end(job: Job, outcome: string, verdict: Verdict): Verdict {
    this.#parts.pages.endFetch(job.fetchId, outcome, Date.now());
    return verdict;
  }

  #fail(job: Job, got: Answer, state: PageState, reason: string, verdict: Verdict = ACK): Verdict {
    const status = got.kind === 'response' || got.kind === 'too-large' ? got.status : null;
    this.#record({ ...blankRow(job.task, job.host, state, reason), status }, job.fetchId);
    return verdict;
  }

  #record(row: PageRow, fetchId: number | null): void {
    this.#parts.stats.stored += this.#parts.pages.record(row, fetchId);
    if (row.state === 'failed') this.#parts.stats.errors++;
  }
}

const blankRow = (task: FrontierTask, host: string, state: PageState, reason: string | null): PageRow => ({
  url: task.url,
  host,
  state,
  status: null,
  reason,
  contentType: null,
  title: null,
  bytes: null,
  hash: null,
  depth: task.depth,
  canonical: null,
  referrer: task.referrer,
  lastModified: task.lastModified,
  fetchedAt: Date.now(),
});
