import { readFileSync } from 'node:fs';
import { keyIdOf } from '../core/api-key.ts';
import { QueueError } from '../core/errors.ts';

/**
 * The API key in EBBMARK_KEY, or in the file that EBBMARK_KEY_FILE names; null where there is neither.
 * @throws QueueError `invalid-input` where both are there, the file cannot be read, or what is there is no key
 */
export function keyFromEnvironment(env: Readonly<Record<string, string | undefined>> = process.env): string | null {
  const { EBBMARK_KEY: text = '', EBBMARK_KEY_FILE: path = '' } = env;
  if (text !== '' && path !== '') throw refused('EBBMARK_KEY_FILE', 'is set together with EBBMARK_KEY: one of the two');
  if (text !== '') return checkKey(text, 'EBBMARK_KEY');
  return path === '' ? null : checkKey(contentOf(path), 'EBBMARK_KEY_FILE');
}

/** Returns the key, without blanks around it. What is none is not shown: it may be a secret all the same. */
export function checkKey(text: string, path: string): string {
  const key = typeof text === 'string' ? text.trim() : '';
  if (keyIdOf(key) !== null) return key;
  throw refused(
    path,
    'holds no API key, or not all of one; for example: ebb_4f0c1d2e3b5a_…, as `ebbmark keys create` prints it',
  );
}

function contentOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw refused('EBBMARK_KEY_FILE', `${JSON.stringify(path)} cannot be read: ${(error as Error).message}`);
  }
}

const refused = (path: string, message: string): QueueError =>
  new QueueError('invalid-input', `${path}: ${message}`, [{ path, message }]);
