/** Servers as processes of their own, on one keyspace. */
import { RemoteQueue } from '../../../../src/cli/remote-queue.ts';
import { type Running, start } from '../../../cli/support/run.ts';

export interface ServerProcess extends Running {
  readonly url: string;
  readonly queue: RemoteQueue;
  /** What /readyz says. */
  readiness(): Promise<{ readonly ready: boolean; readonly reasons: readonly string[] }>;
}

/** How soon something is looked at again that tells nobody when it changes, in milliseconds. */
export const LOOK_MS = 100;

/** Starts `ebbmark serve`; resolves once it listens. @param port 0 takes a free one */
export async function startServer(
  store: string,
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
  port = 0,
): Promise<ServerProcess> {
  const running = start(['serve', '--listen', `127.0.0.1:${port}`, '--store', store, ...args], { env });
  const [, url] = await running.until(/"url":"([^"]+)"/);
  const readiness = async () =>
    (await (await fetch(`${url}/readyz`)).json()) as Awaited<ReturnType<ServerProcess['readiness']>>;
  return { ...running, url: url!, queue: new RemoteQueue(url!), readiness };
}

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
