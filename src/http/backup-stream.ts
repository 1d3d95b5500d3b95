import { Readable } from 'node:stream';
import type { Backup } from '../queue/api.ts';

/** A reader has to take so many bytes in each of these times, or it loses the backup: it holds the only one there may be. */
const LEAST_BYTES = 1024 * 1024;
const EVERY_MS = 30_000;

/**
 * A backup as a stream that reads no further than its reader does.
 * @param everyMs how often it is looked at whether the reader goes on
 */
export function backupStream(backup: Backup, everyMs = EVERY_MS): Readable {
  let taken = 0;
  let takenBefore = 0;
  const stream = new Readable({
    highWaterMark: 1,
    read() {
      backup.read().then(
        (piece) => {
          taken += piece?.length ?? 0;
          this.push(piece);
        },
        (error: Error) => this.destroy(error),
      );
    },
    destroy(error, done) {
      clearInterval(timer);
      backup.close();
      done(error);
    },
  });
  const timer = setInterval(() => {
    if (taken - takenBefore < LEAST_BYTES) {
      stream.destroy(
        new Error(`the reader took ${taken - takenBefore} bytes in ${everyMs} ms; ${LEAST_BYTES} are the least`),
      );
    }
    takenBefore = taken;
  }, everyMs);
  timer.unref();
  return stream;
}
