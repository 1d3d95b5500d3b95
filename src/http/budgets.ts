/** How much of a budget is used, and how much there is. */
export interface Usage {
  readonly now: number;
  readonly limit: number;
}

/** What the server has taken on, in this process. */
export interface BudgetUsage {
  readonly connections: Usage;
  readonly tasks: Usage;
  /** Bytes. */
  readonly memory: { readonly input: Usage; readonly rest: Usage };
  /** Requests refused since the start, by reason. */
  readonly refused: Readonly<Record<string, number>>;
}

export interface Budgets {
  usage(): BudgetUsage;
}
