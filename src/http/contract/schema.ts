/**
 * What the contract is made of. A schema is written once; validation, OpenAPI and the types of routes come from it.
 */
import Type, { type Static, type TObject, type TProperties, type TSchema } from 'typebox';
import type { JsonValue } from '../../queue/api.ts';

/**
 * The static type as handlers see it: deeply readonly, as the queue's types are. What holds any JSON stays as it is
 * (its type is recursive).
 */
export type DeepReadonly<T> = [JsonValue] extends [T]
  ? T
  : T extends readonly (infer E)[]
    ? readonly DeepReadonly<E>[]
    : T extends object
      ? { readonly [K in keyof T]: DeepReadonly<T[K]> }
      : T;

export type Wire<S extends TSchema> = DeepReadonly<Static<S>>;

/** An object that takes no other fields. */
export const Strict = <P extends TProperties>(properties: P, options: object = {}): TObject<P> =>
  Type.Object(properties, { additionalProperties: false, ...options });

/** The same schema, which also takes null. */
export const Nullable = <S extends TSchema>(schema: S): ReturnType<typeof Type.Unsafe<Static<S> | null>> =>
  Type.Unsafe<Static<S> | null>({ ...schema, type: [(schema as { type?: string }).type, 'null'] });

/** One of several strings. */
export const OneOf = <const V extends string>(values: readonly V[], options: object = {}) =>
  Type.Unsafe<V>({ type: 'string', enum: [...values], ...options });

/** A reference to a schema that has a name of its own in the OpenAPI document (see `named`). */
export const Ref = <S extends TSchema>(schema: S) =>
  Type.Unsafe<Static<S>>({ $ref: `${(schema as { $id?: string }).$id}#` });

export const AnyJson = (options: object = {}) => Type.Unsafe<JsonValue>({ ...options });

/** Strings by name. Not TypeBox's Record: its pattern lets names with a line break through unchecked. */
export const Strings = (options: object = {}) =>
  Type.Unsafe<Record<string, string>>({ type: 'object', additionalProperties: { type: 'string' }, ...options });

/** Milliseconds since 1970. */
export const Time = (options: object = {}) =>
  Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, examples: [1_767_225_600_000], ...options });

/** A duration in milliseconds. */
export const Ms = (minimum: number, maximum: number, options: object = {}) =>
  Type.Integer({ minimum, maximum, examples: [30_000], ...options });

/** An integer between two bounds. */
export const Within = ({ min, max }: { readonly min: number; readonly max: number }, options: object = {}) =>
  Type.Integer({ minimum: min, maximum: max, ...options });

/** A count or a cursor in an answer. */
export const Count = (options: object = {}) => Type.Integer({ minimum: 0, ...options });
