import type { Place } from './entry.ts';

/** What a lease token names: the lease, and where the entry stands, so that settling needs no look-up. */
export interface LeaseToken {
  readonly leaseId: string;
  readonly place: Place;
}

/** 128 bits in base64url. */
const LEASE_ID = /^[A-Za-z0-9_-]{22}$/;
const NUMBER = /^(0|[1-9]\d{0,14})$/;

/** The token of a lease. Opaque to callers: its form may change. */
export const formatLeaseToken = (leaseId: string, place: Place): string =>
  `${leaseId}.${place.tier}.${place.id}.${place.topic}`;

/** Reads a token; null for what is none. */
export function parseLeaseToken(text: string): LeaseToken | null {
  const leaseId = text.slice(0, 22);
  if (text[22] !== '.' || !LEASE_ID.test(leaseId)) return null;
  const second = text.indexOf('.', 23);
  const third = text.indexOf('.', second + 1);
  if (second < 0 || third < 0) return null;
  const tier = text.slice(23, second);
  const id = text.slice(second + 1, third);
  const topic = text.slice(third + 1);
  if (!NUMBER.test(tier) || !NUMBER.test(id) || topic === '' || Number(tier) > 99) return null;
  return { leaseId, place: { topic, tier: Number(tier), id: Number(id) } };
}
