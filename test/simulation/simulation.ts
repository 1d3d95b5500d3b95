/** Runs one seed from beginning to end. */
import { DUE_TICK_MS } from '../../src/core/bounds.ts';
import { DEFAULT_SETTINGS } from '../../src/core/settings.ts';
import { Tables } from '../../src/store/memory/tables.ts';
import { audit } from './auditor.ts';
import type { World } from './client.ts';
import { Cluster } from './cluster.ts';
import { type FaultCounts, Faults, NO_FAULTS, type Trace } from './faults.ts';
import type { AnyCall, History } from './history.ts';
import { Ledger } from './ledger.ts';
import { Loop } from './loop.ts';
import { Random } from './random.ts';
import { drawScenario, type Era, type Profile, type Scenario } from './scenario.ts';
import { Script } from './script.ts';
import { type ClockFault, EPOCH } from './server-process.ts';
import { findings } from './store-audit.ts';

export interface SimulationOptions {
  readonly profile?: Profile;
  /** As what the seed is drawn. */
  readonly era?: Era;
  /** Gets a line for everything that happens. */
  readonly trace?: (line: string) => void;
}

export interface Report {
  readonly seed: number;
  readonly scenario: Scenario;
  readonly history: History;
  readonly violations: readonly string[];
  readonly steps: number;
  readonly storeCalls: number;
  readonly faults: FaultCounts;
  readonly restarts: number;
  /** Virtual milliseconds. */
  readonly lastedMs: number;
  /** A hash over everything that happened, in its order. */
  readonly fingerprint: string;
}

const MOST_STEPS = 400_000;
/** Between two looks at the store, in virtual milliseconds. */
const LOOK_EVERY_MS = 12_000;
/** Two ticks: one in which it falls due, and one that its move may take. */
const DELAYED_LATE_MS = 2 * DUE_TICK_MS;

export async function simulate(seed: number, options: SimulationOptions = {}): Promise<Report> {
  const random = new Random(seed);
  const scenario = drawScenario(random.fork(), options.profile, options.era);
  const loop = new Loop();
  const tables = new Tables(scenario.meta, () => EPOCH + loop.now);
  const ledger = new Ledger(tables);
  tables.witness = ledger;
  const trace: Trace =
    options.trace === undefined ? () => {} : (line) => options.trace!(`${loop.now.toFixed(3).padStart(12)}  ${line()}`);
  trace(() => JSON.stringify(scenario));
  const calm = { ...NO_FAULTS, delayMs: scenario.rates.delayMs };
  const faults = new Faults(loop, random.fork(), calm, trace);
  const clock = (drawn: Random): ClockFault => ({
    ahead: drawn.pick([-1, 0, 1]) * scenario.aheadMs,
    drift: scenario.drift,
  });
  const { restartMs, exclusive, servers } = scenario;
  // A stream of its own: what happens to calls about schedules changes nothing for the others.
  const scheduleRandom = scenario.schedule === null ? null : new Random(scenario.schedule.seed).fork();
  const shape = { restartMs, exclusive, servers, clock, scheduleRandom };
  const cluster = new Cluster(loop, random.fork(), tables, faults, shape, trace);
  let tokens = 0;
  const world: World = { loop, cluster, scenario, quiet: false, lastDueAt: 0, known: [], nextToken: () => ++tokens };
  const script = new Script(world, random.fork(), faults, ledger);
  const rejections = watchRejections();
  let over = false;
  script.run().then(
    () => {
      over = true;
    },
    (error: unknown) => {
      cluster.troubles.push(`the script failed: ${error instanceof Error ? error.stack : String(error)}`);
      over = true;
    },
  );
  const found = watchStore(world, tables, new Random(seed), () => over);
  const inTime = await loop.run(() => over, MOST_STEPS);
  const violations = [...cluster.troubles, ...rejections.end(), ...script.violations];
  if (!inTime) violations.push(`liveness: not over after ${MOST_STEPS} steps, at ${loop.now.toFixed(0)} ms`);
  else if (!over) violations.push('liveness: nothing is left to run, and yet somebody waits');
  violations.push(...(over ? ledger.atRest() : ledger.violations));
  violations.push(...found, ...(await findings(tables, cluster.calls)));
  const history: History = {
    calls: cluster.calls,
    calm: scenario.profile === 'calm',
    delayedLateMs: DELAYED_LATE_MS,
    epoch: EPOCH,
    setup: script.setup,
    servers,
    clockErrorMs: scenario.jumpEveryMs === 0 ? 0 : exclusive ? 60_000 : 2_000,
    quietFrom: script.quietFrom,
    settings: settingsOf(scenario),
    schedule: scenario.schedule,
  };
  if (over) violations.push(...audit(history));
  return {
    seed,
    scenario,
    history,
    violations,
    steps: loop.steps,
    storeCalls: faults.calls,
    faults: faults.counts,
    restarts: cluster.restarts,
    lastedMs: loop.now,
    fingerprint: fingerprintOf(cluster.calls, loop),
  };
}

function settingsOf({ topics, schedule }: Scenario): History['settings'] {
  const settings = new Map(topics.map(({ name, patch }) => [name, { ...DEFAULT_SETTINGS, ...patch }]));
  if (schedule !== null) settings.set(schedule.topic, { ...DEFAULT_SETTINGS, ...schedule.patch });
  return settings;
}

/** Looks the store over now and then; tells what was found first. */
function watchStore(world: World, tables: Tables, random: Random, over: () => boolean): readonly string[] {
  const { loop, cluster, scenario } = world;
  const found: string[] = [];
  const look = async (): Promise<void> => {
    // Once it is quiet, the last look is enough.
    if (over() || world.quiet || found.length > 0) return;
    const at = loop.now.toFixed(0);
    found.push(...(await findings(tables, cluster.calls)).map((finding) => `at ${at} ms: ${finding}`));
    later();
  };
  const later = (): void => {
    loop.after(random.around(LOOK_EVERY_MS * scenario.stretch), () => {
      look().catch((error: unknown) => found.push(`the audit failed: ${(error as Error).stack}`));
    });
  };
  later();
  return found;
}

/** Collects rejections that nobody handles; a promise that fails behind everybody's back is a fault of its own. */
function watchRejections(): { end(): readonly string[] } {
  const found: string[] = [];
  const listener = (reason: unknown): void => {
    found.push(`unhandled rejection: ${reason instanceof Error ? (reason.stack ?? reason.message) : String(reason)}`);
  };
  process.on('unhandledRejection', listener);
  return {
    end: () => {
      process.off('unhandledRejection', listener);
      return found;
    },
  };
}

function fingerprintOf(calls: readonly AnyCall[], loop: Loop): string {
  let hash = 0x811c9dc5;
  const mix = (text: string): void => {
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  };
  for (const call of calls) mix(`${call.kind}${call.began.at}${call.ended?.at}${call.answer?.kind}`);
  mix(`${loop.steps}/${loop.now}`);
  return (hash >>> 0).toString(16).padStart(8, '0');
}
