import { Presets, SingleBar } from 'cli-progress';
import type { FrontierCounts } from './frontier.ts';
import type { PageState } from './pages.ts';

/** Counters of this run; `stored` alone counts earlier runs too. */
export interface Stats {
  stored: number;
  fetched: number;
  bytes: number;
  retried: number;
  errors: number;
  enqueued: number;
  /** Links that the queue refused. */
  unqueued: number;
  /** Leases lost while their task was worked on. */
  lost: number;
}

export const newStats = (stored: number): Stats => ({
  stored,
  fetched: 0,
  bytes: 0,
  retried: 0,
  errors: 0,
  enqueued: 0,
  unqueued: 0,
  lost: 0,
});

export interface Progress {
  readonly stats: Readonly<Stats>;
  readonly counts: FrontierCounts;
  readonly inHand: number;
  /** Since the start of this run. */
  readonly elapsedMs: number;
  /** Fetches a second since the report before. */
  readonly rate: number;
  readonly maxPages: number | null;
}

export interface CrawlSummary {
  /** `empty`: nothing is left; `max-pages`: as many are stored as were asked for; `stopped`: asked to stop. */
  readonly reason: 'empty' | 'max-pages' | 'stopped';
  /** Rows of the pages file, earlier runs counted. */
  readonly states: Readonly<Record<PageState, number>>;
  readonly hosts: number;
  /** Of this run. */
  readonly stats: Readonly<Stats>;
  readonly elapsedMs: number;
}

/** Shows progress; `end` leaves the terminal as it was. */
export interface Reporter {
  update(progress: Progress): void;
  end(): void;
}

/** A bar on a terminal, else a line now and then. */
export function newReporter(stream: NodeJS.WriteStream): Reporter {
  if (!stream.isTTY) return { update: (progress) => stream.write(`${lineOf(progress)}\n`), end: () => {} };
  const bar = new SingleBar(
    { format: '{bar} {text}', barsize: 20, stream, hideCursor: true, clearOnComplete: true, linewrap: false },
    Presets.shades_classic,
  );
  bar.start(1, 0, { text: 'starting' });
  return {
    update: (progress) => {
      const { stats, counts, maxPages } = progress;
      // How much there is becomes known only on the way: the bar shows what is done of what was seen so far.
      const seen = stats.stored + counts.ready + counts.delayed + counts.leased;
      bar.setTotal(Math.max(1, maxPages === null ? seen : Math.min(maxPages, seen)));
      bar.update(stats.stored, { text: lineOf(progress) });
    },
    end: () => bar.stop(),
  };
}

export function lineOf({ stats, counts, inHand, rate, elapsedMs }: Progress): string {
  const waiting = counts.ready + counts.delayed;
  return [
    `${duration(elapsedMs)}`,
    `${stats.stored} pages`,
    `${rate.toFixed(1)}/s`,
    `${waiting} waiting${counts.delayed > 0 ? ` (${counts.delayed} delayed)` : ''}`,
    `${inHand} in flight`,
    `${stats.errors} errors`,
    `${counts.hosts} hosts busy`,
  ].join('  ');
}

/** The summary as a table of plain text. */
export function tableOf(summary: CrawlSummary): string {
  const { states, stats } = summary;
  const seconds = summary.elapsedMs / 1000;
  const rows: readonly (readonly [string, string])[] = [
    ['ended', ENDS[summary.reason]],
    ['pages stored', `${states.stored}`],
    ['  aliases of a canonical page', `${states.alias}`],
    ['  redirects', `${states.redirect}`],
    ['  noindex', `${states.noindex}`],
    ['  failed', `${states.failed}`],
    ['  refused (robots.txt, address)', `${states.refused}`],
    ['hosts', `${summary.hosts}`],
    [
      'fetched in this run',
      `${stats.fetched} in ${duration(summary.elapsedMs)}, ${(stats.fetched / seconds).toFixed(1)}/s`,
    ],
    ['bytes in this run', `${(stats.bytes / 1e6).toFixed(1)} MB`],
    ['retries in this run', `${stats.retried}`],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`).join('\n');
}

const ENDS: Readonly<Record<CrawlSummary['reason'], string>> = {
  empty: 'the frontier is empty',
  'max-pages': 'as many pages as asked for',
  stopped: 'asked to stop',
};

function duration(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  const pad = (n: number): string => String(n).padStart(2, '0');
  return `${Math.floor(seconds / 3600)}:${pad(Math.floor(seconds / 60) % 60)}:${pad(seconds % 60)}`;
}
