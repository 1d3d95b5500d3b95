import { invalid } from './errors.ts';

/** An integer within bounds, or null where there is none. */
export function optionalInteger(value: unknown, path: string, min: number, max: number): number | null {
  if (value === undefined || value === null) return null;
  return integer(value, path, min, max);
}

export function integer(value: unknown, path: string, min: number, max: number): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value;
  const shown = typeof value === 'number' ? String(value) : value;
  throw invalid(path, shown, `an integer from ${min} to ${max}`, String(Math.min(max, Math.max(min, 1000))));
}
