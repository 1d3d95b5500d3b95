/**
 * The address of a keyspace and what goes with it, read from text into a typed object:
 *
 *     cassandra://host1,host2:9042/keyspace?dc=datacenter1&replication=3&consistency=local
 *
 * Secrets don't belong into it, for addresses are logged: user, password and certificates are settings of their own.
 */
import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';
import { invalid } from '../../core/errors.ts';

export const DEFAULT_PORT = 9042;

export interface CassandraAddress {
  /** Where to begin: the others are found through them. Addresses of IPv6 are in brackets. */
  readonly hosts: readonly string[];
  /** The CQL port of all nodes. Nodes tell each other's addresses only, so there can be but one. */
  readonly port: number;
  readonly keyspace: string;
  /** The datacenter that this server speaks to; null: the only one there is. */
  readonly dc: string | null;
  /** Copies in each datacenter, where the keyspace is created; a number means `dc` alone, null up to three. */
  readonly replication: number | Readonly<Record<string, number>> | null;
  /**
   * `local`: quorums within `dc`, and all servers in that datacenter. `global`: quorums over all datacenters, servers
   * anywhere. All servers of a keyspace have to agree, so it is kept there.
   */
  readonly consistency: 'local' | 'global';
}

/** What proves who we are, each as a setting gives it; what is not used is absent. */
export interface CassandraCredentials {
  readonly user?: string;
  readonly password?: string;
  /** A file that holds the password; a line break at its end does not count. */
  readonly passwordFile?: string;
  /** A file of certificates (PEM) of who signs the nodes'; with it connections are encrypted. */
  readonly tlsCa?: string;
  /** Files of this client's own certificate and key (PEM). */
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  /** Whether a node's certificate has to name the address we reach it at; only `false` turns that off. */
  readonly tlsVerifyHost?: boolean;
}

const EXAMPLE = 'cassandra://10.0.0.1,10.0.0.2/ebbmark?dc=datacenter1&replication=3';
const PARAMETERS = ['dc', 'replication', 'consistency'];
const KEYSPACE = /^[a-z][a-z0-9_]{0,47}$/;
const HOST = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9](?:[a-z0-9._-]*[a-z0-9])?))(?::(\d{1,5}))?$/i;

/** @throws QueueError `invalid-input` that names the value, the rule and an example */
export function parseCassandraAddress(text: string): CassandraAddress {
  const match = /^cassandra:\/\/([^/?#]*)(?:\/([^?#]*))?(?:\?([^#]*))?$/.exec(text);
  const authority = match?.[1] ?? '';
  if (authority.includes('@')) {
    // Not shown: what stands before the @ may be a password.
    throw invalid('store', 'cassandra://…@…', 'an address without user and password, which have settings', EXAMPLE);
  }
  if (match === null || authority === '') {
    throw invalid('store', text, 'the address of a keyspace, cassandra://HOST[,HOST…]/KEYSPACE', EXAMPLE);
  }
  const keyspace = match[2] ?? '';
  if (!KEYSPACE.test(keyspace)) {
    throw invalid('store', keyspace, 'a keyspace: a letter, then up to 47 of a-z, 0-9 and _', EXAMPLE);
  }
  return { ...readHosts(authority), keyspace, ...readParameters(match[3] ?? '') };
}

function readHosts(authority: string): Pick<CassandraAddress, 'hosts' | 'port'> {
  const ports = new Set<number>();
  const hosts = authority.split(',').map((text) => {
    const match = HOST.exec(text);
    const port = Number(match?.[3] ?? DEFAULT_PORT);
    if (match === null || port < 1 || port > 65_535) {
      const rule = 'a host: a name or an address, IPv6 in brackets, with a port or without';
      throw invalid('store', text, rule, '[::1]:9042');
    }
    if (match[3] !== undefined) ports.add(port);
    return match[2] ?? `[${match[1]}]`;
  });
  if (ports.size > 1) throw invalid('store', authority, 'a list of hosts with one port for all', 'host1,host2:9042');
  return { hosts, port: [...ports][0] ?? DEFAULT_PORT };
}

function readParameters(query: string): Pick<CassandraAddress, 'dc' | 'replication' | 'consistency'> {
  const parameters = new URLSearchParams(query);
  for (const name of new Set(parameters.keys())) {
    if (!PARAMETERS.includes(name)) throw invalid('store', name, `one of ${PARAMETERS.join(', ')}`, EXAMPLE);
    if (parameters.getAll(name).length > 1) throw invalid('store', name, 'given once', EXAMPLE);
  }
  const dc = parameters.get('dc');
  if (dc !== null && !isName(dc)) throw invalid('store', dc, 'the name of a datacenter (dc)', 'dc=datacenter1');
  const consistency = parameters.get('consistency') ?? 'local';
  if (consistency !== 'local' && consistency !== 'global') {
    throw invalid('store', consistency, 'a consistency: local or global', 'consistency=local');
  }
  return { dc, replication: readReplication(parameters.get('replication')), consistency };
}

function readReplication(text: string | null): CassandraAddress['replication'] {
  if (text === null) return null;
  const refuse = () =>
    invalid(
      'store',
      text,
      'a replication: copies from 1 to 99, or those of each datacenter',
      'replication=dc1:3,dc2:3',
    );
  if (!text.includes(':')) return readCopies(text) ?? fail(refuse());
  const copies: Record<string, number> = {};
  for (const part of text.split(',')) {
    const at = part.lastIndexOf(':');
    const name = part.slice(0, Math.max(at, 0));
    const count = readCopies(part.slice(at + 1));
    if (!isName(name) || count === null || name in copies) throw refuse();
    copies[name] = count;
  }
  return copies;
}

const readCopies = (text: string): number | null => (/^[1-9]\d?$/.test(text) ? Number(text) : null);
/** What may stand between quotes in CQL as it is. */
const isName = (text: string): boolean => /^[\w.-]{1,100}$/.test(text);

function fail(error: Error): never {
  throw error;
}

/** The address in short, for messages; there is nothing secret in it. */
export const describeAddress = ({ hosts, port, keyspace }: CassandraAddress): string =>
  `cassandra://${hosts.join(',')}${port === DEFAULT_PORT ? '' : `:${port}`}/${keyspace}`;

/** What the driver takes to prove who we are. */
export interface Access {
  readonly credentials?: { readonly username: string; readonly password: string };
  readonly sslOptions?: ConnectionOptions;
}

/**
 * Reads passwords and certificates from their files.
 * @throws QueueError `invalid-input` where settings don't go together or a file cannot be read
 */
export function readAccess(given: CassandraCredentials): Access {
  const { user } = given;
  if (given.password !== undefined && given.passwordFile !== undefined) {
    throw invalid('password', '…', 'given once, as itself or as a file', 'password file /run/secrets/cassandra');
  }
  const password = given.password ?? readText('passwordFile', given.passwordFile)?.replace(/\r?\n$/, '');
  if ((user === undefined) !== (password === undefined)) {
    throw invalid('user', user ?? null, 'given together with a password', 'user ebbmark and a password file');
  }
  const sslOptions = readTls(given);
  return {
    ...(user === undefined || password === undefined ? {} : { credentials: { username: user, password } }),
    ...(sslOptions === null ? {} : { sslOptions }),
  };
}

function readTls(given: CassandraCredentials): ConnectionOptions | null {
  const { tlsCa, tlsCert, tlsKey } = given;
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw invalid('tlsCert', tlsCert ?? null, 'given together with its key (tlsKey)', 'client.crt and client.key');
  }
  if (tlsCa === undefined) {
    if (tlsCert === undefined) return null;
    throw invalid('tlsCert', tlsCert, 'given together with who signs the nodes (tlsCa)', 'ca.crt');
  }
  const ca = readText('tlsCa', tlsCa)!;
  const own = tlsCert === undefined ? {} : { cert: readText('tlsCert', tlsCert)!, key: readText('tlsKey', tlsKey)! };
  // The driver's default is to accept any certificate.
  const names = given.tlsVerifyHost === false ? { checkServerIdentity: () => undefined } : {};
  return { ca, ...own, rejectUnauthorized: true, ...names };
}

function readText(setting: string, path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'error';
    throw invalid(setting, path, `a file that can be read (${code})`, '/run/secrets/cassandra');
  }
}
