/**
 * What a task that takes very long, and workers that died, cost those behind them: the rate of a topic in which one
 * task is extended throughout and a hundred leases are left to lapse again and again, in turns with a topic without
 * them. Then, once the retention is over, what is left of the log around the open task.
 */
import { EventEmitter, once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import type { LeasedTask, Queue } from '../../src/queue/api.ts';
import type { BenchOptions } from '../options.ts';
import { tasksOf } from '../payload.ts';
import { openBuiltQueue, type Place } from '../place.ts';
import { inRounds, median, Times, together } from '../rounds.ts';
import { figure, type Row, rateRow } from '../table.ts';

const DEAD = 100;
const BATCH = 200;
const CALLERS = 4;
const BACKLOG = 1_000;
/** A stalled task is back in the queue so long behind the end of its lease. */
const BACK_MS = 2_000;
const WORKERS = 8;
const LEASE_MS = 15_000;
const EXTEND_MS = 5_000;
const WAIT_MS = 5_000;
/** The shortest there is. */
const RETENTION_MS = 300_000;
/** Of segments of 10,000: where the open task stands, and where the last of those that came back do. */
const SEGMENTS_LEFT = 3;
const TRIMMED_MS = RETENTION_MS + 180_000;
const LOOK_MS = 5_000;
const EXTENDED = 'extended';
const DIES = 'dies';

export async function stalled(place: Place, options: BenchOptions): Promise<readonly Row[]> {
  const queue = await openBuiltQueue(place.fresh());
  const ended = new AbortController();
  const held = new Passing(queue, 'held-up', ended.signal);
  const free = new Passing(queue, 'free', ended.signal);
  const part = options.quick ? 4_000 : 10_000;
  try {
    await queue.configure(held.topic, { retentionMs: RETENTION_MS, maxAttempts: 1_000 });
    const extended = await standStill(queue, held);
    const extending = extend(queue, extended, ended.signal);
    const working = [held.work(), free.work()];
    const rounds = options.quick ? options.rounds : 10;
    const rates = await inRounds<number>({ held: () => held.pass(part), free: () => free.pass(part) }, rounds, (text) =>
      options.progress(`stalled, ${text}`),
    );
    const late = held.lateness.percentiles();
    const rows = [
      rateRow(
        'stalled',
        `enqueued and drained past one extended task and ${DEAD} dead leases`,
        rates.get('held') ?? [],
        { name: 'without them', values: rates.get('free') ?? [] },
        { of: 'ratio', is: 'at least', bound: 0.9 },
      ),
      figure('stalled', 'leases that lapsed', held.lapsed, 'leases'),
      figure('stalled', 'handed out again behind the end of the lease, p50', late.p50, 'ms'),
      figure('stalled', `the same, at most, behind up to ${BACKLOG} others`, held.latest, 'ms', {
        of: 'value',
        is: 'at most',
        bound: Math.round(BACK_MS + (BACKLOG * 1_000) / median(rates.get('held') ?? [])),
      }),
      ...(await leftOver(queue, held.topic, extended, options)),
    ];
    ended.abort();
    await Promise.all([...working, extending]);
    return rows;
  } finally {
    ended.abort();
    await queue.stop();
  }
}

/** A topic with workers that take what comes. Those that get a task that is to die leave it to lapse. */
class Passing {
  readonly topic: string;
  readonly lateness = new Times();
  /** The highest lateness of a task that came back, in milliseconds. */
  latest = 0;
  lapsed = 0;
  readonly #queue: Queue;
  readonly #ended: AbortSignal;
  /** When the lease of a task that is to die lapses. */
  readonly #lapsesAt = new Map<string, number>();
  /** Enqueued, or about to be, and not settled. */
  #waiting = 0;
  readonly #settled = new EventEmitter();

  constructor(queue: Queue, topic: string, ended: AbortSignal) {
    this.#queue = queue;
    this.topic = topic;
    this.#ended = ended;
  }

  async work(): Promise<void> {
    await together(WORKERS, async () => {
      while (!this.#ended.aborted) {
        const asked = { topics: [this.topic], max: BATCH, leaseMs: LEASE_MS, waitMs: WAIT_MS };
        const got = await this.#queue.lease({ ...asked, signal: this.#ended });
        const settled = got.filter((task) => task.payload !== DIES);
        for (const task of got) if (task.payload === DIES) this.die(task);
        if (settled.length === 0) continue;
        await this.#queue.settle({ ack: settled.map(({ leaseId }) => ({ leaseId })) });
        this.#waiting -= settled.length;
        this.#settled.emit('settled');
      }
    });
  }

  die({ id, leaseUntil }: LeasedTask): void {
    const due = this.#lapsesAt.get(id);
    if (due !== undefined) {
      const late = Date.now() - due;
      this.lateness.add(late);
      this.latest = Math.max(this.latest, late);
      this.lapsed++;
    }
    this.#lapsesAt.set(id, leaseUntil);
  }

  /**
   * Enqueues so many tasks and lets the workers follow closely, so that what comes back doesn't wait behind a backlog;
   * how many a second went through.
   */
  async pass(tasks: number): Promise<number> {
    const input = tasksOf(BATCH);
    const start = performance.now();
    let left = tasks;
    await together(CALLERS, async () => {
      while (left > 0) {
        left -= BATCH;
        this.#waiting += BATCH;
        await this.#queue.enqueue(this.topic, input);
        await this.#until(BACKLOG);
      }
    });
    await this.#until(0);
    return (tasks * 1_000) / (performance.now() - start);
  }

  async #until(waiting: number): Promise<void> {
    while (this.#waiting > waiting) await once(this.#settled, 'settled');
  }
}

/** Puts one task in that will be extended, and behind it those whose workers die. */
async function standStill(queue: Queue, held: Passing): Promise<LeasedTask> {
  await queue.enqueue(held.topic, [
    { payload: EXTENDED },
    ...Array.from({ length: DEAD }, () => ({ payload: DIES, maxAttempts: 1_000 })),
  ]);
  const [extended, ...dead] = await queue.lease({ topics: [held.topic], max: DEAD + 1, leaseMs: LEASE_MS });
  if (extended?.payload !== EXTENDED || dead.length !== DEAD) throw new Error('the first lease did not get them all');
  for (const task of dead) held.die(task);
  return extended;
}

async function extend(queue: Queue, { leaseId }: LeasedTask, ended: AbortSignal): Promise<void> {
  while (!ended.aborted) {
    await wait(EXTEND_MS, undefined, { signal: ended }).catch(() => {});
    const { extend: answers } = await queue.settle({ extend: [{ leaseId, leaseMs: LEASE_MS }] });
    if (!answers?.[0]?.ok) throw new Error('the extended task was lost');
  }
}

/** Waits for the retention to be over, and tells how much of the log is left then, and what holds its cursor. */
async function leftOver(
  queue: Queue,
  topic: string,
  { id }: LeasedTask,
  options: BenchOptions,
): Promise<readonly Row[]> {
  const start = performance.now();
  const of = async () => (await queue.cursors(topic)).priorities.find(({ nextId }) => nextId > 0)!;
  const before = await of();
  if (before.heldBy?.task !== id)
    throw new Error(`${before.heldBy?.task} is said to hold the cursor, instead of ${id}`);
  let now = before;
  while (now.segments > SEGMENTS_LEFT && performance.now() - start < TRIMMED_MS) {
    const passed = Math.round((performance.now() - start) / 1_000);
    options.progress(`stalled: ${now.segments} segments are left after ${passed} s, with a retention of 300 s`);
    await wait(LOOK_MS);
    now = await of();
  }
  const seconds = (performance.now() - start) / 1_000;
  return [
    figure('stalled', 'segments that hold entries, behind the last of the load', before.segments, 'segments'),
    figure('stalled', `the same, ${seconds.toFixed(0)} s later, retention 300 s`, now.segments, 'segments', {
      of: 'value',
      is: 'at most',
      bound: SEGMENTS_LEFT,
    }),
    figure('stalled', 'entries behind the completion cursor, held by the extended task', now.lag, 'entries'),
  ];
}
