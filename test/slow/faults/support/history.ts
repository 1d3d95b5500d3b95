/** What clients saw of a queue, and whether the queue kept its word: no code of the queue is used here. */

export type Call = 'enqueue' | 'lease' | 'settle';

/** What happened, in the order in which one client learned of it. Ids are the payloads, which name each task. */
export type Event =
  /** Before the first try. */
  | { readonly kind: 'sent'; readonly ids: readonly string[] }
  /**
   * Answered with the queue's own ids. Of the tries before, `doubts` had an unknown outcome; `known` of the ids turned
   * out to be there.
   */
  | {
      readonly kind: 'acknowledged';
      readonly ids: readonly string[];
      readonly taskIds: readonly string[];
      readonly doubts: number;
      readonly known: number;
    }
  | {
      readonly kind: 'delivered';
      readonly id: string;
      readonly lease: string;
      readonly attempt: number;
      readonly by: string;
    }
  /** Before the first try: whoever dies now may have settled it, and told nobody. */
  | { readonly kind: 'settling'; readonly id: string; readonly lease: string }
  /** Answered: whether the settlement counted. */
  | { readonly kind: 'settled'; readonly id: string; readonly lease: string; readonly ok: boolean }
  /** What the queue says at the end of a task that nobody was told the settlement of. */
  | { readonly kind: 'found'; readonly id: string; readonly state: string }
  /**
   * A call that was not carried out. `isRetried`: 503 with a time to come back, or no answer at all, after which the API
   * says to try again. Everything else is an error that nobody should get.
   */
  | { readonly kind: 'refused'; readonly call: Call; readonly code: string; readonly isRetried: boolean }
  /** All that was sent is acknowledged; no more will be. */
  | { readonly kind: 'finished' };

export interface Verdict {
  /** Tasks that a client tried to put in. */
  readonly enqueued: number;
  readonly acknowledged: number;
  readonly delivered: number;
  readonly settled: number;
  /** Acknowledged, and never settled. */
  readonly lost: number;
  /** Delivered, and never sent. */
  readonly phantom: number;
  /** Settled with success under more than one lease. */
  readonly twice: number;
  /** Answers that no client should get, by call and code. */
  readonly errors: Readonly<Record<string, number>>;
  /** Calls that were tried again, by code. */
  readonly retried: Readonly<Record<string, number>>;
  /** Enqueues of which a try had an unknown outcome: their tasks, by what the retry found. */
  readonly doubtful: { readonly wereThere: number; readonly wereNot: number };
  /** Settlements that came too late, and were refused. */
  readonly late: number;
}

export class History {
  readonly #sent = new Set<string>();
  readonly #acknowledged = new Set<string>();
  readonly #taskIds = new Map<string, string>();
  readonly #delivered = new Map<string, number>();
  readonly #settling = new Set<string>();
  readonly #settledUnder = new Map<string, Set<string>>();
  readonly #foundSettled = new Set<string>();
  readonly #errors = new Map<string, number>();
  readonly #retried = new Map<string, number>();
  readonly #doubtful = { wereThere: 0, wereNot: 0 };
  #late = 0;
  #finished = 0;

  add(event: Event): void {
    switch (event.kind) {
      case 'sent':
        for (const id of event.ids) this.#sent.add(id);
        break;
      case 'acknowledged':
        this.#acknowledge(event);
        break;
      case 'delivered':
        count(this.#delivered, event.id);
        break;
      case 'settling':
        this.#settling.add(event.id);
        break;
      case 'settled':
        if (event.ok)
          this.#settledUnder.set(event.id, (this.#settledUnder.get(event.id) ?? new Set()).add(event.lease));
        else this.#late++;
        break;
      case 'found':
        // One that nobody tried to settle was not settled by a worker, whatever the queue says.
        if (event.state === 'done' && this.#settling.has(event.id)) this.#foundSettled.add(event.id);
        break;
      case 'refused':
        if (event.isRetried) count(this.#retried, event.code);
        else count(this.#errors, `${event.call}: ${event.code}`);
        break;
      case 'finished':
        this.#finished++;
        break;
    }
  }

  #acknowledge({ ids, taskIds, doubts, known }: Event & { readonly kind: 'acknowledged' }): void {
    for (const [at, id] of ids.entries()) {
      this.#acknowledged.add(id);
      this.#taskIds.set(id, taskIds[at]!);
    }
    if (doubts === 0) return;
    this.#doubtful.wereThere += known;
    this.#doubtful.wereNot += ids.length - known;
  }

  get acknowledged(): number {
    return this.#acknowledged.size;
  }

  /** Clients that put in no more. */
  get finished(): number {
    return this.#finished;
  }

  /** Calls that were tried again for this code. */
  retried(code: string): number {
    return this.#retried.get(code) ?? 0;
  }

  isSettled(id: string): boolean {
    return this.#settledUnder.has(id) || this.#foundSettled.has(id);
  }

  /** Acknowledged, and not settled so far; with the queue's ids. */
  open(): readonly { readonly id: string; readonly taskId: string; readonly isSettling: boolean }[] {
    const open: { id: string; taskId: string; isSettling: boolean }[] = [];
    for (const id of this.#acknowledged) {
      if (!this.isSettled(id)) open.push({ id, taskId: this.#taskIds.get(id)!, isSettling: this.#settling.has(id) });
    }
    return open;
  }

  verdict(): Verdict {
    return {
      enqueued: this.#sent.size,
      acknowledged: this.#acknowledged.size,
      delivered: [...this.#delivered.values()].reduce((sum, times) => sum + times, 0),
      settled: new Set([...this.#settledUnder.keys(), ...this.#foundSettled]).size,
      lost: this.open().length,
      phantom: [...this.#delivered.keys()].filter((id) => !this.#sent.has(id)).length,
      twice: [...this.#settledUnder.values()].filter((leases) => leases.size > 1).length,
      errors: Object.fromEntries([...this.#errors].sort()),
      retried: Object.fromEntries([...this.#retried].sort()),
      doubtful: { ...this.#doubtful },
      late: this.#late,
    };
  }
}

const count = (counts: Map<string, number>, key: string): void => {
  counts.set(key, (counts.get(key) ?? 0) + 1);
};
