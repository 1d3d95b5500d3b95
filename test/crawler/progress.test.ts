import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import {
  type CrawlSummary,
  lineOf,
  newReporter,
  newStats,
  type Progress,
  tableOf,
} from '../../crawler-example/progress.ts';

const PROGRESS: Progress = {
  stats: { ...newStats(120), errors: 2 },
  counts: { ready: 30, delayed: 4, leased: 3, dead: 1, hosts: 7 },
  inHand: 3,
  elapsedMs: 3_723_000,
  rate: 12.34,
  maxPages: null,
};

function newStream(isTTY: boolean): { readonly stream: NodeJS.WriteStream; readonly text: () => string } {
  let text = '';
  const stream = Object.assign(new PassThrough(), { isTTY, columns: 200, rows: 50, clearLine() {}, cursorTo() {} });
  stream.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  return { stream: stream as unknown as NodeJS.WriteStream, text: () => text };
}

describe('progress', () => {
  it('is a line', () => {
    expect(lineOf(PROGRESS)).toBe(
      '1:02:03  120 pages  12.3/s  34 waiting (4 delayed)  3 in flight  2 errors  7 hosts busy',
    );
  });

  it('is written line by line where there is no terminal', () => {
    const { stream, text } = newStream(false);
    const reporter = newReporter(stream);
    reporter.update(PROGRESS);
    reporter.update(PROGRESS);
    reporter.end();
    expect(text()).toBe(`${lineOf(PROGRESS)}\n`.repeat(2));
  });

  it('is a bar on a terminal', () => {
    const { stream, text } = newStream(true);
    const reporter = newReporter(stream);
    reporter.update(PROGRESS);
    reporter.update({ ...PROGRESS, maxPages: 100 });
    reporter.end();
    expect(text()).toContain('120 pages');
  });

  it('ends in a table', () => {
    const summary: CrawlSummary = {
      reason: 'empty',
      states: { stored: 120, alias: 1, redirect: 2, noindex: 3, failed: 4, refused: 5 },
      hosts: 7,
      stats: { ...newStats(120), fetched: 135, bytes: 2_500_000 },
      elapsedMs: 10_000,
    };
    expect(tableOf(summary)).toMatch(/pages stored +120\n[\s\S]*135 in 0:00:10, 13\.5\/s\n.*2\.5 MB/);
  });
});
