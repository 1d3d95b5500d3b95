/**
 * Delayed tasks: a great many wait, some of them fall due within minutes, and the server is killed amid; then very many
 * fall due at one instant. The server is a process of its own, its clients are here and speak HTTP.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { HttpQueue } from '../../src/client/http-queue.ts';
import type { TaskInput, TaskPayload } from '../../src/queue/api.ts';
import { untilEven } from '../../test/slow/faults/support/servers.ts';
import { Child } from '../child.ts';
import { calls, enqueueRate } from '../drive.ts';
import type { BenchOptions } from '../options.ts';
import { PAYLOAD } from '../payload.ts';
import type { Place } from '../place.ts';
import { Times, together } from '../rounds.ts';
import type { ServerOrder, ServerReport } from '../server.ts';
import { figure, type Row, type ValueTarget } from '../table.ts';

const TOPICS = Array.from({ length: 16 }, (_, nth) => `delayed-${nth}`);
const BATCH = 200;
const CALLERS = 8;
const WORKERS = 4;
const LEASE_MS = 60_000;
const WAIT_MS = 2_000;
/** Of a million. */
const DUE_SHARE = 0.06;
const INSTANT_SHARE = 0.1;
const DAY_MS = 86_400_000;
/** Before the first falls due, so that all are in by then. */
const LEAD_MS = 60_000;
/** Behind the last: what is not there by then is lost. A killed server's shards are taken over after 15 s. */
const PATIENCE_MS = 60_000;
/** Time for the index and the scanners to be done with what was put in. */
const SETTLE_MS = 5_000;
const RETRY_MS = 250;
const LOOK_MS = 50;

const NONE: ValueTarget = { of: 'value', is: 'at most', bound: 0 };
/** What is promised where the system is not loaded. */
const ON_TIME: ValueTarget = { of: 'value', is: 'at most', bound: 1_000 };

type Server = Child<ServerOrder, ServerReport>;

export async function delayed(place: Place, options: BenchOptions): Promise<readonly Row[]> {
  const bench = new Delayed(place.fresh(), options);
  try {
    await bench.start();
    return [...(await bench.withKill()), ...(await bench.atOneInstant())];
  } finally {
    await bench.stop();
  }
}

class Delayed {
  readonly #store: string;
  readonly #options: BenchOptions;
  #server: Server | null = null;
  #queue: HttpQueue | null = null;

  constructor(store: string, options: BenchOptions) {
    this.#store = store;
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#server = new Child<ServerOrder, ServerReport>('server.ts');
    this.#queue = new HttpQueue((await this.#server.ask({ kind: 'open', store: this.#store })).origin);
  }

  stop(): Promise<void> {
    return this.#server?.stop() ?? Promise.resolve();
  }

  async withKill(): Promise<readonly Row[]> {
    const { tasks, quick, progress } = this.#options;
    const due = Math.round(tasks * DUE_SHARE);
    const windowMs = quick ? 60_000 : 600_000;
    progress(`delayed: enqueueing ${tasks - due} that fall due in an hour to 30 days`);
    const rate = await this.#enqueue(TOPICS, tasks - due, () => Date.now() + 3_600_000 + Math.random() * 30 * DAY_MS);
    progress(`delayed: enqueueing ${due} that fall due in the next minutes`);
    const from = Date.now() + LEAD_MS;
    await this.#enqueue(TOPICS, due, () => from + Math.random() * windowMs);
    if (Date.now() > from) throw new Error('the first fell due before the last was put in');
    const deliveries = new Deliveries();
    const end = from + windowMs;
    const outage = this.#killAt(from + windowMs / 2);
    const show = setInterval(() => progress(`delayed: ${deliveries.count} of ${due} were delivered`), 10_000);
    await together(WORKERS, () => this.#work(deliveries, due, end + PATIENCE_MS));
    clearInterval(show);
    const { killedAt, backMs } = await outage;
    // Those behind the ones that waited for the server are late too.
    const { calm, around } = deliveries.lateness(killedAt, backMs);
    const row = (metric: string, value: number, unit: string, target?: ValueTarget): Row =>
      figure('delayed', metric, value, unit, target);
    return [
      row(`enqueue, ${tasks} that wait, over HTTP`, rate, 'tasks/s'),
      row(
        `of ${due} due within ${windowMs / 60_000} min, kill -9 amid: delivered early`,
        deliveries.early,
        'tasks',
        NONE,
      ),
      row('the same: lost', due - deliveries.count, 'tasks', NONE),
      row('the same: settled twice', deliveries.twice, 'tasks', NONE),
      row('the same: delivered again, since the answer or the acknowledgement died', deliveries.again, 'tasks'),
      row('late, p50', calm.percentiles().p50, 'ms'),
      row('late, p99', calm.percentiles().p99, 'ms', ON_TIME),
      row('from the kill until tasks came again', backMs, 'ms'),
      row('late of those due meanwhile, p99', around.percentiles().p99, 'ms'),
    ];
  }

  async atOneInstant(): Promise<readonly Row[]> {
    const count = Math.round(this.#options.tasks * INSTANT_SHARE);
    const rows: Row[] = [];
    for (const topics of [['instant'], TOPICS.map((_, nth) => `instant-${nth}`)]) {
      const name = topics.length === 1 ? 'one topic' : `${topics.length} topics`;
      this.#options.progress(`delayed: enqueueing ${count} that fall due at one instant, ${name}`);
      const began = Date.now();
      // As long as the first hundredth takes, with a margin, tells how long the rest will.
      await this.#enqueue(topics, count / 100, () => began + 30 * DAY_MS);
      const at = Date.now() + Math.max(LEAD_MS, (Date.now() - began) * 300);
      await this.#enqueue(topics, count, () => at);
      if (Date.now() + SETTLE_MS > at) throw new Error('the instant came before all were put in');
      this.#options.progress(`delayed: waiting for the instant, ${name}`);
      await wait(at - Date.now());
      let ready = 0;
      while (ready < count) {
        await wait(LOOK_MS);
        const infos = await Promise.all(topics.map((topic) => this.#queue!.topic(topic)));
        ready = infos.reduce((sum, { counts }) => sum + counts.ready, 0);
      }
      rows.push(figure('delayed', `${count} due at one instant, ${name}: until all are ready`, Date.now() - at, 'ms'));
    }
    return rows;
  }

  #enqueue(topics: readonly string[], tasks: number, dueAt: () => number): Promise<number> {
    const input = (): TaskInput[] =>
      Array.from({ length: BATCH }, () => {
        const runAt = Math.round(dueAt());
        return { payload: { runAt, n: numbered++, more: PAYLOAD }, runAt };
      });
    return enqueueRate(this.#queue!, CALLERS, calls(topics, tasks, BATCH, input));
  }

  async #killAt(at: number): Promise<{ readonly killedAt: number; readonly backMs: number }> {
    await wait(at - Date.now());
    const killedAt = Date.now();
    await this.#server!.stop('SIGKILL');
    this.#options.progress('delayed: the server was killed');
    await this.start();
    // A task comes from every shard once the last is held again.
    await untilEven([{ queue: this.#queue! }]);
    return { killedAt, backMs: Date.now() - killedAt };
  }

  /** Takes what falls due, until all of it is there or it is late. */
  async #work(deliveries: Deliveries, due: number, until: number): Promise<void> {
    while (deliveries.settled < due && Date.now() < until) {
      const queue = this.#queue!;
      try {
        const got = await queue.lease({ topics: TOPICS, max: BATCH, leaseMs: LEASE_MS, waitMs: WAIT_MS });
        const at = Date.now();
        for (const { payload } of got) deliveries.add(deliveryOf(payload), at);
        if (got.length === 0) continue;
        const { ack } = await queue.settle({ ack: got.map(({ leaseId }) => ({ leaseId })) });
        for (const [nth, { ok }] of ack!.entries()) if (ok) deliveries.settle(deliveryOf(got[nth]!.payload));
      } catch {
        // The server is down, and another one will be there.
        await wait(RETRY_MS);
      }
    }
  }
}

let numbered = 0;

interface Delivery {
  readonly runAt: number;
  readonly n: number;
}

const deliveryOf = (payload: TaskPayload): Delivery => payload as unknown as Delivery;

class Deliveries {
  early = 0;
  again = 0;
  twice = 0;
  /** When each was due, and when it came first. */
  readonly #first = new Map<number, readonly [runAt: number, at: number]>();
  readonly #settled = new Set<number>();

  get count(): number {
    return this.#first.size;
  }

  get settled(): number {
    return this.#settled.size;
  }

  add({ n, runAt }: Delivery, at: number): void {
    if (at < runAt) this.early++;
    if (this.#first.has(n)) this.again++;
    else this.#first.set(n, [runAt, at]);
  }

  settle({ n }: Delivery): void {
    if (this.#settled.has(n)) this.twice++;
    this.#settled.add(n);
  }

  /** How late tasks were, apart for those that were due while the server was away or in as long a time behind. */
  lateness(killedAt: number, backMs: number): { readonly calm: Times; readonly around: Times } {
    const [calm, around] = [new Times(), new Times()];
    for (const [runAt, at] of this.#first.values()) {
      const isAround = runAt > killedAt - 1_000 && runAt < killedAt + 2 * backMs;
      (isAround ? around : calm).add(at - runAt);
    }
    return { calm, around };
  }
}
