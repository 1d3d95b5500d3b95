/**
 * A load through the client for as long as one likes, window by window: tasks that are published, worked on and answered.
 * The server is a process of its own, which may be killed amid; publishers and workers are here and speak HTTP.
 */
import { setMaxListeners } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import type { HttpQueue } from '../../src/client/http-queue.ts';
import type { Client, Task } from '../../src/client/index.ts';
import { Child } from '../child.ts';
import { countFailures, countTrouble } from '../failures.ts';
import type { BenchOptions } from '../options.ts';
import { PAYLOAD } from '../payload.ts';
import { built, type Place } from '../place.ts';
import { together } from '../rounds.ts';
import type { ServerOrder, ServerReport } from '../server.ts';
import { figure, type Row, type ValueTarget } from '../table.ts';
import { ERRORS, WINDOW_COLUMNS, Windows } from '../windows.ts';

const TOPIC = 'soak';
const WARM_UP_MS = 2_000;
/** What a server handed out as it was killed is back soon. */
const LEASE_MS = 2_000;
/** As a client's own (src/client/client.ts). */
const REQUEST_TIMEOUT_MS = 10_000;
/** Round trips under way at a given rate: what is due while so many are waits, and its time runs. */
const MOST_UNDER_WAY = 1_000;

const NONE: ValueTarget = { of: 'value', is: 'at most', bound: 0 };

export async function soak(place: Place, options: BenchOptions): Promise<readonly Row[]> {
  const server = new Server(place.fresh());
  try {
    return await soakOn(server, await server.start(), options);
  } finally {
    await server.stop();
  }
}

class Server {
  readonly #store: string;
  #child: Child<ServerOrder, ServerReport> | null = null;
  #isOver = false;

  constructor(store: string) {
    this.#store = store;
  }

  /** @returns where it listens */
  async start(port = 0): Promise<string> {
    this.#child = new Child('server.ts');
    return (await this.#child.ask({ kind: 'open', store: this.#store, port })).origin;
  }

  /** Kills it, and starts it again where it was. */
  async restart(port: number): Promise<void> {
    await this.#child?.stop('SIGKILL');
    if (!this.#isOver) await this.start(port);
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#child?.stop();
  }
}

async function soakOn(server: Server, origin: string, options: BenchOptions): Promise<readonly Row[]> {
  const { seconds, windowSeconds, disturb, workers } = options.soak;
  const windows = new Windows(seconds / windowSeconds, windowSeconds * 1_000);
  const publishing = await connect(origin, windows);
  const working = await connect(origin, windows);
  const load = new Load(publishing.client, windows, options);
  const ended = new AbortController();
  const pause = (ms: number): Promise<void> => wait(ms, undefined, { signal: ended.signal });
  const killAndRestart = async (): Promise<void> => {
    await pause((seconds * 1_000) / 2);
    options.progress('soak: kill -9, and a new server');
    await server.restart(Number(new URL(origin).port));
  };
  const timetable = async (): Promise<void> => {
    options.progress('soak: warm-up');
    await pause(WARM_UP_MS);
    windows.begin(Date.now());
    if (options.output === 'csv') console.log(WINDOW_COLUMNS);
    await Promise.all([showWindows(windows, options, pause), ...(disturb ? [killAndRestart()] : [])]);
    load.stop();
    options.progress('soak: waiting for what is under way');
  };
  try {
    const answering = working.client
      .subscriber(TOPIC, { leaseMs: LEASE_MS })
      .run(({ payload }: Task) => payload, { concurrency: workers });
    // Workers that end before they are told to would let the load wait for ever.
    await Promise.race([Promise.all([timetable(), load.run()]), answering.then(endedEarly)]);
    await publishing.client.drain();
    await working.client.drain();
    const { counts } = await working.queue.topic(TOPIC);
    const open = counts.ready + counts.delayed + counts.leased + counts.dead;
    options.progress(`soak: ${load.published} published, ${load.answered} answered, ${open} not settled`);
    return rowsOf(windows, seconds, { unanswered: load.published - load.answered, open });
  } finally {
    ended.abort();
    load.stop();
    publishing.close();
    working.close();
  }
}

function endedEarly(): never {
  throw new Error('the workers ended before they were told to');
}

async function showWindows(
  windows: Windows,
  options: BenchOptions,
  pause: (ms: number) => Promise<void>,
): Promise<void> {
  for (let nth = 0; nth < windows.count; nth++) {
    options.progress(`soak: window ${nth + 1}/${windows.count}`);
    // A timer may be early, by less than a millisecond.
    for (let left = windows.leftMs(nth); left > 0; left = windows.leftMs(nth)) await pause(left);
    const line = windows.close(nth);
    if (options.output === 'csv') console.log(line);
  }
}

interface Connected {
  readonly client: Client;
  readonly queue: HttpQueue;
  close(): void;
}

async function connect(origin: string, windows: Windows): Promise<Connected> {
  const { Client } = await built<typeof import('../../src/client/index.ts')>('client/index.js');
  const { HttpQueue } = await built<typeof import('../../src/client/http-queue.ts')>('client/http-queue.js');
  const queue = new HttpQueue(origin, { requestTimeoutMs: REQUEST_TIMEOUT_MS });
  const options = { requestTimeoutMs: REQUEST_TIMEOUT_MS, onError: countTrouble(windows) };
  const client = new Client(countFailures(queue, windows), options);
  return {
    client,
    queue,
    close: () => {
      client.close();
      queue.close();
    },
  };
}

/** Publishes, and waits for the results: each publisher one after the other, or all of them at a given rate. */
class Load {
  readonly #publisher: ReturnType<Client['publisher']>;
  readonly #windows: Windows;
  readonly #publishers: number;
  readonly #next: () => number;
  readonly #over = new AbortController();
  published = 0;
  answered = 0;

  constructor(client: Client, windows: Windows, { soak: { rate, publishers } }: BenchOptions) {
    this.#publisher = client.publisher();
    this.#windows = windows;
    this.#publishers = rate === null ? publishers : MOST_UNDER_WAY;
    setMaxListeners(this.#publishers, this.#over.signal);
    const start = performance.now();
    let nth = 0;
    this.#next = rate === null ? () => performance.now() : () => start + (nth++ * 1_000) / rate;
  }

  stop(): void {
    this.#over.abort();
  }

  /** Until it is stopped, and all that is under way has its result. */
  async run(): Promise<void> {
    const { signal } = this.#over;
    await together(this.#publishers, async () => {
      while (!signal.aborted) {
        const due = this.#next();
        const early = due - performance.now();
        if (early > 0) await wait(early, undefined, { signal }).catch(() => {});
        if (!signal.aborted) await this.#roundTrip(due);
      }
    });
  }

  /** @param due from when on its time counts */
  async #roundTrip(due: number): Promise<void> {
    try {
      const handle = await this.#publisher.publish(TOPIC, PAYLOAD);
      this.published++;
      await handle.result();
      this.answered++;
      this.#windows.roundTrip(performance.now() - due);
    } catch (error) {
      this.#windows.error(error);
    }
  }
}

function rowsOf(
  { total }: Windows,
  seconds: number,
  { unanswered, open }: { readonly unanswered: number; readonly open: number },
): readonly Row[] {
  const row = (metric: string, value: number, unit: string, target: ValueTarget | null = null): Row =>
    figure('soak', metric, value, unit, target);
  const { p50, p99 } = total.percentiles();
  return [
    row('publish to result, rate', total.roundTrips / seconds, 'round trips/s'),
    row('publish to result, p50', p50, 'ms'),
    row('publish to result, p99', p99, 'ms'),
    row('errors', total.callErrors, 'calls'),
    ...ERRORS.map((kind) => row(kind, total.errors(kind), 'calls')),
    row('published, and no result in the end', unanswered, 'tasks', NONE),
    row('not settled in the end', open, 'tasks', NONE),
  ];
}
