import { describe, expect, it } from 'vitest';
import {
  ConfigError,
  type Environment,
  readServerSettings,
  readSettings,
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

describe('server settings', () => {
  it('have defaults', () => {
    expect(readServerSettings({}, {})).toEqual({
      store: { kind: 'sqlite', path: './ebbmark.db', text: 'sqlite:./ebbmark.db' },
      listen: { host: '127.0.0.1', port: 8080, loopback: true },
      allowPublic: false,
      maxBodyBytes: 8 * 1024 * 1024,
      logLevel: 'info',
      migrate: true,
    });
  });

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
    ['EBBMARK_LOG_LEVEL', 'verbose'],
    ['EBBMARK_LOG_LEVEL', 'INFO'],
    ['EBBMARK_MIGRATE', 'true'],
    ['EBBMARK_ALLOW_PUBLIC', '1'],
  ])('%s=%s is refused: the value, the rule and an example', (name, text) => {
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

  it('say that Cassandra is not in this version', () => {
    expect(faultsOf({ store: 'cassandra://db/ebbmark' }, {})[0]).toMatch(/^--store: .* is not in this version/);
  });

  it.each(['0.0.0.0:80', '[::]:80', '192.168.1.1:80', '128.0.0.1:80', '[::ffff:8.8.8.8]:80'])(
    'refuse to listen on %s without a word for it',
    (listen) => {
      expect(faultsOf({ listen }, {})[0]).toContain('--allow-public');
      expect(readServerSettings({ listen, allowPublic: true }, {}).listen.loopback).toBe(false);
      expect(readServerSettings({ listen }, { EBBMARK_ALLOW_PUBLIC: 'on' }).listen.loopback).toBe(false);
    },
  );
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
});

describe('the table of settings', () => {
  it('knows which names of the environment are none', () => {
    expect(unknownSettings({ EBBMARK_STORE: 'x', EBBMARK_STROE: 'x', PATH: 'x' })).toEqual(['EBBMARK_STROE']);
  });
  it('is written for the README', () => {
    const table = settingsTable();
    for (const { env, flag, fallback } of Object.values(SETTINGS)) {
      expect(table).toContain(`| \`${env}\` | \`--${flag}`);
      expect(table).toContain(`\`${fallback}\``);
    }
  });
  it('has defaults and examples that its own rules allow', () => {
    for (const { read, fallback, example } of Object.values(SETTINGS)) {
      for (const text of [fallback, ...example.split(' or ')]) expect(read(text), text).toHaveProperty('value');
    }
  });
});
