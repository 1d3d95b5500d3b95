/**
 * Looks at the statements that go through the driver in this process: how many there are, and, for some of them, what
 * Cassandra's own tracing says. The queue knows nothing of it; what is changed is the driver.
 */
import { setTimeout as wait } from 'node:timers/promises';
import cassandra from 'cassandra-driver';
import type { Cluster, Row } from '../src/store/cassandra/client.ts';

/** What one statement read, as traced by the node that carried it out. */
export interface Traced {
  /** `SELECT task`, or, of a batch by its last statement, `batch UPDATE task`. */
  readonly kind: string;
  readonly rows: number;
  readonly tombstones: number;
}

interface Execution {
  readonly query: string;
  readonly count: number;
}

/** The methods of the driver's client that the store uses. */
interface Methods {
  execute(
    this: cassandra.Client,
    query: string,
    params?: unknown[],
    options?: cassandra.QueryOptions,
  ): Promise<cassandra.types.ResultSet>;
  batch(
    this: cassandra.Client,
    queries: { query: string; params: unknown[] }[],
    options?: cassandra.QueryOptions,
  ): Promise<cassandra.types.ResultSet>;
}

/** Events of a trace are written behind the answer. */
const TRACE_WAIT_MS = 500;
const TRACE_TRIES = 20;
const READ = /Read (\d+) live rows and (\d+) tombstone cells/;

export class StatementWatch {
  /** Statements so far; a batch counts as one. */
  count = 0;
  #tracing = false;
  #traces: { readonly kind: string; readonly id: string }[] = [];
  readonly #restore: () => void;

  constructor() {
    const prototype = cassandra.Client.prototype as unknown as Methods;
    const { execute, batch } = prototype;
    const watch = this;
    prototype.execute = function (query, params, options) {
      return watch.#look({ query, count: 1 }, (more) => execute.call(this, query, params, { ...options, ...more }));
    };
    prototype.batch = function (queries, options) {
      const about = { query: queries.at(-1)!.query, count: queries.length };
      return watch.#look(about, (more) => batch.call(this, queries, { ...options, ...more }));
    };
    this.#restore = () => Object.assign(prototype, { execute, batch });
  }

  stop(): void {
    this.#restore();
  }

  /** Has every statement traced that is sent while something runs, and tells what each has read. */
  async traced(cluster: Cluster, run: () => Promise<void>): Promise<readonly Traced[]> {
    this.#traces = [];
    this.#tracing = true;
    try {
      await run();
    } finally {
      this.#tracing = false;
    }
    const found: Traced[] = [];
    for (const { kind, id } of this.#traces) found.push({ kind, ...(await readsOf(cluster, id)) });
    return found;
  }

  async #look(
    execution: Execution,
    send: (options: { readonly traceQuery?: true }) => Promise<cassandra.types.ResultSet>,
  ): Promise<cassandra.types.ResultSet> {
    const kind = kindOf(execution);
    this.count++;
    const isTraced = this.#tracing;
    const result = await send(isTraced ? { traceQuery: true } : {});
    if (isTraced) this.#traces.push({ kind, id: String(result.info.traceId) });
    return result;
  }
}

function kindOf({ query, count }: Execution): string {
  const [verb = ''] = query.split(' ', 1);
  const table = /(?:FROM|INTO|UPDATE) +(?:\w+\.)?(\w+)/.exec(query)?.[1] ?? '';
  return `${count > 1 ? 'batch ' : ''}${verb} ${table}`;
}

/** What was read on behalf of a traced statement, summed over its steps. */
async function readsOf(cluster: Cluster, id: string): Promise<{ readonly rows: number; readonly tombstones: number }> {
  const [host] = cluster.hosts;
  const select = (what: string) => cluster.rowsOf(host!, `SELECT ${what} = ${id}`);
  // Its duration is written last.
  for (let tries = 0; tries < TRACE_TRIES; tries++) {
    const [session] = await select('duration FROM system_traces.sessions WHERE session_id');
    if (session !== undefined && session.duration !== null) break;
    await wait(TRACE_WAIT_MS);
  }
  const events: readonly Row[] = await select('activity FROM system_traces.events WHERE session_id');
  let rows = 0;
  let tombstones = 0;
  for (const { activity } of events) {
    const match = READ.exec(String(activity));
    if (match === null) continue;
    rows += Number(match[1]);
    tombstones += Number(match[2]);
  }
  return { rows, tombstones };
}
