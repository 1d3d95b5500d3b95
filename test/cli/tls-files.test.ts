/** The files of TLS, right and wrong: what stops the start, in which words, and what is only warned of. */
import { createPrivateKey } from 'node:crypto';
import { chmod } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { ConfigError, type Environment, type Flags, readSettings, SERVER_SETTINGS } from '../../src/config.ts';
import { readCallerTls, readServerTls } from '../../src/tls-files.ts';
import { makeAuthority, writeFiles } from '../support/authority.ts';

const authority = await makeAuthority('tests');
const own = await authority.issue('server');
const other = await authority.issue('other');
const encrypted = createPrivateKey(own.key)
  .export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'canary' })
  .toString();
const weak = await authority.issue('weak', { isWeak: true });

const read = (env: Environment, flags: Flags = {}) => {
  const settings = readSettings(SERVER_SETTINGS, flags, env);
  return { server: readServerTls(settings, flags), caller: readCallerTls(settings, flags) };
};

function faultsOf(env: Environment, flags: Flags = {}): readonly string[] {
  try {
    read(env, flags);
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
}

const write = () =>
  writeFiles({
    cert: own.cert,
    key: own.key,
    chain: own.cert + authority.ca,
    ca: authority.ca,
    other: other.key,
    encrypted,
    legacy: encrypted
      .replaceAll('ENCRYPTED PRIVATE', 'RSA PRIVATE')
      .replace('-----\n', '-----\nProc-Type: 4,ENCRYPTED\n'),
    weak: weak.cert,
    weakKey: weak.key,
    text: 'canary, and no PEM',
    hollow: '-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n',
    hollowKey: '-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n',
  });

it('none are needed', () => {
  expect(read({})).toEqual({ server: null, caller: { tls: {}, warnings: [] } });
});

it('are read, chains and keys with a passphrase among them', async () => {
  const files = await write();
  const { server, caller } = read(
    {
      EBBMARK_TLS_KEY: files.encrypted,
      EBBMARK_TLS_KEY_PASSPHRASE: 'canary',
      EBBMARK_TLS_CLIENT_CA: files.ca,
      EBBMARK_TLS_CA: files.ca,
      EBBMARK_TLS_CLIENT_CERT: files.cert,
      EBBMARK_TLS_CLIENT_KEY: files.key,
    },
    { tlsCert: files.chain },
  );
  expect(server).toEqual({
    tls: { cert: own.cert + authority.ca, key: own.key, clientCa: authority.ca },
    warnings: [],
  });
  expect(caller).toEqual({ tls: { ca: authority.ca, cert: own.cert, key: own.key }, warnings: [] });
});

type Names = keyof Awaited<ReturnType<typeof write>>;
const pair = (cert: Names, key: Names, more: Readonly<Record<string, string>> = {}) => ({
  EBBMARK_TLS_CERT: cert,
  EBBMARK_TLS_KEY: key,
  ...more,
});

it.each([
  [
    'a certificate without its key',
    { EBBMARK_TLS_CERT: 'cert' },
    /^EBBMARK_TLS_CERT: "[^"]*cert" is not given together with its key \(EBBMARK_TLS_KEY\)/,
  ],
  [
    'a key without its certificate',
    { EBBMARK_TLS_KEY: 'key' },
    /^EBBMARK_TLS_KEY: .* its certificate \(EBBMARK_TLS_CERT\)/,
  ],
  [
    'signers of clients alone',
    { EBBMARK_TLS_CLIENT_CA: 'ca' },
    /^EBBMARK_TLS_CLIENT_CA: .* together with the server's/,
  ],
  ['a passphrase alone', { EBBMARK_TLS_KEY_PASSPHRASE: 'canary' }, /^EBBMARK_TLS_KEY_PASSPHRASE: "…" is not given/],
  [
    'a client certificate alone',
    { EBBMARK_TLS_CLIENT_CERT: 'cert' },
    /^EBBMARK_TLS_CLIENT_CERT: .* its key \(EBBMARK_TLS_CLIENT_KEY\)/,
  ],
  [
    'a key for a certificate',
    pair('key', 'key'),
    /^EBBMARK_TLS_CERT: "[^"]*key" is not a file of certificates \(PEM\); for example: \/etc\/ebbmark\/server\.crt$/,
  ],
  ['a text for a certificate', pair('text', 'key'), /^EBBMARK_TLS_CERT: .* is not a file of certificates \(PEM\)/],
  ['lines around nothing', pair('hollow', 'key'), /^EBBMARK_TLS_CERT: .* is not a file of certificates \(PEM\)/],
  [
    'a text for a key',
    pair('cert', 'text'),
    /^EBBMARK_TLS_KEY: .* is not a file of a private key \(PEM\); for example/,
  ],
  [
    'lines around no key',
    pair('cert', 'hollowKey'),
    /^EBBMARK_TLS_KEY: .* is not a file of a private key \(PEM\) that can be read \(ERR_\w+\)/,
  ],
  [
    'the key of another one',
    pair('cert', 'other'),
    /^EBBMARK_TLS_KEY: "[^"]*other" is not the key of the first certificate in "[^"]*cert"/,
  ],
  ['a key too short for TLS', pair('weak', 'weakKey'), /^EBBMARK_TLS_CERT: .* TLS takes \(ERR_SSL_EE_KEY_TOO_SMALL\)/],
  [
    'an encrypted key',
    pair('cert', 'encrypted'),
    /^EBBMARK_TLS_KEY: .* with its passphrase \(EBBMARK_TLS_KEY_PASSPHRASE\)/,
  ],
  ['an encrypted key of the old kind', pair('cert', 'legacy'), /^EBBMARK_TLS_KEY: .* with its passphrase/],
  [
    'a wrong passphrase',
    pair('cert', 'encrypted', { EBBMARK_TLS_KEY_PASSPHRASE: 'canary!' }),
    /^EBBMARK_TLS_KEY: .* is not a key that the passphrase of EBBMARK_TLS_KEY_PASSPHRASE opens/,
  ],
  [
    'an encrypted client key',
    { EBBMARK_TLS_CLIENT_CERT: 'cert', EBBMARK_TLS_CLIENT_KEY: 'encrypted' },
    /^EBBMARK_TLS_CLIENT_KEY: .* is not a key that is not encrypted/,
  ],
  ['no signers of servers', { EBBMARK_TLS_CA: 'text' }, /^EBBMARK_TLS_CA: .* is not a file of certificates/],
])('%s: refused, and nothing of what is in the files is told', async (_name, settings, expected) => {
  const files: Readonly<Record<string, string>> = await write();
  const env = Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, files[value] ?? value]));
  const faults = faultsOf(env);
  expect(faults).toEqual([expect.stringMatching(expected)]);
  expect(faults[0]).toMatch(/; for example: \S+$/);
  expect(faults[0]).not.toMatch(/canary|Y2Fu/);
});

it('that are not there, or no files, are refused, all at once and by the flag they came from', async () => {
  const files = await write();
  const faults = faultsOf(
    { EBBMARK_TLS_KEY: '/nowhere.key', EBBMARK_TLS_CLIENT_CA: '/' },
    { tlsCert: `${files.cert}.no` },
  );
  expect(faults).toEqual([
    `--tls-cert: "${files.cert}.no" is not a file that can be read (ENOENT); for example: /etc/ebbmark/server.crt`,
    'EBBMARK_TLS_KEY: "/nowhere.key" is not a file that can be read (ENOENT); for example: /etc/ebbmark/server.key',
    'EBBMARK_TLS_CLIENT_CA: "/" is not a file that can be read (EISDIR); for example: /etc/ebbmark/clients-ca.crt',
  ]);
});

it('that are over, not begun, or open to everyone are warned of', async () => {
  const over = await authority.issue('over', { days: [-2, -1] });
  const soon = await authority.issue('soon', { days: [1, 2] });
  const files = await writeFiles({ cert: over.cert, key: over.key, ca: soon.cert });
  await chmod(files.key, 0o644);
  const { server } = read({
    EBBMARK_TLS_CERT: files.cert,
    EBBMARK_TLS_KEY: files.key,
    EBBMARK_TLS_CLIENT_CA: files.ca,
  });
  expect(server?.warnings).toEqual([
    {
      setting: 'EBBMARK_TLS_CERT',
      path: files.cert,
      message: expect.stringMatching(/^the certificate of CN=over has expired: /),
    },
    { setting: 'EBBMARK_TLS_KEY', path: files.key, message: expect.stringContaining('everyone on this machine') },
    {
      setting: 'EBBMARK_TLS_CLIENT_CA',
      path: files.ca,
      message: expect.stringMatching(/^the certificate of CN=soon is not valid yet: /),
    },
  ]);
  await chmod(files.key, 0o640);
  expect(read({ EBBMARK_TLS_CERT: files.cert, EBBMARK_TLS_KEY: files.key }).server?.warnings).toHaveLength(1);
});
