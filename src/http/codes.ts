import { ERROR_CODES, type ErrorCode } from '../core/errors.ts';

/** The HTTP status of every code. The one place where the two meet. */
export const STATUS_OF: Readonly<Record<ErrorCode, number>> = {
  'invalid-input': 400,
  'topic-invalid': 400,
  'lease-invalid': 400,
  unauthenticated: 401,
  forbidden: 403,
  'not-found': 404,
  'task-not-found': 404,
  'topic-not-found': 404,
  'schedule-not-found': 404,
  'key-not-found': 404,
  'method-not-allowed': 405,
  'request-timeout': 408,
  'task-settled': 409,
  'task-leased': 409,
  'task-replaced': 409,
  'lease-lost': 409,
  'run-limit': 409,
  'settings-conflict': 409,
  'too-many-keys': 409,
  'payload-too-large': 413,
  'body-too-large': 413,
  'result-too-large': 413,
  'unsupported-media-type': 415,
  'unsupported-encoding': 415,
  'rate-limited': 429,
  'headers-too-large': 431,
  'topic-full': 429,
  internal: 500,
  unsupported: 501,
  'store-unavailable': 503,
  'outcome-unknown': 503,
  'shutting-down': 503,
  'not-holder': 503,
  busy: 503,
  'store-full': 507,
};

/** How long a caller should wait before the next try, in seconds, where a retry makes sense. */
export const RETRY_AFTER_S: Readonly<Partial<Record<ErrorCode, number>>> = {
  'topic-full': 5,
  'store-full': 30,
  'store-unavailable': 2,
  'outcome-unknown': 2,
  'shutting-down': 5,
  'not-holder': 2,
  busy: 1,
};

export const isErrorCode = (code: unknown): code is ErrorCode =>
  typeof code === 'string' && Object.hasOwn(ERROR_CODES, code);
