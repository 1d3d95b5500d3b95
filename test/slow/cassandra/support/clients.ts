/** Clients as processes of their own, under constant load; their histories in one. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type Event, History } from './history.ts';

const LOAD = fileURLToPath(new URL('load.ts', import.meta.url));

export class Clients {
  readonly history = new History();
  readonly #children: readonly ChildProcess[];
  readonly #looks = new Set<() => void>();
  #failure: Error | null = null;

  /**
   * @param tasksPerSecond of all clients together
   * @param urls of the servers, each of which all clients use
   */
  constructor(topic: string, count: number, tasksPerSecond: number, urls: readonly string[]) {
    this.#children = Array.from({ length: count }, (_, i) => {
      const args = ['--import', 'tsx', LOAD, topic, `client${i}`, String(tasksPerSecond / count), ...urls];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      createInterface({ input: child.stdout! }).on('line', (line) => {
        this.history.add(JSON.parse(line) as Event);
        for (const look of this.#looks) look();
      });
      child.once('exit', (code) => {
        if (code !== 0) this.#failure = new Error(`a client ended with ${code}`);
        for (const look of this.#looks) look();
      });
      return child;
    });
  }

  /** Resolves once the history fits. @throws after `timeoutMs`, saying what was waited for */
  until(what: string, timeoutMs: number, fits: (history: History) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (act: () => void): void => {
        this.#looks.delete(look);
        clearTimeout(timer);
        act();
      };
      const look = (): void => {
        if (this.#failure !== null) end(() => reject(this.#failure));
        else if (fits(this.history)) end(resolve);
      };
      const timer = setTimeout(() => {
        end(() => reject(new Error(`${what}: not within ${timeoutMs / 1_000} s; ${this.#summary()}`)));
      }, timeoutMs);
      this.#looks.add(look);
      look();
    });
  }

  /** Resolves once so many more tasks are acknowledged than now. */
  acknowledge(count: number, timeoutMs: number): Promise<void> {
    const target = this.history.acknowledged + count;
    return this.until(`${count} acknowledgements`, timeoutMs, ({ acknowledged }) => acknowledged >= target);
  }

  /** Puts in no more, and works off what is there: resolves once all that was acknowledged is settled. */
  async drain(timeoutMs: number): Promise<void> {
    for (const child of this.#children) child.kill('SIGUSR1');
    const count = this.#children.length;
    await this.until('acknowledgement of the rest', timeoutMs, ({ finished }) => finished === count);
    // What is lost never is; the verdict tells.
    await this.until('settlement', timeoutMs, (history) => history.open().length === 0).catch(() => {});
  }

  async stop(): Promise<void> {
    await Promise.all(
      this.#children.map(async (child) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const ended = once(child, 'exit');
        child.kill('SIGTERM');
        await ended;
      }),
    );
  }

  #summary(): string {
    return JSON.stringify(this.history.verdict());
  }
}
