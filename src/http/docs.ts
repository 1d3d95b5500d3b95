import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import { ERROR_CODES, type ErrorCode } from '../core/errors.ts';
import type { Access } from './access.ts';
import type { App } from './app.ts';
import { STATUS_OF } from './codes.ts';
import { PROBLEM_TYPE } from './problem.ts';
import { VERSION } from './version.ts';

/** What any call can meet. */
const ANY_CALL: readonly ErrorCode[] = [
  'invalid-input',
  'request-timeout',
  'headers-too-large',
  'shutting-down',
  'internal',
];
const ANY_QUEUE_CALL: readonly ErrorCode[] = ['store-unavailable', 'busy'];
/** What any call can meet that needs a key. */
const ANY_KEYED_CALL: readonly ErrorCode[] = ['unauthenticated', 'forbidden', 'rate-limited'];
const ANY_BODY: readonly ErrorCode[] = ['body-too-large', 'unsupported-media-type', 'unsupported-encoding'];

/**
 * Of the pages under /docs. Without `upgrade-insecure-requests`, which the package's own has: on an address that is not
 * loopback, a browser would then ask for everything by HTTPS.
 */
const DOCS_CSP =
  "default-src 'self'; base-uri 'self'; frame-ancestors 'self'; img-src 'self' data:; object-src 'none'; script-src-attr 'none'; style-src 'self'";

/**
 * Serves the OpenAPI document at /docs/json, and a page to read and try it at /docs. Register before the routes.
 * @param needsKeys whether the server asks for keys
 */
export async function describeApi(app: App, needsKeys: boolean): Promise<void> {
  const optionalBodies = new Set<unknown>();
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Ebbmark',
        version: VERSION,
        description:
          'A priority task queue for very many topics. Times are milliseconds since 1970, durations milliseconds. Errors are RFC 9457 problem documents with a stable `code`.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      tags: [
        { name: 'tasks', description: 'Enqueue, look at, list, cancel, reschedule' },
        { name: 'leases', description: 'Take tasks, settle them' },
        { name: 'topics', description: 'Counts and settings' },
        { name: 'schedules', description: 'Tasks at the times of a cron pattern' },
        { name: 'admin', description: 'What an operator looks at and does' },
        { name: 'keys', description: 'API keys: make, list, revoke' },
        { name: 'service', description: 'What the server says of itself' },
      ],
      components: {
        securitySchemes: {
          key: {
            type: 'http',
            scheme: 'bearer',
            description: 'An API key, `ebb_…`, as `ebbmark keys create` made it.',
          },
        },
      },
    },
    refResolver: {
      buildLocalReference: (json, _baseUri, _fragment, at) => (typeof json.$id === 'string' ? json.$id : `def-${at}`),
    },
    // Problems are written by the error handler, not by serializers: they are added to the document only, so that the
    // server need not compile one for every status of every route at its start.
    transform: ({ schema, url, route }) => {
      if (!schema || schema.hide) return { schema: schema ?? {}, url };
      if (route.config?.docs?.optionalBody) optionalBodies.add(schema.operationId);
      const codes = new Set<ErrorCode>([...ANY_CALL, ...(route.config?.docs?.codes ?? [])]);
      if (url.startsWith('/v1/')) for (const code of ANY_QUEUE_CALL) codes.add(code);
      const access = route.config?.access ?? 'open';
      if (typeof access !== 'string') for (const code of ANY_KEYED_CALL) codes.add(code);
      if (schema.body !== undefined) for (const code of ANY_BODY) codes.add(code);
      const response = { ...problemResponses(codes), ...described(schema.response, schema.summary ?? '') };
      return { schema: { ...schema, ...securityOf(access, needsKeys, schema.description), response }, url };
    },
    transformObject: (document) => {
      if (!('openapiObject' in document)) return document.swaggerObject;
      for (const path of Object.values(document.openapiObject.paths ?? {})) {
        const operation = path?.post;
        if (!optionalBodies.has(operation?.operationId)) continue;
        (operation?.requestBody as { required?: boolean }).required = false;
      }
      return document.openapiObject;
    },
  });
  await app.register(swaggerUi, { routePrefix: '/docs', staticCSP: DOCS_CSP });
}

/** Whether a call needs a key, and what kind of one. */
function securityOf(access: Access, needsKeys: boolean, description = ''): object {
  if (typeof access === 'string') return { security: [] };
  const kind = access.allTopics ? ' for all topics' : '';
  const text = `Needs a key${kind} with the role ${access.roles.join(' or ')}, where the server asks for keys.`;
  return {
    security: needsKeys ? [{ key: [] }] : [{ key: [] }, {}],
    description: description === '' ? text : `${description}\n\n${text}`,
  };
}

/** Success answers with a description: of their schema, or what the call does. */
function described(responses: unknown, summary: string): object {
  const entries = Object.entries((responses ?? {}) as Record<string, { readonly description?: string }>);
  return Object.fromEntries(
    entries.map(([status, schema]) => [status, schema.description ? schema : { ...schema, description: summary }]),
  );
}

function problemResponses(codes: ReadonlySet<ErrorCode>): Record<number, object> {
  const byStatus = new Map<number, string[]>();
  for (const code of codes) {
    const lines = byStatus.get(STATUS_OF[code]) ?? [];
    lines.push(`\`${code}\`: ${ERROR_CODES[code]}`);
    byStatus.set(STATUS_OF[code], lines);
  }
  const responses: Record<number, object> = {};
  for (const [status, lines] of byStatus) {
    responses[status] = {
      description: lines.join('\n'),
      content: { [PROBLEM_TYPE]: { schema: { $ref: 'Problem#' } } },
    };
  }
  return responses;
}
