/**
 * Ten times as much as the server can do. Its capacity is lowered to some thousand tasks a second by two settings: each
 * call of its store takes 60 ms more, as if it were far away, and so many tasks may be under way at a time
 * (EBBMARK_MAX_TASKS). First half of that is offered, then ten times as much, then half again; workers take what comes
 * throughout. What counts is how long what was accepted takes until a worker has it.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { Client } from 'undici';
import { Child } from '../child.ts';
import type { OfferOrder, OfferReport } from '../offer.ts';
import type { BenchOptions } from '../options.ts';
import type { Place } from '../place.ts';
import { type Percentiles, Times, together } from '../rounds.ts';
import type { ServerOrder, ServerReport } from '../server.ts';
import { figure, type Row, rowBeside, type ValueTarget } from '../table.ts';

const TOPIC = 'overload';
const CAPACITY = 1_000;
const STORE_DELAY_MS = 60;
const MAX_TASKS = 400;
const TASKS_EACH = 100;
const CONNECTIONS = 100;
const WORKERS = 8;
const LEASED_AT_ONCE = 100;
const LOOK_EVERY_MS = 500;
/** How much more memory a server under overload may have than before. */
const GROWTH_MB = 150;
const SLOWER = 3;
const RECOVERY_S = 5;

const most = (bound: number): ValueTarget => ({ of: 'value', is: 'at most', bound });
const least = (bound: number): ValueTarget => ({ of: 'value', is: 'at least', bound });

export async function overload(place: Place, options: BenchOptions): Promise<readonly Row[]> {
  const server = new Child<ServerOrder, ServerReport>('server.ts');
  const offering = new Child<OfferOrder, OfferReport>('offer.ts');
  const ended = new AbortController();
  try {
    const { origin } = await server.ask({
      kind: 'open',
      store: place.fresh(),
      budgets: { tasks: MAX_TASKS },
      storeDelayMs: STORE_DELAY_MS,
    });
    const workers = new Workers(origin, ended.signal);
    const working = workers.run();
    const memory = new Memory(server, ended.signal);
    const sampling = memory.run();
    const offer = async (what: string, times: number, seconds: number): Promise<Phase> => {
      const perSecond = CAPACITY * times;
      options.progress(`overload: ${what}, ${perSecond} tasks/s for ${seconds} s`);
      const from = memory.nowMb;
      const startedAt = Date.now();
      const durationMs = seconds * 1_000;
      const order = { origin, topic: TOPIC, perSecond, tasksEach: TASKS_EACH, durationMs, connections: CONNECTIONS };
      const report = await offering.ask(order);
      return { report, startedAt, endedAt: Date.now(), seconds, grewMb: memory.since(startedAt) - from };
    };
    const [short, long] = options.quick ? [2, 3] : [10, 30];
    await offer('warm-up', 0.5, 2);
    const below = await offer('below capacity', 0.5, short);
    const above = await offer('overload', 10, long);
    const after = await offer('below capacity again', 0.5, short);
    options.progress('overload: waiting for what was accepted');
    const accepted = [below, above, after].flatMap(({ report }) => report.accepted);
    await workers.until(accepted);
    ended.abort();
    await Promise.all([working, sampling]);
    return rowsOf(below, above, after, workers, memory, accepted);
  } finally {
    ended.abort();
    await Promise.all([server.stop(), offering.stop()]);
  }
}

interface Phase {
  readonly report: OfferReport;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly seconds: number;
  /** Memory at the most, against that at its beginning. */
  readonly grewMb: number;
}

/** Lease, acknowledge, and note when each task came. */
class Workers {
  readonly #origin: string;
  readonly #ended: AbortSignal;
  /** When each was sent, and how long it took to come, in milliseconds. */
  readonly #came: { readonly sentAt: number; readonly took: number }[] = [];
  readonly #settled = new Set<string>();
  /** Lease calls that were refused: workers make room, so none should be. */
  refused = 0;

  constructor(origin: string, ended: AbortSignal) {
    this.#origin = origin;
    this.#ended = ended;
  }

  async run(): Promise<void> {
    await together(WORKERS, async () => {
      const client = new Client(this.#origin);
      while (!this.#ended.aborted) {
        const leased = await this.#post(client, '/v1/leases', { topics: [TOPIC], max: LEASED_AT_ONCE, waitMs: 500 });
        const tasks = (leased?.tasks ?? []) as readonly { id: string; leaseId: string; payload: number }[];
        const now = Date.now();
        for (const { payload } of tasks) this.#came.push({ sentAt: payload, took: now - payload });
        if (tasks.length === 0) continue;
        const ack = tasks.map(({ leaseId }) => ({ leaseId }));
        const settled = await this.#post(client, '/v1/leases/settle', { ack });
        const items = (settled?.ack ?? []) as readonly { readonly ok: boolean }[];
        for (const [nth, { ok }] of items.entries()) if (ok) this.#settled.add(tasks[nth]!.id);
      }
      await client.close();
    });
  }

  async #post(client: Client, path: string, body: object): Promise<Record<string, unknown> | null> {
    const { statusCode, body: answer } = await client.request({
      method: 'POST',
      path,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (statusCode === 200) return (await answer.json()) as Record<string, unknown>;
    await answer.dump();
    this.refused++;
    return null;
  }

  missing(ids: readonly string[]): number {
    return ids.filter((id) => !this.#settled.has(id)).length;
  }

  /** Waits until all of them are settled, for a lease's length at the most. */
  async until(ids: readonly string[]): Promise<void> {
    for (const deadline = Date.now() + 40_000; this.missing(ids) > 0 && Date.now() < deadline; ) await wait(100);
  }

  /** How long tasks took that were sent in a time. */
  between(from: number, to: number): Percentiles {
    const times = new Times();
    for (const { sentAt, took } of this.#came) if (sentAt >= from && sentAt < to) times.add(took);
    return times.percentiles();
  }

  /** When the last task was sent from then on that took longer than so many milliseconds. */
  lastSlow(from: number, ms: number): number | null {
    const slow = this.#came.filter(({ sentAt, took }) => sentAt >= from && took > ms);
    return slow.length === 0 ? null : Math.max(...slow.map(({ sentAt }) => sentAt));
  }
}

/** What the server has of it, sampled. */
class Memory {
  readonly #server: Child<ServerOrder, ServerReport>;
  readonly #ended: AbortSignal;
  readonly #samples: { readonly at: number; readonly mb: number }[] = [];

  constructor(server: Child<ServerOrder, ServerReport>, ended: AbortSignal) {
    this.#server = server;
    this.#ended = ended;
  }

  async run(): Promise<void> {
    while (!this.#ended.aborted) {
      const { residentMb } = await this.#server.ask({ kind: 'look' });
      this.#samples.push({ at: Date.now(), mb: residentMb });
      await wait(LOOK_EVERY_MS, undefined, { signal: this.#ended }).catch(() => {});
    }
  }

  get nowMb(): number {
    return this.#samples.at(-1)?.mb ?? 0;
  }

  /** The most since then. */
  since(at: number): number {
    return Math.max(0, ...this.#samples.filter((sample) => sample.at >= at).map(({ mb }) => mb));
  }
}

function rowsOf(
  below: Phase,
  above: Phase,
  after: Phase,
  workers: Workers,
  memory: Memory,
  accepted: readonly string[],
): readonly Row[] {
  const row = (metric: string, value: number, unit: string, target: ValueTarget | null = null): Row =>
    figure('overload', metric, value, unit, target);
  const [usual, loaded] = [below, above].map(({ startedAt, endedAt }) => workers.between(startedAt, endedAt)) as [
    Percentiles,
    Percentiles,
  ];
  const beside = (metric: string, value: number, floor: number): Row =>
    rowBeside(
      'overload',
      metric,
      { unit: 'ms', values: [value] },
      { name: 'below capacity', values: [floor] },
      { of: 'ratio', is: 'at most', bound: SLOWER },
    );
  // Until nothing is refused any more, and nothing takes longer than it may.
  const lastTrouble = Math.max(
    after.startedAt,
    after.report.lastRefusedAt ?? 0,
    workers.lastSlow(after.startedAt, SLOWER * usual.p99) ?? 0,
  );
  return [
    row('offered below capacity', below.report.offered / below.seconds, 'tasks/s'),
    row('refused below capacity', below.report.refused / below.seconds, 'tasks/s'),
    row('offered in overload', above.report.offered / above.seconds, 'tasks/s', least(0.9 * 10 * CAPACITY)),
    row('accepted in overload', above.report.accepted.length / above.seconds, 'tasks/s'),
    row('refused in overload, with 503 and Retry-After', above.report.refused / above.seconds, 'tasks/s'),
    row('failed in any other way', below.report.failed + above.report.failed + after.report.failed, 'tasks', most(0)),
    row('lease calls refused', workers.refused, 'calls'),
    row('accepted, and not delivered in the end', workers.missing(accepted), 'tasks', most(0)),
    beside('sent to leased, p50', loaded.p50, usual.p50),
    beside('sent to leased, p99', loaded.p99, usual.p99),
    beside('sent to accepted, p50', above.report.p50, below.report.p50),
    beside('sent to accepted, p99', above.report.p99, below.report.p99),
    row('memory at the most', memory.since(0), 'MB'),
    row('memory, growth in overload', above.grewMb, 'MB', most(GROWTH_MB)),
    row('recovery after it', (lastTrouble - after.startedAt) / 1_000, 's', most(RECOVERY_S)),
  ];
}
