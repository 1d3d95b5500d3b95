/**
 * Tells whether a log (`-wal`) holds what was committed to it.
 *
 * After a crash SQLite takes the log's frames up to the first whose checksum is wrong and drops the rest in silence,
 * because that is what a transaction cut off in the middle looks like. A frame that went bad later looks the same, but
 * then acknowledged tasks stand behind it (promise Q1). The two can be told apart: each commit here is synced before the
 * next begins, so what is cut off is one transaction, with at most one commit frame. Two of them behind a bad frame mean
 * damage. Damage within the last transaction cannot be told from a cut.
 *
 * Format: https://sqlite.org/fileformat2.html#the_write_ahead_log
 */
import { closeSync, openSync, readSync } from 'node:fs';

const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
/** The last bit tells the byte order of the words that are summed. */
const MAGIC = 0x377f0682;

type Sums = readonly [number, number];

/** @returns what is wrong with the log, or null */
export function logFault(path: string): string | null {
  const descriptor = openSync(path, 'r');
  try {
    return faultOf(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function faultOf(descriptor: number): string | null {
  const header = new DataView(new ArrayBuffer(HEADER_BYTES));
  if (readSync(descriptor, header, 0, HEADER_BYTES, 0) < HEADER_BYTES) return null;
  const magic = header.getUint32(0);
  // A file that was made longer just before the power went, and never written: nothing was committed to it.
  if (magic === 0 && header.getUint32(24) === 0 && header.getUint32(28) === 0) return null;
  const isLittle = magic === MAGIC;
  const seed = checksum(header, 0, 24, [0, 0], isLittle);
  if (magic >>> 1 !== MAGIC >>> 1 || seed[0] !== header.getUint32(24) || seed[1] !== header.getUint32(28)) {
    return 'the header of its log (-wal) is wrong';
  }
  const pageSize = header.getUint32(8);
  const frame = new DataView(new ArrayBuffer(FRAME_HEADER_BYTES + pageSize));
  let sums: Sums | null = seed;
  let bad = 0;
  let commitsBehind = 0;
  for (let number = 0; ; number++) {
    const offset = HEADER_BYTES + number * frame.byteLength;
    if (readSync(descriptor, frame, 0, frame.byteLength, offset) < frame.byteLength) break;
    const isOfThisRound = frame.getUint32(8) === header.getUint32(16) && frame.getUint32(12) === header.getUint32(20);
    if (sums !== null) {
      sums = isOfThisRound ? checksum(frame, 0, 8, sums, isLittle) : null;
      if (sums !== null) sums = checksum(frame, FRAME_HEADER_BYTES, pageSize, sums, isLittle);
      if (sums?.[0] === frame.getUint32(16) && sums[1] === frame.getUint32(20)) continue;
      sums = null;
      bad = number;
    }
    if (isOfThisRound && frame.getUint32(4) !== 0) commitsBehind++;
  }
  return commitsBehind < 2
    ? null
    : `frame ${bad} of its log (-wal) is wrong, and at least ${commitsBehind - 1} committed transactions stand behind it`;
}

/** SQLite's running checksum over pairs of words. */
function checksum(view: DataView, from: number, bytes: number, [a, b]: Sums, isLittle: boolean): Sums {
  let first = a | 0;
  let second = b | 0;
  for (let at = from; at < from + bytes; at += 8) {
    first = (first + view.getInt32(at, isLittle) + second) | 0;
    second = (second + view.getInt32(at + 4, isLittle) + first) | 0;
  }
  return [first >>> 0, second >>> 0];
}
