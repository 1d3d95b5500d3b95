import { ERROR_CODES, QueueError } from '../core/errors.ts';
import { isTelling } from '../queue/telling.ts';

/** What the log shows of an error. */
export interface LoggedError {
  readonly type: string;
  readonly code?: string | number;
  readonly message: string;
  /** Where it came from, without what it says. */
  readonly stack?: string;
  readonly cause?: LoggedError;
}

const WITHHELD = 'its text is withheld, since it may quote a payload or a secret';
/** Of Cassandra's driver, with texts made of addresses and what nodes say. */
const DRIVERS = new Set(['ResponseError', 'NoHostAvailableError', 'OperationTimedOutError', 'AuthenticationError']);
const CAUSES = 5;

/**
 * An error as the log shows it: its kind, its code, and where it happened. What it says is shown only where that is
 * known to quote nothing: V8 and libraries put the input into texts (`"…" is not valid JSON`) and into properties
 * (`input` of an invalid URL), and an error that nobody foresaw may have any of both.
 */
export function loggedError(error: unknown, depth = 0): LoggedError {
  if (!(error instanceof Error)) return { type: typeof error, message: WITHHELD };
  const { code } = error as { readonly code?: unknown };
  const isCode = typeof code === 'number' || (typeof code === 'string' && /^\w[\w.-]{0,63}$/.test(code));
  const stack = framesOf(error);
  return {
    type: error.constructor.name,
    ...(isCode ? { code } : {}),
    message: textOf(error),
    ...(stack === '' ? {} : { stack }),
    ...(error.cause === undefined || depth === CAUSES ? {} : { cause: loggedError(error.cause, depth + 1) }),
  };
}

function textOf(error: Error): string {
  // Its detail names values.
  if (error instanceof QueueError) return ERROR_CODES[error.code];
  const { code, syscall } = error as NodeJS.ErrnoException;
  const isOfSystem = typeof syscall === 'string' || (typeof code === 'string' && code.startsWith('SQLITE_'));
  return isOfSystem || isTelling(error) || DRIVERS.has(error.constructor.name) ? error.message : WITHHELD;
}

/** The lines of a stack that name places; a text of several lines stands before them, and might look like them. */
function framesOf({ stack = '', message }: Error): string {
  const at = stack.indexOf(message);
  // Changed since: what stands before the places is not known then.
  if (at === -1) return '';
  const lines = stack.slice(at + message.length).split('\n');
  return lines.filter((line) => /^\s+at /.test(line)).join('\n');
}
