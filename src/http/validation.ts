import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { type InputIssue, QueueError } from '../core/errors.ts';
import { isBadQuery } from './query.ts';
import { issuesOf } from './validation-messages.ts';

/** Issues one answer lists at the most. */
const MAX_ISSUES = 20;
/** Values up to this many are looked through for all that is wrong; in larger input only the first is named. */
const LISTED_VALUES = 2_000;

const BAD_QUERY =
  'query: it is not valid percent-encoded UTF-8; for example: "after=caf%C3%A9" for "café", "%25" for "%"';

/** What a part of a request is called in messages. */
const PART_NAMES: Readonly<Record<string, string>> = {
  body: 'body',
  params: 'path',
  querystring: 'query',
  headers: 'headers',
};

/**
 * Compiles the contract's schemas into checks. Unknown fields are refused, nothing is removed, filled in or
 * converted; only a query's numbers, which are text by nature, are read as numbers.
 *
 * Two validators: the one in use stops at the first error, since listing all of a large body would cost more memory
 * than the body; the other lists what is wrong with a small one.
 */
export function validatorCompiler(named: readonly TSchema[]): FastifySchemaCompiler<TSchema> {
  const first = newAjv(named, false);
  const all = newAjv(named, true);
  return ({ schema, httpPart }) => {
    const check = first.compile(schema);
    let list: ValidateFunction | undefined;
    const integers = httpPart === 'querystring' ? integersOf(schema) : [];
    return (data: unknown) => {
      if (httpPart === 'querystring' && isBadQuery(data)) return { error: new QueueError('invalid-input', BAD_QUERY) };
      for (const name of integers) readInteger(data as Record<string, unknown>, name);
      if (check(data)) return true;
      let errors = check.errors as ErrorObject[];
      if (countValues(data, LISTED_VALUES) < LISTED_VALUES) {
        list ??= all.compile(schema);
        if (!list(data)) errors = list.errors as ErrorObject[];
      }
      return { error: refusal(PART_NAMES[httpPart ?? 'body'] ?? 'body', issuesOf(errors)) };
    };
  };
}

function newAjv(named: readonly TSchema[], allErrors: boolean): Ajv {
  const ajv = new Ajv({ allErrors, verbose: true, strictTypes: false, validateFormats: false, validateSchema: false });
  for (const schema of named) ajv.addSchema(schema);
  return ajv;
}

function refusal(part: string, issues: readonly InputIssue[]): QueueError {
  const { path, message } = issues[0]!;
  const more = issues.length > 1 ? ` (and ${issues.length - 1} more)` : '';
  return new QueueError(
    'invalid-input',
    `${part}${path === '' ? '' : ` ${path}`}: ${message}${more}`,
    issues.slice(0, MAX_ISSUES),
  );
}

const integersOf = (schema: TSchema): readonly string[] =>
  Object.entries((schema as { properties?: Record<string, { type?: unknown }> }).properties ?? {})
    .filter(([, property]) => property.type === 'integer')
    .map(([name]) => name);

/** Plain decimal integers only: not `0x10`, ` 5`, `-0`, `1e3` or an empty text, which Number() takes as well. */
function readInteger(query: Record<string, unknown>, name: string): void {
  const text = query[name];
  if (typeof text === 'string' && /^(0|-?[1-9]\d{0,15})$/.test(text)) query[name] = Number(text);
}

/** Counts values, up to a limit. */
function countValues(value: unknown, limit: number): number {
  if (typeof value !== 'object' || value === null) return 1;
  let count = 1;
  for (const key in value) {
    count += countValues((value as Record<string, unknown>)[key], limit - count);
    if (count >= limit) break;
  }
  return count;
}
