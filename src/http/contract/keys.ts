/** API keys: make, list, revoke. */
import Type from 'typebox';
import { ROLES } from '../../core/api-key.ts';
import { KEY_PAGE, KEY_PREFIXES, KEY_RATE, TOPIC_BYTES } from '../../core/bounds.ts';
import { Nullable, OneOf, Ref, Strict, Time, Within } from './schema.ts';

const Roles = Type.Array(OneOf(ROLES, { examples: ['consume'] }), {
  minItems: 1,
  maxItems: ROLES.length,
  uniqueItems: true,
  description: 'What it may: put tasks in, work on them, look after topics.',
  examples: [['consume']],
});
const prefixes = (description: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: TOPIC_BYTES, examples: ['mail/'] }), {
    minItems: 1,
    maxItems: KEY_PREFIXES,
    description,
    examples: [['mail/']],
  });
const perSecond = Within(KEY_RATE.perSecond, { examples: [100] });
const burst = Within(KEY_RATE.burst, { examples: [200] });

export const KeyBody = Strict(
  {
    name: Type.String({
      minLength: 1,
      description: 'For people: whose it is. At most 128 bytes.',
      examples: ['mailer'],
    }),
    description: Type.Optional(
      Type.String({ minLength: 1, description: 'At most 1,024 bytes.', examples: ['of the shop'] }),
    ),
    roles: Roles,
    prefixes: Type.Optional(prefixes('What the names of its topics begin with; all topics when absent.')),
    rate: Type.Optional(
      Strict(
        { perSecond, burst: Type.Optional(burst) },
        {
          description: 'Requests to each server; no limit when absent. `burst` is `perSecond` when absent.',
          examples: [{ perSecond: 100, burst: 200 }],
        },
      ),
    ),
    ttlMs: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: Math.floor(Number.MAX_SAFE_INTEGER / 2),
        description: 'How long it is good for, in milliseconds; for ever when absent.',
        examples: [2_592_000_000],
      }),
    ),
  },
  { examples: [{ name: 'mailer', roles: ['consume'], prefixes: ['mail/'] }] },
);

const shown = {
  id: Type.String({ description: 'Stands in the key as well; no secret.' }),
  name: Type.String(),
  description: Nullable(Type.String()),
  roles: Roles,
  prefixes: Nullable(prefixes('What the names of its topics begin with; null: it is for all.')),
  rate: Nullable(Strict({ perSecond, burst }, { description: 'Requests to each server; null: no limit.' })),
  createdAt: Time(),
  expiresAt: Nullable(Time({ description: 'From when on it is good for nothing; null: it does not expire.' })),
  revokedAt: Nullable(Time({ description: 'null: it was not revoked.' })),
};
export const ApiKey = Strict(shown, { $id: 'ApiKey' });

export const NewKey = Strict({
  ...shown,
  key: Type.String({ description: 'What its holder shows. It is told this once, and kept nowhere.' }),
});

export const KeyList = Strict({
  keys: Type.Array(Ref(ApiKey)),
  after: Type.Optional(Type.String({ description: 'Where the next page begins; absent at the end.' })),
});

export const KeyParams = Type.Object({
  id: Type.String({ description: 'The id of a key, not the key.', examples: ['4f0c1d2e3b5a'] }),
});

export const KeysQuery = Strict({
  after: Type.Optional(Type.String({ description: 'Where the page begins: `after` of the page before.' })),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: KEY_PAGE, description: '100 when absent.', examples: [100] }),
  ),
});
