import { createCipheriv, createDecipheriv, createHmac, timingSafeEqual } from 'node:crypto';

const CIPHER = 'aes-128-ctr';
const TAG_BYTES = 16;

/**
 * Hides what cursors say from who is given them. Where delayed tasks are listed they tell a place in a log that topics share,
 * and so how much of others lies before it. Who could make one, or bend one, would find that place by trying: what was not
 * closed here is no cursor.
 *
 * A cursor is encrypted from a beginning that is its own tag (SIV, RFC 5297, with HMAC-SHA-256 in place of CMAC). The same
 * cursor may look the same each time: it is hidden what it says, not whether it is the same.
 */
export class CursorSeal {
  readonly #cipherKey: Buffer;
  readonly #tagKey: Buffer;

  /** @param secret 128 bits in hex, which all servers know and who gets the cursors doesn't */
  constructor(secret: string) {
    this.#cipherKey = derived(secret, 'cipher');
    this.#tagKey = derived(secret, 'tag');
  }

  close(cursor: string): string {
    const tag = this.#tagOf(cursor);
    const cipher = createCipheriv(CIPHER, this.#cipherKey, tag);
    return Buffer.concat([tag, cipher.update(cursor, 'utf8'), cipher.final()]).toString('base64url');
  }

  /** @returns null for what was not made here */
  open(text: string): string | null {
    const bytes = Buffer.from(text, 'base64url');
    if (bytes.length < TAG_BYTES) return null;
    const tag = bytes.subarray(0, TAG_BYTES);
    const decipher = createDecipheriv(CIPHER, this.#cipherKey, tag);
    const cursor = Buffer.concat([decipher.update(bytes.subarray(TAG_BYTES)), decipher.final()]).toString('utf8');
    return timingSafeEqual(tag, this.#tagOf(cursor)) ? cursor : null;
  }

  #tagOf(cursor: string): Buffer {
    return createHmac('sha256', this.#tagKey).update(cursor).digest().subarray(0, TAG_BYTES);
  }
}

const derived = (secret: string, use: string): Buffer =>
  createHmac('sha256', Buffer.from(secret, 'hex')).update(use).digest().subarray(0, 16);
