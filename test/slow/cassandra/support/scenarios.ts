/** What goes wrong on Cassandra, under constant load: each scenario ends with a verdict on what the clients saw. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { databaseAt } from '../../../support/cassandra/database.ts';
import { type CassandraNode, type NodeOptions, startCluster, startNode } from '../../../support/cassandra/node.ts';
import { Clients } from './clients.ts';
import type { Verdict } from './history.ts';
import { kill, type ServerProcess, startServer, until, untilReady } from './servers.ts';

export interface Measure {
  /** Tasks put in per second, by all clients together. */
  readonly tasksPerSecond: number;
  /** Acknowledgements before, during and after each fault. */
  readonly tasksPerPhase: number;
  /** How long a node is paused. */
  readonly pauseMs: number;
}

/** Writes with an unknown outcome inside the servers, by how they came out (`Resolution` in src/queue/environment.ts). */
type Unknown = Readonly<Record<'applied' | 'landed' | 'refused' | 'open', number>>;

const NONE: Unknown = { applied: 0, landed: 0, refused: 0, open: 0 };

export interface Result extends Verdict {
  readonly scenario: string;
  readonly seconds: number;
  readonly unknown: Unknown;
}

const CLIENTS = 2;
/** A phase that takes longer has failed: with two of three nodes on a busy machine a second brings some 20 tasks. */
const PHASE_MS = 120_000;
const DRAIN_MS = 120_000;
const HEAP_MB = 512;

/** Nodes, and two servers on a keyspace with as many copies as there are nodes. */
export class Rig {
  readonly #directory: string;
  readonly #options: readonly NodeOptions[];
  readonly #nodes: CassandraNode[];
  readonly #address: string;
  readonly #servers: ServerProcess[] = [];
  /** What each server had counted when the scenario began. */
  #counted: Unknown[] = [];

  private constructor(directory: string, nodes: readonly CassandraNode[], options: readonly NodeOptions[]) {
    this.#directory = directory;
    const hosts = options.map(({ address, cqlPort }) => `${address}:${cqlPort}`).join(',');
    this.#address = databaseAt(hosts).newAddress(`replication=${nodes.length}`);
    this.#nodes = [...nodes];
    this.#options = options;
  }

  static async start(nodeCount: number): Promise<Rig> {
    const directory = await mkdtemp(join(tmpdir(), 'ebbmark-faults-'));
    const { nodes, options } = await startCluster(directory, nodeCount, { heapMb: HEAP_MB }).catch(async (error) => {
      await rm(directory, { recursive: true, force: true });
      throw error;
    });
    const rig = new Rig(directory, nodes, options);
    try {
      rig.#servers.push(await startServer(rig.#address));
      // The first one makes the keyspace.
      await untilReady(rig.#servers[0]!);
      rig.#servers.push(await startServer(rig.#address));
      return rig;
    } catch (error) {
      await rig.stop();
      throw error;
    }
  }

  /** Ends a node at once; resolves when it has ended. */
  async kill(at: number): Promise<void> {
    this.#nodes[at]!.kill('SIGKILL');
    await this.#nodes[at]!.ended;
  }

  /** Starts a node again, on what it had on its disk. */
  async restart(at: number): Promise<void> {
    this.#nodes[at] = await startNode(this.#options[at]!);
  }

  async pause(at: number, ms: number): Promise<void> {
    this.#nodes[at]!.kill('SIGSTOP');
    await wait(ms);
    this.#nodes[at]!.kill('SIGCONT');
  }

  /** Ends the server that hands out tasks at once, and starts it again at the same address. @returns when another does */
  async replaceHolder(): Promise<void> {
    const holds = await Promise.all(this.#servers.map((server) => server.queue.topics().then(Boolean, () => false)));
    const at = holds.indexOf(true);
    const { url } = this.#servers[at]!;
    await kill(this.#servers[at]!);
    const other = this.#servers.find((_, i) => i !== at)!;
    await until(PHASE_MS, () => other.queue.topics());
    this.#servers[at] = await startServer(this.#address, [], {}, Number(new URL(url).port));
    this.#counted[at] = NONE;
  }

  /** Resolves when all servers are ready, or when none is. */
  async untilServers(ready: boolean): Promise<void> {
    for (const server of this.#servers) {
      await until(PHASE_MS, async () => {
        const now = await server.readiness();
        if (now.ready !== ready) throw new Error(`a server's readiness is ${JSON.stringify(now)}`);
      });
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.#servers.map(kill));
    await Promise.all(this.#nodes.map((node) => node.stop()));
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** Runs clients, and what is to happen meanwhile; then works off what is left, and gives the verdict. */
  async under(measure: Measure, scenario: string, faults: (clients: Clients) => Promise<void>): Promise<Result> {
    const began = performance.now();
    await this.untilServers(true);
    this.#counted = await this.#unknown();
    const urls = this.#servers.map(({ url }) => url);
    const clients = new Clients(scenario.replaceAll(/\W+/g, '-'), CLIENTS, measure.tasksPerSecond, urls);
    try {
      await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
      await faults(clients);
      await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
      await clients.drain(DRAIN_MS);
    } finally {
      await clients.stop();
    }
    const counted = await this.#unknown();
    const since = (how: keyof Unknown): number =>
      counted.reduce((sum, one, at) => sum + one[how] - this.#counted[at]![how], 0);
    return {
      scenario,
      seconds: Math.round((performance.now() - began) / 1_000),
      ...clients.history.verdict(),
      unknown: {
        applied: since('applied'),
        landed: since('landed'),
        refused: since('refused'),
        open: since('open'),
      },
    };
  }

  #unknown(): Promise<Unknown[]> {
    return Promise.all(this.#servers.map(async (server) => (await server.queue.status()).queue.unknown));
  }
}

/** One of three nodes is killed, and comes back. */
export const oneKilled = (rig: Rig, measure: Measure): Promise<Result> =>
  rig.under(measure, 'one of three nodes killed (-9), and back', async (clients) => {
    await rig.kill(1);
    await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
    await rig.restart(1);
  });

/** One of three nodes is paused: it answers nothing, and its connections stand. */
export const onePaused = (rig: Rig, measure: Measure): Promise<Result> =>
  rig.under(measure, `one of three nodes paused for ${measure.pauseMs / 1_000} s`, async (clients) => {
    const paused = rig.pause(0, measure.pauseMs);
    await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
    await paused;
  });

/** Two of three are killed: there is no quorum, so nothing may be acknowledged, until they are back. */
export const twoKilled = (rig: Rig, measure: Measure): Promise<Result> =>
  rig.under(measure, 'two of three nodes killed (-9), and back', async (clients) => {
    await Promise.all([rig.kill(1), rig.kill(2)]);
    const refused = clients.history.refusals('store-unavailable');
    await clients.until('refusals', PHASE_MS, (history) => history.refusals('store-unavailable') >= refused + 10);
    await rig.untilServers(false);
    const { acknowledged } = clients.history;
    const more = clients.history.refusals('store-unavailable');
    await clients.until('refusals', PHASE_MS, (history) => history.refusals('store-unavailable') >= more + 10);
    if (clients.history.acknowledged !== acknowledged) throw new Error('something was acknowledged without a quorum');
    await Promise.all([rig.restart(1), rig.restart(2)]);
    await rig.untilServers(true);
  });

/** The only node, with one copy of all, is killed; its commit log is synced before it answers. */
export const onlyKilled = (rig: Rig, measure: Measure): Promise<Result> =>
  rig.under(measure, 'the only node killed (-9), and back', async () => {
    await rig.kill(0);
    await rig.restart(0);
    await rig.untilServers(true);
  });

/** The server that hands out tasks is killed; the other one takes over, and the first comes back. */
export const holderKilled = (rig: Rig, measure: Measure): Promise<Result> =>
  rig.under(measure, 'the server that hands out tasks killed (-9), and back', () => rig.replaceHolder());
