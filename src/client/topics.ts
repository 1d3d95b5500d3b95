import type { StandardSchemaV1 } from '@standard-schema/spec';
import { type InputIssue, invalid, QueueError } from '../core/errors.ts';
import { checkSelector } from '../core/names.ts';
import type { TaskPayload } from '../queue/api.ts';

/** Schemas of payloads by topic; a name that ends with `*` stands for all that begin with what is before. */
export type TopicSchemas = Readonly<Record<string, StandardSchemaV1>>;

/** Those of a client that was given none: any topic, any payload. */
export type AnyTopics = { readonly '*': StandardSchemaV1<TaskPayload, TaskPayload> };

/** The names that a definition is for. */
export type NameOf<K extends string> = K extends `${infer Prefix}*` ? `${Prefix}${string}` : K;

/** The names that are defined. */
export type TopicName<T extends TopicSchemas> = { [K in keyof T & string]: NameOf<K> }[keyof T & string];

/** The definition of a name: its own, or those whose prefix it has. */
export type DefinitionOf<T extends TopicSchemas, N extends string> = N extends keyof T
  ? N
  : {
      [K in keyof T & string]: K extends `${infer Prefix}*` ? (N extends `${Prefix}${string}` ? K : never) : never;
    }[keyof T & string];

/** What may be published to a topic. */
export type PayloadOf<T extends TopicSchemas, N extends string> = StandardSchemaV1.InferInput<T[DefinitionOf<T, N>]>;

/**
 * Gives topics the types of their payloads, for a client (`new Client(url, { topics })`). What is published is sent as
 * it is given; what a worker gets is what its schema makes of that.
 *
 * @param schemas by topic, of any library that follows Standard Schema (https://standardschema.dev): Zod, Valibot,
 *   ArkType and others
 * @throws QueueError `topic-invalid`; `invalid-input` where something is no schema
 */
export function defineTopics<const T extends TopicSchemas>(schemas: T): T {
  for (const [name, schema] of Object.entries<unknown>(schemas)) {
    checkSelector(name, `/${name}`);
    const validate = (schema as Partial<StandardSchemaV1> | null)?.['~standard']?.validate;
    if (typeof validate !== 'function') {
      throw invalid(`/${name}`, schema, 'a Standard Schema', 'z.object({ to: z.string() }) of Zod');
    }
  }
  return schemas;
}

/** The schemas of a client, by name; null: it was given none. */
export class TopicBook {
  readonly #exact = new Map<string, StandardSchemaV1>();
  /** The longest prefix first. */
  readonly #prefixes: (readonly [string, StandardSchemaV1])[] = [];
  readonly #isOpen: boolean;

  constructor(schemas: TopicSchemas | null) {
    this.#isOpen = schemas === null;
    for (const [name, schema] of Object.entries(schemas === null ? {} : defineTopics(schemas))) {
      if (name.endsWith('*')) this.#prefixes.push([name.slice(0, -1), schema]);
      else this.#exact.set(name, schema);
    }
    this.#prefixes.sort(([a], [b]) => b.length - a.length);
  }

  /**
   * Looks whether a topic is defined, or, where it ends with `*`, all that it stands for.
   * @throws QueueError `topic-invalid`, `invalid-input`
   */
  check(topic: string): void {
    checkSelector(topic);
    if (!this.#isOpen && this.#schemaOf(topic) === null) throw this.#undefinedTopic(topic);
  }

  /**
   * What the topic's schema makes of a payload.
   * @throws QueueError `invalid-input` with each issue where it does not fit
   */
  async parse(topic: string, payload: unknown): Promise<unknown> {
    if (this.#isOpen) return payload;
    const schema = this.#schemaOf(topic);
    if (schema === null) throw this.#undefinedTopic(topic);
    const result = await schema['~standard'].validate(payload);
    if (result.issues === undefined) return result.value;
    const issues = result.issues.map(
      ({ message, path = [] }): InputIssue => ({
        path: ['/payload', ...path.map((part) => String(typeof part === 'object' ? part.key : part))].join('/'),
        message,
      }),
    );
    const said = issues.map(({ path, message }) => `${path}: ${message}`).join('; ');
    throw new QueueError('invalid-input', `The payload does not fit ${topic}: ${said}`, issues);
  }

  #schemaOf(topic: string): StandardSchemaV1 | null {
    const own = this.#exact.get(topic);
    return own ?? this.#prefixes.find(([prefix]) => topic.startsWith(prefix))?.[1] ?? null;
  }

  #undefinedTopic(topic: string): QueueError {
    const names = [...this.#exact.keys(), ...this.#prefixes.map(([prefix]) => `${prefix}*`)];
    return invalid('/topic', topic, 'a topic that this client defines', names.join(', ') || 'none is');
  }
}
