import type { FastifyReply } from 'fastify';
import { ERROR_CODES, type ErrorCode, type InputIssue, QueueError } from '../core/errors.ts';
import { isErrorCode, RETRY_AFTER_S, STATUS_OF } from './codes.ts';

/** An RFC 9457 problem document. */
export interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly code: ErrorCode;
  readonly detail: string;
  readonly errors?: readonly InputIssue[];
}

/** One task of a call that was refused, where all were. */
export interface TaskIssue extends InputIssue {
  readonly code: string;
}

export const PROBLEM_TYPE = 'application/problem+json';

/** The address of a code's explanation, relative to the server (RFC 9457, section 3.1.1). */
export const typeOf = (code: ErrorCode): string => `/docs/errors#${code}`;

export function problemOf(error: QueueError): ProblemDocument {
  const { code, detail, issues } = error;
  const problem = { type: typeOf(code), title: ERROR_CODES[code], status: STATUS_OF[code], code, detail };
  return issues.length === 0 ? problem : { ...problem, errors: issues };
}

/** Headers that go with a code. */
export function problemHeaders(code: ErrorCode): Record<string, string> {
  const headers: Record<string, string> = { 'content-type': PROBLEM_TYPE };
  if (code === 'unauthenticated') headers['www-authenticate'] = 'Bearer realm="ebbmark"';
  const retryAfter = RETRY_AFTER_S[code];
  if (retryAfter !== undefined) headers['retry-after'] = String(retryAfter);
  if (code === 'shutting-down' || code === 'request-timeout') headers.connection = 'close';
  return headers;
}

export function sendProblem(reply: FastifyReply, error: QueueError): FastifyReply {
  const problem = problemOf(error);
  // Fastify closes the connection after a body it could not read. What is left of it is read and dropped instead
  // (see last-words.ts): closing with bytes unread resets the connection, and the answer is lost.
  if (reply.hasHeader('connection')) reply.removeHeader('connection');
  // As bytes: to a text fastify adds a charset, which this type does not have.
  const bytes = Buffer.from(JSON.stringify(problem));
  return reply.code(problem.status).headers(problemHeaders(error.code)).send(bytes);
}

/** What fastify and Node say in their own codes, said in ours. */
const OURS: Readonly<Record<string, readonly [ErrorCode, string?]>> = {
  FST_ERR_BAD_URL: [
    'invalid-input',
    'The path is not valid percent-encoded UTF-8; for example: "caf%C3%A9" for "café", "%25" for "%"',
  ],
  FST_ERR_MAX_PARAM_LENGTH: ['invalid-input', 'A part of the path is longer than any name can be'],
  FST_ERR_CTP_BODY_TOO_LARGE: ['body-too-large'],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ['unsupported-media-type', 'Send "Content-Type: application/json"'],
};

/**
 * Any error as one of ours. What is not known is `internal`, and says nothing of what happened inside; the caller
 * logs it.
 */
export function toQueueError(error: unknown): QueueError {
  if (error instanceof QueueError && isErrorCode(error.code)) return error;
  const { code, statusCode, message } = (error ?? {}) as { code?: unknown; statusCode?: unknown; message?: unknown };
  const ours = typeof code === 'string' ? OURS[code] : undefined;
  if (ours) return new QueueError(ours[0], ours[1], [], error);
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500) {
    return new QueueError('invalid-input', String(message), [], error);
  }
  return new QueueError('internal', undefined, [], error);
}
