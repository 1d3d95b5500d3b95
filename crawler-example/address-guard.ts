/**
 * Keeps a crawler that follows strangers' links away from the machine and the network it runs in: the answer to
 * server-side request forgery. The rule is an allow list: an address must be plain global unicast.
 *
 * It is applied where nothing can slip past it:
 * - in the `lookup` of the connection itself, so that the address checked is the address connected to, and a name
 *   that resolves differently a moment later gains nothing. All addresses of a name are checked; one bad one refuses
 *   the name;
 * - before the connection for literal addresses, for which Node never calls `lookup`;
 * - on the socket's peer once connected, as a last word.
 * Redirects are fetches of their own, so each hop passes here again.
 */
import { lookup as dnsLookup } from 'node:dns/promises';
import { isIP, type LookupFunction, type Socket } from 'node:net';
import ipaddr from 'ipaddr.js';
import { buildConnector } from 'undici';

/** What the reason of every refusal begins with. */
export const REFUSED = 'address refused';

export class AddressRefused extends Error {
  override readonly name = 'AddressRefused';
  readonly code = 'ADDRESS_REFUSED';
  constructor(
    readonly address: string,
    readonly range: string,
  ) {
    super(`${REFUSED}: ${address} is ${range}`);
  }
}

/** 2000::/3 is all that is handed out as global unicast; ipaddr.js calls everything it has no name for unicast. */
const GLOBAL_V6 = ipaddr.IPv6.parseCIDR('2000::/3');
const NAT64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96');

/**
 * The range that makes an address off limits, or null where it is a public one. An IPv4 address inside an IPv6 one
 * (mapped, or NAT64's 64:ff9b::/96, which is how an IPv6-only network reaches the IPv4 web) is judged by itself.
 */
export function addressFault(address: string): string | null {
  if (!ipaddr.isValid(address)) return 'unreadable';
  const parsed = ipaddr.process(address);
  if (parsed instanceof ipaddr.IPv6) {
    if (parsed.match(NAT64)) return addressFault(new ipaddr.IPv4(parsed.toByteArray().slice(12)).toString());
    if (parsed.range() === 'unicast' && !parsed.match(GLOBAL_V6)) return 'unassigned';
  }
  return parsed.range() === 'unicast' ? null : parsed.range();
}

/** Like curl's --resolve: names that are answered from here and not from the DNS. */
export interface ResolveRule {
  /** A host name, or `*.` and a suffix. */
  readonly host: string;
  readonly address: string;
}

/** @throws Error that names the value, the rule and an example */
export function parseResolveRule(text: string): ResolveRule {
  const colon = text.indexOf(':');
  const host = text.slice(0, colon).trim().toLowerCase();
  const address = text.slice(colon + 1).trim();
  if (colon < 1 || isIP(address) === 0) {
    throw new Error(`"${text}" is not HOST:ADDRESS; for example: *.docs.test:127.0.0.1`);
  }
  return { host, address };
}

/** Reads the lines of a hosts file: an address, then names. */
export function parseHostsFile(text: string): readonly ResolveRule[] {
  const rules: ResolveRule[] = [];
  for (const line of text.split(/\r?\n/)) {
    const [address, ...names] = line.replace(/#.*/, '').trim().split(/\s+/);
    if (address === undefined || address === '') continue;
    for (const name of names) rules.push(parseResolveRule(`${name}:${address}`));
  }
  return rules;
}

function matching(rules: readonly ResolveRule[], host: string): readonly string[] {
  return rules
    .filter((rule) => (rule.host.startsWith('*.') ? host.endsWith(rule.host.slice(1)) : host === rule.host))
    .map((rule) => rule.address);
}

export interface GuardOptions {
  /** Lets private addresses through: for crawls of one's own network, and tests. */
  readonly allowPrivate: boolean;
  readonly resolve: readonly ResolveRule[];
  /** For the connection, in milliseconds. */
  readonly connectTimeoutMs: number;
  /** The addresses of a name; the system's resolver when absent. */
  readonly addressesOf?: (hostname: string) => Promise<readonly string[]>;
}

const systemAddresses = async (hostname: string): Promise<readonly string[]> =>
  (await dnsLookup(hostname, { all: true })).map((found) => found.address);

/** A connector for undici that connects to public addresses only. */
export function guardedConnector(options: GuardOptions): buildConnector.connector {
  const addressesOf = options.addressesOf ?? systemAddresses;
  const check = (address: string): void => {
    const range = options.allowPrivate ? null : addressFault(address);
    if (range !== null) throw new AddressRefused(address, range);
  };

  const lookup: LookupFunction = (hostname, lookupOptions, callback) => {
    const ruled = matching(options.resolve, hostname.toLowerCase().replace(/\.$/, ''));
    Promise.resolve(ruled.length > 0 ? ruled : addressesOf(hostname)).then(
      (addresses) => {
        const found = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
        try {
          for (const { address } of found) check(address);
        } catch (error) {
          callback(error as AddressRefused, '', 4);
          return;
        }
        const first = found[0];
        if (first === undefined) callback(Object.assign(new Error('no address'), { code: 'ENOTFOUND' }), '', 4);
        else if (lookupOptions.all) callback(null, found);
        else callback(null, first.address, first.family);
      },
      (error: NodeJS.ErrnoException) => callback(error, '', 4),
    );
  };

  const connect = buildConnector({ timeout: options.connectTimeoutMs, lookup, autoSelectFamily: true });
  return (target, callback) => {
    const hostname = target.hostname.replace(/^\[|\]$/g, '');
    const done = callback as (error: Error | null, socket: Socket | null) => void;
    try {
      if (ipaddr.isValid(hostname)) check(hostname);
    } catch (error) {
      done(error as AddressRefused, null);
      return;
    }
    connect(target, ((error: Error | null, socket: Socket | null) => {
      if (error !== null || socket === null) return done(error, socket);
      try {
        if (socket.remoteAddress !== undefined) check(socket.remoteAddress);
      } catch (refused) {
        socket.destroy();
        return done(refused as AddressRefused, null);
      }
      done(null, socket);
    }) as typeof callback);
  };
}
