import { invalid } from './errors.ts';

/** What a task may have when it is enqueued. */
export const TASK_FIELDS: ReadonlySet<string> = new Set([
  'payload',
  'priority',
  'messageId',
  'delayMs',
  'runAt',
  'ttlMs',
  'metadata',
  'maxAttempts',
  'onDuplicate',
]);

/**
 * Refuses fields that nobody reads: a misspelt one would be left out without a word.
 *
 * @param what it is, for example `a task`
 * @param example a field of it, with a value
 * @throws QueueError `invalid-input`
 */
export function checkFields(
  value: object,
  path: string,
  what: string,
  known: ReadonlySet<string>,
  example: string,
): void {
  for (const field in value) {
    if (known.has(field) || (value as Record<string, unknown>)[field] === undefined) continue;
    throw invalid(`${path}/${field}`, field, `a field of ${what} (${[...known].join(', ')})`, example);
  }
}
