import { DEFAULT_PRIORITY, TIERS } from './bounds.ts';
import type { TopicSettings } from './settings.ts';

/** Why a priority does not fit the topic, as a rule to name in an error; null where it fits. */
export function priorityFault(priority: unknown, settings: Pick<TopicSettings, 'bands'>): string | null {
  if (!Number.isSafeInteger(priority)) return 'an integer';
  const value = priority as number;
  if (settings.bands)
    return value < settings.bands[0]! ? `at least ${settings.bands[0]}, where the topic's first band begins` : null;
  return value < 0 || value >= TIERS ? `from 0 to ${TIERS - 1}` : null;
}

/** The priority of a task that names none. */
export function defaultPriority(settings: Pick<TopicSettings, 'bands'>): number {
  return settings.bands ? settings.bands[Math.floor(settings.bands.length / 2)]! : DEFAULT_PRIORITY;
}

/**
 * The tier of a priority. With bands: that of the last band that begins at or below it, the lowest where none does
 * (the bands may have changed since the task was accepted). With buckets, priorities don't count: `turn` deals the
 * tasks out.
 */
export function tierOf(priority: number, settings: Pick<TopicSettings, 'bands' | 'buckets'>, turn: number): number {
  if (settings.buckets) return turn % settings.buckets;
  if (!settings.bands) return Math.min(Math.max(priority, 0), TIERS - 1);
  let tier = 0;
  for (let band = 0; band < settings.bands.length; band++) if (settings.bands[band]! <= priority) tier = band;
  return tier;
}
