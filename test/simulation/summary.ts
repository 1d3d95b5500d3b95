import type { FaultCounts } from './faults.ts';
import type { Report } from './simulation.ts';

export type SummaryNumbers = ReturnType<Summary['numbers']>;

/** What one seed broke. */
export interface Broken {
  readonly seed: number;
  readonly profile: string;
  readonly violations: readonly string[];
}

/** Adds up what simulations did. */
export class Summary {
  readonly #began = performance.now();
  readonly #faults: Partial<FaultCounts> = {};
  #seeds = 0;
  failed = 0;
  readonly broken: Broken[] = [];
  #calls = 0;
  #storeCalls = 0;
  #steps = 0;
  #restarts = 0;
  #tasks = 0;
  #deliveries = 0;
  #settled = 0;
  #virtualMs = 0;

  add({ seed, scenario, history, violations, storeCalls, steps, faults, restarts, lastedMs }: Report): void {
    this.#seeds++;
    if (violations.length > 0) {
      this.failed++;
      this.broken.push({ seed, profile: scenario.profile, violations });
    }
    this.#calls += history.calls.length;
    this.#storeCalls += storeCalls;
    this.#steps += steps;
    this.#restarts += restarts;
    this.#virtualMs += lastedMs;
    for (const [kind, count] of Object.entries(faults) as [keyof FaultCounts, number][]) {
      this.#faults[kind] = (this.#faults[kind] ?? 0) + count;
    }
    for (const { kind, answer } of history.calls) {
      if (answer?.kind !== 'ok') continue;
      if (kind === 'enqueue')
        this.#tasks += (answer.value as readonly { deduplicated: boolean }[]).filter((one) => !one.deduplicated).length;
      if (kind === 'lease') this.#deliveries += (answer.value as readonly unknown[]).length;
      if (kind === 'settle')
        this.#settled += (answer.value as { ack: readonly { ok: boolean }[] }).ack.filter(({ ok }) => ok).length;
    }
  }

  /** Adds what another process has added up. */
  merge(numbers: SummaryNumbers): void {
    this.#seeds += numbers.seeds;
    this.failed += numbers.failed;
    this.broken.push(...numbers.broken);
    this.#calls += numbers.calls;
    this.#storeCalls += numbers.storeCalls;
    this.#steps += numbers.steps;
    this.#restarts += numbers.restarts;
    this.#tasks += numbers.tasks;
    this.#deliveries += numbers.deliveries;
    this.#settled += numbers.acknowledged;
    this.#virtualMs += numbers.virtualHours * 3_600_000;
    for (const [kind, count] of Object.entries(numbers.faults) as [keyof FaultCounts, number][]) {
      this.#faults[kind] = (this.#faults[kind] ?? 0) + count;
    }
  }

  numbers() {
    const seconds = (performance.now() - this.#began) / 1_000;
    return {
      seeds: this.#seeds,
      failed: this.failed,
      seconds: Math.round(seconds * 10) / 10,
      seedsPerMinute: Math.round((this.#seeds / seconds) * 60),
      virtualHours: Math.round(this.#virtualMs / 36_000) / 100,
      calls: this.#calls,
      tasks: this.#tasks,
      deliveries: this.#deliveries,
      acknowledged: this.#settled,
      storeCalls: this.#storeCalls,
      steps: this.#steps,
      restarts: this.#restarts,
      faults: this.#faults,
      broken: this.broken,
    };
  }

  text(): string {
    const { faults, broken: _, ...numbers } = this.numbers();
    const lines = Object.entries(numbers).map(([name, value]) => `${name.padEnd(16)}${value.toLocaleString('en')}`);
    const kinds = Object.entries(faults).filter(([, count]) => count > 0);
    return [
      ...lines,
      `faults          ${kinds.map(([kind, count]) => `${kind} ${count.toLocaleString('en')}`).join(', ') || 'none'}`,
    ].join('\n');
  }
}
