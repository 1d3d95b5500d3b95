import { QueueError } from '../core/errors.ts';
import type { SettleItem } from '../queue/api.ts';
import { isLeaseLost, refusalOf } from './errors.ts';

export interface HeldLeaseOptions {
  readonly leaseId: string;
  readonly leaseMs: number;
  /** By the queue's clock, as the lease was answered. */
  readonly leaseUntil: number;
  /** How long before its end it is extended, in milliseconds. */
  readonly leadMs: number;
  /** Asks for an extension, for as long as the lease lasts. */
  readonly extend: (leaseId: string) => Promise<SettleItem>;
  readonly onError: (error: unknown) => void;
  /** Called once it is lost. */
  readonly onLost: () => void;
}

/**
 * A lease that is kept while somebody works under it.
 *
 * When it ends is told by our own monotonic clock: the time of the answer plus the lease time, and, with each
 * extension, so much later as its end moved by the queue's clock, but never later than a lease time after it was asked
 * for. (By the queue's clock alone a topic's `maxRunMs` can cut an extension short, and the two clocks need not agree.)
 * That errs only by what the first answer took to get here; whoever works past the end of his lease is refused.
 */
export class HeldLease {
  readonly #options: HeldLeaseOptions;
  readonly #controller = new AbortController();
  #endsAt: number;
  #leaseUntil: number;
  #isKept = false;
  #extending: NodeJS.Timeout | undefined;
  #ending: NodeJS.Timeout | undefined;

  constructor(options: HeldLeaseOptions) {
    this.#options = options;
    this.#endsAt = performance.now() + options.leaseMs;
    this.#leaseUntil = options.leaseUntil;
    this.keep();
  }

  /** Aborted once the lease is lost, or the work is called off. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Goes on extending. */
  keep(): void {
    if (this.#isKept || this.signal.aborted) return;
    this.#isKept = true;
    this.#arm(true);
  }

  /** Ends extending: what one that is under way is answered counts no more. To be called before it is settled. */
  drop(): void {
    this.#isKept = false;
    clearTimeout(this.#extending);
    clearTimeout(this.#ending);
  }

  /** Calls the work off. */
  abort(reason: unknown): void {
    this.drop();
    this.#controller.abort(reason);
  }

  #arm(extends_: boolean): void {
    clearTimeout(this.#extending);
    clearTimeout(this.#ending);
    const left = this.#endsAt - performance.now();
    this.#ending = setTimeout(() => this.#lose('it ran out before it could be extended'), left);
    if (extends_) this.#extending = setTimeout(() => void this.#extend(), left - this.#options.leadMs);
  }

  async #extend(): Promise<void> {
    const { leaseId, leaseMs, leadMs, extend, onError } = this.#options;
    const askedAt = performance.now();
    let answer: SettleItem;
    try {
      answer = await extend(leaseId);
    } catch (error) {
      // It was tried for as long as it could help; the lease ends by itself.
      if (this.#isKept) onError(error);
      return;
    }
    if (!this.#isKept) return;
    if (answer.ok) {
      const leaseUntil = answer.leaseUntil ?? this.#leaseUntil + leaseMs;
      const wasCut = leaseUntil <= this.#leaseUntil;
      this.#endsAt = Math.min(askedAt + leaseMs, this.#endsAt + leaseUntil - this.#leaseUntil);
      this.#leaseUntil = leaseUntil;
      this.#arm(!wasCut);
    } else if (isLeaseLost(answer.code)) this.#lose(answer.detail);
    // The lease is as it was: it is worked under until it ends.
    else if (answer.code === 'run-limit') onError(refusalOf(answer));
    else this.#extending = setTimeout(() => void this.#extend(), leadMs / 4);
  }

  #lose(why: string): void {
    this.abort(new QueueError('lease-lost', `The lease is lost: ${why}`));
    this.#options.onLost();
  }
}
