/** A fault under constant load, from start to verdict. */
import type { Clients } from './clients.ts';
import type { Verdict } from './history.ts';

export interface Measure {
  /** Tasks put in per second, by all clients together. */
  readonly tasksPerSecond: number;
  /** Acknowledgements before, during and after each fault. */
  readonly tasksPerPhase: number;
  /** How long something is paused that is paused for long: a node, or a server beyond its shard leases. */
  readonly pauseMs: number;
  /** How often a server or a worker is killed. */
  readonly kills: number;
}

export interface Result extends Verdict {
  readonly scenario: string;
  readonly seconds: number;
  /** What else was measured. */
  readonly notes: readonly string[];
}

export interface Scenario {
  /** For `--only`. */
  readonly name: string;
  /** What happens, in a few words. */
  readonly about: string;
}

/** A phase that takes longer has failed: with two of three nodes on a busy machine a second brings some 20 tasks. */
export const PHASE_MS = 120_000;
export const DRAIN_MS = 120_000;

/** Lets clients run, and what is to happen meanwhile; then works off what is left, and gives the verdict. */
export async function underLoad(
  scenario: Scenario,
  measure: Measure,
  clients: Clients,
  faults: (note: (text: string) => void) => Promise<void>,
): Promise<Result> {
  const began = performance.now();
  const notes: string[] = [];
  try {
    await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
    await faults((text) => notes.push(text));
    await clients.acknowledge(measure.tasksPerPhase, PHASE_MS);
    await clients.drain(DRAIN_MS);
    for (const line of await clients.aboutOpen()) console.error(line);
  } finally {
    await clients.stop();
  }
  const seconds = Math.round((performance.now() - began) / 1_000);
  return { scenario: scenario.about, seconds, notes, ...clients.history.verdict() };
}

/** What a result has to be, whatever happened; null where it is. */
export function faultOf({ lost, phantom, twice, errors, acknowledged, enqueued }: Result): string | null {
  const faults = Object.entries({ lost, phantom, 'settled twice': twice, ...errors }).filter(([, count]) => count > 0);
  if (acknowledged < enqueued) faults.push(['never acknowledged', enqueued - acknowledged]);
  return faults.length === 0 ? null : faults.map(([what, count]) => `${what}: ${count}`).join(', ');
}

/** Milliseconds as a short text: of several the least, the middle and the most. */
export function shownMs(all: readonly number[]): string {
  const sorted = [...all].sort((a, b) => a - b);
  const seconds = (ms: number): string => (ms / 1_000).toFixed(ms < 10_000 ? 2 : 1);
  if (sorted.length === 1) return `${seconds(sorted[0]!)} s`;
  return `${seconds(sorted[0]!)} to ${seconds(sorted.at(-1)!)} s, median ${seconds(sorted[sorted.length >> 1]!)} s`;
}
