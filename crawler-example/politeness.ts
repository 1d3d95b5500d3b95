/**
 * Politeness is the queue's: one fetch at a time from a host and a pause after it are limits of the host's topic
 * (`maxInFlight`, `cooldownMs`), a host that asks for peace is a topic blocked for a while (`blockedUntil`). So they
 * hold for all workers and all crawlers of a server, and over restarts. This file says which limits a host gets.
 */
import type { SettingsPatch } from '../src/index.ts';
import type { Frontier } from './frontier.ts';
import type { HostRow, Pages } from './pages.ts';

export interface PolitenessOptions {
  /** Pause between two fetches from a host, in milliseconds; 0: none, and no limit on fetches at the same time. */
  readonly delayMs: number;
  /** Fetches from one host at the same time; null: 1 where there is a pause, any number where there is none. */
  readonly perHost: number | null;
  readonly leaseMs: number;
  readonly maxAttempts: number;
  /** Before the second attempt, in milliseconds; doubles with every further one. */
  readonly backoffMs: number;
}

/** Settings of a host's topic. */
export const topicSettings = (options: PolitenessOptions, delayMs: number): SettingsPatch => ({
  leaseMs: options.leaseMs,
  maxAttempts: options.maxAttempts,
  backoffMs: options.backoffMs,
  maxInFlight: options.perHost ?? (delayMs > 0 ? 1 : null),
  cooldownMs: delayMs > 0 ? delayMs : null,
  // A crawl asks for each page once, however long it takes.
  dedupWindowMs: null,
});

export class Politeness {
  readonly #pages: Pages;
  readonly #frontier: Frontier;
  readonly #options: PolitenessOptions;
  readonly #configuring = new Map<string, Promise<void>>();
  readonly #blocked = new Map<string, number>();

  constructor(pages: Pages, frontier: Frontier, options: PolitenessOptions) {
    this.#pages = pages;
    this.#frontier = frontier;
    this.#options = options;
  }

  /** Gives all hosts known from an earlier run the limits that hold now. */
  async restore(): Promise<void> {
    for (const row of this.#pages.hosts()) if (row.settings !== null) await this.prepare(row.host);
  }

  /** Makes sure that a host's topic has its settings; to be called before anything is put into it. */
  async prepare(host: string): Promise<void> {
    // A change may come up while another is on its way.
    for (;;) {
      const row = this.#row(host);
      const delayMs = Math.max(this.#options.delayMs, row.delayMs);
      const settings = topicSettings(this.#options, delayMs);
      if (row.settings === JSON.stringify(settings)) return;
      const running = this.#configuring.get(host) ?? this.#configure(host, settings);
      await running;
    }
  }

  #configure(host: string, settings: SettingsPatch): Promise<void> {
    const running = this.#frontier
      .configure(host, settings)
      .then(() => this.#pages.putHost({ ...this.#row(host), settings: JSON.stringify(settings) }))
      .finally(() => this.#configuring.delete(host));
    this.#configuring.set(host, running);
    return running;
  }

  /**
   * The pause that a host's robots.txt asks for. It never shortens the crawler's own, and never what another origin
   * on the host asked for.
   */
  async slowDown(host: string, crawlDelayMs: number): Promise<void> {
    const row = this.#row(host);
    if (crawlDelayMs > row.delayMs) this.#pages.putHost({ ...row, delayMs: crawlDelayMs });
    await this.prepare(host);
  }

  /** Whether fetches from a host are spaced. */
  isSpaced(host: string): boolean {
    return Math.max(this.#options.delayMs, this.#row(host).delayMs) > 0;
  }

  /** Nothing is fetched from a host before this time, in milliseconds since 1970. A later time given before stands. */
  async block(host: string, until: number): Promise<void> {
    if ((this.#blocked.get(host) ?? 0) >= until) return;
    this.#blocked.set(host, until);
    for (const [name, time] of this.#blocked) if (time < Date.now()) this.#blocked.delete(name);
    await this.#frontier.configure(host, { blockedUntil: until });
  }

  #row(host: string): HostRow {
    return this.#pages.host(host) ?? { host, delayMs: 0, settings: null, admitted: 0 };
  }
}
