/**
 * What storing a task costs in Cassandra without any queue: a row of its own for each, by as many callers as there are
 * single enqueues, over a connection with the store's own settings. The table has what a task has when it is enqueued.
 */
import { monotonicFactory } from 'ulid';
import type { Cluster } from '../src/store/cassandra/client.ts';
import { PAYLOAD } from './payload.ts';
import { built } from './place.ts';
import { together } from './rounds.ts';

export const FLOOR_CALLERS = 128;

export interface CqlFloors {
  /** F1: plain INSERTs of one row each; tasks a second. */
  plain(tasks: number): Promise<number>;
  /** F2: the same with IF NOT EXISTS. */
  conditional(tasks: number): Promise<number>;
}

export async function cqlFloors(cluster: Cluster): Promise<CqlFloors> {
  const { bigint } = await built<typeof import('../src/store/cassandra/values.ts')>('store/cassandra/values.js');
  const ulid = monotonicFactory();
  const payload = Buffer.from(JSON.stringify(PAYLOAD));
  const define = (name: string) =>
    cluster.define(
      `CREATE TABLE ${cluster.keyspace}.${name} (uid text PRIMARY KEY, topic text, status text, version int, ` +
        "priority int, enqueued_at bigint, payload text) WITH compaction = {'class': 'LeveledCompactionStrategy'}",
    );
  await define('floor_plain');
  await define('floor_conditional');
  const insert = (name: string) =>
    `INSERT INTO ${cluster.keyspace}.${name} (uid, topic, status, version, priority, enqueued_at, payload) ` +
    "VALUES (?, ?, 'ready', 1, ?, ?, ?)";
  const plain = insert('floor_plain');
  const conditional = `${insert('floor_conditional')} IF NOT EXISTS`;
  const rate = async (tasks: number, write: (params: readonly unknown[]) => Promise<unknown>): Promise<number> => {
    let left = tasks;
    const start = performance.now();
    await together(FLOOR_CALLERS, async () => {
      while (left-- > 0) {
        const at = Date.now();
        await write([ulid(at), 'bench', 5, bigint(at), payload]);
      }
    });
    return (tasks * 1000) / (performance.now() - start);
  };
  return {
    plain: (tasks) => rate(tasks, (params) => cluster.write([{ query: plain, params }])),
    conditional: (tasks) => rate(tasks, (params) => cluster.conditional([{ query: conditional, params }])),
  };
}
