/** Goes through all that can happen: every order of the processes' steps, lost answers, and late writes. */

import { unfinished, violation } from './check.ts';
import { type Decisions, PRODUCTION } from './decisions.ts';
import { type Memory, turn } from './programs.ts';
import type { Scenario } from './scenarios.ts';
import { type Answer, CONDITIONAL, carryOut, type Op, type State } from './table.ts';

export interface Options {
  readonly by?: Decisions;
  /** States at the most. */
  readonly cap: number;
  /** From every so manieth state it is tried whether a server alone can finish; 0: from none. */
  readonly finishEvery: number;
  /** Told now and then. */
  readonly progress?: (states: number, waiting: number, depth: number) => void;
}

export interface Exploration {
  readonly states: number;
  readonly depth: number;
  /** All that can be reached was. */
  readonly complete: boolean;
  readonly finished: number;
  readonly violation: string | null;
  /** How it came to that. */
  readonly path: readonly string[];
}

/** A process in the middle of a turn: what it began with, and what it was answered since. */
interface Process {
  readonly memory: Memory | null;
  readonly answers: readonly unknown[];
}

interface Outcome {
  readonly table: number;
  readonly answer: number;
}

/** Numbers for texts, so that a state is a few numbers. */
class Texts {
  readonly #numbers = new Map<string, number>();
  readonly all: string[] = [];

  number(text: string): number {
    let number = this.#numbers.get(text);
    if (number === undefined) {
      number = this.all.length;
      this.#numbers.set(text, number);
      this.all.push(text);
    }
    return number;
  }
}

const LOST: Answer = { kind: 'unknown', rows: [], header: null };
const PROGRESS_EVERY = 20_000;

export function explore(scenario: Scenario, options: Options): Exploration {
  return new Explorer(options).run(scenario);
}

class Explorer {
  readonly #by: Decisions;
  readonly #options: Options;
  readonly #tables = new Texts();
  readonly #processes = new Texts();
  /** The next step of a process by its number; null: it is at its end. */
  readonly #steps = new Map<number, number | null>();
  readonly #ops = new Texts();
  readonly #answers = new Texts();
  readonly #outcomeOf = new Map<string, readonly Outcome[]>();
  readonly #landingsOf = new Map<number, readonly number[]>();
  readonly #answeredBy = new Map<string, number>();
  readonly #verdicts = new Map<number, string | null>();
  readonly #visited = new Map<string, number>();
  /** By number: the state it was first reached from, and how. */
  readonly #from: number[] = [];
  readonly #how: (readonly [nth: number, answer: number])[] = [];
  readonly #nodes: (readonly number[])[] = [];
  #next: (readonly number[])[] = [];
  #finished = 0;

  constructor(options: Options) {
    this.#options = options;
    this.#by = options.by ?? PRODUCTION;
  }

  run({ state, processes }: Scenario): Exploration {
    const first = [
      this.#tables.number(JSON.stringify(state)),
      ...processes.map((memory) => this.#process({ memory, answers: [] })),
    ];
    let fault = this.#reach(first, -1, -1, 0);
    let depth = 0;
    for (; this.#next.length > 0 && fault === null && this.#visited.size < this.#options.cap; depth++) {
      const frontier = this.#next;
      this.#next = [];
      for (const node of frontier) {
        fault = this.#expand(node, depth);
        if (fault !== null || this.#visited.size >= this.#options.cap) break;
      }
    }
    return {
      states: this.#visited.size,
      depth,
      complete: this.#next.length === 0 && fault === null && this.#visited.size < this.#options.cap,
      finished: this.#finished,
      violation: fault,
      path: fault === null ? [] : this.#path(),
    };
  }

  #process(process: Process): number {
    return this.#processes.number(JSON.stringify(process));
  }

  /** The step a process waits to make. A turn that ends begins the next one at once. */
  #step(number: number): number | null {
    let step = this.#steps.get(number);
    if (step === undefined) {
      const { op } = this.#replay(JSON.parse(this.#processes.all[number]!) as Process);
      step = op === null ? null : this.#ops.number(JSON.stringify(op));
      this.#steps.set(number, step);
    }
    return step;
  }

  #replay({ memory, answers }: Process): { readonly process: Process; readonly op: Op | null } {
    let at: Process = { memory, answers };
    while (at.memory !== null) {
      const steps = turn(at.memory, this.#by);
      let step = steps.next();
      for (const answer of at.answers) {
        if (step.done) throw new Error('a turn was shorter than it had been');
        step = steps.next(answer);
      }
      if (!step.done) return { process: at, op: step.value };
      at = { memory: step.value, answers: [] };
    }
    return { process: at, op: null };
  }

  #expand(node: readonly number[], depth: number): string | null {
    const number = this.#visited.get(node.join())!;
    if (number % PROGRESS_EVERY === 0) this.#options.progress?.(this.#visited.size, this.#next.length, depth);
    const [table, ...processes] = node as [number, ...number[]];
    for (const [nth, process] of processes.entries()) {
      const op = this.#step(process);
      if (op === null) continue;
      for (const { table: then, answer } of this.#outcomes(table, op)) {
        const next = [...node];
        next[0] = then;
        next[nth + 1] = this.#answered(process, answer);
        const fault = this.#reach(next, number, nth, answer);
        if (fault !== null) return fault;
      }
    }
    // What was sent, and given up on, is carried out whenever it likes.
    for (const then of this.#landings(table)) {
      const fault = this.#reach([then, ...processes], number, -1, 0);
      if (fault !== null) return fault;
    }
    return null;
  }

  /** All that may come of a step: the tables after it, and what is answered. */
  #outcomes(table: number, op: number): readonly Outcome[] {
    const key = `${table}/${op}`;
    let outcomes = this.#outcomeOf.get(key);
    if (outcomes === undefined) {
      outcomes = this.#make(this.#tables.all[table]!, JSON.parse(this.#ops.all[op]!) as Op).map(
        ({ state, answer }) => ({
          table: state === null ? table : this.#tables.number(JSON.stringify(state)),
          answer: this.#answers.number(JSON.stringify(answer)),
        }),
      );
      this.#outcomeOf.set(key, outcomes);
    }
    return outcomes;
  }

  #make(text: string, op: Op): readonly { readonly state: State | null; readonly answer: unknown }[] {
    if (op.kind === 'choose') return Array.from({ length: op.among }, (_, answer) => ({ state: null, answer }));
    const state = JSON.parse(text) as State;
    if (op.kind === 'take' && state.leases.length === 0) return [];
    const answer = carryOut(state, op);
    const definite = { state: JSON.parse(JSON.stringify(state)) as State, answer };
    if (!CONDITIONAL.has(op.kind) || state.doubts === 0) return [definite];
    state.doubts--;
    const before = JSON.parse(text) as State;
    before.doubts--;
    const later = { ...before, late: [...before.late, op] };
    return [definite, ...[state, before, later].map((then) => ({ state: then, answer: LOST }))];
  }

  #landings(table: number): readonly number[] {
    let landings = this.#landingsOf.get(table);
    if (landings === undefined) {
      const text = this.#tables.all[table]!;
      landings = (JSON.parse(text) as State).late.map((op, nth) => {
        const state = JSON.parse(text) as State;
        state.late.splice(nth, 1);
        carryOut(state, op);
        return this.#tables.number(JSON.stringify(state));
      });
      this.#landingsOf.set(table, landings);
    }
    return landings;
  }

  /** A process after it was answered. */
  #answered(process: number, answer: number): number {
    const key = `${process}/${answer}`;
    let next = this.#answeredBy.get(key);
    if (next === undefined) {
      const { memory, answers } = JSON.parse(this.#processes.all[process]!) as Process;
      const told: unknown = JSON.parse(this.#answers.all[answer]!);
      next = this.#process(this.#replay({ memory, answers: [...answers, told] }).process);
      this.#answeredBy.set(key, next);
    }
    return next;
  }

  #reach(node: readonly number[], from: number, nth: number, answer: number): string | null {
    const key = node.join();
    if (this.#visited.has(key)) return null;
    const number = this.#visited.size;
    this.#visited.set(key, number);
    this.#from.push(from);
    this.#how.push([nth, answer]);
    this.#nodes.push(node);
    this.#next.push(node);
    const table = node[0]!;
    let verdict = this.#verdicts.get(table);
    if (verdict === undefined) {
      verdict = violation(JSON.parse(this.#tables.all[table]!) as State);
      this.#verdicts.set(table, verdict);
      const { finishEvery } = this.#options;
      if (verdict === null && finishEvery > 0 && table % finishEvery === 0) {
        this.#finished++;
        verdict = unfinished(JSON.parse(this.#tables.all[table]!) as State, this.#by);
      }
    }
    return verdict;
  }

  /** How the last state came about. */
  #path(): readonly string[] {
    const path: string[] = [];
    for (let at = this.#visited.size - 1; at > 0; at = this.#from[at]!) {
      const [nth, answer] = this.#how[at]!;
      const op = nth < 0 ? null : this.#ops.all[this.#step(this.#nodes[this.#from[at]!]![nth + 1]!)!];
      path.unshift(
        op === null ? 'what was sent before is carried out' : `${nth}: ${op} → ${this.#answers.all[answer]}`,
      );
    }
    return path;
  }
}
