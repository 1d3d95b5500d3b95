import type { LeasedTask, SettleRequest } from '../src/index.ts';
import type { Frontier } from './frontier.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import type { CrawlOptions, CrawlSettings } from './options.ts';
import type { CrawlSummary, Stats } from './progress.ts';
import type { Verdict, Worker } from './worker.ts';

/** How long one lease call waits; a task that arrives ends the wait. Also how late the end is noticed. */
const WAIT_MS = 500;
/** The wait of the second look, once nothing was left. */
const LAST_WAIT_MS = 50;

/** The loop that hands tasks to workers, as many as may run at once, and knows when the crawl is over. */
export class Run {
  readonly #frontier: Frontier;
  readonly #worker: Worker;
  readonly #stats: Stats;
  readonly #settings: CrawlSettings;
  readonly #options: CrawlOptions;
  /** Ends what workers share; aborted once tasks in hand have had their time. */
  readonly #ended: AbortController;
  readonly #keeper: LeaseKeeper;
  readonly #inHand = new Set<Promise<void>>();
  readonly #startedAt = performance.now();
  #failure: Error | null = null;

  constructor(
    frontier: Frontier,
    worker: Worker,
    stats: Stats,
    settings: CrawlSettings,
    options: CrawlOptions,
    ended: AbortController,
  ) {
    this.#frontier = frontier;
    this.#worker = worker;
    this.#stats = stats;
    this.#settings = settings;
    this.#options = options;
    this.#ended = ended;
    this.#keeper = new LeaseKeeper(frontier, settings.leaseMs);
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedAt;
  }

  async untilEnd(): Promise<CrawlSummary['reason']> {
    this.#keeper.start();
    const stopReports = this.#report();
    try {
      const reason = await this.#loop();
      await this.#letFinish();
      if (this.#failure !== null) throw this.#failure;
      return reason;
    } finally {
      await this.#letFinish();
      this.#ended.abort();
      await stopReports();
      await this.#keeper.stop();
    }
  }

  async #loop(): Promise<CrawlSummary['reason']> {
    const { concurrency, maxPages, leaseMs } = this.#settings;
    const { signal } = this.#options;
    let idle = 0;
    while (!signal?.aborted && this.#failure === null) {
      const missing = maxPages === null ? Number.POSITIVE_INFINITY : maxPages - this.#stats.stored;
      if (missing <= 0) return 'max-pages';
      // Each task in hand has a page's number reserved: together they never store more than are missing.
      const max = Math.min(concurrency, missing, 1_000) - this.#inHand.size;
      if (max <= 0) {
        await Promise.race(this.#inHand);
        continue;
      }
      const request = { max, waitMs: idle > 0 ? LAST_WAIT_MS : WAIT_MS, leaseMs, worker: `crawler ${process.pid}` };
      const tasks = await this.#lease({ ...request, ...(signal && { signal }) });
      for (const task of tasks) this.#take(task);
      idle = tasks.length === 0 && this.#inHand.size === 0 && (await this.#isEmpty()) ? idle + 1 : 0;
      // Twice, as the counts of many topics are not of one moment.
      if (idle >= 2) return 'empty';
    }
    return 'stopped';
  }

  async #lease(request: Parameters<Frontier['lease']>[0]): Promise<readonly LeasedTask[]> {
    try {
      return await this.#frontier.lease(request);
    } catch (error) {
      if (request.signal?.aborted) return [];
      throw error;
    }
  }

  async #isEmpty(): Promise<boolean> {
    const { ready, delayed, leased } = await this.#frontier.counts();
    return ready + delayed + leased === 0;
  }

  #take(task: LeasedTask): void {
    const work = this.#carryOut(task)
      .catch((error: Error) => {
        this.#failure ??= error;
      })
      .finally(() => this.#inHand.delete(work));
    this.#inHand.add(work);
  }

  async #carryOut(task: LeasedTask): Promise<void> {
    const { leaseId } = task;
    const signal = this.#keeper.hold(leaseId);
    let verdict: Verdict;
    try {
      verdict = await this.#worker.work(task, signal);
    } finally {
      this.#keeper.drop(leaseId);
    }
    const answer = await this.#frontier.settle(toSettle(leaseId, verdict));
    for (const item of [...answer.ack, ...answer.nack, ...answer.release]) if (!item.ok) this.#stats.lost++;
  }

  /** Waits for the tasks in hand; those that take too long are cut, and given back by their workers. */
  async #letFinish(): Promise<void> {
    const timer = setTimeout(() => {
      this.#ended.abort();
      this.#keeper.abortAll();
    }, this.#settings.graceMs);
    await Promise.all(this.#inHand);
    clearTimeout(timer);
  }

  /** @returns a function that ends the reports, with a last one */
  #report(): () => Promise<void> {
    const { onProgress } = this.#options;
    if (onProgress === undefined) return async () => {};
    let before = { fetched: 0, elapsedMs: 0 };
    let running: Promise<void> | null = null;
    const once = async (): Promise<void> => {
      const counts = await this.#frontier.counts();
      const { elapsedMs } = this;
      const { fetched } = this.#stats;
      const rate = ((fetched - before.fetched) * 1000) / Math.max(1, elapsedMs - before.elapsedMs);
      before = { fetched, elapsedMs };
      const { maxPages } = this.#settings;
      onProgress({ stats: this.#stats, counts, inHand: this.#inHand.size, elapsedMs, rate, maxPages });
    };
    // A report that fails says nothing the loop won't say.
    const start = (): Promise<void> =>
      (running ??= once()
        .catch(() => {})
        .finally(() => {
          running = null;
        }));
    const timer = setInterval(start, this.#settings.progressMs);
    return async () => {
      clearInterval(timer);
      await running;
      await start();
    };
  }
}

function toSettle(leaseId: string, verdict: Verdict): SettleRequest {
  switch (verdict.kind) {
    case 'ack':
      return { ack: [{ leaseId }] };
    case 'release':
      return { release: [{ leaseId }] };
    case 'dead':
      return { nack: [{ leaseId, reason: verdict.reason, dead: true }] };
    case 'retry': {
      const { delayMs, reason } = verdict;
      return { nack: [{ leaseId, reason, ...(delayMs !== undefined && { delayMs }) }] };
    }
  }
}
