/** Servers as processes of their own. */
import { HttpQueue } from '../../../../src/client/http-queue.ts';
import { type Running, type RunOptions, start } from '../../../cli/support/run.ts';

export interface ServerProcess extends Running {
  readonly url: string;
  readonly queue: HttpQueue;
  /** What /readyz says. */
  readiness(): Promise<{ readonly ready: boolean; readonly reasons: readonly string[] }>;
}

export interface ServerOptions extends RunOptions {
  readonly args?: readonly string[];
  /** 0 takes a free one. */
  readonly port?: number;
}

/** How soon something is looked at again that tells nobody when it changes, in milliseconds. */
export const LOOK_MS = 100;

/** Starts `ebbmark serve`; resolves once it listens. */
export async function startServer(
  store: string,
  { args = [], port = 0, ...options }: ServerOptions = {},
): Promise<ServerProcess> {
  const running = start(['serve', '--listen', `127.0.0.1:${port}`, '--store', store, ...args], options);
  const [, url] = await running.until(/"url":"([^"]+)"/);
  const readiness = async () =>
    (await (await fetch(`${url}/readyz`)).json()) as Awaited<ReturnType<ServerProcess['readiness']>>;
  return { ...running, url: url!, queue: new HttpQueue(url!), readiness };
}

/** Starts it again where it was, so that its clients find it. */
export const startAgain = (
  { url }: ServerProcess,
  store: string,
  options: ServerOptions = {},
): Promise<ServerProcess> => startServer(store, { ...options, port: Number(new URL(url).port) });

/** Ends a server at once, whatever state it is in. */
export async function kill({ child, ended }: Running): Promise<void> {
  child.kill('SIGCONT');
  child.kill('SIGKILL');
  await ended;
}

/** Tries until it works, and tells how long that took, in milliseconds. @throws the last error after `timeoutMs` */
export async function until<T>(timeoutMs: number, act: () => Promise<T>): Promise<{ value: T; tookMs: number }> {
  const at = performance.now();
  for (;;) {
    try {
      return { value: await act(), tookMs: performance.now() - at };
    } catch (error) {
      if (performance.now() - at > timeoutMs) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

/** Resolves once the server is ready. */
export const untilReady = (server: ServerProcess, timeoutMs = 60_000) =>
  until(timeoutMs, async () => {
    const { ready, reasons } = await server.readiness();
    if (!ready) throw new Error(`not ready: ${reasons.join('; ')}`);
  });

/** Resolves once the servers have even shares of all shards, and know of each other. */
export const untilEven = (servers: readonly Pick<ServerProcess, 'queue'>[], timeoutMs = 60_000) =>
  until(timeoutMs, async () => {
    const all = await Promise.all(servers.map(async ({ queue }) => (await queue.status()).queue));
    const held = all.map(({ shards }) => shards.held);
    const of = all[0]!.shards.of;
    const isEven = Math.max(...held) - Math.min(...held) <= 1 && held.reduce((sum, one) => sum + one, 0) === of;
    if (isEven && all.every((one) => one.servers === servers.length)) return held;
    throw new Error(
      `shares are ${held.join(', ')} of ${of}; servers known: ${all.map((one) => one.servers).join(', ')}`,
    );
  });

/** When a server began and ceased to hand out tasks of shards, as its log tells. */
function* shardEvents(server: ServerProcess): Generator<{ at: number; shard: number; hands: boolean }> {
  // The last line may be half there.
  for (const line of server.out().split('\n').slice(0, -1)) {
    if (!line.includes('the tasks of a shard')) continue;
    const { time, shard, msg } = JSON.parse(line) as { time: string; shard: number; msg: string };
    yield { at: new Date(time).getTime(), shard, hands: !msg.includes('no longer') };
  }
}

/** The shards that a server hands out tasks of. */
export function shardsOf(server: ServerProcess): readonly number[] {
  const held = new Set<number>();
  for (const { shard, hands } of shardEvents(server)) {
    if (hands) held.add(shard);
    else held.delete(shard);
  }
  return [...held];
}

/** When the last shard was handed out by others that was another server's until `since`, by the time of day. */
export function lastHandedOutAt(servers: readonly ServerProcess[], since: number): number {
  let last = since;
  for (const server of servers) for (const { at, hands } of shardEvents(server)) if (hands && at > last) last = at;
  return last;
}
