/** What clients saw of a queue, and whether the queue kept its word: no code of the queue is used here. */

/** What happened, in the order in which one client learned of it. Ids are message ids. */
export type Event =
  /** Before the first try. */
  | { readonly kind: 'sent'; readonly ids: readonly string[] }
  /** Acknowledged. Of the tries before, `doubts` had an unknown outcome; `known` of the ids turned out to be there. */
  | { readonly kind: 'acknowledged'; readonly ids: readonly string[]; readonly doubts: number; readonly known: number }
  | { readonly kind: 'delivered'; readonly id: string; readonly lease: string; readonly attempt: number }
  /** Answered: whether the settlement counted. */
  | { readonly kind: 'settled'; readonly id: string; readonly lease: string; readonly ok: boolean }
  /** A call that was answered with a problem; `unreachable` where nothing was answered. */
  | { readonly kind: 'refused'; readonly call: 'enqueue' | 'lease' | 'settle'; readonly code: string }
  /** All that was sent is acknowledged; no more will be. */
  | { readonly kind: 'finished' };

export interface Verdict {
  readonly acknowledged: number;
  readonly delivered: number;
  readonly settled: number;
  /** Acknowledged, and never settled. */
  readonly lost: number;
  /** Delivered, and never sent. */
  readonly phantom: number;
  /** Settled with success under more than one lease. */
  readonly settledTwice: number;
  /** Calls answered with a problem, by its code. */
  readonly refusals: Readonly<Record<string, number>>;
  /** Enqueues of which a try had an unknown outcome: their tasks, by what the retry found. */
  readonly doubtful: { readonly wereThere: number; readonly wereNot: number };
}

export class History {
  readonly #sent = new Set<string>();
  readonly #acknowledged = new Set<string>();
  readonly #settledUnder = new Map<string, Set<string>>();
  readonly #delivered = new Map<string, number>();
  readonly #refusals = new Map<string, number>();
  readonly #doubtful = { wereThere: 0, wereNot: 0 };
  #finished = 0;

  add(event: Event): void {
    switch (event.kind) {
      case 'sent':
        for (const id of event.ids) this.#sent.add(id);
        break;
      case 'acknowledged':
        for (const id of event.ids) this.#acknowledged.add(id);
        if (event.doubts > 0) {
          this.#doubtful.wereThere += event.known;
          this.#doubtful.wereNot += event.ids.length - event.known;
        }
        break;
      case 'delivered':
        this.#delivered.set(event.id, (this.#delivered.get(event.id) ?? 0) + 1);
        break;
      case 'settled':
        if (event.ok)
          this.#settledUnder.set(event.id, (this.#settledUnder.get(event.id) ?? new Set()).add(event.lease));
        break;
      case 'refused':
        this.#refusals.set(event.code, (this.#refusals.get(event.code) ?? 0) + 1);
        break;
      case 'finished':
        this.#finished++;
        break;
    }
  }

  get acknowledged(): number {
    return this.#acknowledged.size;
  }

  /** Clients that put in no more. */
  get finished(): number {
    return this.#finished;
  }

  refusals(code: string): number {
    return this.#refusals.get(code) ?? 0;
  }

  /** Acknowledged, and not settled so far. */
  open(): readonly string[] {
    return [...this.#acknowledged].filter((id) => !this.#settledUnder.has(id));
  }

  verdict(): Verdict {
    const total = [...this.#delivered.values()].reduce((sum, times) => sum + times, 0);
    return {
      acknowledged: this.#acknowledged.size,
      delivered: total,
      settled: this.#settledUnder.size,
      lost: this.open().length,
      phantom: [...this.#delivered.keys()].filter((id) => !this.#sent.has(id)).length,
      settledTwice: [...this.#settledUnder.values()].filter((leases) => leases.size > 1).length,
      refusals: Object.fromEntries([...this.#refusals].sort()),
      doubtful: { ...this.#doubtful },
    };
  }
}
