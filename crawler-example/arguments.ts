/** The crawler's flags: their names, rules and examples, for `--help` and for the errors. */
import { readFileSync } from 'node:fs';
import { Command, InvalidArgumentError, Option } from 'commander';
import { parseHostsFile, parseResolveRule, type ResolveRule } from './address-guard.ts';
import { type CrawlSettings, DEFAULTS } from './options.ts';
import type { FollowHosts } from './scope.ts';
import { normaliseUrl } from './url.ts';

export interface Flags extends Omit<CrawlSettings, 'resolve' | 'sitemaps' | 'serverTls'> {
  readonly data: string;
  readonly sitemaps: boolean;
  readonly resolve: readonly ResolveRule[];
  readonly hostsFile: readonly ResolveRule[];
  /** PEM, as read from their files. */
  readonly tlsCa?: string;
  readonly tlsClientCert?: string;
  readonly tlsClientKey?: string;
  readonly json: boolean;
  readonly quiet: boolean;
}

const MAX = 2 ** 31 - 1;

/** A parser for whole numbers of a range. */
const whole =
  (min: number, max = MAX) =>
  (text: string): number => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`It has to be a whole number from ${min} to ${max}.`);
    }
    return value;
  };

/** A parser whose errors commander shows beside the flag's name. */
const checked =
  <T>(parse: (text: string) => T) =>
  (text: string): T => {
    try {
      return parse(text);
    } catch (error) {
      throw new InvalidArgumentError((error as Error).message);
    }
  };

const followHosts = (text: string): FollowHosts => {
  if (text === 'same' || text === 'site' || text === 'any') return text;
  const names = text.split(',').map((name) => name.trim());
  const bad = names.find((name) => normaliseUrl(`http://${name.replace(/^\*?\./, '')}/`) === null);
  if (bad !== undefined) throw new InvalidArgumentError(`"${bad}" is not a host name; for example: docs.example.org`);
  return names;
};

const serverUrl = (text: string): string => {
  if (normaliseUrl(text) === null) throw new InvalidArgumentError('For example: http://127.0.0.1:8080');
  return text;
};

const pemFile = (flags: string, about: string, env: string): Option =>
  new Option(flags, about).env(env).argParser(checked((path) => readFileSync(path, 'utf8')));

const product = (text: string): string => {
  if (!/^[a-z_-]+$/i.test(text))
    throw new InvalidArgumentError('It has to be made of letters, "-" and "_" (RFC 9309).');
  return text.toLowerCase();
};

const EXAMPLES = `
Examples:
  One site, at a page a second, into ./crawl-data:
    npm run crawl -- https://docs.example.org/ --contact me@example.org
  The first thousand pages of it and its sister hosts:
    npm run crawl -- https://docs.example.org/ --max-pages 1000 --follow-hosts site --contact me@example.org
  A server of one's own, at full speed:
    npm run crawl -- http://127.0.0.1:3000/ --allow-private --delay-ms 0
  With the frontier on a queue server, shared by all crawlers with this prefix:
    npm run crawl -- https://docs.example.org/ --server http://127.0.0.1:8080 --topic-prefix docs/

The same command goes on where an earlier one ended, whatever ended it. Ctrl-C stops after what is in hand.
What was found is in pages.db of the data directory: sqlite3 crawl-data/pages.db 'SELECT url, title FROM pages'`;

export function buildCommand(): Command {
  return new Command('crawl')
    .description('Crawls web pages politely, from the addresses given, with the queue as its frontier.')
    .argument('<url...>', 'where to begin')
    .option('--max-pages <n>', 'stop once so many pages are stored, earlier runs counted', whole(1))
    .option('--max-depth <n>', 'links away from where it began', whole(0))
    .option('--data <dir>', 'directory of queue.db and pages.db', 'crawl-data')
    .option('--concurrency <n>', 'fetches at the same time', whole(1, 1_000), DEFAULTS.concurrency)
    .option(
      '--delay-ms <ms>',
      "pause between fetches from a host; robots.txt's Crawl-delay raises it",
      whole(0),
      DEFAULTS.delayMs,
    )
    .option(
      '--per-host <n>',
      'fetches from one host at the same time (default: 1, or any number without a pause)',
      whole(1, 1_000),
    )
    .option(
      '--follow-hosts <which>',
      'same, site, any, or a list of names: a.org,b.org',
      followHosts,
      DEFAULTS.followHosts,
    )
    .option('--no-sitemaps', "don't look for sitemaps")
    .option('--contact <address>', 'mail or web address of yours, told to every server')
    .option('--product <token>', 'name told to servers, and looked for in robots.txt', product, DEFAULTS.product)
    .option('--attempts <n>', 'tries of a page that fails for now', whole(1, 100), DEFAULTS.attempts)
    .option('--backoff-ms <ms>', 'before the second try; doubles each time', whole(1), DEFAULTS.backoffMs)
    .option('--max-bytes <n>', 'longest page', whole(1), DEFAULTS.maxBytes)
    .option('--timeout-ms <ms>', 'longest fetch', whole(1), DEFAULTS.timeoutMs)
    .option('--headers-timeout-ms <ms>', 'longest wait for an answer to begin', whole(1), DEFAULTS.headersTimeoutMs)
    .option(
      '--lease-ms <ms>',
      'how soon others take over from a crawler that died',
      whole(500, 3_600_000),
      DEFAULTS.leaseMs,
    )
    .option('--grace-ms <ms>', 'how long fetches may run on after Ctrl-C', whole(0), DEFAULTS.graceMs)
    .option('--server <url>', 'a queue server (default: the queue runs in this process)', serverUrl)
    .addOption(pemFile('--tls-ca <path>', 'on a server of https: who signs its certificate (PEM)', 'EBBMARK_TLS_CA'))
    .addOption(pemFile('--tls-client-cert <path>', 'the certificate to show to it (PEM)', 'EBBMARK_TLS_CLIENT_CERT'))
    .addOption(pemFile('--tls-client-key <path>', 'its key (PEM)', 'EBBMARK_TLS_CLIENT_KEY'))
    .option('--topic-prefix <text>', 'on a server: what the topics of this crawl begin with', DEFAULTS.topicPrefix)
    .option('--allow-private', 'fetch from private and loopback addresses too', DEFAULTS.allowPrivate)
    .addOption(
      new Option('--resolve <host:address>', 'answer a name from here (*.docs.test:127.0.0.1); may be repeated')
        .argParser((text: string, before: readonly ResolveRule[]) => [...before, checked(parseResolveRule)(text)])
        .default([], 'none'),
    )
    .addOption(
      new Option('--hosts-file <path>', 'the same, from a file like /etc/hosts')
        .argParser(checked((path) => parseHostsFile(readFileSync(path, 'utf8'))))
        .default([], 'none'),
    )
    .option('--progress-ms <ms>', 'between two lines of progress', whole(50), DEFAULTS.progressMs)
    .option('--json', 'print the summary as JSON', false)
    .option('--quiet', 'no progress', false)
    .addHelpText('after', EXAMPLES);
}
