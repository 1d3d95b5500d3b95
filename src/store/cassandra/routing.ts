/**
 * Which node a statement is sent to. Every write of a partition goes to one coordinator, the same for all servers, as
 * long as it is up: the partition's first replica in the order of the ring; without it the second, and so on.
 *
 * Why: writers of one partition at different coordinators outbid each other's ballots. On a healthy cluster of three
 * nodes four writers had 13 % of their conditional writes time out, some of them applied; with one coordinator, which
 * lets them wait for each other, none of 3,700. The driver's own policy begins at a random replica.
 *
 * It is for speed alone: with servers that disagree about who is up, Paxos still decides.
 */
import cassandra, { type Client, type ExecutionOptions, type Host, type HostMap } from 'cassandra-driver';
import { invalid } from '../../core/errors.ts';

/** The driver's types want an error even where there is none. */
const NO_ERROR = null as unknown as Error;

/** How long a node that left a request without an answer comes last. */
const SUSPECT_MS = 10_000;

export class RingOrderPolicy extends cassandra.policies.loadBalancing.LoadBalancingPolicy {
  readonly #consistency: 'local' | 'global';
  readonly #monotonic: () => number;
  /** When each may be believed in again, by address. */
  readonly #suspects = new Map<string, number>();
  #dc: string | null;
  #client: Client | null = null;
  #hosts: HostMap | null = null;

  /**
   * @param dc the datacenter of this server; null: the only one there is
   * @param consistency `local`: other datacenters are never asked; `global`: theirs are replicas like any other
   * @param monotonic milliseconds since any moment
   */
  constructor(dc: string | null, consistency: 'local' | 'global', monotonic: () => number = () => performance.now()) {
    super();
    this.#dc = dc;
    this.#consistency = consistency;
    this.#monotonic = monotonic;
  }

  /** Known once connected. */
  get dc(): string | null {
    return this.#dc;
  }

  override init(client: Client, hosts: HostMap, callback: (error: Error) => void): void {
    this.#client = client;
    this.#hosts = hosts;
    const found = [...new Set(hosts.values().map((host) => host.datacenter))].sort();
    if (this.#dc === null && found.length === 1) this.#dc = found[0]!;
    const isFine = this.#dc !== null && found.includes(this.#dc);
    callback(
      isFine ? NO_ERROR : invalid('dc', this.#dc, 'one of the datacenters that are there', `dc=${found.join(' or ')}`),
    );
  }

  override getDistance(host: Host): cassandra.types.distance {
    const { distance } = cassandra.types;
    if (!this.#isUsed(host)) return distance.ignored;
    return this.#isNear(host) ? distance.local : distance.remote;
  }

  /**
   * A node that answers no requests (paused, or cut off) counts as up until its connection breaks, which can take
   * minutes; so whoever waited for it in vain says so here.
   */
  suspect(address: string): void {
    this.#suspects.set(address, this.#monotonic() + SUSPECT_MS);
  }

  override newQueryPlan(
    keyspace: string,
    options: ExecutionOptions | null,
    callback: (error: Error, iterator: Iterator<Host>) => void,
  ): void {
    const plan = this.plan(options?.getKeyspace() ?? keyspace, options?.getRoutingKey() ?? null);
    callback(NO_ERROR, plan[Symbol.iterator]());
  }

  readonly #isNear = (host: Host): boolean => host.datacenter === this.#dc;
  readonly #isUsed = (host: Host): boolean => this.#consistency === 'global' || this.#isNear(host);

  /** The nodes to ask, in order. */
  plan(keyspace: string, routingKey: Buffer | Buffer[] | null): readonly Host[] {
    const replicas = routingKey === null ? [] : this.#replicas(keyspace, routingKey as Buffer);
    const others = this.#sorted().filter((host) => !replicas.includes(host));
    const all = [...replicas.filter(this.#isUsed), ...others.filter(this.#isUsed)];
    if (this.#suspects.size === 0) return all;
    const now = this.#monotonic();
    for (const [address, until] of this.#suspects) if (until <= now) this.#suspects.delete(address);
    const suspected = (host: Host): boolean => this.#suspects.has(host.address);
    return [...all.filter((host) => !suspected(host)), ...all.filter(suspected)];
  }

  #replicas(keyspace: string, routingKey: Buffer): readonly Host[] {
    // null before the ring or the keyspace is known.
    const found = this.#client?.getReplicas(keyspace, routingKey) as readonly Host[] | null | undefined;
    return found ?? [];
  }

  /** All nodes, those nearby first; where there is no partition, the order has to be the same each time too. */
  #sorted(): readonly Host[] {
    const hosts = [...(this.#hosts?.values() ?? [])];
    const rank = (host: Host): string => `${this.#isNear(host) ? 0 : 1}${host.address}`;
    return hosts.sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
  }
}
