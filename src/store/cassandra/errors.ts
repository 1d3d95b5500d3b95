/**
 * What an error of the driver says about a write.
 *
 * - `unavailable` nothing was written and nothing will be: it was refused before Paxos began, or never sent;
 * - `unknown`     it may have been written, or may yet be: a time-out, or a coordinator that was lost on the way;
 * - `refused`     the statement itself is at fault, or what it speaks of is not there.
 *
 * Where nothing is known for sure, the answer is `unknown`: that costs a repetition, the opposite a message.
 *
 * Codes: https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v4.spec, section 9
 */
import cassandra from 'cassandra-driver';
import { StoreDamagedError, StoreUnavailableError } from '../store.ts';

export type Verdict = 'unavailable' | 'unknown' | 'refused';

const { responseErrorCodes: CODES, consistencies } = cassandra.types;

const NO_CONNECTION = 'No connection available';

/** Of an error of the driver; it sets these on many kinds of them. */
interface Details {
  readonly code?: unknown;
  readonly message?: string;
  /** What was asked for, in answers about consistency. */
  readonly consistencies?: number;
  readonly isSocketError?: boolean;
  readonly requestNotWritten?: boolean;
  readonly innerErrors?: Readonly<Record<string, unknown>> | null;
  readonly coordinator?: string;
}

const detailsOf = (error: unknown): Details => (typeof error === 'object' && error !== null ? error : {});

export function verdictOf(error: unknown): Verdict {
  // Raised only where no request was sent, or where the ones that were are known not to have been executed: the retry
  // policy lets no other go on to the next host.
  if (error instanceof cassandra.errors.NoHostAvailableError) return 'unavailable';
  if (error instanceof cassandra.errors.BusyConnectionError) return 'unavailable';
  if (error instanceof cassandra.errors.AuthenticationError) return 'unavailable';
  if (error instanceof cassandra.errors.OperationTimedOutError) return 'unknown';
  if (error instanceof cassandra.errors.ResponseError) return verdictOfResponse(detailsOf(error));
  const { isSocketError, requestNotWritten, message } = detailsOf(error);
  // A plain error, raised while a statement is prepared, before it is sent.
  if (message === NO_CONNECTION) return 'unavailable';
  if (isSocketError === true) return requestNotWritten === true ? 'unavailable' : 'unknown';
  return 'refused';
}

function verdictOfResponse({ code, message = '', consistencies: level }: Details): Verdict {
  switch (code) {
    case CODES.unavailableException:
      // At the level of consensus it comes before a proposal. At the level of the commit (Paxos v1) it comes after.
      return level === consistencies.serial || level === consistencies.localSerial ? 'unavailable' : 'unknown';
    case CODES.overloaded:
      // Shed at the door. "Too many in flight hints" comes from the commit.
      return /hints/i.test(message) ? 'unknown' : 'unavailable';
    case CODES.isBootstrapping:
    case CODES.unauthorized:
    case CODES.badCredentials:
      return 'unavailable';
    case CODES.syntaxError:
    case CODES.invalid:
    case CODES.configError:
    case CODES.alreadyExists:
    case CODES.unprepared:
    case CODES.protocolError:
      return 'refused';
    default:
      return 'unknown';
  }
}

/** Whether the node that was asked gave no sign of life. */
export const wasSilent = (error: unknown): boolean => error instanceof cassandra.errors.OperationTimedOutError;

export const coordinatorOf = (error: unknown): string | null => detailsOf(error).coordinator ?? null;

/** Whether a read, or a write that may be repeated, could succeed with another node at once. */
export const isWorthAnotherTry = (error: unknown): boolean =>
  wasSilent(error) || detailsOf(error).isSocketError === true || detailsOf(error).code === CODES.readTimeout;

/** Says an error in the port's words; a fault of the program stays what it is. */
export function storeError(error: unknown, store: string): unknown {
  if (error instanceof StoreUnavailableError || error instanceof StoreDamagedError) return error;
  if (verdictOf(error) !== 'refused')
    return new StoreUnavailableError(`${store}: ${reasonOf(error)}`, { cause: error });
  const { code, message = '' } = detailsOf(error);
  if (code === CODES.invalid && /unconfigured table|keyspace .* does not exist|undefined column/i.test(message)) {
    return new StoreDamagedError(`${store} has not the tables it should have: ${message}`, { cause: error });
  }
  return error;
}

/** What went wrong, and where no host answered, why the first of them didn't. */
function reasonOf(error: unknown): string {
  const { message = String(error), innerErrors } = detailsOf(error);
  const first = Object.entries(innerErrors ?? {})[0];
  if (first === undefined) return message;
  const inner = first[1];
  return `no node answered (${first[0]}: ${inner instanceof Error ? inner.message : String(inner)})`;
}
