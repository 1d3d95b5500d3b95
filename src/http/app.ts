import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { FastifyBaseLogger, FastifyInstance, FastifyTypeProvider } from 'fastify';
import type { TSchema } from 'typebox';
import type { ErrorCode } from '../core/errors.ts';
import type { Admission } from './admission.ts';
import type { Answers } from './answers.ts';
import type { Budgets } from './budgets.ts';
import type { Wire } from './contract/schema.ts';
import type { Metrics } from './metrics.ts';
import type { Waits } from './waits.ts';

/** Gives handlers the static types of their schemas. */
interface ContractTypes extends FastifyTypeProvider {
  readonly validator: this['schema'] extends TSchema ? Wire<this['schema']> : unknown;
  readonly serializer: this['schema'] extends TSchema ? Wire<this['schema']> : unknown;
}

export type App = FastifyInstance<Server, IncomingMessage, ServerResponse, FastifyBaseLogger, ContractTypes>;

/** Where the server tells of trouble; pino fits. */
export interface HttpLogger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  readonly level?: string;
}

/** What routes work with. */
export interface Surroundings {
  readonly waits: Waits;
  readonly budgets: Budgets;
  readonly answers: Answers;
  readonly log: HttpLogger | null;
  /** Whether the server refuses new work already. */
  readonly isStopping: () => boolean;
  readonly metrics: Metrics;
}

/** What a route's entry in the OpenAPI document says beside its schemas. */
export interface RouteDocs {
  /** Codes particular to the call; those that any call can meet are added. */
  readonly codes?: readonly ErrorCode[];
  /** Whether the body may be left out (see `orEmpty`). */
  readonly optionalBody?: boolean;
}

/**
 * What a route takes of the budgets, beside memory for other traffic:
 * - `enqueue` tasks, and memory for what is published;
 * - `publish` memory for what is published;
 * - `lease`   tasks that its answer hands out;
 * - `service` nothing that is refused: it says how the server is.
 */
export type Budget = 'enqueue' | 'publish' | 'lease' | 'service';

declare module 'fastify' {
  interface FastifyContextConfig {
    docs?: RouteDocs;
    budget?: Budget;
  }
  interface FastifyRequest {
    admission: Admission;
  }
}
