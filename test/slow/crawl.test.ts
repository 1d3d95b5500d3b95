/**
 * A crawl of a real documentation tree (Debian's postgresql-doc-15, 1,169 pages) under twenty host names, without a
 * pause and with leases of 3 s; whole, and with three kill -9 at random moments. What it should find is told by a walk
 * over the files that shares nothing with the crawler. Run by `npx vitest run --project slow test/slow/crawl.test.ts`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CrawlSummary } from '../../crawler-example/progress.ts';
import { createServer } from '../../src/http/server.ts';
import { openQueue } from '../../src/index.ts';
import { readFound, tempDir } from '../crawler/support/crawling.ts';
import { type DocsSite, type DocsTree, docsTree, reachable, serveDocs } from './support/docs-site.ts';

const CONCURRENCY = 8;
const LEASE_MS = 3_000;
const KILLS = 3;

let tree: DocsTree;
let expected: readonly string[];
let site: DocsSite;
const open: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  tree = docsTree();
  const files = reachable(tree.dir);
  site = await serveDocs(tree.dir);
  open.push(site);
  expected = [...files].map(site.urlOf).sort();
  console.log(`${tree.real ? 'postgresql-doc-15' : 'a made-up tree'}: ${files.size} pages reachable by the walk`);
});
afterAll(async () => {
  for (const it of open.splice(0)) await it.close();
});

function newDataDir(): string {
  const it = tempDir();
  open.push(it);
  return it.dir;
}

/** Starts the crawler as a process of its own, whose pid is its own too. */
function start(dir: string, ...more: readonly string[]): ChildProcess {
  const flags = ['--follow-hosts', 'docs.test', '--allow-private', '--resolve', '*.docs.test:127.0.0.1', '--json'];
  const limits = ['--delay-ms', '0', '--lease-ms', `${LEASE_MS}`, '--concurrency', `${CONCURRENCY}`, '--quiet'];
  const seed = site.urlOf('index.html');
  const args = ['--import', 'tsx', 'crawler-example/crawl.ts', seed, '--data', dir, ...flags, ...limits, ...more];
  return spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
}

async function finish(child: ChildProcess): Promise<CrawlSummary> {
  const out: Buffer[] = [];
  const errors: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer) => out.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => errors.push(chunk));
  const [code] = (await once(child, 'close')) as [number | null];
  expect(code, Buffer.concat(errors).toString()).toBe(0);
  return JSON.parse(Buffer.concat(out).toString()) as CrawlSummary;
}

/** @param kills during the crawl: each may have cut as many fetches as run at once */
function check(dir: string, kills: number): { readonly fetches: number; readonly again: number } {
  const { pages, fetches } = readFound(dir);
  const stored = pages.filter(({ state }) => state === 'stored').map(({ url }) => url);
  // A list and not a set: one page twice would show.
  expect(stored.sort()).toEqual(expected);
  expect(pages.filter(({ state }) => state !== 'stored' && state !== 'redirect')).toEqual([]);
  const total = [...fetches.values()].reduce((sum, count) => sum + count, 0);
  const again = total - fetches.size;
  expect(again).toBeLessThanOrEqual(kills * CONCURRENCY);
  return { fetches: total, again };
}

describe('a crawl of a real documentation tree', () => {
  it('stores the pages that a walk of the files finds, each once', async () => {
    const dir = newDataDir();
    const summary = await finish(start(dir));
    const { fetches } = check(dir, 0);
    const seconds = summary.elapsedMs / 1000;
    console.log(
      `whole: ${summary.states.stored} pages, ${summary.states.redirect} redirects, ${summary.hosts} hosts, ` +
        `${fetches} fetches in ${seconds.toFixed(1)} s: ${(fetches / seconds).toFixed(0)}/s`,
    );
    expect(summary.reason).toBe('empty');
    const again = await finish(start(dir));
    expect(again.stats.fetched).toBe(0);
  });

  it.each(['in the process', 'on a server'])(
    `does the same after ${KILLS} kill -9 at random moments, with the queue %s`,
    async (where) => {
      const dir = newDataDir();
      const more = where === 'on a server' ? ['--server', await queueServer()] : [];
      const killedAt: number[] = [];
      for (let kill = 0; kill < KILLS; kill++) {
        const child = start(dir, ...more);
        // While the crawler waits for an answer. At a quarter of the pages at the most, so that each kill finds work.
        const moment = site.served() + 1 + Math.floor((Math.random() * expected.length) / (KILLS + 1));
        site.onServed(moment, () => child.kill('SIGKILL'));
        let said = '';
        child.stderr?.on('data', (chunk: Buffer) => {
          said += chunk.toString();
        });
        const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
        expect([code, signal], said).toEqual([null, 'SIGKILL']);
        killedAt.push(readFound(dir).pages.length);
      }
      const summary = await finish(start(dir, ...more));
      const { fetches, again } = check(dir, KILLS);
      console.log(
        `${where}: killed at ${killedAt.join(', ')} rows; then ${summary.stats.fetched} fetches in ` +
          `${(summary.elapsedMs / 1000).toFixed(1)} s; ${again} of ${fetches} fetches were made again`,
      );
    },
  );

  it.each(['SIGINT', 'SIGTERM'] as const)('stops at %s, exits 0, says how to go on, and goes on', async (signal) => {
    const dir = newDataDir();
    const child = start(dir);
    site.onServed(site.served() + 100, () => child.kill(signal));
    let said = '';
    child.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    const first = await finish(child);
    expect(first.reason).toBe('stopped');
    expect(first.states.stored).toBeLessThan(expected.length);
    expect(said).toContain('The same command goes on from here.');
    await finish(start(dir));
    // What was in hand was finished: nothing is fetched twice.
    expect(check(dir, 0).again).toBe(0);
  });
});

/** A queue server that outlives the crawlers. @returns its address */
async function queueServer(): Promise<string> {
  const queue = await openQueue({ store: `sqlite:${join(newDataDir(), 'queue.db')}` });
  const server = await createServer(queue);
  const close = async (): Promise<void> => {
    await server.stop();
    await queue.stop();
  };
  open.unshift({ close });
  return server.listen('127.0.0.1', 0);
}
