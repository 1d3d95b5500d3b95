import { createCipheriv, createDecipheriv } from 'node:crypto';

const CIPHER = 'aes-128-cbc';
/** The same cursor may look the same each time: it is hidden what it says, not whether it is the same. */
const IV = Buffer.alloc(16);

/**
 * Hides what cursors say from who is given them. Where delayed tasks are listed they tell a place in a log that topics share,
 * and so how much of others lies before it.
 */
export class CursorSeal {
  readonly #secret: Buffer;

  /** @param secret 128 bits in hex, which all servers know and who gets the cursors doesn't */
  constructor(secret: string) {
    this.#secret = Buffer.from(secret, 'hex');
  }

  close(cursor: string): string {
    const cipher = createCipheriv(CIPHER, this.#secret, IV);
    return Buffer.concat([cipher.update(cursor, 'utf8'), cipher.final()]).toString('base64url');
  }

  /** @returns the text itself where it was not made here: the queue says what is wrong with it */
  open(text: string): string {
    try {
      const decipher = createDecipheriv(CIPHER, this.#secret, IV);
      return Buffer.concat([decipher.update(text, 'base64url'), decipher.final()]).toString('utf8');
    } catch {
      return text;
    }
  }
}
