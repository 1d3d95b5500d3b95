/**
 * The database's clock, as known here: leases and due times are told by it, so that servers whose own clocks differ agree.
 *
 * Each node is asked for its time every few seconds; the offset of the middle one counts, so that one node set wrong moves
 * nothing. Between two measurements time goes on by this machine's monotonic clock, and it never goes back.
 *
 *     unsure ──3 measurements within 2 s of each other──▶ sure ──one that is 2 s off, or none for 60 s──▶ unsure
 *
 * The very first measurement counts at once: there is nothing that it could contradict.
 */
export interface Measurement {
  /** The node's clock, in milliseconds since 1970. */
  readonly theirs: number;
  /** Our monotonic clock half-way between question and answer. */
  readonly ours: number;
}

const JUMP_MS = 2_000;
const AGREEING = 3;
const STALE_MS = 60_000;
const PERIOD_MS = 3_000;

export class DatabaseClock {
  readonly #measure: () => Promise<readonly Measurement[]>;
  readonly #monotonic: () => number;
  readonly #spreadOut: (spreadMs: number) => void;
  #timer: NodeJS.Timeout | null = null;
  #offset = 0;
  #measuredAt = Number.NEGATIVE_INFINITY;
  /** Offsets that agree with each other and contradict ours. */
  #doubts: number[] = [];
  #last = 0;

  /**
   * @param measure asks the nodes; rejects where none answers
   * @param spreadOut is told when the nodes' own clocks are further apart than they should be
   */
  constructor(
    measure: () => Promise<readonly Measurement[]>,
    spreadOut: (spreadMs: number) => void = () => {},
    monotonic: () => number = () => performance.now(),
  ) {
    this.#measure = measure;
    this.#spreadOut = spreadOut;
    this.#monotonic = monotonic;
  }

  /** Whether the time is known well enough to judge leases by. */
  get isSure(): boolean {
    return this.#doubts.length === 0 && this.#monotonic() - this.#measuredAt < STALE_MS;
  }

  /** Milliseconds since 1970 by the database; never goes back. */
  now(): number {
    this.#last = Math.max(this.#last, Math.floor(this.#monotonic() + this.#offset));
    return this.#last;
  }

  /** Measures once, then again and again until stopped. @throws what `measure` rejects with, the first time */
  async start(): Promise<void> {
    await this.measure();
    this.#schedule();
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  async measure(): Promise<void> {
    const measured = await this.#measure();
    const offsets = measured.map(({ theirs, ours }) => theirs - ours).sort((a, b) => a - b);
    if (offsets.length === 0) return;
    const spread = offsets.at(-1)! - offsets[0]!;
    if (spread > JUMP_MS) this.#spreadOut(Math.round(spread));
    this.#take(offsets[Math.floor((offsets.length - 1) / 2)]!);
  }

  #take(offset: number): void {
    const isFirst = this.#measuredAt === Number.NEGATIVE_INFINITY;
    this.#measuredAt = this.#monotonic();
    if (isFirst || Math.abs(offset - this.#offset) <= JUMP_MS) {
      this.#offset = offset;
      this.#doubts = [];
      return;
    }
    const isOld = this.#doubts.some((doubt) => Math.abs(offset - doubt) > JUMP_MS);
    this.#doubts = isOld ? [offset] : [...this.#doubts, offset];
    if (this.#doubts.length < AGREEING) return;
    this.#offset = offset;
    this.#doubts = [];
  }

  #schedule(): void {
    this.#timer = setTimeout(() => {
      // A node that does not answer is noticed by those who need it; here the time only grows stale.
      void this.measure()
        .catch(() => {})
        .then(() => {
          if (this.#timer !== null) this.#schedule();
        });
    }, PERIOD_MS);
    this.#timer.unref();
  }
}
