import { SETTING_BOUNDS } from '../core/bounds.ts';
import { invalid } from '../core/errors.ts';
import { integer } from '../core/numbers.ts';
import type { TopicSettings } from '../core/settings.ts';
import type { SettingsPatch } from './api.ts';

type Check = (value: unknown, path: string) => unknown;

const within =
  ({ min, max }: { readonly min: number; readonly max: number }): Check =>
  (value, path) =>
    integer(value, path, min, max);
const orNull =
  (check: Check): Check =>
  (value, path) =>
    value === null ? null : check(value, path);

const B = SETTING_BOUNDS;

/** The rule of each setting; null stands for no limit where it is allowed. */
const RULES: { readonly [K in Exclude<keyof TopicSettings, 'purgedAt'>]: Check } = {
  leaseMs: within(B.leaseMs),
  maxAttempts: within(B.maxAttempts),
  maxRunMs: orNull(within(B.maxRunMs)),
  backoffMs: within(B.backoffMs),
  maxBackoffMs: within(B.maxBackoffMs),
  maxInFlight: orNull(within(B.maxInFlight)),
  minIntervalMs: orNull(within(B.minIntervalMs)),
  cooldownMs: orNull(within(B.cooldownMs)),
  rate: orNull(checkRate),
  blockedUntil: orNull(within(B.blockedUntil)),
  retentionMs: within(B.retentionMs),
  deadRetentionMs: within(B.deadRetentionMs),
  dedupWindowMs: orNull(within(B.dedupWindowMs)),
  bands: orNull(checkBands),
  buckets: orNull(within(B.buckets)),
  weight: within(B.weight),
  tierShare: orNull(within(B.tierShare)),
  maxWaiting: orNull(within(B.maxWaiting)),
  maxWaitingBytes: orNull(within(B.maxWaitingBytes)),
  paused: (value, path) => {
    if (typeof value !== 'boolean') throw invalid(path, value, 'true or false', 'true');
    return value;
  },
};

function checkRate(value: unknown, path: string): unknown {
  const example = '{"tasks": 10, "perMs": 1000, "burst": 10}';
  if (typeof value !== 'object' || value === null)
    throw invalid(path, value, 'an object of tasks, perMs and burst', example);
  const rate = value as Record<string, unknown>;
  for (const field of Object.keys(rate)) {
    if (!['tasks', 'perMs', 'burst'].includes(field))
      throw invalid(`${path}/${field}`, field, 'a field of a rate', example);
  }
  const tasks = within(B.rateTasks)(rate.tasks, `${path}/tasks`);
  return {
    tasks,
    perMs: within(B.ratePerMs)(rate.perMs, `${path}/perMs`),
    burst: rate.burst === undefined ? tasks : within(B.rateBurst)(rate.burst, `${path}/burst`),
  };
}

function checkBands(value: unknown, path: string): unknown {
  const example = '[1, 101, 1001]';
  if (!Array.isArray(value) || value.length < B.bands.min || value.length > B.bands.max) {
    throw invalid(
      path,
      value,
      `an array of ${B.bands.min} to ${B.bands.max} integers, each where a band begins`,
      example,
    );
  }
  for (const [index, from] of value.entries()) {
    within(B.bandFrom)(from, `${path}/${index}`);
    if (index > 0 && from <= value[index - 1])
      throw invalid(`${path}/${index}`, from, 'above the band before it', example);
  }
  return value;
}

/** The settings after a change. @throws QueueError `invalid-input` */
export function applySettings(settings: TopicSettings, patch: SettingsPatch): TopicSettings {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) {
    throw invalid('', patch, 'an object of settings', '{"leaseMs": 60000}');
  }
  const next: Record<string, unknown> = { ...settings };
  for (const [name, value] of Object.entries(patch)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(RULES, name)) {
      throw invalid(`/${name}`, name, `a setting (${Object.keys(RULES).join(', ')})`, '{"leaseMs": 60000}');
    }
    next[name] = RULES[name as keyof typeof RULES](value, `/${name}`);
  }
  const result = next as unknown as TopicSettings;
  if (result.bands && result.buckets) {
    throw invalid(
      '/buckets',
      result.buckets,
      'set together with bands: one of the two',
      '{"bands": null, "buckets": 4}',
    );
  }
  if (result.maxBackoffMs < result.backoffMs) {
    throw invalid(
      '/maxBackoffMs',
      result.maxBackoffMs,
      `at least backoffMs (${result.backoffMs})`,
      String(result.backoffMs * 60),
    );
  }
  return result;
}
