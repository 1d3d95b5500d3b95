/** Distinctive secrets, and whether any of them stands in a text, as it is or encoded. */

/** Where each of them is put. */
const PLACES = [
  'authorization',
  'cookie',
  'header',
  'idempotencyKey',
  'query',
  'payload',
  'metadata',
  'messageId',
  'result',
  'reason',
  'progress',
  'schedule',
  'misshapen',
  'pathPart',
  'url',
  'cassandraPassword',
  'passphrase',
  'peerSecret',
  'bug',
] as const;
export type Place = (typeof PLACES)[number];

export const secrets = Object.fromEntries(
  PLACES.map((place) => [place, `canary${place}${Math.random().toString(36).slice(2, 10)}`]),
) as Readonly<Record<Place, string>>;

/** Base64 of a text depends on where in a longer one it begins: what is certain of each of the three ways. */
const encodedForms = (text: string): readonly string[] =>
  [0, 1, 2].map((before) => {
    const base64 = Buffer.from('\0'.repeat(before) + text).toString('base64url');
    return base64.slice(before === 0 ? 0 : before + 1, Math.floor(((before + text.length) * 4) / 3) - 1);
  });

/** Those that stand in a text; `more` are further ones, a key for example. */
export function secretsIn(text: string, more: Readonly<Record<string, string>> = {}): readonly string[] {
  const normal = text.replaceAll('+', '-').replaceAll('/', '_');
  return Object.entries({ ...secrets, ...more })
    .filter(
      ([, secret]) =>
        text.includes(secret) ||
        text.includes(Buffer.from(secret).toString('hex')) ||
        encodedForms(secret).some((form) => normal.includes(form)),
    )
    .map(([name]) => name);
}
