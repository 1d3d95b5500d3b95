/** What goes wrong around a server on SQLite, under constant load; each scenario ends with what the clients saw. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Client, Clients } from './clients.ts';
import { DoublingProxy } from './doubling-proxy.ts';
import type { Event, History } from './history.ts';
import type { LoadOptions } from './load.ts';
import { type Measure, PHASE_MS, type Result, type Scenario, shownMs, underLoad } from './scenario.ts';
import { kill, type ServerOptions, type ServerProcess, startAgain, startServer, until, untilReady } from './servers.ts';
import { makeSmallDisk } from './small-disk.ts';

export interface SqliteScenario extends Scenario {
  run(measure: Measure): Promise<Result>;
}

const SHIFTED_CLOCK = fileURLToPath(new URL('shifted-clock.ts', import.meta.url));
const HOUR_MS = 3_600_000;
/** Leases of workers that are killed or paused, so that others get their tasks soon. */
const SHORT_LEASE_MS = 2_000;
/** Longer than a server takes to start again; what it leased to nobody as it died comes again after so long. */
const MEDIUM_LEASE_MS = 6_000;
const SERVE_MS = 60_000;

/** A server and its file, in a directory of its own. */
class Place {
  readonly #directory: string;
  readonly #store: string;
  readonly #options: ServerOptions;
  server: ServerProcess;

  private constructor(directory: string, store: string, options: ServerOptions, server: ServerProcess) {
    this.#directory = directory;
    this.#store = store;
    this.#options = options;
    this.server = server;
  }

  static async make(options: ServerOptions = {}, inDirectory?: string): Promise<Place> {
    const directory = await mkdtemp(join(tmpdir(), 'ebbmark-faults-'));
    const store = `sqlite:${join(inDirectory ?? directory, 'queue.db')}`;
    const server = await startServer(store, options);
    return new Place(directory, store, options, server);
  }

  async restart(): Promise<void> {
    this.server = await startAgain(this.server, this.#store, this.#options);
    await untilReady(this.server);
  }

  async remove(): Promise<void> {
    await kill(this.server);
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** Two that put in and work off, at the server or at what stands before it. */
function twoClients(measure: Measure, url: string, options: Partial<LoadOptions> = {}): Clients {
  const clients = new Clients('load-', [url]);
  for (const name of ['one', 'two']) {
    clients.start(name, { topics: 20, workers: 2, tasksPerSecond: measure.tasksPerSecond / 2, ...options });
  }
  return clients;
}

/** Resolves with the first event from now on that fits. */
function next(clients: Clients, fits: (event: Event) => boolean): Promise<Event> {
  return new Promise((resolve) => {
    const end = clients.listen((event) => {
      if (!fits(event)) return;
      end();
      resolve(event);
    });
  });
}

const serverKilled: SqliteScenario = {
  name: 'server-killed',
  about: 'server killed (-9) amid batches, started again',
  async run(measure) {
    const place = await Place.make();
    try {
      const clients = twoClients(measure, place.server.url, { batch: 25, keys: true, leaseMs: MEDIUM_LEASE_MS });
      return await underLoad(this, measure, clients, async (note) => {
        const tookMs: number[] = [];
        for (let nth = 0; nth < measure.kills; nth++) {
          await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
          // A batch is on its way now.
          await next(clients, ({ kind }) => kind === 'sent');
          await kill(place.server);
          const at = performance.now();
          await place.restart();
          tookMs.push(performance.now() - at);
        }
        note(`${measure.kills} kills; ready again ${shownMs(tookMs)}`);
      });
    } finally {
      await place.remove();
    }
  },
};

const workerKilled: SqliteScenario = {
  name: 'worker-killed',
  about: 'worker killed (-9) with leased tasks',
  async run(measure) {
    const place = await Place.make();
    try {
      const options = { leaseMs: SHORT_LEASE_MS };
      const clients = twoClients(measure, place.server.url, options);
      return await underLoad(this, measure, clients, async (note) => {
        let held = 0;
        for (let nth = 0; nth < measure.kills; nth++) {
          const name = `killed${nth}`;
          const worker = clients.start(name, { ...options, workMs: 250 });
          const had = await leasedBy(clients, name);
          await worker.kill();
          held += had.size;
          await clients.until('what it held', PHASE_MS, (history) =>
            [...had.values()].every((id) => history.isSettled(id)),
          );
        }
        note(`${measure.kills} kills; ${held} tasks held at the time were settled by others`);
      });
    } finally {
      await place.remove();
    }
  },
};

/** Waits until a worker holds something. @returns the leases, and the tasks */
async function leasedBy(clients: Clients, name: string): Promise<Map<string, string>> {
  const held = new Map<string, string>();
  const end = clients.listen((event) => {
    if (event.kind === 'delivered' && event.by === name) held.set(event.lease, event.id);
    if (event.kind === 'settling') held.delete(event.lease);
  });
  await clients.until(`something leased by ${name}`, PHASE_MS, () => held.size > 0);
  end();
  return held;
}

const workerPaused: SqliteScenario = {
  name: 'worker-paused',
  about: 'worker paused (SIGSTOP) beyond its leases, then its late ack',
  async run(measure) {
    const place = await Place.make();
    try {
      const options = { leaseMs: SHORT_LEASE_MS };
      const clients = twoClients(measure, place.server.url, options);
      const worker = clients.start('paused', { ...options, workMs: 500 });
      return await underLoad(this, measure, clients, async (note) => {
        let [held, refused] = [0, 0];
        for (let nth = 0; nth < measure.kills; nth++) {
          const [some, late] = await pausedBeyondItsLeases(clients, worker);
          held += some;
          refused += late;
        }
        if (refused < held) throw new Error(`${held - refused} of ${held} late settlements were not refused`);
        note(`${held} late acks, ${refused} refused`);
      });
    } finally {
      await place.remove();
    }
  },
};

/** @returns how many leases it had when it was paused, and how many of its acks were refused afterwards */
async function pausedBeyondItsLeases(clients: Clients, worker: Client): Promise<readonly [number, number]> {
  const held = await leasedBy(clients, worker.name);
  worker.child.kill('SIGSTOP');
  const answers = new Map<string, boolean>();
  const end = clients.listen((event) => {
    if (event.kind === 'settled' && held.has(event.lease)) answers.set(event.lease, event.ok);
  });
  await clients.until('what it held', PHASE_MS, (history) => [...held.values()].every((id) => history.isSettled(id)));
  worker.child.kill('SIGCONT');
  await clients.until('its late acks', PHASE_MS, () => [...held.keys()].every((lease) => answers.has(lease)));
  end();
  return [held.size, [...answers.values()].filter((ok) => !ok).length];
}

const doubled: SqliteScenario = {
  name: 'doubled',
  about: 'every HTTP request delivered twice',
  async run(measure) {
    const place = await Place.make();
    const proxy = new DoublingProxy(place.server.url);
    try {
      // Of each lease call one answer reaches nobody: what it gave comes again when that lease is over.
      const options = { keys: true, leaseMs: SHORT_LEASE_MS };
      const clients = twoClients(measure, await proxy.listen(), options);
      return await underLoad(this, measure, clients, async (note) => {
        await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
        note(`${proxy.requests} requests so far`);
      });
    } finally {
      await proxy.close();
      await place.remove();
    }
  },
};

const DISK_MIB = 12;
const GROWN_MIB = 256;
/** A fraction of the disk each, so that it is soon full. */
const LARGE_BYTES = 20_000;
const REFUSALS = 10;

const fullDisk: SqliteScenario = {
  name: 'full-disk',
  about: 'disk full, then space again',
  async run(measure) {
    const directory = await mkdtemp(join(tmpdir(), 'ebbmark-disk-'));
    const disk = await makeSmallDisk(directory, DISK_MIB, GROWN_MIB);
    if (disk === null) throw new Error('neither mount nor prlimit can be used here');
    const place = await Place.make({}, directory);
    const pid = place.server.child.pid!;
    try {
      await disk.limit(pid);
      const clients = twoClients(measure, place.server.url, { padBytes: LARGE_BYTES, batch: 20 });
      return await underLoad(this, measure, clients, async (note) => {
        const isFull = (history: History) => history.retried('store-unavailable') >= REFUSALS;
        await clients.until(`${REFUSALS} refusals`, PHASE_MS, isFull);
        const { acknowledged } = clients.history;
        await disk.grow(pid);
        const at = performance.now();
        await clients.acknowledge(1, PHASE_MS);
        const tookMs = performance.now() - at;
        note(`${disk.kind} of ${DISK_MIB} MiB, full after ${acknowledged} tasks`);
        note(`went on ${shownMs([tookMs])} after it had space`);
      });
    } finally {
      await place.remove();
      await disk.remove();
      await rm(directory, { recursive: true, force: true });
    }
  },
};

const wrongClock: SqliteScenario = {
  name: 'wrong-clock',
  about: 'server’s clock an hour ahead, then right again',
  async run(measure) {
    const place = await Place.make({ preload: SHIFTED_CLOCK, env: { TEST_CLOCK_SHIFTS_MS: `${HOUR_MS},0` } });
    const { server } = place;
    try {
      const clients = twoClients(measure, server.url);
      return await underLoad(this, measure, clients, async (note) => {
        const began = await clockOf(server);
        server.child.kill('SIGUSR2');
        // A jump is believed once it has lasted.
        await until(SERVE_MS, async () => mustBe((await clockOf(server)) - began > HOUR_MS / 2));
        await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
        server.child.kill('SIGUSR2');
        await until(SERVE_MS, async () => {
          const before = await clockOf(server);
          mustBe((await clockOf(server)) === before);
        });
        note(`went an hour ahead, then stood still`);
        note(`a long poll of 1 s took ${shownMs([await longPoll(server)])} meanwhile`);
      });
    } finally {
      await place.remove();
    }
  },
};

/** The server's clock, as a task that is put in tells. */
async function clockOf({ queue }: ServerProcess): Promise<number> {
  const [put] = await queue.enqueue('clock', [{ payload: 0 }]);
  return (await queue.task('clock', put!.id!)).enqueuedAt;
}

function mustBe(is: boolean): void {
  if (!is) throw new Error('not yet');
}

/** How long a lease call waits that gets nothing. */
async function longPoll({ queue }: ServerProcess): Promise<number> {
  const at = performance.now();
  await queue.lease({ topics: ['nothing-there'], waitMs: 1_000 });
  return performance.now() - at;
}

const restarted: SqliteScenario = {
  name: 'server-restarted',
  about: 'server stopped (SIGTERM) and started again',
  async run(measure) {
    const place = await Place.make();
    try {
      const clients = twoClients(measure, place.server.url, { keys: true, leaseMs: MEDIUM_LEASE_MS });
      return await underLoad(this, measure, clients, async (note) => {
        const tookMs: number[] = [];
        for (let nth = 0; nth < measure.kills; nth++) {
          await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
          const at = performance.now();
          place.server.child.kill('SIGTERM');
          await once(place.server.child, 'close');
          await place.restart();
          tookMs.push(performance.now() - at);
        }
        note(`${measure.kills} restarts; ready again ${shownMs(tookMs)} after the signal`);
      });
    } finally {
      await place.remove();
    }
  },
};

export const SQLITE_SCENARIOS: readonly SqliteScenario[] = [
  serverKilled,
  restarted,
  workerKilled,
  workerPaused,
  doubled,
  fullDisk,
  wrongClock,
];
