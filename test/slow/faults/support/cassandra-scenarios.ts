/** What goes wrong on Cassandra, under constant load: each scenario ends with a verdict on what the clients saw. */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { databaseAt } from '../../../support/cassandra/database.ts';
import { type CassandraNode, type NodeOptions, startCluster, startNode } from '../../../support/cassandra/node.ts';
import { Clients } from './clients.ts';
import { Probes } from './probes.ts';
import { type Measure, PHASE_MS, type Result, type Scenario, shownMs, underLoad } from './scenario.ts';
import {
  kill,
  lastHandedOutAt,
  type ServerProcess,
  shardsOf,
  startAgain,
  startServer,
  until,
  untilEven,
  untilReady,
} from './servers.ts';
import { TcpProxy } from './tcp-proxy.ts';

/** What a scenario runs on; those that need the same share it. */
export interface Setup {
  readonly nodes: number;
  readonly servers: number;
}

export interface CassandraScenario extends Scenario, Setup {
  run(rig: Rig, measure: Measure): Promise<Result>;
}

export const setupOf = ({ nodes, servers }: Setup): string => `${nodes} nodes, ${servers} servers`;

/** Writes with an unknown outcome inside the servers, by how they came out (`Resolution` in src/queue/environment.ts). */
type Unknown = Readonly<Record<'applied' | 'landed' | 'refused' | 'open', number>>;

const NONE: Unknown = { applied: 0, landed: 0, refused: 0, open: 0 };

const CLIENTS = 2;
const TOPICS = 40;
const HEAP_MB = 512;
/** What is promised of a server that dies, and time for a machine that is busy with something else. */
const SERVE_MS = 60_000;
const SLOW_DATABASE_MS = 150;

/** Nodes, and servers on a keyspace with as many copies as there are nodes. */
export class Rig {
  readonly #directory: string;
  readonly #options: readonly NodeOptions[];
  readonly #nodes: CassandraNode[];
  readonly #address: string;
  readonly servers: ServerProcess[] = [];
  /** The one node as the servers see it, where there is one. */
  readonly proxy: TcpProxy | null;
  /** What each server had counted when the scenario began. */
  #counted: Unknown[] = [];
  #rounds = 0;

  private constructor(
    directory: string,
    nodes: readonly CassandraNode[],
    options: readonly NodeOptions[],
    address: string,
    proxy: TcpProxy | null,
  ) {
    this.#directory = directory;
    this.#address = address;
    this.#nodes = [...nodes];
    this.#options = options;
    this.proxy = proxy;
  }

  static async start(setup: Setup): Promise<Rig> {
    const directory = await mkdtemp(join(tmpdir(), 'ebbmark-faults-'));
    const { nodes, options } = await startCluster(directory, setup.nodes, { heapMb: HEAP_MB }).catch(async (error) => {
      await rm(directory, { recursive: true, force: true });
      throw error;
    });
    const hosts = options.map((one) => `${one.address}:${one.cqlPort}`);
    // The driver learns of the other nodes by their own addresses, so that only a single one can be behind a proxy.
    const proxy = setup.nodes === 1 ? new TcpProxy(hosts[0]!) : null;
    const reached = proxy === null ? hosts.join(',') : `127.0.0.1:${await proxy.listen()}`;
    const address = databaseAt(reached).newAddress(`replication=${setup.nodes}`);
    const rig = new Rig(directory, nodes, options, address, proxy);
    try {
      // The first one makes the keyspace.
      for (let nth = 0; nth < setup.servers; nth++) {
        rig.servers.push(await startServer(address));
        await untilReady(rig.servers[nth]!, PHASE_MS);
      }
      return rig;
    } catch (error) {
      await rig.stop();
      throw error;
    }
  }

  /** Ends a node at once; resolves when it has ended. */
  async killNode(at: number): Promise<void> {
    this.#nodes[at]!.kill('SIGKILL');
    await this.#nodes[at]!.ended;
  }

  /** Starts a node again, on what it had on its disk. */
  async restartNode(at: number): Promise<void> {
    this.#nodes[at] = await startNode(this.#options[at]!);
  }

  async pauseNode(at: number, ms: number): Promise<void> {
    this.#nodes[at]!.kill('SIGSTOP');
    await wait(ms);
    this.#nodes[at]!.kill('SIGCONT');
  }

  /** Starts a server again that has ended, at the same address. */
  async restartServer(at: number): Promise<void> {
    this.servers[at] = await startAgain(this.servers[at]!, this.#address);
    this.#counted[at] = NONE;
    await untilReady(this.servers[at]!, PHASE_MS);
    await untilEven(this.servers, PHASE_MS);
  }

  /** A topic in each shard of a server, of names that no other round uses. */
  probes(at: number): Probes {
    return new Probes(`probe-${this.#rounds++}-`, shardsOf(this.servers[at]!));
  }

  /** Resolves when all servers are ready, or when none is. */
  async untilServers(ready: boolean): Promise<void> {
    for (const server of this.servers) {
      await until(PHASE_MS, async () => {
        const now = await server.readiness();
        if (now.ready !== ready) throw new Error(`a server's readiness is ${JSON.stringify(now)}`);
      });
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.servers.map(kill));
    await this.proxy?.close();
    await Promise.all(this.#nodes.map((node) => node.stop()));
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** Runs clients on all servers, over many topics, and what is to happen meanwhile. */
  async under(
    scenario: CassandraScenario,
    measure: Measure,
    faults: (clients: Clients, note: (text: string) => void) => Promise<void>,
  ): Promise<Result> {
    await this.untilServers(true);
    this.#counted = await this.#unknown();
    const urls = this.servers.map(({ url }) => url);
    const clients = new Clients(`${scenario.name}-${this.#rounds++}-`, urls);
    for (let nth = 0; nth < CLIENTS; nth++) {
      const tasksPerSecond = measure.tasksPerSecond / CLIENTS;
      clients.start(`client${nth}`, { topics: TOPICS, workers: 2, tasksPerSecond, keys: true });
    }
    const result = await underLoad(scenario, measure, clients, (note) => faults(clients, note)).catch(
      (error: Error) => {
        throw new Error(`${error.message}; the servers' logs are in ${this.#keepLogs(scenario.name)}`, {
          cause: error,
        });
      },
    );
    return { ...result, notes: [...result.notes, ...(await this.#unknownNotes())] };
  }

  /** What the servers have said so far, for whoever has to find out why something went wrong. */
  #keepLogs(name: string): string {
    const folder = mkdtempSync(join(tmpdir(), `ebbmark-${name}-`));
    for (const [at, server] of this.servers.entries()) writeFileSync(join(folder, `server-${at}.log`), server.out());
    return folder;
  }

  async #unknownNotes(): Promise<readonly string[]> {
    const counted = await this.#unknown();
    const since = (how: keyof Unknown): number =>
      counted.reduce((sum, one, at) => sum + one[how] - (this.#counted[at] ?? NONE)[how], 0);
    const parts = (['applied', 'landed', 'refused', 'open'] as const).flatMap((how) =>
      since(how) > 0 ? [`${since(how)} ${how}`] : [],
    );
    return parts.length === 0 ? [] : [`unknown outcomes in the servers: ${parts.join(', ')}`];
  }

  #unknown(): Promise<Unknown[]> {
    return Promise.all(this.servers.map(async (server) => (await server.queue.status()).queue.unknown));
  }
}

interface TakeOver {
  /** Until others say that they hand out the last of the shards. */
  readonly handedMs: number;
  /** Until a client had a task of each: as many conditional writes, and so longer where the machine is busy. */
  readonly leasedMs: number;
}

/** Puts a task into each shard of a server, takes it away, and measures until others hand out the last of them. */
async function takenOver(rig: Rig, at: number, take: (server: ServerProcess) => Promise<void>): Promise<TakeOver> {
  const probes = rig.probes(at);
  const others = rig.servers.filter((_, nth) => nth !== at);
  await probes.put(others[0]!.queue);
  const began = Date.now();
  await take(rig.servers[at]!);
  const served = await probes.serve(others[0]!.queue, SERVE_MS);
  if (served.settled < probes.topics.length) throw new Error('settlements of tasks that were just leased were refused');
  return { handedMs: lastHandedOutAt(others, began) - began, leasedMs: served.lastMs };
}

const shownTakeOvers = (all: readonly TakeOver[]): string =>
  `last shard handed out again after ${shownMs(all.map(({ handedMs }) => handedMs))}; a task of each leased after ${shownMs(all.map(({ leasedMs }) => leasedMs))}`;

const serverKilled = (servers: number): CassandraScenario => ({
  name: servers === 2 ? 'server-killed-cassandra' : 'one-of-three-killed',
  about: `one of ${servers} servers killed (-9), started again`,
  nodes: 3,
  servers,
  run(rig, measure) {
    return rig.under(this, measure, async (clients, note) => {
      const all: TakeOver[] = [];
      for (let nth = 0; nth < measure.kills; nth++) {
        const at = nth % servers;
        all.push(await takenOver(rig, at, kill));
        await clients.acknowledge(measure.tasksPerPhase / 4, PHASE_MS);
        await rig.restartServer(at);
      }
      note(`${measure.kills} kills; ${shownTakeOvers(all)}`);
    });
  },
});

const serverPaused = (servers: number): CassandraScenario => ({
  name: servers === 2 ? 'server-paused' : 'one-of-three-paused',
  about: `one of ${servers} servers paused beyond its shard leases, and on`,
  nodes: 3,
  servers,
  run(rig, measure) {
    return rig.under(this, measure, async (clients, note) => {
      const at = performance.now();
      const { child } = rig.servers[0]!;
      let one: TakeOver;
      try {
        one = await takenOver(rig, 0, async () => void child.kill('SIGSTOP'));
        await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
        await wait(Math.max(0, measure.pauseMs - (performance.now() - at)));
      } finally {
        child.kill('SIGCONT');
      }
      const again = await untilEven(rig.servers, PHASE_MS);
      note(`paused for ${Math.round((performance.now() - at) / 1_000)} s; ${shownTakeOvers([one])}`);
      note(`shares even ${shownMs([again.tookMs])} after it went on`);
    });
  },
});

const serversRestarted = (servers: number): CassandraScenario => ({
  name: servers === 2 ? 'servers-restarted' : 'three-restarted',
  about: `each of ${servers} servers stopped (SIGTERM) in turn, started again`,
  nodes: 3,
  servers,
  run(rig, measure) {
    return rig.under(this, measure, async (clients, note) => {
      const all: TakeOver[] = [];
      for (let at = 0; at < servers; at++) {
        const { child, ended } = rig.servers[at]!;
        all.push(await takenOver(rig, at, async () => void child.kill('SIGTERM')));
        const { code, err } = await ended;
        if (code !== 0) throw new Error(`a server ended with ${code}: ${err}`);
        await clients.acknowledge(measure.tasksPerPhase / 4, PHASE_MS);
        await rig.restartServer(at);
      }
      note(shownTakeOvers(all));
    });
  },
});

const nodeKilled: CassandraScenario = {
  name: 'node-killed',
  about: 'one of three nodes killed (-9), and back',
  nodes: 3,
  servers: 2,
  run(rig, measure) {
    return rig.under(this, measure, async (clients) => {
      await rig.killNode(1);
      await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
      await rig.restartNode(1);
    });
  },
};

/** It answers nothing, and its connections stand. */
const nodePaused: CassandraScenario = {
  name: 'node-paused',
  about: 'one of three nodes paused, and on',
  nodes: 3,
  servers: 2,
  run(rig, measure) {
    return rig.under(this, measure, async (clients, note) => {
      const paused = rig.pauseNode(0, measure.pauseMs);
      await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
      await paused;
      note(`paused for ${measure.pauseMs / 1_000} s`);
    });
  },
};

/** There is no quorum, so nothing may be acknowledged, until they are back. */
const twoNodesKilled: CassandraScenario = {
  name: 'two-nodes-killed',
  about: 'two of three nodes killed (-9), and back',
  nodes: 3,
  servers: 2,
  run(rig, measure) {
    return rig.under(this, measure, async (clients) => {
      await Promise.all([rig.killNode(1), rig.killNode(2)]);
      const refusals = (more: number) => {
        const target = clients.history.retried('store-unavailable') + more;
        return clients.until('refusals', PHASE_MS, (history) => history.retried('store-unavailable') >= target);
      };
      await refusals(10);
      await rig.untilServers(false);
      const { acknowledged } = clients.history;
      await refusals(10);
      if (clients.history.acknowledged !== acknowledged) throw new Error('something was acknowledged without a quorum');
      await Promise.all([rig.restartNode(1), rig.restartNode(2)]);
      await rig.untilServers(true);
    });
  },
};

/** It has the one copy of all; its commit log is synced before it answers. */
const onlyNodeKilled: CassandraScenario = {
  name: 'only-node-killed',
  about: 'the only node killed (-9), and back',
  nodes: 1,
  servers: 2,
  run(rig, measure) {
    return rig.under(this, measure, async () => {
      await rig.killNode(0);
      await rig.restartNode(0);
      await rig.untilServers(true);
    });
  },
};

const slowDatabase: CassandraScenario = {
  name: 'slow-database',
  about: `each answer of the database ${SLOW_DATABASE_MS} ms late`,
  nodes: 1,
  servers: 2,
  run(rig, measure) {
    return rig.under(this, measure, async (clients, note) => {
      rig.proxy!.delayMs = SLOW_DATABASE_MS;
      const at = performance.now();
      await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
      const perSecond = Math.round((1_000 * measure.tasksPerPhase) / (performance.now() - at));
      rig.proxy!.delayMs = 0;
      note(`${perSecond} tasks/s acknowledged meanwhile, of ${measure.tasksPerSecond} asked for`);
    });
  },
};

export const CASSANDRA_SCENARIOS: readonly CassandraScenario[] = [
  nodeKilled,
  nodePaused,
  twoNodesKilled,
  serverKilled(2),
  serverPaused(2),
  serversRestarted(2),
  serverKilled(3),
  serverPaused(3),
  serversRestarted(3),
  onlyNodeKilled,
  slowDatabase,
];
