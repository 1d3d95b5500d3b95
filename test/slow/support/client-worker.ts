/**
 * A worker as a process of its own: `client-worker.ts URL TOPIC OPTIONS`, OPTIONS as JSON. It says a line of JSON for
 * each thing that happens to it, ends well on SIGTERM, and else only by a signal that nobody can handle.
 */
import { Client, type SubscriberOptions } from '../../../src/client/index.ts';

export interface WorkerOptions extends SubscriberOptions {
  readonly concurrency?: number;
  /** Milliseconds that a task takes; null: until its signal is aborted. */
  readonly workMs: number | null;
}

export type WorkerEvent =
  | { readonly kind: 'took'; readonly id: string; readonly attempt: number; readonly payload: unknown }
  | { readonly kind: 'aborted' | 'trouble'; readonly id: string | null; readonly code: string }
  | { readonly kind: 'drained' };

const say = (event: WorkerEvent): void => void process.stdout.write(`${JSON.stringify(event)}\n`);
const codeOf = (error: unknown): string => (error as { code?: string }).code ?? String(error);

const [url, topic, options] = process.argv.slice(2) as [string, string, string];
const { concurrency, workMs, ...subscribing } = JSON.parse(options) as WorkerOptions;

const client = new Client(url, {
  onError: (error, { id = null }) => say({ kind: 'trouble', id, code: codeOf(error) }),
});

process.once('SIGTERM', async () => {
  await client.drain();
  say({ kind: 'drained' });
});

void client.subscriber(topic, subscribing).run(
  async ({ id, attempt, payload, signal }) => {
    say({ kind: 'took', id, attempt, payload });
    await new Promise<void>((resolve) => {
      if (workMs !== null) setTimeout(resolve, workMs);
      signal.addEventListener('abort', () => {
        say({ kind: 'aborted', id, code: codeOf(signal.reason) });
        resolve();
      });
    });
    return `attempt ${attempt} of ${process.pid}`;
  },
  concurrency === undefined ? {} : { concurrency },
);
