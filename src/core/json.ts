import { invalid } from './errors.ts';

/** JSON text of a value. @throws QueueError `invalid-input` where it has none */
export function jsonText(value: unknown, path: string): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw invalid(path, (error as Error).message.split('\n')[0], 'a JSON value (no cycles, no BigInt)', '{"n": 1}');
  }
  if (text === undefined) throw invalid(path, String(value), 'a JSON value', '{"n": 1}, or null for nothing');
  return text;
}
