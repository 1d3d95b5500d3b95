import { LEASE_MS, TIERS } from '../core/bounds.ts';
import { invalid } from '../core/errors.ts';
import type { TopicSettings } from '../core/settings.ts';
import type { SettingsPatch } from './api.ts';
import { integer } from './validate.ts';

const DAY_MS = 86_400_000;
const LONGEST_MS = 3650 * DAY_MS;

type Check = (value: unknown, path: string) => unknown;

const between =
  (min: number, max: number): Check =>
  (value, path) =>
    integer(value, path, min, max);
const orNull =
  (check: Check): Check =>
  (value, path) =>
    value === null ? null : check(value, path);

/** The rule of each setting; null stands for no limit where it is allowed. */
const RULES: { readonly [K in Exclude<keyof TopicSettings, 'purgedAt'>]: Check } = {
  leaseMs: between(LEASE_MS.min, LEASE_MS.max),
  maxAttempts: between(1, 1_000),
  maxRunMs: orNull(between(LEASE_MS.min, LONGEST_MS)),
  backoffMs: between(0, DAY_MS),
  maxBackoffMs: between(0, 30 * DAY_MS),
  maxInFlight: orNull(between(1, 1_000_000)),
  minIntervalMs: orNull(between(1, DAY_MS)),
  cooldownMs: orNull(between(1, DAY_MS)),
  rate: orNull(checkRate),
  blockedUntil: orNull(between(0, Number.MAX_SAFE_INTEGER)),
  retentionMs: between(300_000, LONGEST_MS),
  deadRetentionMs: between(300_000, LONGEST_MS),
  dedupWindowMs: orNull(between(0, LONGEST_MS)),
  bands: orNull(checkBands),
  buckets: orNull(between(1, TIERS)),
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
  const tasks = integer(rate.tasks, `${path}/tasks`, 1, 1_000_000);
  return {
    tasks,
    perMs: integer(rate.perMs, `${path}/perMs`, 1, DAY_MS),
    burst: rate.burst === undefined ? tasks : integer(rate.burst, `${path}/burst`, 1, 1_000_000),
  };
}

function checkBands(value: unknown, path: string): unknown {
  const example = '[1, 101, 1001]';
  if (!Array.isArray(value) || value.length === 0 || value.length > TIERS) {
    throw invalid(path, value, `an array of 1 to ${TIERS} integers, each where a band begins`, example);
  }
  for (const [index, from] of value.entries()) {
    integer(from, `${path}/${index}`, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
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
