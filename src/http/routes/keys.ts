import { QueueError } from '../../core/errors.ts';
import type { Keyring } from '../../queue/keys.ts';
import type { App, Surroundings } from '../app.ts';
import { ApiKey, KeyBody, KeyList, KeyParams, KeysQuery, NewKey } from '../contract/keys.ts';
import { Ref } from '../contract/schema.ts';
import { NoQuery } from '../contract/service.ts';

const tags = ['keys'];
const access = { roles: ['admin'], allTopics: true } as const;

/**
 * Make, list and revoke API keys.
 * @param keys null: the server asks for none
 */
export function keyRoutes(app: App, { log }: Surroundings, keys: Keyring | null): void {
  /** Where nobody is asked who he is, nobody can be trusted to say who may come in once keys are asked for. */
  const known = (): Keyring => {
    if (keys !== null) return keys;
    throw new QueueError(
      'forbidden',
      'This server asks for no keys, and so makes none: EBBMARK_REQUIRE_KEYS=on, or --store',
    );
  };

  app.post(
    '/v1/admin/keys',
    {
      schema: {
        operationId: 'createKey',
        summary: 'Make an API key; it is told once, here',
        tags,
        querystring: NoQuery,
        body: KeyBody,
        response: { 201: NewKey },
      },
      config: { access, docs: { codes: ['topic-invalid', 'too-many-keys', 'outcome-unknown'] } },
    },
    async (request, reply) => {
      const made = await known().createKey(request.body);
      log?.info({ key: made.id, name: made.name, by: request.caller.key?.id }, 'a key was made');
      reply.code(201).header('cache-control', 'no-store');
      return made;
    },
  );

  app.get(
    '/v1/admin/keys',
    {
      schema: {
        operationId: 'listKeys',
        summary: 'List API keys, without what their holders show; those that ended within a month as well',
        tags,
        querystring: KeysQuery,
        response: { 200: KeyList },
      },
      config: { access, docs: { codes: ['key-not-found'] } },
    },
    (request) => known().listKeys(request.query),
  );

  app.delete(
    '/v1/admin/keys/:id',
    {
      schema: {
        operationId: 'revokeKey',
        summary: 'Revoke an API key: here at once, on other servers within five seconds',
        tags,
        params: KeyParams,
        querystring: NoQuery,
        response: { 200: Ref(ApiKey) },
      },
      config: { access, docs: { codes: ['key-not-found', 'outcome-unknown'] } },
    },
    async (request) => {
      const revoked = await known().revokeKey(request.params.id);
      log?.info({ key: revoked.id, name: revoked.name, by: request.caller.key?.id }, 'a key was revoked');
      return revoked;
    },
  );
}
