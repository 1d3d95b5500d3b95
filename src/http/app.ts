import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { FastifyBaseLogger, FastifyInstance, FastifyTypeProvider } from 'fastify';
import type { TSchema } from 'typebox';
import type { ErrorCode } from '../core/errors.ts';
import type { Queue } from '../queue/api.ts';
import type { BudgetUsage } from './budgets.ts';
import type { Wire } from './contract/schema.ts';
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
  readonly queue: Queue;
  readonly waits: Waits;
  readonly log: HttpLogger | null;
  /** Whether the server refuses new work already. */
  readonly isStopping: () => boolean;
  /** Whether /metrics has those of the process too. */
  readonly processMetrics: boolean;
  /** What is in use of this server's budgets. */
  readonly budgets?: { usage(): BudgetUsage };
  /** How many lines of the log have found no room; absent where nobody counts them. */
  readonly logLinesDropped?: () => number;
}

/** What a route's entry in the OpenAPI document says beside its schemas. */
export interface RouteDocs {
  /** Codes particular to the call; those that any call can meet are added. */
  readonly codes?: readonly ErrorCode[];
  /** Whether the body may be left out (see `orEmpty`). */
  readonly optionalBody?: boolean;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    docs?: RouteDocs;
  }
}
