/** Turns what Ajv found into what a person can act on: where, the value, the rule, and what would be right. */
import type { ErrorObject } from 'ajv';
import { type InputIssue, show } from '../core/errors.ts';

/** The parts of a schema that messages speak of. */
interface Described {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
  readonly minProperties?: number;
  readonly pattern?: string;
  readonly contentEncoding?: string;
  /** Says in words what a pattern says. */
  readonly title?: string;
  readonly examples?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Described>>;
}

export function issuesOf(errors: readonly ErrorObject[]): InputIssue[] {
  // What failed inside the branches of a `oneOf` only repeats what the `oneOf` says.
  const choices = errors.filter((error) => error.keyword === 'oneOf').map((error) => `${error.schemaPath}/`);
  const issues = errors.filter((error) => !choices.some((choice) => error.schemaPath.startsWith(choice))).map(issueOf);
  const seen = new Set<string>();
  return issues.filter(({ path, message }) => seen.size < seen.add(`${path}\0${message}`).size);
}

function issueOf(error: ErrorObject): InputIssue {
  const schema = (error.parentSchema ?? {}) as Described;
  const params = error.params as Record<string, unknown>;
  const path = error.instancePath;
  switch (error.keyword) {
    case 'required': {
      const name = String(params.missingProperty);
      const wanted = schema.properties?.[name];
      return { path: `${path}/${pointer(name)}`, message: `is missing; it is ${ruleOf(wanted)}${exampleOf(wanted)}` };
    }
    case 'additionalProperties': {
      const name = String(params.additionalProperty);
      const names = Object.keys(schema.properties ?? {});
      const known = names.length === 0 ? 'none are taken here' : `known are ${names.join(', ')}`;
      return { path: `${path}/${pointer(name)}`, message: `${show(cut(name))} is not a known field; ${known}` };
    }
    default: {
      const isChoice = error.keyword === 'oneOf' && isObject(error.data);
      const fault = isChoice ? 'has not exactly one of payload and payloadBase64' : `is not ${ruleOf(schema)}`;
      // To validation a body that is not there is null, too.
      const value = path === '' && error.data === null ? 'nothing (or null)' : showValue(error.data);
      return { path, message: `${value} ${fault}${exampleOf(schema)}` };
    }
  }
}

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

const pointer = (name: string): string => cut(name).replaceAll('~', '~0').replaceAll('/', '~1');
const cut = (text: string): string => (text.length > 80 ? `${text.slice(0, 77)}…` : text);

/** Shows a value without writing out a large one first. */
function showValue(value: unknown): string {
  if (typeof value === 'string') return show(value.slice(0, 100));
  if (Array.isArray(value))
    return value.length <= 5 && value.every(isScalar) ? show(value) : `a list of ${value.length}`;
  if (typeof value !== 'object' || value === null) return show(value);
  const names = Object.keys(value);
  const few = names.slice(0, 5).map(cut).join(', ');
  return names.length === 0 ? '{}' : `an object with ${few}${names.length > 5 ? ', …' : ''}`;
}

const isScalar = (value: unknown): boolean =>
  typeof value !== 'object' && !(typeof value === 'string' && value.length > 20);

const number = (value: number): string => value.toLocaleString('en-US');

function ruleOf(schema: Described | undefined): string {
  if (!schema) return 'what belongs here';
  const rules = typesOf(schema).map((type) => ruleOfType(type, schema));
  return rules.length === 0 ? 'any JSON value' : rules.join(' or ');
}

const typesOf = (schema: Described): readonly string[] =>
  typeof schema.type === 'string' ? [schema.type] : (schema.type ?? []);

function ruleOfType(type: string, schema: Described): string {
  if (type === 'null') return 'null';
  if (schema.enum) return `one of ${schema.enum.map((value) => show(value)).join(', ')}`;
  switch (type) {
    case 'integer':
      return `an integer${between(schema.minimum, schema.maximum)}`;
    case 'string':
      if (schema.contentEncoding) return 'base64 with padding (RFC 4648, section 4)';
      if (schema.pattern) return schema.title ?? `a string like ${schema.pattern}`;
      return `a string${sized(schema.minLength, schema.maxLength, 'characters')}`;
    case 'array':
      return `a list${sized(schema.minItems, schema.maxItems, 'items')}${schema.uniqueItems ? ' without repetitions' : ''}`;
    case 'object':
      return schema.minProperties ? 'an object with at least one field' : 'an object';
    case 'boolean':
      return 'true or false';
    default:
      return `a ${type}`;
  }
}

/** ` from 0 to 9`; a bound that is only the end of safe integers is not worth naming. */
function between(minimum: number | undefined, maximum: number | undefined): string {
  const low = minimum === undefined || minimum === Number.MIN_SAFE_INTEGER ? undefined : minimum;
  const high = maximum === undefined || maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum;
  if (low !== undefined && high !== undefined) return ` from ${number(low)} to ${number(high)}`;
  if (low !== undefined) return ` of at least ${number(low)}`;
  return high === undefined ? '' : ` of at most ${number(high)}`;
}

function sized(min: number | undefined, max: number | undefined, what: string): string {
  if (min !== undefined && max !== undefined) return ` of ${number(min)} to ${number(max)} ${what}`;
  if (max !== undefined) return ` of at most ${number(max)} ${what}`;
  return min === undefined ? '' : ` of at least ${number(min)} ${what}`;
}

function exampleOf(schema: Described | undefined): string {
  const example = schema?.examples?.[0] ?? schema?.enum?.[0];
  return example === undefined ? '' : `; for example: ${JSON.stringify(example)}`;
}
