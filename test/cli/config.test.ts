import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  ConfigError,
  type Environment,
  needsKeys,
  readServerSettings,
  readSettings,
  readStoreSettings,
  SETTINGS,
  settingsTable,
  unknownSettings,
} from '../../src/config.ts';

const faultsOf = (flags: object, env: Environment): readonly string[] => {
  try {
    readServerSettings(flags, env);
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
};

/** Every kind of wrong value that a number can have: nothing, zero, signs, fractions, blanks inside, other notations, overflow. */
const WRONG_NUMBERS = [
  '',
  ' ',
  '0',
  '00',
  '-1',
  '+1',
  '--1',
  '1.5',
  '1.0',
  '1,000',
  '1_000',
  '.5',
  '5.',
  '1 000',
  '1 0',
  '1e3',
  '0x10',
  '0b1',
  '1n',
  'Infinity',
  '-Infinity',
  'NaN',
  'null',
  'true',
  'max',
  '½',
  '١٢',
  '１２',
  '99999999999999999999',
];
const WRONG_SIZES = [
  ...WRONG_NUMBERS,
  '0g',
  '0b',
  '-4g',
  '+4g',
  '1.5g',
  '4 g',
  '4\tg',
  '4\u00a0g',
  'g',
  'g4',
  '4gb',
  '4Gi',
  '4kb',
  '4t',
  '4bb',
  '4gg',
  '4 bytes',
  '4%',
  // The Kelvin sign, which some take for a k.
  '4\u212a',
  '9007199254740992',
  '9007199254740991k',
  '8388608g',
  '9999999999999999g',
];
/** Counts have no units. */
const WRONG_COUNTS = [...WRONG_NUMBERS, '1k', '1m', '1b'];

describe('server settings', () => {
  it('have defaults', () => {
    expect(readServerSettings({}, {})).toEqual({
      store: { kind: 'sqlite', path: './ebbmark.db', text: 'sqlite:./ebbmark.db' },
      cassandraUser: null,
      cassandraPassword: null,
      cassandraPasswordFile: null,
      cassandraTlsCa: null,
      cassandraTlsCert: null,
      cassandraTlsKey: null,
      cassandraTlsVerifyHost: true,
      listen: { host: '127.0.0.1', port: 8080, loopback: true },
      advertise: null,
      tlsCert: null,
      tlsKey: null,
      tlsKeyPassphrase: null,
      tlsClientCa: null,
      tlsCa: null,
      tlsClientCert: null,
      tlsClientKey: null,
      allowPublic: false,
      requireKeys: 'auto',
      maxBodyBytes: 8 * 1024 * 1024,
      maxMemoryBytes: 4 * 1024 ** 3,
      maxTasks: 100_000,
      maxConnections: 1_024,
      maxStoreBytes: null,
      statusListen: 'main',
      logLevel: 'info',
      migrate: true,
    });
  });

  it.each([
    ['64m', 64 * 1024 ** 2],
    [' 20G ', 20 * 1024 ** 3],
    ['1048576', 1024 ** 2],
    ['1048576b', 1024 ** 2],
  ])('bound a store by %j', (text, bytes) => {
    expect(readServerSettings({}, { EBBMARK_MAX_STORE_BYTES: text }).maxStoreBytes).toBe(bytes);
  });

  it.each(['0', '1023k', '-1g', '+1g', '1.5g', '1 g', '1t', 'g', '9999999999999999g', '1e9', 'none'])(
    'refuse to bound a store by %j',
    (text) => {
      expect(faultsOf({}, { EBBMARK_MAX_STORE_BYTES: text })).toEqual([
        `EBBMARK_MAX_STORE_BYTES: ${JSON.stringify(text)} is not a size of 1m or more; for example: 20g`,
      ]);
    },
  );

  it('refuse to bound a cluster', () => {
    const [fault] = faultsOf({ maxStoreBytes: '1g' }, { EBBMARK_STORE: 'cassandra://127.0.0.1/k' });
    expect(fault).toMatch(
      /^--max-store-bytes: 1073741824 bytes is not for cassandra: only a SQLite store has this bound/,
    );
  });

  it.each([
    ['main', 'main'],
    ['off', 'off'],
    ['127.0.0.1:9001', { host: '127.0.0.1', port: 9001, loopback: true }],
    ['[::1]:0', { host: '::1', port: 0, loopback: true }],
  ])('put the status page to %j', (text, value) => {
    expect(readServerSettings({}, { EBBMARK_STATUS_LISTEN: text }).statusListen).toEqual(value);
  });

  it.each([
    ['on', 'is not main, off, or HOST:PORT'],
    ['9001', 'is not main, off, or HOST:PORT'],
    ['127.0.0.1:70000', 'is not main, off, or HOST:PORT'],
    ['0.0.0.0:9001', 'is not a loopback address: anyone who reaches the port could read names of topics'],
    ['10.0.0.1:9001', 'with EBBMARK_REQUIRE_KEYS=on, or no other call asks for keys either'],
    ['127.0.0.1:8080', 'is where the server listens; for example: main'],
  ])('refuse to put it to %j', (text, message) => {
    expect(faultsOf({}, { EBBMARK_STATUS_LISTEN: text })).toEqual([expect.stringContaining(message)]);
  });

  it('are named by the flag where they came from one', () => {
    const message = expect.stringContaining('is not a loopback address');
    const env = { EBBMARK_REQUIRE_KEYS: 'off' };
    expect(faultsOf({ listen: '0.0.0.0:80' }, env)).toEqual([message]);
    expect(faultsOf({ listen: '0.0.0.0:80' }, env)[0]).toMatch(/^--listen: /);
    expect(faultsOf({}, { ...env, EBBMARK_LISTEN: '0.0.0.0:80' })[0]).toMatch(/^EBBMARK_LISTEN: /);
  });

  it.each([
    ['127.0.0.1:0', 'off', 'auto', false],
    ['127.0.0.1:0', 'on', 'auto', false],
    ['127.0.0.1:0', 'off', 'on', true],
    ['127.0.0.1:0', 'off', 'off', false],
    ['[::1]:0', 'off', 'auto', false],
    ['0.0.0.0:0', 'off', 'auto', true],
    ['[::]:0', 'off', 'auto', true],
    ['0.0.0.0:0', 'on', 'auto', false],
    ['0.0.0.0:0', 'on', 'on', true],
    ['0.0.0.0:0', 'on', 'off', false],
  ] as const)(
    'listening on %s, allow-public %s, require-keys %s: keys are asked for: %s',
    (listen, open, keys, asked) => {
      const env = { EBBMARK_LISTEN: listen, EBBMARK_ALLOW_PUBLIC: open, EBBMARK_REQUIRE_KEYS: keys };
      expect(needsKeys(readServerSettings({}, env))).toBe(asked);
    },
  );

  it('are taken from flags before the environment', () => {
    const values = readServerSettings(
      { listen: '[::1]:0' },
      { EBBMARK_LISTEN: '127.0.0.1:1', EBBMARK_LOG_LEVEL: 'debug' },
    );
    expect(values.listen).toEqual({ host: '::1', port: 0, loopback: true });
    expect(values.logLevel).toBe('debug');
  });

  it.each([
    ['EBBMARK_LISTEN', ' 127.0.0.1:80 ', 'listen', { host: '127.0.0.1', port: 80, loopback: true }],
    ['EBBMARK_LISTEN', '127.255.0.1:65535', 'listen', { host: '127.255.0.1', port: 65_535, loopback: true }],
    ['EBBMARK_LISTEN', 'localhost:80', 'listen', { host: '127.0.0.1', port: 80, loopback: true }],
    ['EBBMARK_MAX_BODY_BYTES', '1024', 'maxBodyBytes', 1024],
    ['EBBMARK_MAX_BODY_BYTES', '1024b', 'maxBodyBytes', 1024],
    ['EBBMARK_MAX_BODY_BYTES', '16K', 'maxBodyBytes', 16_384],
    ['EBBMARK_MAX_BODY_BYTES', ' 2m', 'maxBodyBytes', 2 * 1024 * 1024],
    ['EBBMARK_MAX_MEMORY_BYTES', '1', 'maxMemoryBytes', 1],
    ['EBBMARK_MAX_MEMORY_BYTES', '1b', 'maxMemoryBytes', 1],
    ['EBBMARK_MAX_MEMORY_BYTES', '1B', 'maxMemoryBytes', 1],
    ['EBBMARK_MAX_MEMORY_BYTES', '3k', 'maxMemoryBytes', 3 * 1024],
    ['EBBMARK_MAX_MEMORY_BYTES', '3K', 'maxMemoryBytes', 3 * 1024],
    ['EBBMARK_MAX_MEMORY_BYTES', '512m', 'maxMemoryBytes', 512 * 1024 ** 2],
    ['EBBMARK_MAX_MEMORY_BYTES', '512M', 'maxMemoryBytes', 512 * 1024 ** 2],
    ['EBBMARK_MAX_MEMORY_BYTES', ' \t2g\n', 'maxMemoryBytes', 2 * 1024 ** 3],
    ['EBBMARK_MAX_MEMORY_BYTES', '2G', 'maxMemoryBytes', 2 * 1024 ** 3],
    ['EBBMARK_MAX_MEMORY_BYTES', '8388607g', 'maxMemoryBytes', 8_388_607 * 1024 ** 3],
    ['EBBMARK_MAX_MEMORY_BYTES', '9007199254740991', 'maxMemoryBytes', Number.MAX_SAFE_INTEGER],
    ['EBBMARK_MAX_TASKS', '1', 'maxTasks', 1],
    ['EBBMARK_MAX_TASKS', ' 250000 ', 'maxTasks', 250_000],
    ['EBBMARK_MAX_TASKS', '1000000000', 'maxTasks', 1_000_000_000],
    ['EBBMARK_MAX_CONNECTIONS', '1', 'maxConnections', 1],
    ['EBBMARK_MAX_CONNECTIONS', '1000000', 'maxConnections', 1_000_000],
    ['EBBMARK_STORE', 'sqlite:/a b/ü.db', 'store', { kind: 'sqlite', path: '/a b/ü.db', text: 'sqlite:/a b/ü.db' }],
    ['EBBMARK_MIGRATE', 'off', 'migrate', false],
  ] as const)('%s=%s', (name, text, setting, value) => {
    expect(readServerSettings({}, { [name]: text })[setting]).toEqual(value);
  });

  it.each([
    ['EBBMARK_STORE', ''],
    ['EBBMARK_STORE', './ebbmark.db'],
    ['EBBMARK_STORE', 'sqlite:'],
    ['EBBMARK_STORE', 'postgres://localhost/x'],
    ['EBBMARK_LISTEN', ''],
    ['EBBMARK_LISTEN', '8080'],
    ['EBBMARK_LISTEN', ':8080'],
    ['EBBMARK_LISTEN', '127.0.0.1'],
    ['EBBMARK_LISTEN', '127.0.0.1:'],
    ['EBBMARK_LISTEN', '127.0.0.1:65536'],
    ['EBBMARK_LISTEN', '127.0.0.1:-1'],
    ['EBBMARK_LISTEN', '127.0.0.1:http'],
    ['EBBMARK_LISTEN', '127.0.0.256:80'],
    ['EBBMARK_LISTEN', '::1:8080'],
    ['EBBMARK_LISTEN', '[::1]'],
    ['EBBMARK_LISTEN', '[127.0.0.1]:80'],
    ['EBBMARK_LISTEN', 'example.org:80'],
    ['EBBMARK_LISTEN', 'http://127.0.0.1:80'],
    ['EBBMARK_MAX_BODY_BYTES', ''],
    ['EBBMARK_MAX_BODY_BYTES', '0'],
    ['EBBMARK_MAX_BODY_BYTES', '-1m'],
    ['EBBMARK_MAX_BODY_BYTES', '+1m'],
    ['EBBMARK_MAX_BODY_BYTES', '1.5m'],
    ['EBBMARK_MAX_BODY_BYTES', '1 m'],
    ['EBBMARK_MAX_BODY_BYTES', '1mb'],
    ['EBBMARK_MAX_BODY_BYTES', '1t'],
    ['EBBMARK_MAX_BODY_BYTES', '257m'],
    ['EBBMARK_MAX_BODY_BYTES', '99999999999999999999g'],
    ['EBBMARK_MAX_BODY_BYTES', '1e6'],
    ...WRONG_SIZES.map((text) => ['EBBMARK_MAX_MEMORY_BYTES', text] as const),
    ...['EBBMARK_MAX_TASKS', 'EBBMARK_MAX_CONNECTIONS'].flatMap((name) =>
      WRONG_COUNTS.map((text) => [name, text] as const),
    ),
    ['EBBMARK_MAX_TASKS', '1000000001'],
    ['EBBMARK_MAX_CONNECTIONS', '1000001'],
    ['EBBMARK_LOG_LEVEL', 'verbose'],
    ['EBBMARK_LOG_LEVEL', 'INFO'],
    ['EBBMARK_MIGRATE', 'true'],
    ['EBBMARK_ALLOW_PUBLIC', '1'],
    ['EBBMARK_REQUIRE_KEYS', ''],
    ['EBBMARK_REQUIRE_KEYS', 'true'],
    ['EBBMARK_REQUIRE_KEYS', 'ON'],
  ] as const)('%s=%j is refused: the value, the rule and an example', (name, text) => {
    const setting = Object.values(SETTINGS).find(({ env }) => env === name)!;
    const [fault, ...more] = faultsOf({}, { [name]: text });
    expect(more).toEqual([]);
    expect(fault).toBe(`${name}: ${JSON.stringify(text)} is not ${setting.rule}; for example: ${setting.example}`);
  });

  it('are all told of at once, by the name they were given with', () => {
    const faults = faultsOf(
      { listen: 'x' },
      { EBBMARK_LOG_LEVEL: 'x', EBBMARK_LISTEN: 'fine, since the flag goes before' },
    );
    expect(faults.map((fault) => fault.split(':')[0])).toEqual(['--listen', 'EBBMARK_LOG_LEVEL']);
  });

  it.each(['0.0.0.0:80', '[::]:80', '192.168.1.1:80', '128.0.0.1:80', '[::ffff:8.8.8.8]:80'])(
    'refuse to listen on %s without keys and without a word for it',
    (listen) => {
      expect(faultsOf({ listen }, { EBBMARK_REQUIRE_KEYS: 'off' })[0]).toContain('--allow-public');
      expect(readServerSettings({ listen, allowPublic: true }, {}).listen.loopback).toBe(false);
      expect(readServerSettings({ listen }, { EBBMARK_ALLOW_PUBLIC: 'on' }).listen.loopback).toBe(false);
    },
  );
});

describe('a keyspace of Cassandra', () => {
  const store = 'cassandra://a,b:9043/ebbmark?dc=dc1&replication=3&consistency=global';

  it('is taken as it was given, with nothing to prove', () => {
    expect(readStoreSettings({}, { EBBMARK_STORE: store })).toEqual({
      address: { kind: 'cassandra', text: store },
      options: { store, cassandra: {} },
    });
  });

  it('is reached with a user, a password and certificates, from flags and environment', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'ebbmark-config-'));
    onTestFinished(() => rm(directory, { recursive: true }));
    const file = join(directory, 'any.pem');
    await writeFile(file, 'text\n');
    const env = {
      EBBMARK_CASSANDRA_PASSWORD_FILE: file,
      EBBMARK_CASSANDRA_TLS_CA: file,
      EBBMARK_CASSANDRA_TLS_CERT: file,
      EBBMARK_CASSANDRA_TLS_KEY: file,
      EBBMARK_CASSANDRA_TLS_VERIFY_HOST: 'off',
    };
    const { options } = readStoreSettings({ store, cassandraUser: 'me' }, env);
    expect(options.cassandra).toEqual({
      user: 'me',
      passwordFile: file,
      tlsCa: file,
      tlsCert: file,
      tlsKey: file,
      tlsVerifyHost: false,
    });
    expect(readStoreSettings({}, env).options).toEqual({ store: 'sqlite:./ebbmark.db' });
  });

  it.each([
    [{ EBBMARK_CASSANDRA_USER: 'me' }, /^EBBMARK_CASSANDRA_USER: "me" is not given together with a password/],
    [{ EBBMARK_CASSANDRA_PASSWORD: 's3cret' }, /^EBBMARK_CASSANDRA_USER: null is not given together/],
    [
      { EBBMARK_CASSANDRA_USER: 'me', EBBMARK_CASSANDRA_PASSWORD: 's3cret', EBBMARK_CASSANDRA_PASSWORD_FILE: '/none' },
      /^EBBMARK_CASSANDRA_PASSWORD: "…" is not given once/,
    ],
    [{ EBBMARK_CASSANDRA_USER: 'me', EBBMARK_CASSANDRA_PASSWORD_FILE: '/none' }, /_PASSWORD_FILE: .*\(ENOENT\)/],
    [
      { EBBMARK_CASSANDRA_TLS_CERT: '/none' },
      /^EBBMARK_CASSANDRA_TLS_CERT: "\/none" is not given together with its key/,
    ],
    [{ EBBMARK_CASSANDRA_TLS_CA: '/none' }, /^EBBMARK_CASSANDRA_TLS_CA: .*\(ENOENT\)/],
    [{ EBBMARK_CASSANDRA_TLS_VERIFY_HOST: 'no' }, /^EBBMARK_CASSANDRA_TLS_VERIFY_HOST: "no" is not on or off/],
    [{ EBBMARK_STORE: 'cassandra://a' }, /^EBBMARK_STORE: "" is not a keyspace/],
    [
      { EBBMARK_STORE: 'cassandra://a/k?copies=3' },
      /^EBBMARK_STORE: "copies" is not one of dc, replication, consistency/,
    ],
    [{ EBBMARK_STORE: 'cassandra://me:s3cret@a/k' }, /^EBBMARK_STORE: .* is not an address without user and password/],
    [{ EBBMARK_STORE: 'cassandra:me:s3cret@a/k' }, /^EBBMARK_STORE: .* is not an address without user and password/],
    [
      { EBBMARK_STORE: 'postgres://me:s3cret@a/k' },
      /^EBBMARK_STORE: "postgres:\/\/…@a\/k" is not sqlite:PATH or cassandra:/,
    ],
  ])('%j is refused, and tells no secret', (env, expected) => {
    const told = () => readStoreSettings({}, { EBBMARK_STORE: store, ...env });
    expect(told).toThrow(ConfigError);
    expect(told).toThrow(expected);
    expect(told).not.toThrow(/s3cret/);
  });
});

describe('the address of the server, for commands', () => {
  it.each(['http://127.0.0.1:8080', 'http://127.0.0.1:8080/', 'https://queue.example.org/base/'])('%s', (url) => {
    expect(readSettings(['url'], { url }, {}).url).toBe(url.replace(/\/$/, ''));
  });
  it.each(['', 'localhost:8080', 'ftp://x', 'http://', 'http://u:p@x', 'http://x/?a=1', 'http://x/#a'])(
    '%j is refused',
    (url) => {
      expect(() => readSettings(['url'], {}, { EBBMARK_URL: url })).toThrow(ConfigError);
    },
  );
  it.each([
    'http://me:s3cret@x',
    'http:me:s3cret@x',
    'http://me:s3/cret@x',
    'http://me:s3?cret@x',
    'http://me:p@s3cret@x/',
    'me:s3cret@x',
    'http://x/?token=s3cret',
    'http://x/#s3cret',
  ])('%j is refused without telling the secret in it', (url) => {
    const told = () => readSettings(['url'], {}, { EBBMARK_URL: url });
    expect(told).toThrow(/^EBBMARK_URL: ".*….*" is not an http or https URL without query; for example/);
    expect(told).not.toThrow(/s3|cret/);
  });
});

describe('the table of settings', () => {
  it('knows which names of the environment are none', () => {
    expect(unknownSettings({ EBBMARK_STORE: 'x', EBBMARK_STROE: 'x', PATH: 'x' })).toEqual(['EBBMARK_STROE']);
  });
  it('is written for the README', () => {
    const table = settingsTable();
    for (const { env, flag } of Object.values(SETTINGS)) {
      expect(table).toContain(`| ${flag === null ? '–' : `\`--${flag}\``} | \`${env}\` |`);
    }
  });
  it('has defaults and examples that its own rules allow', () => {
    for (const { read, fallback, example } of Object.values(SETTINGS)) {
      for (const text of [fallback, ...example.split(' or ')])
        if (text !== '') expect(read(text), text).toHaveProperty('value');
    }
  });
});
