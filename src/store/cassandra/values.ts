/**
 * Values as they go to the driver and come back. Numbers of 64 bits are encoded here: the driver passes a Buffer on as it
 * is, and makes an object of each number otherwise; a batch of 200 entries binds more than a thousand of them.
 */
import type { types } from 'cassandra-driver';

/** A CQL bigint. @throws RangeError where it is no safe integer, which SQLite would refuse too */
export function bigint(value: number): Buffer {
  if (!Number.isSafeInteger(value)) throw new RangeError(`${value} is not a safe integer`);
  const buffer = Buffer.allocUnsafe(8);
  const high = Math.floor(value / 2 ** 32);
  buffer.writeInt32BE(high, 0);
  buffer.writeUInt32BE(value - high * 2 ** 32, 4);
  return buffer;
}

export const bigintOrNull = (value: number | null): Buffer | null => (value === null ? null : bigint(value));

/** `undefined`, which writes nothing, for null, which would write a tombstone. */
export const unlessNull = <T>(value: T | null): T | undefined => value ?? undefined;
export const bigintUnlessNull = (value: number | null): Buffer | undefined =>
  value === null ? undefined : bigint(value);

export const numberOf = (value: unknown): number =>
  typeof value === 'number' ? value : (value as types.Long).toNumber();
export const numberOrNull = (value: unknown): number | null =>
  value === null || value === undefined ? null : numberOf(value);
