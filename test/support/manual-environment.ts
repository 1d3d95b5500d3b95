import { type Environment, systemEnvironment } from '../../src/queue/environment.ts';

/** An environment whose clock stands still until a test moves it. */
export interface ManualEnvironment extends Environment {
  /** Moves the clock on, and lets every timer that falls due on the way run at its time, with all that follows. */
  advance(ms: number): Promise<void>;
  /** Sets the clock that can be set, by so many milliseconds; no time passes. */
  correct(ms: number): void;
}

/** @param start milliseconds since 1970 */
export function manualEnvironment(start = 1_700_000_000_000): ManualEnvironment {
  const system = systemEnvironment();
  const timers = new Set<{ readonly at: number; readonly call: () => void }>();
  let now = start;
  let corrected = 0;
  const next = () => {
    let first: { readonly at: number; readonly call: () => void } | undefined;
    for (const timer of timers) if (first === undefined || timer.at < first.at) first = timer;
    return first;
  };
  return {
    ...system,
    now: () => now + corrected,
    monotonic: () => now,
    timer: (ms, call) => {
      const timer = { at: now + Math.max(0, ms), call };
      timers.add(timer);
      return () => timers.delete(timer);
    },
    correct(ms) {
      corrected += ms;
    },
    async advance(ms) {
      const end = now + ms;
      await settle();
      for (let timer = next(); timer !== undefined && timer.at <= end; timer = next()) {
        timers.delete(timer);
        now = Math.max(now, timer.at);
        timer.call();
        await settle();
      }
      now = end;
      await settle();
    },
  };
}

/** Lets what is under way run until only time could bring it further: a store's group commit takes some turns each. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 60; turn++) await new Promise<void>((resolve) => setImmediate(resolve));
}
