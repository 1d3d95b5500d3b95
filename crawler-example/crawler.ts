/** A crawl as a function: puts the parts together. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { keyFromEnvironment } from '../src/client/index.ts';
import { REFUSED } from './address-guard.ts';
import { Fetcher } from './fetch.ts';
import { EmbeddedFrontier, type Frontier } from './frontier.ts';
import { HttpFrontier } from './frontier-http.ts';
import { Gate } from './gate.ts';
import { type CrawlOptions, type CrawlSettings, userAgentOf, withDefaults } from './options.ts';
import { Outbox } from './outbox.ts';
import { Pages } from './pages.ts';
import { Politeness } from './politeness.ts';
import { type CrawlSummary, newStats } from './progress.ts';
import { Robots } from './robots.ts';
import { Run } from './run.ts';
import { Scope } from './scope.ts';
import { normaliseUrl } from './url.ts';
import { Worker } from './worker.ts';

/** How long calls to a server are tried again. */
const PATIENCE_MS = 60_000;

/**
 * Crawls until nothing is left, enough pages are stored, or `signal` asks for an end; continues what `dataDir` holds.
 * @throws Error where a seed is no address to crawl, or the queue or the pages file fails
 */
export async function crawl(options: CrawlOptions): Promise<CrawlSummary> {
  const settings = withDefaults(options);
  const seeds = options.seeds.map((seed) => {
    const url = normaliseUrl(seed);
    if (url === null) throw new Error(`"${seed}" is not an address to crawl; for example: https://docs.example.org/`);
    return url;
  });
  const scope = new Scope(settings.followHosts, settings.maxDepth ?? Number.POSITIVE_INFINITY);
  for (const seed of seeds) scope.admit(seed);

  mkdirSync(options.dataDir, { recursive: true });
  const frontier: Frontier =
    settings.server === null
      ? await EmbeddedFrontier.open(join(options.dataDir, 'queue.db'), options.log)
      : new HttpFrontier({
          server: settings.server,
          key: keyFromEnvironment(),
          prefix: settings.topicPrefix,
          patienceMs: PATIENCE_MS,
          tls: settings.serverTls,
        });
  try {
    const pages = new Pages(join(options.dataDir, 'pages.db'));
    const fetcher = newFetcher(settings);
    try {
      return await crawlWith({ frontier, pages, fetcher, scope, seeds, settings, options });
    } finally {
      await fetcher.close();
      pages.close();
    }
  } finally {
    await frontier.close();
  }
}

interface CrawlParts {
  readonly frontier: Frontier;
  readonly pages: Pages;
  readonly fetcher: Fetcher;
  readonly scope: Scope;
  readonly seeds: readonly string[];
  readonly settings: CrawlSettings;
  readonly options: CrawlOptions;
}

async function crawlWith(parts: CrawlParts): Promise<CrawlSummary> {
  const { frontier, pages, fetcher, scope, seeds, settings, options } = parts;
  const ended = new AbortController();
  for (const { host, admitted } of pages.hosts()) if (admitted === 1) scope.admit(`http://${host}/`);
  pages.forgetUnreached(settings.attempts);
  const stats = newStats(pages.totals().states.stored);
  const politeness = new Politeness(pages, frontier, { ...settings, maxAttempts: settings.attempts });
  const outbox = new Outbox(frontier, politeness, stats);
  const robots = new Robots(pages, fetcher, {
    token: settings.product,
    retryMs: settings.backoffMs,
    tries: settings.attempts,
    now: Date.now,
  });
  const gate = new Gate({ robots, politeness, scope, outbox, sitemaps: settings.sitemaps, ended: ended.signal });
  const worker = new Worker({ settings, pages, fetcher, gate, outbox, politeness, scope, stats });

  await politeness.restore();
  const seed = { kind: 'page', depth: 0, referrer: null, hops: 0, seed: true, lastModified: null } as const;
  // Whoever starts a crawl anew after its beginning failed has done something about it.
  const isUnreached = (url: string): boolean => ['failed', 'refused'].includes(pages.page(url)?.state ?? '');
  await outbox.send(seeds.map((url) => ({ task: { ...seed, url }, again: isUnreached(url) })));

  const run = new Run(frontier, worker, stats, settings, options, ended);
  const reason = await run.untilEnd();
  refuseWhereNoSeedIsPublic(pages, seeds);
  const { states, hosts } = pages.totals();
  return { reason, states, hosts, stats, elapsedMs: run.elapsedMs };
}

/** A crawl that could not begin is no success. @throws Error where the address guard refused every seed */
function refuseWhereNoSeedIsPublic(pages: Pages, seeds: readonly string[]): void {
  const reasons = seeds.map((url) => {
    const page = pages.page(url);
    return page?.state === 'refused' ? (page.reason ?? '') : '';
  });
  if (!reasons.every((reason) => reason.includes(REFUSED))) return;
  const more = seeds.length > 1 ? ` (nor are the other ${seeds.length - 1} seeds)` : '';
  throw new Error(`${seeds[0]} is not public${more}: ${reasons[0]}; see --allow-private`);
}

const newFetcher = (settings: CrawlSettings): Fetcher =>
  new Fetcher({
    userAgent: userAgentOf(settings),
    headersTimeoutMs: settings.headersTimeoutMs,
    totalTimeoutMs: settings.timeoutMs,
    connectTimeoutMs: settings.headersTimeoutMs,
    connections: settings.perHost ?? settings.concurrency,
    allowPrivate: settings.allowPrivate,
    resolve: settings.resolve,
  });
