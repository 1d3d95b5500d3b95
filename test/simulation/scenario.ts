/** What a seed stands for: the topics, who does what how often, and what goes wrong. */
import type { SettingsPatch } from '../../src/queue/api.ts';
import type { StoreMeta } from '../../src/store/store.ts';
import { type FaultRates, NO_FAULTS } from './faults.ts';
import type { Random } from './random.ts';

export const PROFILES = [
  'calm',
  'slow',
  'unavailable',
  'unknown',
  'crashes',
  'zombies',
  'pauses',
  'clocks',
  'all',
  'hours',
  'schedules',
] as const;
export type Profile = (typeof PROFILES)[number];

export interface Scenario {
  readonly profile: Profile;
  readonly meta: StoreMeta;
  readonly rates: FaultRates;
  readonly topics: readonly { readonly name: string; readonly patch: SettingsPatch }[];
  readonly producers: number;
  readonly workers: number;
  readonly operators: number;
  /** A worker that extends the lease of one task for ever. */
  readonly squatter: boolean;
  /** How often it does, in milliseconds: four times a lease. */
  readonly squatEveryMs: number;
  /** Tasks in all. */
  readonly tasks: number;
  /** How likely one of them is delayed. */
  readonly delayed: number;
  /**
   * Producers don't rest between calls, so that more is ready than is handed out for a while, and workers take what they
   * get, from whatever topic: it comes to light whose turn it is.
   */
  readonly hurried: boolean;
  /** Producers and workers take so many times as many tasks to a call. */
  readonly bulk: number;
  /** Priorities that are used, but for those of topics with bands. */
  readonly priorities: readonly number[];
  /** Everybody waits so many times as long: hours instead of seconds. */
  readonly stretch: number;
  /** How likely a client goes away before its answer. */
  readonly disconnects: number;
  readonly restartMs: number;
  /** A server is paused, or taken for dead, every so many milliseconds on average; 0: never. */
  readonly pauseEveryMs: number;
  /** How long a pause takes on average. */
  readonly pauseMs: number;
  readonly jumpEveryMs: number;
  readonly drift: number;
  readonly aheadMs: number;
  /** Only one process can have the store open, so that a new server takes over at once. */
  readonly exclusive: boolean;
  /** Servers at the same time. */
  readonly servers: number;
  /** How likely a message from one server to another gets lost. */
  readonly lostMessages: number;
  /** Limits come and go. */
  readonly limits: boolean;
  readonly schedule: PlannedSchedule | null;
}

/** A schedule, which puts its tasks into a topic that is nobody else's. */
export interface PlannedSchedule {
  readonly name: string;
  readonly topic: string;
  readonly pattern: string;
  /** It fires at each multiple of this. */
  readonly periodMs: number;
  /** Settings of its topic. */
  readonly patch: SettingsPatch;
  readonly seed: number;
}

/** Settings of a topic as they are set before anything else happens. */
export const patchOf = ({ topics, schedule }: Scenario, topic: string): SettingsPatch =>
  topic === schedule?.topic ? schedule.patch : topics.find(({ name }) => name === topic)!.patch;

const PROFILE_WEIGHTS: Readonly<Record<Profile, number>> = {
  calm: 20,
  slow: 8,
  unavailable: 12,
  unknown: 16,
  crashes: 16,
  zombies: 8,
  pauses: 5,
  clocks: 4,
  all: 12,
  hours: 4,
  // Others have a schedule now and then; this one, which has to be asked for, always does, and all kinds of trouble.
  schedules: 0,
};

const ALL_PRIORITIES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/**
 * Seeds mean something else whenever what they draw changes. Those that once found something are drawn as they were:
 * before there were schedules and work in bulk, before there were more tasks in fewer logs, before there were more of them
 * to a call, and before most had three servers.
 */
export const ERAS = ['single', 'bulk', 'many', 'batches', 'now'] as const;
export type Era = (typeof ERAS)[number];

/** What seeds are drawn from. */
interface Palette {
  readonly tasks: readonly [least: number, most: number];
  readonly segmentSizes: readonly number[];
  readonly workers: readonly [least: number, most: number];
  /** How likely only one process can have the store open. */
  readonly exclusive: number;
  /** Servers of a store that several can have open. */
  readonly servers: readonly number[];
  /** How likely there is a squatter. */
  readonly squatter: number;
  readonly squatEveryMs: number;
  /** The same where everybody takes hours. */
  readonly squatEveryHoursMs: number;
  /** How likely a task is delayed. */
  readonly delayed: number;
  /** Null: there are no schedules. */
  readonly bulks: readonly number[] | null;
  readonly priorities: readonly (readonly number[])[] | null;
}

const SINGLE: Palette = {
  tasks: [60, 240],
  segmentSizes: [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
  workers: [2, 6],
  exclusive: 0.35,
  servers: [1, 2, 2, 3, 3, 3],
  squatter: 0.3,
  squatEveryMs: 150,
  squatEveryHoursMs: 150,
  delayed: 0.2,
  bulks: null,
  priorities: null,
};
const BULK: Palette = { ...SINGLE, bulks: [1, 3, 6, 6] };
const MANY: Palette = {
  ...BULK,
  tasks: [100, 300],
  squatEveryMs: 300,
  squatEveryHoursMs: 2_000,
  priorities: [[5], [5, 9], [0, 5, 9], [0, 5, 9], ALL_PRIORITIES],
};
const BATCHES: Palette = {
  ...MANY,
  // Most work in bulk: a seed with as many tasks takes fewer calls, and batches cross the ends of segments, small ones and
  // those of which one batch fills only a part.
  bulks: [1, 6, 6, 6, 12, 12, 12, 24],
  segmentSizes: [4, 6, 8, 12, 16, 24, 32, 48],
  // Few priorities make few logs, and long ones.
  priorities: [[5], [5, 9], [5, 9], [0, 5, 9], [0, 5, 9], [0, 5, 9], ALL_PRIORITIES],
  workers: [2, 4],
  servers: [1, 2, 3, 3, 3, 3],
  squatter: 0.2,
  delayed: 0.14,
};
const PALETTES: Readonly<Record<Era, Palette>> = {
  single: SINGLE,
  bulk: BULK,
  many: MANY,
  batches: BATCHES,
  now: { ...BATCHES, exclusive: 0.3, servers: [2, 3, 3, 3, 3, 3] },
};

export function drawScenario(random: Random, only?: Profile, era: Era = 'now'): Scenario {
  const palette = PALETTES[era];
  const drawn = random.weighted(PROFILE_WEIGHTS);
  const profile = only ?? drawn;
  const all = profile === 'all' || profile === 'schedules';
  const has = (name: Profile): boolean => all || profile === name;
  const hours = profile === 'hours';
  const rate = (on: boolean, mean: number): number => (on ? random.between(mean / 3, mean * 2) : 0);
  const delayMs = random.pick([0.3, 1, 3]);
  const rates: FaultRates = {
    ...NO_FAULTS,
    delayMs,
    slow: rate(profile !== 'calm', 0.02),
    slowMs: random.pick([20, 200, 1500]),
    unavailable: rate(has('unavailable'), 0.012),
    outage: rate(has('unavailable'), 0.0004),
    outageMs: 800,
    unknownBefore: rate(has('unknown'), 0.006),
    unknownAfter: rate(has('unknown'), 0.012),
    unknownLater: rate(has('unknown'), 0.006),
    laterMs: random.pick([20, 500, 4000]),
    crashes: random.int(2, 8),
    crashBefore: rate(has('crashes') || hours, hours ? 0.0004 : 0.0015),
    crashAfter: rate(has('crashes') || has('zombies') || hours, hours ? 0.0008 : 0.003),
  };
  const limits = random.chance(0.3);
  const exclusive = hours || (!has('zombies') && random.chance(palette.exclusive));
  const names = random.pick([['a'], ['a', 'b'], ['a/x', 'a/y', 'b'], ['a/x', 'a/y', 'b/x', 'b/y', 'c']]);
  const scenario: Scenario = {
    profile,
    meta: {
      segmentSize: random.pick(palette.segmentSizes),
      shards: random.int(1, exclusive ? 3 : 8),
      messageBuckets: random.int(1, 4),
      // With 4, a far slot is as wide as the longer delays.
      slotMs: random.pick([4, 50, 250]),
    },
    rates,
    topics: names.map((name) => ({ name, patch: drawSettings(random, limits) })),
    producers: random.int(1, 4),
    workers: random.int(...palette.workers),
    operators: random.int(0, 2),
    squatter: random.chance(palette.squatter),
    squatEveryMs: hours ? palette.squatEveryHoursMs : palette.squatEveryMs,
    tasks: random.int(...palette.tasks),
    delayed: palette.delayed,
    stretch: hours ? random.pick([300, 1000, 4000]) : 1,
    disconnects: profile === 'calm' ? 0 : random.pick([0, 0, 0.03]),
    restartMs: random.pick([5, 100, 1500]),
    pauseEveryMs: has('zombies') || profile === 'pauses' ? random.between(1500, 6000) : 0,
    pauseMs: profile === 'pauses' ? random.pick([800, 5_000, 12_000]) : 800,
    jumpEveryMs: has('clocks') ? 4000 : 0,
    // The servers of a shared store go by its clock, which each knows a little wrong.
    drift: has('clocks') ? random.pick(exclusive ? [0, 0.0005, -0.0005, 0.01] : [0, 0.0001, -0.0001]) : 0,
    aheadMs: has('clocks') ? random.pick(exclusive ? [0, 300, 1500] : [0, 50, 200]) : 0,
    exclusive,
    servers: exclusive ? 1 : random.pick(palette.servers),
    lostMessages: profile === 'calm' ? 0 : random.pick([0, 0.02, 0.2]),
    limits,
    hurried: random.chance(0.25),
    bulk: 1,
    priorities: ALL_PRIORITIES,
    schedule: null,
  };
  const topics = scenario.topics.map(({ name, patch }) => ({ name, patch: { ...patch, ...drawShares(random) } }));
  const { bulks, priorities } = palette;
  if (bulks === null) return { ...scenario, topics };
  const hasSchedule = random.chance(0.2) || profile === 'schedules';
  const schedule = hasSchedule ? drawSchedule(random, hours) : null;
  const bulk = random.pick(bulks);
  if (priorities === null) return { ...scenario, topics, schedule, bulk };
  return { ...scenario, topics, schedule, bulk, priorities: random.pick(priorities) };
}

/** Drawn behind the shares, and with a seed of its own: the same goes for it. */
function drawSchedule(random: Random, hours: boolean): PlannedSchedule {
  const [pattern, periodMs] = hours
    ? (['0 */5 * * * *', 300_000] as const)
    : random.pick([['* * * * * *', 1_000] as const, ['*/3 * * * * *', 3_000] as const]);
  const patch = {
    leaseMs: random.pick([500, 1000]),
    maxAttempts: random.pick([2, 20]),
    backoffMs: 20,
    maxBackoffMs: 1000,
    retentionMs: 300_000,
    // Those that forget ids at once, or soon, most often: it must not matter.
    dedupWindowMs: random.pick([0, 0, 300, null]),
  };
  return { name: 'tick', topic: 'z', pattern, periodMs, patch, seed: random.int(1, 2 ** 31) };
}

/** Settings of a topic, as they are set before anything else happens. */
function drawSettings(random: Random, limits: boolean): SettingsPatch {
  const leaseMs = random.pick([200, 500, 1000, 2500]);
  const backoff = random.pick([0, 20, 200]);
  return {
    leaseMs,
    maxAttempts: random.pick([1, 2, 3, 5, 20]),
    backoffMs: backoff,
    maxBackoffMs: Math.max(backoff, 1000),
    retentionMs: 300_000,
    dedupWindowMs: random.pick([0, 300, 3000, 86_400_000, null]),
    maxRunMs: random.chance(0.15) ? 3000 : null,
    ...(random.chance(0.1) ? { buckets: random.int(2, 4) } : random.chance(0.1) ? { bands: [1, 10, 100] } : {}),
    ...(limits ? drawLimits(random) : {}),
  };
}

/** Drawn behind all else: seeds mean what they meant before there were shares. */
function drawShares(random: Random): SettingsPatch {
  return {
    ...(random.chance(0.2) ? { weight: random.int(2, 4) } : {}),
    ...(random.chance(0.1) ? { tierShare: random.pick([10, 50]) } : {}),
  };
}

export function drawLimits(random: Random): SettingsPatch {
  return {
    maxInFlight: random.chance(0.5) ? random.int(1, 4) : null,
    minIntervalMs: random.chance(0.25) ? random.pick([10, 50, 120]) : null,
    cooldownMs: random.chance(0.2) ? random.pick([10, 50]) : null,
    rate: random.chance(0.25) ? { tasks: random.int(1, 20), perMs: 500, burst: random.int(1, 10) } : null,
  };
}
