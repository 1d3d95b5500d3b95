import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { crawl } from '../../../crawler-example/crawler.ts';
import type { CrawlOptions } from '../../../crawler-example/options.ts';
import type { PageRow } from '../../../crawler-example/pages.ts';
import type { CrawlSummary } from '../../../crawler-example/progress.ts';

/** A directory that is removed by `close`. */
export function tempDir(): { readonly dir: string; close(): Promise<void> } {
  const dir = mkdtempSync(join(tmpdir(), 'ebbmark-crawl-'));
  return { dir, close: async () => rmSync(dir, { recursive: true, force: true }) };
}

/** A crawl of loopback without pauses. */
export const quickCrawl = (
  options: Pick<CrawlOptions, 'seeds' | 'dataDir'> & Partial<CrawlOptions>,
): Promise<CrawlSummary> =>
  crawl({
    allowPrivate: true,
    delayMs: 0,
    leaseMs: 3_000,
    backoffMs: 50,
    sitemaps: false,
    resolve: [{ host: '*.test', address: '127.0.0.1' }],
    ...options,
  });

export interface Found {
  readonly pages: readonly PageRow[];
  /** How often each address was asked for. */
  readonly fetches: ReadonlyMap<string, number>;
}

/** Reads the pages file as anybody would. */
export function readFound(dataDir: string): Found {
  const db = new Database(join(dataDir, 'pages.db'), { readonly: true });
  const pages = db.prepare('SELECT * FROM pages ORDER BY url').all() as PageRow[];
  const fetches = db.prepare('SELECT url, count(*) AS count FROM fetches GROUP BY url').all() as {
    url: string;
    count: number;
  }[];
  db.close();
  return { pages, fetches: new Map(fetches.map(({ url, count }) => [url, count])) };
}
