/**
 * Every setting of the program, in one table: flags, then environment, then defaults. Help, validation and the table in
 * the README come from it.
 */
import { BlockList, isIP, isIPv6 } from 'node:net';
import { MAX_STORE_BYTES } from './core/bounds.ts';
import { QueueError } from './core/errors.ts';
import { type CassandraCredentials, parseCassandraAddress, readAccess } from './store/cassandra/address.ts';

/**
 * A value, or why the text is none: `''` for "it is not what the rule says", else what to say instead of that; or, as
 * `message`, all of it with its own value and example.
 */
type Read<T> = { readonly value: T } | { readonly fault: string } | { readonly message: string };

export interface Setting<T> {
  readonly env: string;
  /** Without dashes; null where there is none: everyone on a machine can read its command lines. */
  readonly flag: string | null;
  /** Shown in the help for the flag's value; absent for a flag that takes none and means `on`. */
  readonly placeholder?: string;
  /** As text, like the environment's; `''` where it stands for none. */
  readonly fallback: string;
  readonly about: string;
  /** Continues "is not …". */
  readonly rule: string;
  readonly example: string;
  readonly read: (text: string) => Read<T>;
}

export type StoreAddress =
  | {
      readonly kind: 'sqlite';
      readonly path: string;
      /** As it was given. */
      readonly text: string;
    }
  | { readonly kind: 'cassandra'; readonly text: string };

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  readonly loopback: boolean;
}

/** Where the status page is: with all other routes, nowhere, or at an address of its own. */
export type StatusAddress = 'main' | 'off' | ListenAddress;

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export const KEY_RULES = ['on', 'off', 'auto'] as const;
export type KeyRule = (typeof KEY_RULES)[number];

/** A tally above this is a mistyped one. */
const MOST_TASKS = 1_000_000_000;
const MOST_CONNECTIONS = 1_000_000;

const one = <T>(setting: Setting<T>): Setting<T> => setting;

/** The settings of the server and of the commands. */
export const SETTINGS = {
  store: one<StoreAddress>({
    env: 'EBBMARK_STORE',
    flag: 'store',
    placeholder: 'store',
    fallback: 'sqlite:./ebbmark.db',
    about:
      'where tasks are kept: one SQLite file, created where it is not there; or a keyspace of Cassandra, `cassandra://HOST[:PORT],…/KEYSPACE`, with `?dc=`, `replication=` (copies, where the keyspace is created) and `consistency=local` or `global`',
    rule: 'sqlite:PATH or cassandra://HOST[,HOST…]/KEYSPACE',
    example: 'sqlite:./ebbmark.db or cassandra://10.0.0.1,10.0.0.2/ebbmark?dc=datacenter1&replication=3',
    read: readStore,
  }),
  listen: one<ListenAddress>({
    env: 'EBBMARK_LISTEN',
    flag: 'listen',
    placeholder: 'host:port',
    fallback: '127.0.0.1:8080',
    about: 'address and port to listen on; port 0 takes a free one',
    rule: 'HOST:PORT with an IP address or localhost, IPv6 in brackets, and a port from 0 to 65535',
    example: '127.0.0.1:8080 or [::1]:8080',
    read: readListen,
  }),
  advertise: one<string | null>({
    env: 'EBBMARK_ADVERTISE',
    flag: 'advertise',
    placeholder: 'url',
    fallback: '',
    about:
      'where other servers on the same Cassandra keyspace reach this one; its listening address when not given, or one of the machine’s where it listens on all',
    rule: 'an http or https URL without query',
    example: 'http://10.0.0.5:8080',
    read: (text) => (text === '' ? { value: null } : readUrl(text)),
  }),
  allowPublic: one<boolean>({
    env: 'EBBMARK_ALLOW_PUBLIC',
    flag: 'allow-public',
    fallback: 'off',
    about:
      'ask for no API keys on other addresses than loopback either, so that anyone who reaches the port can do anything; on loopback: take calls by any Host name',
    rule: 'on or off',
    example: 'on',
    read: readSwitch,
  }),
  requireKeys: one<KeyRule>({
    env: 'EBBMARK_REQUIRE_KEYS',
    flag: 'require-keys',
    placeholder: KEY_RULES.join('|'),
    fallback: 'auto',
    about:
      'whether calls need an API key (ebbmark keys create makes them); auto: on other addresses than loopback, unless --allow-public is given',
    rule: 'one of on, off, auto',
    example: 'on',
    read: (text) => ((KEY_RULES as readonly string[]).includes(text) ? { value: text as KeyRule } : { fault: '' }),
  }),
  maxBodyBytes: one<number>({
    env: 'EBBMARK_MAX_BODY_BYTES',
    flag: 'max-body-bytes',
    placeholder: 'size',
    fallback: '8m',
    about: 'largest request body, uncompressed; b, k, m or g are powers of 1024, none means bytes',
    rule: 'a size from 1k to 256m',
    example: '8m',
    read: (text) => readSize(text, 1024, 256 * 1024 * 1024),
  }),
  maxMemoryBytes: one<number>({
    env: 'EBBMARK_MAX_MEMORY_BYTES',
    flag: 'max-memory-bytes',
    placeholder: 'size',
    fallback: '4g',
    about:
      'bytes of requests and answers under way, half of the machine’s memory at the most: three quarters for what is published, the rest for results and all else; sizes as above',
    rule: 'a positive whole number of bytes, or of b, k, m or g',
    example: '4g',
    read: (text) => readSize(text, 1, Number.MAX_SAFE_INTEGER),
  }),
  maxTasks: one<number>({
    env: 'EBBMARK_MAX_TASKS',
    flag: 'max-tasks',
    placeholder: 'tasks',
    fallback: '100000',
    about: 'tasks under way: enqueues not yet answered, leases held and results awaited',
    rule: `a whole number from 1 to ${MOST_TASKS}`,
    example: '100000',
    read: (text) => readCount(text, MOST_TASKS),
  }),
  maxConnections: one<number>({
    env: 'EBBMARK_MAX_CONNECTIONS',
    flag: 'max-connections',
    placeholder: 'connections',
    fallback: '1024',
    about: 'connections that are open, idle ones included',
    rule: `a whole number from 1 to ${MOST_CONNECTIONS}`,
    example: '1024',
    read: (text) => readCount(text, MOST_CONNECTIONS),
  }),
  maxStoreBytes: one<number | null>({
    env: 'EBBMARK_MAX_STORE_BYTES',
    flag: 'max-store-bytes',
    placeholder: 'size',
    fallback: '',
    about:
      'how much a SQLite store may hold before new tasks are refused (`store-full`); b, k, m or g are powers of 1024, none means bytes',
    rule: 'a size of 1m or more',
    example: '20g',
    read: (text) => (text === '' ? { value: null } : readSize(text, MAX_STORE_BYTES.min, MAX_STORE_BYTES.max)),
  }),
  statusListen: one<StatusAddress>({
    env: 'EBBMARK_STATUS_LISTEN',
    flag: 'status-listen',
    placeholder: 'host:port',
    fallback: 'main',
    about:
      'where `/status` is served: `main`, beside all else; an address and port of its own, and only there; or `off`. Another address than loopback shows names of topics to whoever reaches it',
    rule: 'main, off, or HOST:PORT with an IP address or localhost, IPv6 in brackets, and a port from 0 to 65535',
    example: '127.0.0.1:9001',
    read: (text) => (text === 'main' || text === 'off' ? { value: text } : readListen(text)),
  }),
  logLevel: one<LogLevel>({
    env: 'EBBMARK_LOG_LEVEL',
    flag: 'log-level',
    placeholder: 'level',
    fallback: 'info',
    about: `one of ${LOG_LEVELS.join(', ')}; debug logs every request, never a payload`,
    rule: `one of ${LOG_LEVELS.join(', ')}`,
    example: 'info',
    read: (text) => ((LOG_LEVELS as readonly string[]).includes(text) ? { value: text as LogLevel } : { fault: '' }),
  }),
  migrate: one<boolean>({
    env: 'EBBMARK_MIGRATE',
    flag: 'migrate',
    placeholder: 'on|off',
    fallback: 'on',
    about:
      'create or upgrade the store at the start; off: refuse to start where that is needed (ebbmark migrate does it)',
    rule: 'on or off',
    example: 'on',
    read: readSwitch,
  }),
  cassandraUser: one<string | null>({
    env: 'EBBMARK_CASSANDRA_USER',
    flag: 'cassandra-user',
    placeholder: 'name',
    fallback: '',
    about: 'who logs in to Cassandra; goes with a password, from EBBMARK_CASSANDRA_PASSWORD or a file',
    rule: 'a name',
    example: 'ebbmark',
    read: readOptional,
  }),
  cassandraPassword: one<string | null>({
    env: 'EBBMARK_CASSANDRA_PASSWORD',
    flag: null,
    fallback: '',
    about: 'the password; has no flag, since everyone on a machine can read its command lines',
    rule: 'a password',
    example: '…',
    read: readOptional,
  }),
  cassandraPasswordFile: one<string | null>({
    env: 'EBBMARK_CASSANDRA_PASSWORD_FILE',
    flag: 'cassandra-password-file',
    placeholder: 'path',
    fallback: '',
    about: 'a file that holds the password, instead of the password itself',
    rule: 'a path',
    example: '/run/secrets/cassandra',
    read: readOptional,
  }),
  cassandraTlsCa: one<string | null>({
    env: 'EBBMARK_CASSANDRA_TLS_CA',
    flag: 'cassandra-tls-ca',
    placeholder: 'path',
    fallback: '',
    about: 'certificates (PEM) of who signs those of the nodes; given, connections are encrypted',
    rule: 'a path',
    example: '/etc/ebbmark/ca.crt',
    read: readOptional,
  }),
  cassandraTlsCert: one<string | null>({
    env: 'EBBMARK_CASSANDRA_TLS_CERT',
    flag: 'cassandra-tls-cert',
    placeholder: 'path',
    fallback: '',
    about: 'this server’s own certificate (PEM), where the nodes ask for one; goes with its key',
    rule: 'a path',
    example: '/etc/ebbmark/client.crt',
    read: readOptional,
  }),
  cassandraTlsKey: one<string | null>({
    env: 'EBBMARK_CASSANDRA_TLS_KEY',
    flag: 'cassandra-tls-key',
    placeholder: 'path',
    fallback: '',
    about: 'its key (PEM)',
    rule: 'a path',
    example: '/etc/ebbmark/client.key',
    read: readOptional,
  }),
  cassandraTlsVerifyHost: one<boolean>({
    env: 'EBBMARK_CASSANDRA_TLS_VERIFY_HOST',
    flag: 'cassandra-tls-verify-host',
    placeholder: 'on|off',
    fallback: 'on',
    about: 'whether a node’s certificate has to name the address it is reached at',
    rule: 'on or off',
    example: 'on',
    read: readSwitch,
  }),
  tlsCert: one<string | null>({
    env: 'EBBMARK_TLS_CERT',
    flag: 'tls-cert',
    placeholder: 'path',
    fallback: '',
    about:
      'the certificate (PEM) that this server shows, with those in between behind it; given, its port speaks TLS, 1.2 or newer, and nothing else; read again on SIGHUP, like all files of TLS',
    rule: 'a file of certificates (PEM)',
    example: '/etc/ebbmark/server.crt',
    read: readOptional,
  }),
  tlsKey: one<string | null>({
    env: 'EBBMARK_TLS_KEY',
    flag: 'tls-key',
    placeholder: 'path',
    fallback: '',
    about: 'its key (PEM)',
    rule: 'a file of a private key (PEM)',
    example: '/etc/ebbmark/server.key',
    read: readOptional,
  }),
  tlsKeyPassphrase: one<string | null>({
    env: 'EBBMARK_TLS_KEY_PASSPHRASE',
    flag: null,
    fallback: '',
    about: 'what opens that key, where it is encrypted; has no flag, as above',
    rule: 'a passphrase',
    example: '…',
    read: readOptional,
  }),
  tlsClientCa: one<string | null>({
    env: 'EBBMARK_TLS_CLIENT_CA',
    flag: 'tls-client-ca',
    placeholder: 'path',
    fallback: '',
    about:
      'certificates (PEM) of who signs those of clients; given, who shows none of theirs is not admitted, whatever the path',
    rule: 'a file of certificates (PEM)',
    example: '/etc/ebbmark/clients-ca.crt',
    read: readOptional,
  }),
  tlsCa: one<string | null>({
    env: 'EBBMARK_TLS_CA',
    flag: 'tls-ca',
    placeholder: 'path',
    fallback: '',
    about:
      'certificates (PEM) of who signs those of servers that are called: by a command, or by another server on the same keyspace; those that Node trusts when not given',
    rule: 'a file of certificates (PEM)',
    example: '/etc/ebbmark/ca.crt',
    read: readOptional,
  }),
  tlsClientCert: one<string | null>({
    env: 'EBBMARK_TLS_CLIENT_CERT',
    flag: 'tls-client-cert',
    placeholder: 'path',
    fallback: '',
    about:
      'the certificate (PEM) to show to servers that ask for one; a server without it shows others the one of EBBMARK_TLS_CERT',
    rule: 'a file of certificates (PEM)',
    example: '/etc/ebbmark/client.crt',
    read: readOptional,
  }),
  tlsClientKey: one<string | null>({
    env: 'EBBMARK_TLS_CLIENT_KEY',
    flag: 'tls-client-key',
    placeholder: 'path',
    fallback: '',
    about: 'its key (PEM), not encrypted',
    rule: 'a file of a private key (PEM)',
    example: '/etc/ebbmark/client.key',
    read: readOptional,
  }),
  url: one<string>({
    env: 'EBBMARK_URL',
    flag: 'url',
    placeholder: 'url',
    fallback: 'http://127.0.0.1:8080',
    about: 'the running server that commands speak to',
    rule: 'an http or https URL without query',
    example: 'http://127.0.0.1:8080',
    read: readUrl,
  }),
  key: one<string | null>({
    env: 'EBBMARK_KEY',
    flag: null,
    fallback: '',
    about:
      'the API key that commands and clients show; has no flag, since everyone on a machine can read its command lines',
    rule: 'an API key',
    example: 'ebb_4f0c1d2e3b5a_…',
    read: readOptional,
  }),
  keyFile: one<string | null>({
    env: 'EBBMARK_KEY_FILE',
    flag: null,
    fallback: '',
    about: 'a file that holds it, instead of the key itself',
    rule: 'a path',
    example: '/run/secrets/ebbmark',
    read: readOptional,
  }),
} as const;

export type SettingName = keyof typeof SETTINGS;
export type ValueOf<N extends SettingName> = (typeof SETTINGS)[N] extends Setting<infer T> ? T : never;
export type Values<N extends SettingName> = { readonly [K in N]: ValueOf<K> };

/** Flags as the command line gave them: text, or true where a flag takes no value. */
export type Flags = { readonly [K in SettingName]?: string | boolean | undefined };
export type Environment = Readonly<Record<string, string | undefined>>;

/** What proves to Cassandra who we are. */
const CASSANDRA_SETTINGS = [
  'cassandraUser',
  'cassandraPassword',
  'cassandraPasswordFile',
  'cassandraTlsCa',
  'cassandraTlsCert',
  'cassandraTlsKey',
  'cassandraTlsVerifyHost',
] as const;
/** All that it takes to open a store. */
export const STORE_SETTINGS = ['store', ...CASSANDRA_SETTINGS] as const;
/** What it takes to call servers that speak TLS. */
export const CALL_SETTINGS = ['tlsCa', 'tlsClientCert', 'tlsClientKey'] as const;
/** Of the commands that speak to a running server. */
export const COMMAND_SETTINGS = ['url', 'key', 'keyFile', ...CALL_SETTINGS] as const;
export const SERVER_SETTINGS = [
  ...STORE_SETTINGS,
  'migrate',
  'listen',
  'advertise',
  'tlsCert',
  'tlsKey',
  'tlsKeyPassphrase',
  'tlsClientCa',
  ...CALL_SETTINGS,
  'allowPublic',
  'requireKeys',
  'maxBodyBytes',
  'maxMemoryBytes',
  'maxTasks',
  'maxConnections',
  'maxStoreBytes',
  'statusListen',
  'logLevel',
] as const;

/** Values that break a rule: each message names the value, the rule and an example. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly faults: readonly string[];

  constructor(faults: readonly string[]) {
    super(faults.join('\n'));
    this.faults = faults;
  }
}

/** Reads some settings. @throws ConfigError that names every bad value */
export function readSettings<const N extends SettingName>(
  names: readonly N[],
  flags: Flags,
  env: Environment,
): Values<N> {
  const faults: string[] = [];
  const values: Partial<Record<SettingName, unknown>> = {};
  for (const name of names) {
    const setting: Setting<unknown> = SETTINGS[name];
    const flag = flags[name];
    const text = flag === undefined ? (env[setting.env] ?? setting.fallback) : flag === true ? 'on' : String(flag);
    const source = sourceOf(name, flags);
    const read = setting.read(text.trim());
    if ('value' in read) values[name] = read.value;
    else if ('message' in read) faults.push(`${source}: ${read.message}`);
    else {
      const rule = read.fault === '' ? `is not ${setting.rule}` : read.fault;
      faults.push(`${source}: ${JSON.stringify(withoutSecrets(text))} ${rule}; for example: ${setting.example}`);
    }
  }
  if (faults.length > 0) throw new ConfigError(faults);
  return values as Values<N>;
}

/** By what a setting was given, or could have been. */
export function sourceOf(name: SettingName, flags: Flags): string {
  const { env, flag }: Setting<unknown> = SETTINGS[name];
  return flags[name] === undefined ? env : `--${flag}`;
}

/** Whether a setting was given, or has its default. */
export const isGiven = (name: SettingName, flags: Flags, env: Environment): boolean =>
  flags[name] !== undefined || env[SETTINGS[name].env] !== undefined;

/** An address in a message: what stands before its last @, and in its query, may be a secret. */
export const withoutSecrets = (text: string): string =>
  text.replace(/^([a-z][a-z0-9+.-]*:\/\/)?.*@/is, '$1…@').replace(/([?#]).+$/s, '$1…');

/** What openQueue and migrateStore need to know of the store. */
export interface StoreOptions {
  readonly store: string;
  readonly cassandra?: CassandraCredentials;
}

/** Reads where tasks are kept, and what it takes to get there. @throws ConfigError */
export function readStoreSettings(
  flags: Flags,
  env: Environment,
): { readonly address: StoreAddress; readonly options: StoreOptions } {
  return storeOptionsOf(readSettings(STORE_SETTINGS, flags, env), flags);
}

/** @throws ConfigError where the settings don't go together, or a file of theirs cannot be read */
export function storeOptionsOf(
  values: Values<(typeof STORE_SETTINGS)[number]>,
  flags: Flags,
): ReturnType<typeof readStoreSettings> {
  const address = values.store;
  if (address.kind === 'sqlite') return { address, options: { store: address.text } };
  const given = { ...values, cassandraTlsVerifyHost: values.cassandraTlsVerifyHost ? null : false };
  const entries = Object.entries(CREDENTIAL_OF).flatMap(([credential, name]) =>
    given[name] === null ? [] : [[credential, given[name]]],
  );
  const cassandra = Object.fromEntries(entries) as CassandraCredentials;
  try {
    readAccess(cassandra);
  } catch (error) {
    if (!(error instanceof QueueError)) throw error;
    throw new ConfigError(
      error.issues.map(({ path, message }) => {
        return `${sourceOf(CREDENTIAL_OF[path as keyof CassandraCredentials], flags)}: ${message}`;
      }),
    );
  }
  return { address, options: { store: address.text, cassandra } };
}

/** The setting of each credential. */
const CREDENTIAL_OF = {
  user: 'cassandraUser',
  password: 'cassandraPassword',
  passwordFile: 'cassandraPasswordFile',
  tlsCa: 'cassandraTlsCa',
  tlsCert: 'cassandraTlsCert',
  tlsKey: 'cassandraTlsKey',
  tlsVerifyHost: 'cassandraTlsVerifyHost',
} as const satisfies Readonly<Record<keyof CassandraCredentials, (typeof CASSANDRA_SETTINGS)[number]>>;

/** Reads the server's settings, and holds them against each other. @throws ConfigError */
export function readServerSettings(flags: Flags, env: Environment): Values<(typeof SERVER_SETTINGS)[number]> {
  const values = readSettings(SERVER_SETTINGS, flags, env);
  if (values.maxStoreBytes !== null && values.store.kind !== 'sqlite') {
    throw new ConfigError([
      `${sourceOf('maxStoreBytes', flags)}: ${values.maxStoreBytes} bytes is not for ${values.store.kind}: only a SQLite store has this bound; for example: leave it out, and watch the nodes' disks`,
    ]);
  }
  const { statusListen } = values;
  if (typeof statusListen !== 'string') {
    const source = sourceOf('statusListen', flags);
    const shown = JSON.stringify(`${statusListen.host}:${statusListen.port}`);
    if (!statusListen.loopback && !values.allowPublic) {
      throw new ConfigError([
        `${source}: ${shown} is not a loopback address: anyone who reaches the port could read names of topics; for example: ${SETTINGS.statusListen.example}, or --${SETTINGS.allowPublic.flag} (${SETTINGS.allowPublic.env}=on) behind something that keeps others out, with ${SETTINGS.requireKeys.env}=on, or no other call asks for keys either`,
      ]);
    }
    if (
      statusListen.port !== 0 &&
      statusListen.port === values.listen.port &&
      statusListen.host === values.listen.host
    ) {
      throw new ConfigError([`${source}: ${shown} is where the server listens; for example: main, which means there`]);
    }
  }
  if (!values.listen.loopback && !values.allowPublic && values.requireKeys === 'off') {
    throw new ConfigError([
      `${sourceOf('listen', flags)}: ${JSON.stringify(values.listen.host)} is not a loopback address, and no keys are asked for (${SETTINGS.requireKeys.env}=off): anyone who reaches the port could do anything; for example: ${SETTINGS.listen.example}, or ${SETTINGS.requireKeys.env}=auto, or --${SETTINGS.allowPublic.flag} (${SETTINGS.allowPublic.env}=on) behind something that keeps others out`,
    ]);
  }
  return values;
}

/** Whether calls need an API key. */
export const needsKeys = ({
  listen,
  allowPublic,
  requireKeys,
}: Values<'listen' | 'allowPublic' | 'requireKeys'>): boolean =>
  requireKeys === 'auto' ? !listen.loopback && !allowPublic : requireKeys === 'on';

/** Names in the environment that look like settings and are none: misspelt, most likely. */
export function unknownSettings(env: Environment): readonly string[] {
  const known = new Set<string>(Object.values(SETTINGS).map((setting) => setting.env));
  return Object.keys(env).filter((name) => name.startsWith('EBBMARK_') && !known.has(name));
}

/** The README's table of some settings. */
export function settingsTable(names = Object.keys(SETTINGS) as readonly SettingName[]): string {
  const rows = names.map((name) => {
    const { flag, env, fallback, about }: Setting<unknown> = SETTINGS[name];
    return `| ${flag === null ? '–' : `\`--${flag}\``} | \`${env}\` | ${fallback === '' ? 'none' : `\`${fallback}\``} | ${about} |`;
  });
  return ['| flag | environment | default | what |', '| --- | --- | --- | --- |', ...rows].join('\n');
}

function readStore(text: string): Read<StoreAddress> {
  if (/^cassandra:/i.test(text)) return readCassandra(text);
  const path = text.startsWith('sqlite:') ? text.slice('sqlite:'.length) : '';
  if (path === '' || path.includes('\0')) return { fault: '' };
  return { value: { kind: 'sqlite', path, text } };
}

function readCassandra(text: string): Read<StoreAddress> {
  try {
    // Whatever stands before an @ is not shown.
    parseCassandraAddress(text.includes('@') ? 'cassandra://@' : text);
    return { value: { kind: 'cassandra', text } };
  } catch (error) {
    if (!(error instanceof QueueError)) throw error;
    return { message: error.issues[0]!.message };
  }
}

function readOptional(text: string): Read<string | null> {
  return { value: text === '' ? null : text };
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8);
LOOPBACK.addAddress('::1', 'ipv6');

function readListen(text: string): Read<ListenAddress> {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (!match || port > 65_535) return { fault: '' };
  const host = match[1] ?? (match[2]!.toLowerCase() === 'localhost' ? '127.0.0.1' : match[2]!);
  if (match[1] !== undefined ? !isIPv6(host) : isIP(host) !== 4) return { fault: '' };
  return { value: { host, port, loopback: LOOPBACK.check(host, isIPv6(host) ? 'ipv6' : 'ipv4') } };
}

function readSwitch(text: string): Read<boolean> {
  return text === 'on' || text === 'off' ? { value: text === 'on' } : { fault: '' };
}

const UNITS: Readonly<Record<string, number>> = { '': 1, b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3 };

function readSize(text: string, min: number, max: number): Read<number> {
  const match = /^(\d{1,16})([bkmg]?)$/i.exec(text);
  if (!match) return { fault: '' };
  const value = Number(match[1]) * UNITS[match[2]!.toLowerCase()]!;
  return Number.isSafeInteger(value) && value >= min && value <= max ? { value } : { fault: '' };
}

function readCount(text: string, max: number): Read<number> {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : 0;
  return value >= 1 && value <= max ? { value } : { fault: '' };
}

function readUrl(text: string): Read<string> {
  if (!URL.canParse(text)) return { fault: '' };
  const url = new URL(text);
  if (!/^https?:$/.test(url.protocol) || url.search !== '' || url.hash !== '' || url.username !== '')
    return { fault: '' };
  return { value: url.href.replace(/\/+$/, '') };
}
