/** API keys: what one is, what it may, and the text that its holder shows. */

/** What a key may: put tasks in, work on them, look after topics. */
export const ROLES = ['produce', 'consume', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** Requests that a key may send to one server: so many a second, up to `burst` at once. */
export interface KeyRate {
  readonly perSecond: number;
  readonly burst: number;
}

export interface ApiKey {
  /** Stands in the key as well; no secret. */
  readonly id: string;
  readonly name: string;
  readonly description: string | null;
  readonly roles: readonly Role[];
  /** What the names of its topics begin with; null: it is for all topics. */
  readonly prefixes: readonly string[] | null;
  /** null: no limit. */
  readonly rate: KeyRate | null;
  readonly createdAt: number;
  /** From when on it is good for nothing; null: it does not expire. */
  readonly expiresAt: number | null;
  /** null: it was not revoked. */
  readonly revokedAt: number | null;
}

/** A key as it is stored: its secret is not. */
export interface KeyRow extends ApiKey {
  /** SHA-256 of the key's text, in hex. */
  readonly hash: string;
  /** 128 random bits in hex, which its holder is not told: what hides from him where the cursors that he gets point to. */
  readonly seal: string;
}

export const isUsable = ({ revokedAt, expiresAt }: ApiKey, now: number): boolean =>
  revokedAt === null && (expiresAt === null || now < expiresAt);

/** When it ended, or will end; null: it does not. */
export const endOf = ({ revokedAt, expiresAt }: ApiKey): number | null =>
  revokedAt === null || expiresAt === null ? (revokedAt ?? expiresAt) : Math.min(revokedAt, expiresAt);

export const mayUse = (prefixes: readonly string[], topic: string): boolean =>
  prefixes.some((prefix) => topic.startsWith(prefix));

/** The same prefixes without those that another one covers, in the order of topics. */
export const sparsest = (prefixes: readonly string[]): readonly string[] =>
  [...new Set(prefixes)].filter((one, _, all) => !all.some((other) => other !== one && one.startsWith(other))).sort();

/** What begins both with `asked` and with one of the prefixes, of which none covers another. */
export const within = (prefixes: readonly string[], asked: string): readonly string[] =>
  mayUse(prefixes, asked) ? [asked] : prefixes.filter((prefix) => prefix.startsWith(asked));

/** Hexadecimal digits of a key's id, its secret (256 bits) and its checksum. */
export const KEY_ID_DIGITS = 12;
export const KEY_SECRET_DIGITS = 64;
const KEY = new RegExp(`^ebb_([0-9a-f]{${KEY_ID_DIGITS}})_[0-9a-f]{${KEY_SECRET_DIGITS}}([0-9a-f]{8})$`);

/** `ebb_ID_SECRET`, the secret with a checksum behind it: whoever looks for leaked keys need not ask whether it is one. */
export function formatKey(id: string, secret: string): string {
  const text = `ebb_${id}_${secret}`;
  return text + checksum(text);
}

/** The id in a key's text; null where it is none. */
export function keyIdOf(text: string): string | null {
  const match = KEY.exec(text);
  return match !== null && checksum(text.slice(0, -8)) === match[2] ? match[1]! : null;
}

/** CRC-32 as in zlib (RFC 1952, section 8), in hex. */
function checksum(text: string): string {
  let crc = 0xffffffff;
  for (let i = 0; i < text.length; i++) {
    crc ^= text.charCodeAt(i);
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (~crc >>> 0).toString(16).padStart(8, '0');
}
