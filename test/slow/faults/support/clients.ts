/** Clients as processes of their own, under constant load; their histories in one. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type Event, History } from './history.ts';
import type { LoadOptions } from './load.ts';
import { LOOK_MS } from './servers.ts';

const LOAD = fileURLToPath(new URL('load.ts', import.meta.url));

/** One client, as others may kill or pause it. */
export interface Client {
  readonly name: string;
  readonly child: ChildProcess;
  /** Ends it at once; what it had leased comes again when its leases lapse. */
  kill(): Promise<void>;
}

/** Of so many tasks it is told what the servers say of them. */
const ABOUT_TASKS = 3;
const ASK_MS = 10_000;

const topicOf = (id: string): string => encodeURIComponent(id.slice(0, id.indexOf('#')));

type Listener = (event: Event) => void;

const DEFAULTS = { topics: 1, tasksPerSecond: 0, batch: 5, workers: 1, leaseMs: 20_000, workMs: 0, padBytes: 0 };

export class Clients {
  readonly history = new History();
  readonly #urls: readonly string[];
  readonly #prefix: string;
  readonly #clients = new Map<string, Client>();
  readonly #listeners = new Set<Listener>();
  readonly #looks = new Set<() => void>();
  #failure: Error | null = null;

  /** @param urls of the servers, each of which all clients use; @param prefix of the topics */
  constructor(prefix: string, urls: readonly string[]) {
    this.#prefix = prefix;
    this.#urls = urls;
  }

  start(name: string, options: Partial<LoadOptions>): Client {
    const given: LoadOptions = {
      ...DEFAULTS,
      keys: false,
      prefix: this.#prefix,
      urls: this.#urls,
      ...options,
      name,
    };
    const args = ['--import', 'tsx', LOAD, JSON.stringify(given)];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const client = { name, child, kill: () => this.#end(client, 'SIGKILL') };
    this.#clients.set(name, client);
    createInterface({ input: child.stdout! }).on('line', (line) => this.#read(line));
    child.once('exit', (code) => {
      if (code !== 0 && this.#clients.has(name)) this.#failure = new Error(`client ${name} ended with ${code}`);
      this.#looked();
    });
    return client;
  }

  #read(line: string): void {
    let event: Event;
    try {
      event = JSON.parse(line) as Event;
    } catch {
      // Of a client that was killed in the middle of it.
      return;
    }
    this.history.add(event);
    for (const listener of this.#listeners) listener(event);
    this.#looked();
  }

  #looked(): void {
    for (const look of this.#looks) look();
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
        try {
          if (this.#failure !== null) throw this.#failure;
          if (fits(this.history)) end(resolve);
        } catch (error) {
          end(() => reject(error));
        }
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

  /** Tells of all that clients tell from now on; returns what ends it. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Puts in no more, and works off what is there: resolves once all that was acknowledged is settled, or never will be. */
  async drain(timeoutMs: number): Promise<void> {
    for (const { child } of this.#clients.values()) child.kill('SIGUSR1');
    await this.until('acknowledgement of the rest', timeoutMs, ({ finished }) => finished >= this.#clients.size);
    const deadline = performance.now() + timeoutMs;
    const isDrained = (history: History) => history.open().every(({ isSettling }) => isSettling);
    await this.until('settlement', timeoutMs, isDrained).catch(() => {});
    // A worker that was killed may have settled what nobody was told of; another one may be at it.
    while (this.history.open().length > 0 && performance.now() < deadline) {
      await this.#askForRest();
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  async #askForRest(): Promise<void> {
    for (const { id, taskId } of this.history.open()) {
      const task = await this.#ask(`/v1/topics/${topicOf(id)}/tasks/${encodeURIComponent(taskId)}`);
      if (task !== null) this.history.add({ kind: 'found', id, state: (task as { state: string }).state });
    }
  }

  /** What every server says of some tasks that were not worked off, for whoever has to find out why. */
  async aboutOpen(): Promise<readonly string[]> {
    const lines: string[] = [];
    for (const { id, taskId } of this.history.open().slice(0, ABOUT_TASKS)) {
      const paths = [
        `/v1/topics/${topicOf(id)}/tasks/${encodeURIComponent(taskId)}`,
        `/v1/admin/topics/${topicOf(id)}/cursors`,
      ];
      for (const path of paths) {
        for (const url of this.#urls) lines.push(`${url}${path}: ${JSON.stringify(await this.#ask(path, url))}`);
      }
    }
    return lines;
  }

  /** @returns null where the server has no answer */
  async #ask(path: string, url = this.#urls[0]!): Promise<unknown> {
    const answer = await fetch(url + path, { signal: AbortSignal.timeout(ASK_MS) }).catch(() => null);
    return answer?.ok ? answer.json() : null;
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#clients.values()].map((client) => this.#end(client, 'SIGTERM')));
  }

  async #end({ name, child }: Client, signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    this.#clients.delete(name);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'close');
    child.kill('SIGCONT');
    child.kill(signal);
    await ended;
  }

  #summary(): string {
    return JSON.stringify(this.history.verdict());
  }
}
