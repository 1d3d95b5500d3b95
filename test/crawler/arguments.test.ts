import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CommanderError } from 'commander';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { buildCommand, type Flags } from '../../crawler-example/arguments.ts';
import { tempDir } from './support/crawling.ts';

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const it of open.splice(0)) await it.close();
});

/** Parses flags; an error is what commander would print. */
function parse(...args: readonly string[]): Flags & { readonly urls: readonly string[] } {
  let printed = '';
  const command = buildCommand()
    .exitOverride()
    .configureOutput({ writeErr: (text) => (printed += text), writeOut: (text) => (printed += text) });
  try {
    command.parse(['http://a.org/', ...args], { from: 'user' });
  } catch (error) {
    throw error instanceof CommanderError ? new Error(printed) : error;
  }
  return { ...command.opts<Flags>(), urls: command.args };
}

describe('the command line', () => {
  it('has defaults that are polite', () => {
    expect(parse()).toMatchObject({
      urls: ['http://a.org/'],
      delayMs: 1_000,
      leaseMs: 30_000,
      allowPrivate: false,
      followHosts: 'same',
      data: 'crawl-data',
      sitemaps: true,
    });
  });

  it('reads certificates from their files, by flag or environment', () => {
    const { dir, close } = tempDir();
    open.push({ close });
    writeFileSync(join(dir, 'ca.crt'), 'signers');
    writeFileSync(join(dir, 'own.key'), 'key');
    vi.stubEnv('EBBMARK_TLS_CA', join(dir, 'ca.crt'));
    try {
      expect(parse('--tls-client-key', join(dir, 'own.key'))).toMatchObject({ tlsCa: 'signers', tlsClientKey: 'key' });
    } finally {
      vi.unstubAllEnvs();
    }
    expect(() => parse('--tls-client-cert', '/nowhere')).toThrow(/--tls-client-cert.*ENOENT/);
  });

  it('reads its flags', () => {
    const { dir, close } = tempDir();
    open.push({ close });
    writeFileSync(join(dir, 'hosts'), '127.0.0.1 b.test');
    expect(
      parse(
        ...[
          '--max-pages',
          '5',
          '--delay-ms',
          '0',
          '--follow-hosts',
          'a.org, *.b.org',
          '--no-sitemaps',
          '--per-host',
          '3',
        ],
        ...['--resolve', 'a.test:127.0.0.1', '--resolve', '*.c.test:::1', '--hosts-file', join(dir, 'hosts')],
        ...['--product', 'My-Bot', '--server', 'http://127.0.0.1:8080'],
      ),
    ).toMatchObject({
      maxPages: 5,
      delayMs: 0,
      followHosts: ['a.org', '*.b.org'],
      sitemaps: false,
      perHost: 3,
      resolve: [
        { host: 'a.test', address: '127.0.0.1' },
        { host: '*.c.test', address: '::1' },
      ],
      hostsFile: [{ host: 'b.test', address: '127.0.0.1' }],
      product: 'my-bot',
    });
  });

  it.each([
    [['--max-pages', '0'], 'whole number from 1'],
    [['--max-pages', '1e3'], 'whole number from 1'],
    [['--concurrency', '-1'], 'whole number from 1 to 1000'],
    [['--delay-ms', '99999999999'], 'whole number'],
    [['--resolve', 'a'], 'for example: *.docs.test:127.0.0.1'],
    [['--hosts-file', '/no/such/file'], 'ENOENT'],
    [['--follow-hosts', 'a b'], '"a b" is not a host name'],
    [['--product', 'bot 1'], 'letters'],
    [['--server', 'localhost'], 'For example'],
    [['--no-such-flag'], 'unknown option'],
  ])('refuses %j', (args, message) => {
    expect(() => parse(...args)).toThrow(message);
  });

  it('explains itself', () => {
    expect(() => parse('--help')).toThrow(/Examples:[\s\S]*npm run crawl -- https:\/\//);
  });
});
