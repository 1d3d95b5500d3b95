import { Totals } from './totals.ts';

/**
 * The time in which this server schedules a shard under one term, or in which it doesn't. With each change the state in
 * memory of the shard's topics begins anew. What is under way in one that ended finishes by itself; its writes are
 * conditional, and its successor hears of them.
 */
export class Tenure {
  readonly shard: number;
  /** The term under which this server schedules the shard; null: it does not. */
  readonly term: number | null;
  /** All that may hold work is loaded: only then something is handed out. */
  isLoaded = false;
  ended = false;
  readonly totals = new Totals();
  /** When it began, in milliseconds since 1970. */
  readonly beganAt: number;

  constructor(shard: number, term: number | null, beganAt: number) {
    this.shard = shard;
    this.term = term;
    this.beganAt = beganAt;
  }

  /** This server schedules the shard, as far as it knows. */
  get holds(): boolean {
    return this.term !== null && !this.ended;
  }

  /** It hands out tasks of it. */
  get serves(): boolean {
    return this.holds && this.isLoaded;
  }
}
