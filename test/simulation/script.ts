/** The course of a simulation: settings first, then trouble, then quiet, in which everything has to come right. */
import type { PriorityCursors } from '../../src/queue/api.ts';
import { Client, type World } from './client.ts';
import { type Faults, NO_FAULTS } from './faults.ts';
import type { Ledger } from './ledger.ts';
import { Operator } from './operator.ts';
import { Planner } from './planner.ts';
import { Producer } from './producer.ts';
import type { Random } from './random.ts';
import { Squatter, Worker } from './worker.ts';

/** Nothing may come up any more once nothing came up for so long: longer than any delay, lease and backoff there is. */
const STILL_MS = 9_000;
/** The same where the tables have nothing left that could come up, and no server is taken over from. */
const STILL_SETTLED_MS = 1_000;
/** The same where a server has just gone whose shards others take over only once they have found that out. */
const STILL_TAKEN_OVER_MS = 15_000;
/** No message is on its way for longer once nothing goes wrong. */
const UNDER_WAY_MS = 50;
/** Longer than any lease that is not extended. */
const SQUATTED_MS = 3_000;
/** Long enough for others to take the shards of a server over: they watch it stand still for ten seconds. */
const LONG_SLEEP_MS = 12_000;
/** What is under way when a server stops is at its end after so long. */
const STOP_MS = 10_000;
/** Calls are answered within this time once nothing goes wrong, waits included. */
const PATIENCE_MS = 60_000;

const waits = ({ priority, ready }: PriorityCursors): boolean => priority !== 'dead' && ready > 0;

export class Script {
  readonly #world: World;
  readonly #random: Random;
  readonly #faults: Faults;
  readonly #ledger: Ledger;
  readonly violations: string[] = [];
  /** Calls that set the topics up. */
  setup: readonly number[] = [];
  quietFrom = Number.POSITIVE_INFINITY;

  constructor(world: World, random: Random, faults: Faults, ledger: Ledger) {
    this.#world = world;
    this.#random = random;
    this.#faults = faults;
    this.#ledger = ledger;
  }

  async run(): Promise<void> {
    const { cluster, loop, scenario } = this.#world;
    const inspector = this.#client('inspector');
    cluster.startAll();
    for (const { name, patch } of scenario.topics) await inspector.insistOn(name, patch);
    const planner = scenario.schedule === null ? null : new Planner(scenario.schedule, this.#world);
    await planner?.make();
    this.setup = cluster.calls.map(({ n }) => n);

    this.#faults.rates = scenario.rates;
    cluster.lostMessages = scenario.lostMessages;
    const actors = this.#actors(planner);
    const stopTrouble = this.#trouble();
    await actors.produced;
    // Where one lease is extended on and on, others run out behind it meanwhile.
    await loop.sleep(this.#random.around(scenario.squatter ? SQUATTED_MS : 500));
    await stopTrouble();
    const { delayMs } = scenario.rates;
    this.#faults.rates = { ...NO_FAULTS, delayMs };
    cluster.lostMessages = 0;
    this.#world.quiet = true;
    // Some may still be asleep between two things they do.
    if (!(await this.#within(PATIENCE_MS + 4_000 * scenario.stretch, actors.gone))) {
      for (const { n, kind, ended } of cluster.calls) {
        if (ended === null) this.violations.push(`liveness: ${kind} #${n} was never answered`);
      }
      if (this.violations.length === 0) this.violations.push('liveness: somebody did not come to an end');
      return;
    }
    while (this.#faults.late > 0) await loop.sleep(100);
    // Where a holder was at a call that takes seconds, it has not heard yet what others told of.
    await loop.sleep(this.#faults.underWayUntil - loop.now);
    // A call whose client has gone may still be on its way from one server to another, and pause what was to go on.
    for (let idleSince = loop.now; loop.now - idleSince < UNDER_WAY_MS; ) {
      await loop.sleep(UNDER_WAY_MS / 5);
      if (!cluster.idle) idleSince = loop.now;
    }
    for (const { name } of scenario.topics) await inspector.insistOn(name, { paused: false });
    await loop.sleep(this.#world.lastDueAt - loop.now);
    if (planner !== null && !(await this.#within(PATIENCE_MS, planner.end()))) {
      this.violations.push('liveness: a schedule did not fire what was due, or could not be deleted');
    }
    this.quietFrom = loop.now;
    await this.#workOff();
    if (!scenario.exclusive) {
      // What a redrive has moved that was cut off amid is found when the scanner passes the dead letters, which it does
      // seldom; nobody was told that it was done.
      let isFound = false;
      for (const { name } of scenario.topics) {
        const answer = await inspector.scan(name);
        if (answer.kind !== 'ok' || answer.value.priorities.some(waits)) isFound = true;
      }
      if (isFound) await this.#workOff();
    }
    if (this.#random.chance(0.3)) {
      // What was only right in memory comes to light now, and a look before would mend some of it.
      cluster.pick(this.#random)?.process.crash();
      await this.#workOff(scenario.exclusive ? STILL_MS : STILL_TAKEN_OVER_MS);
    }
    await this.#look(inspector);
    if (!(await this.#within(STOP_MS, cluster.stopAll()))) this.violations.push('liveness: a server did not stop');
  }

  #client(name: string): Client {
    return new Client(name, this.#random.fork(), this.#world);
  }

  #actors(planner: Planner | null): { readonly produced: Promise<unknown>; readonly gone: Promise<unknown> } {
    const { scenario } = this.#world;
    const many = <T>(count: number, make: (nth: number) => T): T[] =>
      Array.from({ length: count }, (_, nth) => make(nth));
    const produced = Promise.all(
      many(scenario.producers, (nth) =>
        new Producer(`producer ${nth}`, this.#random.fork(), this.#world).run(
          Math.ceil(scenario.tasks / scenario.producers),
        ),
      ),
    );
    const workers = many(scenario.workers, (nth) =>
      new Worker(`worker ${nth}`, this.#random.fork(), this.#world).run(),
    );
    const operators = many(scenario.operators, (nth) =>
      new Operator(`operator ${nth}`, this.#random.fork(), this.#world).run(),
    );
    const squatters = scenario.squatter ? [new Squatter('squatter', this.#random.fork(), this.#world).run()] : [];
    return { produced, gone: Promise.all([produced, ...workers, ...operators, ...squatters, planner?.run()]) };
  }

  /** Pauses servers, and lets their clocks jump, now and then. */
  #trouble(): () => Promise<void> {
    const { cluster, loop, scenario } = this.#world;
    const random = this.#random.fork();
    let stopped = false;
    const every = (meanMs: number, act: () => void): void => {
      if (meanMs === 0) return;
      loop.after(random.around(meanMs), () => {
        if (stopped) return;
        act();
        every(meanMs, act);
      });
    };
    let asleep = 0;
    every(scenario.pauseEveryMs, () => {
      const running = cluster.pick(random);
      if (running === null || running.process.paused) return;
      this.#faults.counts.pause++;
      const { process } = running;
      process.pause();
      asleep++;
      // Where only one process can have the store open, no other takes its place.
      if (scenario.exclusive || random.chance(0.5)) {
        const long = !scenario.exclusive && random.chance(0.4);
        loop.after(long ? LONG_SLEEP_MS + random.around(1_500) : random.around(scenario.pauseMs), () => {
          process.resume();
          asleep--;
        });
        return;
      }
      // Taken for dead, and replaced; it wakes up late, goes on with what it was at, and ends. It may have slept for so
      // long that others hand out what it did.
      const sleepMs = random.chance(0.5) ? LONG_SLEEP_MS + random.around(1_500) : 300 + random.around(1_500);
      loop.after(random.around(300), () => cluster.replace(process));
      loop.after(sleepMs, () => {
        process.resume();
        loop.after(random.around(1_000), () => {
          process.crash();
          asleep--;
        });
      });
    });
    every(scenario.jumpEveryMs, () => {
      const running = cluster.pick(random);
      if (running === null) return;
      this.#faults.counts.jump++;
      if (scenario.exclusive) running.process.jump(random.pick([-5000, -1900, -500, 500, 1900, 5000]));
      else running.process.jumpTo(random.pick([-150, -50, 0, 50, 150]));
    });
    return async () => {
      stopped = true;
      while (asleep > 0) await loop.sleep(100);
    };
  }

  /** Well-behaved workers take and finish what is there, until nothing comes up any more. */
  async #workOff(stillMs = STILL_MS): Promise<void> {
    const { loop } = this.#world;
    let lastAt = loop.now;
    const workers = ['last worker 1', 'last worker 2'].map(async (name) => {
      const client = this.#client(name);
      while (loop.now - lastAt < stillMs) {
        const answer = await client.lease({ max: 100, waitMs: STILL_SETTLED_MS, worker: name });
        // Where nobody hands out anything just now, nothing can be concluded from it.
        if (answer.kind !== 'ok' || answer.value.length > 0) lastAt = loop.now;
        else if (loop.now - lastAt >= STILL_SETTLED_MS && this.#isSettled()) break;
        if (answer.kind !== 'ok') await client.sleep(200);
        if (answer.kind !== 'ok' || answer.value.length === 0) continue;
        await client.settle({ ack: answer.value.map(({ leaseId }) => ({ leaseId, result: { by: name } })) });
      }
    });
    if (!(await this.#within(PATIENCE_MS * 10, Promise.all(workers)))) {
      this.violations.push('liveness: what is there could not be worked off');
    }
  }

  /** Nothing can come up any more, and all that there is was counted by whoever tells of it. */
  #isSettled(): boolean {
    const { cluster, loop } = this.#world;
    return loop.now - cluster.lastGoneAt >= STILL_TAKEN_OVER_MS && this.#ledger.isSettled();
  }

  /** What there is to see at the end; the auditor compares it with what must be. */
  async #look(inspector: Client): Promise<void> {
    const { scenario, known } = this.#world;
    for (const { name } of scenario.topics) {
      await inspector.counts(name);
      await inspector.drained(name, 0);
      await inspector.cursors(name);
      const listed = await inspector.list(name, null);
      const seen = new Set(listed.kind === 'ok' ? listed.value.map(({ id }) => id) : []);
      for (const id of new Set(known.filter(({ topic }) => topic === name).map((task) => task.id))) {
        if (!seen.has(id)) await inspector.task(name, id);
      }
    }
    if (scenario.schedule !== null) await inspector.list(scenario.schedule.topic, null);
  }

  async #within(ms: number, something: Promise<unknown>): Promise<boolean> {
    let over = false;
    await Promise.race([
      something.then(() => {
        over = true;
      }),
      this.#world.loop.sleep(ms),
    ]);
    return over;
  }
}
