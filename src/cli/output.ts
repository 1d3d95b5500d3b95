/** What commands print: data to standard output, everything else to standard error. */

import { columns, safeText } from '../http/text.ts';
import type { TaskPayload } from '../queue/api.ts';

export interface OutputOptions {
  /** JSON instead of tables. */
  readonly json?: boolean;
}

/** Prints a value as JSON, or what people read. */
export function print(options: OutputOptions, value: unknown, text: () => string): void {
  const out = options.json ? JSON.stringify(value, bytesAsBase64, 2) : text();
  if (out !== '') process.stdout.write(`${out}\n`);
}

export const note = (text: string): void => void process.stderr.write(`${text}\n`);

/** A table, or a sentence where it has no rows. */
export const tableOr = (
  nothing: string,
  heads: readonly string[],
  rows: readonly (readonly (string | number | null)[])[],
): string => (rows.length === 0 ? nothing : columns(heads, rows));

/** Names and values below each other, aligned. */
export function facts(entries: readonly (readonly [string, string | number | null])[]): string {
  const width = Math.max(...entries.map(([name]) => name.length));
  return entries.map(([name, value]) => `${name.padEnd(width)}  ${value ?? '–'}`).join('\n');
}

/** Someone else's JSON on one line, cut. */
export function brief(value: TaskPayload, max: number): string {
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  return safeText(JSON.stringify(value), max);
}

/** Typed arrays would come out as objects of numbers. */
const bytesAsBase64 = (_key: string, value: unknown): unknown =>
  value instanceof Uint8Array ? { base64: Buffer.from(value).toString('base64') } : value;
