/**
 * The frontier: the addresses still to be fetched, which is to say the queue. A topic a host, so that the queue's
 * limits are the crawler's politeness; the normalised URL as message id, so that no page is enqueued twice.
 * A port with two implementations: the queue inside this process (here), and a server (frontier-http.ts).
 */
import {
  type EnqueueResult,
  type LeasedTask,
  type LeaseRequest,
  openQueue,
  type Queue,
  type QueueLogger,
  type SettingsPatch,
  type SettleRequest,
  type SettleResult,
  type TaskInput,
  type TopicPage,
} from '../src/index.ts';

export interface FrontierCounts {
  readonly ready: number;
  readonly delayed: number;
  readonly leased: number;
  readonly dead: number;
  /** Hosts with something to do, or dead letters. */
  readonly hosts: number;
}

export interface Frontier {
  /** Resolves once the tasks are on disk. At most 1,000 at once. */
  enqueue(host: string, tasks: readonly TaskInput[]): Promise<readonly EnqueueResult[]>;
  /** Up to `max` tasks of any host of this crawl; `topic` of each is the host. */
  lease(
    request: Pick<LeaseRequest, 'max' | 'waitMs' | 'leaseMs' | 'worker' | 'signal'>,
  ): Promise<readonly LeasedTask[]>;
  settle(request: SettleRequest): Promise<SettleResult>;
  configure(host: string, patch: SettingsPatch): Promise<void>;
  /** Over all hosts of this crawl. */
  counts(): Promise<FrontierCounts>;
  close(): Promise<void>;
}

/** What tells what a frontier's task is; the queue keeps it as JSON. */
export interface FrontierTask {
  readonly kind: 'page' | 'sitemap';
  readonly url: string;
  /** Of a page: links from a seed. Of a sitemap: levels of indexes above it. */
  readonly depth: number;
  readonly referrer: string | null;
  /** Redirects on the way here. */
  readonly hops: number;
  /** A seed, or where one redirected to. */
  readonly seed: boolean;
  readonly lastModified: number | null;
}

/** Deepest a page gets a priority of its own: seeds have 9, what is eight links away and more has 1. */
const LOWEST = 1;

/**
 * Breadth first, shifted by the sitemap's opinion: its 0 to 1 moves a page by up to two levels. A seed stays alone on
 * the top, and nothing falls to 0.
 * @param sitemapPriority null where no sitemap gives one
 */
export function priorityOf(depth: number, sitemapPriority: number | null = null): number {
  if (depth === 0 && sitemapPriority === null) return 9;
  const shift = Math.round(((sitemapPriority ?? 0.5) - 0.5) * 4);
  return Math.min(8, Math.max(LOWEST, 9 - depth + shift));
}

/** A task as the queue takes it. Sitemaps go first: they say where the rest is. */
export const toInput = (task: FrontierTask, sitemapPriority: number | null = null): TaskInput => ({
  payload: { ...task },
  messageId: task.kind === 'page' ? task.url : `sitemap ${task.url}`,
  priority: task.kind === 'page' ? priorityOf(task.depth, sitemapPriority) : 9,
});

/** Reads a task back; null where it isn't one of ours. */
export function readTask(payload: LeasedTask['payload']): FrontierTask | null {
  if (payload === null || typeof payload !== 'object') return null;
  const { kind, url, depth, referrer, hops, seed, lastModified } = payload as Readonly<Record<string, unknown>>;
  if ((kind !== 'page' && kind !== 'sitemap') || typeof url !== 'string' || !URL.canParse(url)) return null;
  if (!isCount(depth) || !isCount(hops)) return null;
  return {
    kind,
    url,
    depth,
    hops,
    referrer: typeof referrer === 'string' ? referrer : null,
    seed: seed === true,
    lastModified: typeof lastModified === 'number' ? lastModified : null,
  };
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Adds up the pages of a list of topics. */
export async function sumTopics(list: (after: string | undefined) => Promise<TopicPage>): Promise<FrontierCounts> {
  const sum = { ready: 0, delayed: 0, leased: 0, dead: 0, hosts: 0 };
  let after: string | undefined;
  do {
    const page = await list(after);
    for (const { counts } of page.topics) {
      sum.ready += counts.ready;
      sum.delayed += counts.delayed;
      sum.leased += counts.leased;
      sum.dead += counts.dead;
      if (counts.ready + counts.delayed + counts.leased + counts.dead > 0) sum.hosts++;
    }
    after = page.after;
  } while (after !== undefined);
  return sum;
}

/** The queue in this process. */
export class EmbeddedFrontier implements Frontier {
  readonly #queue: Queue;

  private constructor(queue: Queue) {
    this.#queue = queue;
  }

  /** @param path of the queue's file, which holds this crawl alone */
  static async open(path: string, log?: QueueLogger): Promise<EmbeddedFrontier> {
    return new EmbeddedFrontier(await openQueue({ store: `sqlite:${path}`, ...(log && { log }) }));
  }

  enqueue(host: string, tasks: readonly TaskInput[]): Promise<readonly EnqueueResult[]> {
    return this.#queue.enqueue(host, tasks);
  }

  lease(request: LeaseRequest): Promise<readonly LeasedTask[]> {
    return this.#queue.lease(request);
  }

  settle(request: SettleRequest): Promise<SettleResult> {
    return this.#queue.settle(request);
  }

  async configure(host: string, patch: SettingsPatch): Promise<void> {
    await this.#queue.configure(host, patch);
  }

  counts(): Promise<FrontierCounts> {
    return sumTopics((after) => this.#queue.topics({ limit: 1_000, ...(after !== undefined && { after }) }));
  }

  close(): Promise<void> {
    return this.#queue.stop();
  }
}
