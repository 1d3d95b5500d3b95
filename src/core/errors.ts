/**
 * Every code that a caller can get, in one table. Codes are stable; titles are static; what is particular to a case
 * stands in `detail` and, for input, in `errors`. HTTP gives each its status.
 */
export const ERROR_CODES = {
  'invalid-input': 'The input breaks a rule.',
  'topic-invalid': 'The topic name breaks a rule.',
  'payload-too-large': 'The payload is larger than allowed.',
  'body-too-large': 'The request body is larger than allowed.',
  'unsupported-media-type': 'The body is of a type that is not read here.',
  'unsupported-encoding': 'The body is compressed in a way that is not read here.',
  'headers-too-large': 'The request line and headers are larger than allowed.',
  'request-timeout': 'The request did not arrive in time.',
  unauthenticated: 'This call needs an API key, and none that is good here came with it.',
  forbidden: 'This caller may not do this.',
  'rate-limited': 'This key has sent more requests than it may.',
  'not-found': 'There is no such thing.',
  'method-not-allowed': 'This method does not go with this address.',
  'task-not-found': 'There is no such task, or it was settled longer ago than the retention.',
  'topic-not-found': 'There is no such topic: nothing was put into it yet, or all of it was settled long ago.',
  'schedule-not-found': 'There is no schedule of this name.',
  'key-not-found': 'There is no key of this id.',
  'too-many-keys': 'There are as many keys as a store may have.',
  'task-settled': 'The task is settled already.',
  'task-leased': 'The task is with a worker.',
  'task-replaced': 'Another task owns this message id by now.',
  'lease-lost': 'The lease is no longer held: it ran out and the task went on, or it was settled or cancelled.',
  'lease-invalid': 'This is not a lease id that was given out.',
  'run-limit': 'The task has run for as long as the topic allows (maxRunMs).',
  'result-too-large': 'The result is larger than allowed; the lease is kept.',
  'settings-conflict': 'The settings were changed by somebody else meanwhile.',
  'topic-full': 'As many tasks, or bytes of them, wait in the topic as its quota allows (maxWaiting, maxWaitingBytes).',
  'store-full': 'The store holds as many bytes as it may; it takes nothing new until some of that is done and deleted.',
  'store-unavailable': 'The store cannot be reached or refuses to write; nothing was written.',
  'outcome-unknown': 'The store gave no definite answer in time; a retry with the same message id is safe.',
  'shutting-down': 'This server is shutting down.',
  'not-holder':
    'No server that can be reached schedules this topic just now; another one takes it over within seconds.',
  unsupported: 'This cannot be done with the store that the queue is on.',
  busy: 'More is under way than this server takes on at once.',
  internal: 'Something went wrong inside.',
} as const;

export type ErrorCode = keyof typeof ERROR_CODES;

/** One breach of a rule: where, the value, the rule, and what would be right. */
export interface InputIssue {
  /** JSON pointer into the input. */
  readonly path: string;
  /** Names the value, the rule and an example. */
  readonly message: string;
}

/** The one error that the queue throws on purpose. */
export class QueueError extends Error {
  override readonly name = 'QueueError';
  readonly code: ErrorCode;
  readonly detail: string;
  readonly issues: readonly InputIssue[];

  constructor(
    code: ErrorCode,
    detail: string = ERROR_CODES[code],
    issues: readonly InputIssue[] = [],
    cause?: unknown,
  ) {
    super(`${code}: ${detail}`, cause === undefined ? undefined : { cause });
    this.code = code;
    this.detail = detail;
    this.issues = issues;
  }
}

/** Shows a value in a message, cut short. */
export function show(value: unknown): string {
  const text = typeof value === 'bigint' ? `${value}n` : (JSON.stringify(value) ?? String(value));
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}

/** An input error about one value: what it is, the rule, and an example of what would be right. */
export function invalid(path: string, value: unknown, rule: string, example: string): QueueError {
  const message = `${show(value)} is not ${rule}; for example: ${example}`;
  return new QueueError('invalid-input', `${path || 'input'}: ${message}`, [{ path, message }]);
}
