/** What is in use of a budget, and how much there may be. */
interface Use {
  readonly now: number;
  readonly limit: number;
}

/** What this server has taken on, beside what it may. */
export interface BudgetUsage {
  readonly connections: Use;
  readonly tasks: Use;
  /** Bytes. */
  readonly memory: { readonly input: Use; readonly rest: Use };
  /** Requests that were refused, by why. */
  readonly refused: Readonly<Record<string, number>>;
}
