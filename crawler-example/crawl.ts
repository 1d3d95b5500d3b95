#!/usr/bin/env node
/** The crawler's command line: see arguments.ts for its flags, crawler.ts for the crawl as a function. */
import { buildCommand, type Flags } from './arguments.ts';
import { crawl } from './crawler.ts';
import { newReporter, tableOf } from './progress.ts';

async function main(): Promise<void> {
  const command = buildCommand().parse();
  const {
    data,
    json,
    quiet,
    hostsFile,
    resolve,
    tlsCa: ca,
    tlsClientCert: cert,
    tlsClientKey: key,
    ...flags
  } = command.opts<Flags>();
  if (flags.contact === undefined) {
    process.stderr.write('Note: give --contact, so that whoever is troubled by this crawl can tell you.\n');
  }
  const stop = new AbortController();
  const onSignal = (): void => {
    // The second one ends it at once; the next run takes up what was in hand.
    if (stop.signal.aborted) process.exit(130);
    process.stderr.write('\nStopping: what is in hand is finished or given back; once more to stop at once.\n');
    stop.abort();
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);

  const reporter = quiet ? { update: () => {}, end: () => {} } : newReporter(process.stderr);
  try {
    const summary = await crawl({
      ...flags,
      seeds: command.args,
      dataDir: data,
      resolve: [...resolve, ...hostsFile],
      serverTls: { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) },
      progressMs: process.stderr.isTTY ? Math.min(flags.progressMs, 500) : flags.progressMs,
      signal: stop.signal,
      onProgress: (progress) => reporter.update(progress),
    });
    reporter.end();
    process.stdout.write(`${json ? JSON.stringify(summary) : tableOf(summary)}\n`);
    if (summary.reason !== 'empty') process.stderr.write('The same command goes on from here.\n');
  } catch (error) {
    reporter.end();
    process.stderr.write(`crawl: ${(error as Error).message}\n`);
    process.exitCode = 1;
  }
}

await main();
