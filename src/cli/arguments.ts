/** Reads what was typed: each function returns a value, or throws what is wrong with the text and how to put it right. */
import { InvalidArgumentError } from 'commander';
import { topicNameFault } from '../core/names.ts';
import type { JsonValue } from '../queue/api.ts';

/** Commander puts the option's or argument's name and the value before this. */
const refuse = (rule: string, example: string): never => {
  throw new InvalidArgumentError(`It is not ${rule}; for example: ${example}`);
};

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** `500ms`, `30s`, `5m`, `2h`, `1d` as milliseconds. */
export function durationMs(text: string): number {
  const match = /^(\d{1,12}(?:\.\d{1,3})?)(ms|s|min|m|h|d)$/.exec(text.trim());
  if (!match) return refuse('a number with a unit (ms, s, m, h, d)', '30s');
  return Math.round(Number(match[1]) * UNITS_MS[match[2]!]!);
}

/** An ISO 8601 time with its offset, or milliseconds since 1970. */
export function instant(text: string): number {
  if (/^\d{1,16}$/.test(text)) return integer(text);
  const ms = /^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)$/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(ms)
    ? refuse('a time with its offset (ISO 8601), or milliseconds since 1970', '2030-01-31T08:00:00Z')
    : ms;
}

export function integer(text: string): number {
  const value = Number(text);
  return /^-?\d{1,16}$/.test(text) && Number.isSafeInteger(value) ? value : refuse('an integer', '5');
}

export function positive(text: string): number {
  const value = integer(text);
  return value > 0 ? value : refuse('a positive integer', '100');
}

export function topicName(text: string): string {
  const fault = topicNameFault(text);
  return fault === null ? text : refuse(fault, 'mail.example.org');
}

/** A topic, or a prefix that ends with `*`. */
export function topicSelector(text: string): string {
  if (text !== '*') topicName(text.endsWith('*') ? text.slice(0, -1) : text);
  return text;
}

export function json(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return refuse('JSON (a text needs quotes of its own)', `'{"url": "https://example.org/"}' or '"hello"'`);
  }
}

/** Collects `NAME=VALUE` of a repeatable option. */
export function pair(text: string, before: Readonly<Record<string, string>> = {}): Record<string, string> {
  const at = text.indexOf('=');
  if (at < 1) return refuse('NAME=VALUE', 'source=import');
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

/** Collects the values of a repeatable option. */
export const several =
  <T>(read: (text: string) => T) =>
  (text: string, before: readonly T[] = []): T[] => [...before, read(text)];
