/**
 * The connection to a cluster, with the few ways in which the store speaks to it. Levels of consistency are set here and
 * nowhere else: one serial level for all servers (see `consistency` in the address), quorums for everything besides.
 *
 * The driver repeats nothing by itself: its retry policy passes every error up, and no statement is marked idempotent.
 * A conditional statement that is repeated behind the caller's back would answer "refused" for what it has just applied.
 */
import cassandra, { type Client, type Host, type QueryOptions } from 'cassandra-driver';
import { StoreUnavailableError } from '../store.ts';
import type { Access, CassandraAddress } from './address.ts';
import { describeAddress } from './address.ts';
import { coordinatorOf, isWorthAnotherTry, storeError, wasSilent } from './errors.ts';
import { RingOrderPolicy } from './routing.ts';

/** Longer than the server's own time-outs (2 s for writes, 5 s for reads), whose answers tell more than silence. */
const REQUEST_MS = 6_000;
const CONNECT_MS = 5_000;
/** A change of the schema, with the agreement of all nodes. */
const DEFINE_MS = 30_000;
/** Between tries to reach a node that went away. */
const RECONNECT_MS = { first: 250, most: 2_000 } as const;
/** Nodes that one read, or one write that may be repeated, is sent to. */
const TRIES = 3;
/** Requests under way at a time; others wait for their turn. The driver refuses more than 2,048 on a connection. */
const AT_ONCE = 1_024;
/** Rows of an answer's page: with small payloads, less than a megabyte. */
export const PAGE_ROWS = 500;

export type Row = Readonly<Record<string, unknown>>;

/** A statement to prepare, and its values; `undefined` leaves a column as it is. */
export interface Statement {
  readonly query: string;
  readonly params: readonly unknown[];
}

export interface ReadOptions {
  readonly serial?: boolean | undefined;
  readonly pageRows?: number;
}

export class Cluster {
  readonly name: string;
  readonly keyspace: string;
  readonly #client: Client;
  readonly #policy: RingOrderPolicy;
  readonly #quorum: number;
  readonly #serial: number;
  readonly #underWay = new Set<Promise<unknown>>();
  #sent = 0;
  readonly #waiting: (() => void)[] = [];
  #closing: Promise<void> | null = null;

  private constructor(address: CassandraAddress, access: Access, inKeyspace: boolean) {
    const { consistencies } = cassandra.types;
    const isLocal = address.consistency === 'local';
    this.name = describeAddress(address);
    this.keyspace = address.keyspace;
    this.#quorum = isLocal ? consistencies.localQuorum : consistencies.quorum;
    this.#serial = isLocal ? consistencies.localSerial : consistencies.serial;
    this.#policy = new RingOrderPolicy(address.dc, address.consistency);
    this.#client = new cassandra.Client({
      contactPoints: address.hosts.map((host) => `${host}:${address.port}`),
      protocolOptions: { port: address.port },
      ...access,
      ...(inKeyspace ? { keyspace: address.keyspace } : {}),
      policies: {
        loadBalancing: this.#policy,
        retry: new cassandra.policies.retry.FallthroughRetryPolicy(),
        reconnection: new cassandra.policies.reconnection.ExponentialReconnectionPolicy(
          RECONNECT_MS.first,
          RECONNECT_MS.most,
          false,
        ),
        // None: the plain writes that there are get the time of their coordinator, which is one for a partition.
        ...({ timestampGeneration: null } as object),
      },
      queryOptions: { consistency: this.#quorum, serialConsistency: this.#serial, isIdempotent: false, prepare: true },
      socketOptions: { readTimeout: REQUEST_MS, connectTimeout: CONNECT_MS },
      // Payloads are made into strings or copied right after they were read.
      encoding: { copyBuffer: false },
    });
  }

  /**
   * @param inKeyspace whether names without a keyspace mean the address's; it has to be there then
   * @throws StoreUnavailableError no node could be reached; QueueError the datacenter is not there
   */
  static async connect(address: CassandraAddress, access: Access, inKeyspace = false): Promise<Cluster> {
    const cluster = new Cluster(address, access, inKeyspace);
    try {
      await cluster.#client.connect();
      return cluster;
    } catch (error) {
      await cluster.#client.shutdown();
      throw storeError(error, cluster.name);
    }
  }

  /** The datacenter of this server. */
  get dc(): string {
    return this.#policy.dc ?? '';
  }

  /** The nodes that are up, always in the same order. */
  get hosts(): readonly Host[] {
    return this.#policy.plan(this.keyspace, null).filter((host) => host.isUp());
  }

  /** All rows, over as many pages as it takes; a read that finds no answer is repeated. */
  async rows(
    query: string,
    params: readonly unknown[],
    { serial, pageRows }: ReadOptions = {},
  ): Promise<readonly Row[]> {
    const options = { consistency: serial ? this.#serial : this.#quorum, fetchSize: pageRows ?? PAGE_ROWS };
    let result = await this.#repeating(() => this.#client.execute(query, params as unknown[], options));
    if (result.pageState === null || result.pageState === undefined) return result.rows;
    const rows: Row[] = [...result.rows];
    while (result.pageState) {
      const { pageState } = result;
      result = await this.#repeating(() => this.#client.execute(query, params as unknown[], { ...options, pageState }));
      rows.push(...result.rows);
    }
    return rows;
  }

  /**
   * A page of a whole table, in the order of the ring. The cursor is the driver's own, and good for this query alone.
   * @param after the cursor that the page before came with; null: from the beginning
   */
  async page(
    query: string,
    after: string | null,
    limit: number,
  ): Promise<{ readonly rows: readonly Row[]; readonly next: string | null }> {
    const options = { consistency: this.#quorum, fetchSize: limit, ...(after === null ? {} : { pageState: after }) };
    const result = await this.#repeating(() => this.#client.execute(query, [], options));
    return { rows: result.rows, next: result.pageState ?? null };
  }

  /** Rows as one given node knows them, of tables that each node has for itself. */
  async rowsOf(host: Host, query: string): Promise<readonly Row[]> {
    const { one } = cassandra.types.consistencies;
    try {
      return (await this.#run(() => this.#client.execute(query, [], { host, consistency: one, prepare: false }))).rows;
    } catch (error) {
      throw storeError(error, this.name);
    }
  }

  /** Learns which nodes hold what of the keyspace, where somebody else has just made it. */
  async learnReplicas(): Promise<void> {
    await this.#client.metadata.refreshKeyspace(this.keyspace).catch((error: unknown) => {
      throw storeError(error, this.name);
    });
  }

  /** Plain writes of one partition that may be repeated without harm. */
  async write(statements: readonly Statement[]): Promise<void> {
    await this.#repeating(() => this.#send(statements));
  }

  /**
   * Sends a conditional statement, or several as one batch, once.
   * @returns the rows of the answer, of which the first says `[applied]`
   * @throws what the driver threw; see verdictOf
   */
  async conditional(statements: readonly Statement[]): Promise<readonly Row[]> {
    return (await this.#run(() => this.#send(statements))).rows;
  }

  /** Changes the schema at one node, always the same: two nodes that make one table at once make two of it. */
  async define(statement: string): Promise<void> {
    const [host] = this.hosts;
    const options: QueryOptions = { prepare: false, readTimeout: DEFINE_MS, ...(host === undefined ? {} : { host }) };
    const { info } = await this.#run(() => this.#client.execute(statement, [], options)).catch((error) => {
      throw storeError(error, this.name);
    });
    if (!(info as { isSchemaInAgreement?: boolean }).isSchemaInAgreement) {
      throw new StoreUnavailableError(`${this.name}: the nodes don't agree on the schema; one of them may be down`);
    }
  }

  /** Waits for what was begun, then lets go. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= Promise.allSettled(this.#underWay).then(() => this.#client.shutdown());
    return this.#closing;
  }

  #send(statements: readonly Statement[]): Promise<cassandra.types.ResultSet> {
    const [first] = statements;
    if (statements.length === 1) return this.#client.execute(first!.query, first!.params as unknown[]);
    // Never logged: all is in one partition, and a conditional batch has its own way to be atomic.
    return this.#client.batch(statements as { query: string; params: unknown[] }[], { prepare: true, logged: false });
  }

  async #repeating<T>(send: () => Promise<T>): Promise<T> {
    for (let left = TRIES - 1; ; left--) {
      try {
        return await this.#run(send);
      } catch (error) {
        if (left === 0 || !isWorthAnotherTry(error)) throw storeError(error, this.name);
      }
    }
  }

  async #inTurn<T>(send: () => Promise<T>): Promise<T> {
    if (this.#sent < AT_ONCE) this.#sent++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await send();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#sent--;
      else next();
    }
  }

  async #run<T>(send: () => Promise<T>): Promise<T> {
    if (this.#closing !== null) throw new StoreUnavailableError(`${this.name} is closed`);
    const run = this.#inTurn(send);
    this.#underWay.add(run);
    try {
      return await run;
    } catch (error) {
      const coordinator = coordinatorOf(error);
      if (coordinator !== null && wasSilent(error)) this.#policy.suspect(coordinator);
      throw error;
    } finally {
      this.#underWay.delete(run);
    }
  }
}
