import type { QueueLogger, TlsCredentials } from '../src/index.ts';
import type { ResolveRule } from './address-guard.ts';
import type { Progress } from './progress.ts';
import type { FollowHosts } from './scope.ts';

/** All that shapes a crawl. Times in milliseconds. */
export interface CrawlSettings {
  /** Stops once so many pages are stored, those of earlier runs counted; null: no limit. */
  readonly maxPages: number | null;
  /** Links from a seed; null: no limit. */
  readonly maxDepth: number | null;
  /** Fetches at the same time, over all hosts. */
  readonly concurrency: number;
  /** Pause between two fetches from one host; robots.txt can raise it. 0: none. */
  readonly delayMs: number;
  /** Fetches from one host at the same time; null: 1 with a pause, no limit without. */
  readonly perHost: number | null;
  /** How long a task is leased; it is extended while its fetch runs. */
  readonly leaseMs: number;
  /** Deliveries of a task until it is given up. */
  readonly attempts: number;
  /** Before the second attempt; doubles with every further one. */
  readonly backoffMs: number;
  /** Of a page's body, as sent and after decompression. */
  readonly maxBytes: number;
  /** Of a sitemap, likewise; 50 MiB is what the protocol allows. */
  readonly maxSitemapBytes: number;
  /** For a whole fetch. */
  readonly timeoutMs: number;
  /** Until the headers are there, and between two pieces of the body. */
  readonly headersTimeoutMs: number;
  readonly followHosts: FollowHosts;
  readonly sitemaps: boolean;
  /** Redirects in a row that are followed. */
  readonly maxRedirects: number;
  readonly allowPrivate: boolean;
  readonly resolve: readonly ResolveRule[];
  /** Product token for robots.txt: letters, `-` and `_`. */
  readonly product: string;
  /** An address at which a site's owner reaches the crawler's; part of the user agent. */
  readonly contact: string | null;
  /** A queue server; null: the queue runs in this process. */
  readonly server: string | null;
  /** For a server of https: who signed its certificate, and the one to show to it. */
  readonly serverTls: TlsCredentials;
  /** On a server: what the topics of this crawl begin with. */
  readonly topicPrefix: string;
  /** How long tasks in hand may run on once the crawl is asked to stop. */
  readonly graceMs: number;
  /** Between two reports of progress. */
  readonly progressMs: number;
}

export interface CrawlOptions extends Partial<CrawlSettings> {
  /** Where to begin. */
  readonly seeds: readonly string[];
  /** A directory for `queue.db` and `pages.db`; a crawl found there is continued. */
  readonly dataDir: string;
  /** Asks for a graceful stop. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: Progress) => void;
  readonly log?: QueueLogger;
}

export const DEFAULTS: CrawlSettings = {
  maxPages: null,
  maxDepth: null,
  concurrency: 8,
  delayMs: 1_000,
  perHost: null,
  leaseMs: 30_000,
  attempts: 5,
  backoffMs: 1_000,
  maxBytes: 5 * 1024 * 1024,
  maxSitemapBytes: 50 * 1024 * 1024,
  timeoutMs: 60_000,
  headersTimeoutMs: 20_000,
  followHosts: 'same',
  sitemaps: true,
  maxRedirects: 10,
  allowPrivate: false,
  resolve: [],
  product: 'ebbmark-crawler',
  contact: null,
  server: null,
  serverTls: {},
  topicPrefix: 'crawl/',
  graceMs: 5_000,
  progressMs: 5_000,
};

/** Takes the default for what isn't given. */
export function withDefaults(given: Partial<CrawlSettings>): CrawlSettings {
  const set = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const settings = { ...DEFAULTS, ...set };
  return { ...settings, product: settings.product.toLowerCase() };
}

/** What servers see. */
export const userAgentOf = (settings: Pick<CrawlSettings, 'product' | 'contact'>): string =>
  `${settings.product}/0.1${settings.contact === null ? '' : ` (+${settings.contact})`}`;
