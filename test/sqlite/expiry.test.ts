import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { MessageRow } from '../../src/core/message.ts';
import { range } from '../conformance/harness.ts';
import { opened, scratch } from './scratch.ts';

const row = (key: string, uid: string): MessageRow => ({
  key,
  uid,
  place: { topic: 't', tier: 5, id: 0 },
  hops: 0,
  status: 'done',
  enqueuedAt: 1,
  settledAt: 2,
});
const ABSENT = { absent: true } as const;

async function withClock(start: number) {
  let now = start;
  const store = await opened(join(scratch(), 'store.db'), { now: () => now });
  const write = (key: string, uid: string, ttlMs: number | null, expect: object = ABSENT) =>
    store.writeMessages('t', 0, [{ expect: expect as typeof ABSENT, row: row(key, uid), ttlMs }], now);
  const uidOf = async (key: string) => (await store.readMessages('t', [key])).get(key)?.uid ?? null;
  return { store, write, uidOf, at: (time: number) => (now = time) };
}

it('tells the time of the clock it was given', async () => {
  const { store, at } = await withClock(1_000);
  expect(store.now()).toBe(1_000);
  at(2_000);
  expect(store.now()).toBe(2_000);
});

it('takes a row whose time is over for absent, swept or not', async () => {
  const { write, uidOf, at } = await withClock(1_000);
  await write('ma', 'first', 500);
  at(1_499);
  expect(await uidOf('ma')).toBe('first');
  expect(await write('ma', 'second', null)).toMatchObject({ kind: 'conflict', rows: [{ uid: 'first' }] });
  at(1_500);
  expect(await uidOf('ma')).toBeNull();
  expect(await write('ma', 'second', null, { uid: 'first' })).toEqual({ kind: 'conflict', rows: [] });
  expect(await write('ma', 'second', null)).toEqual({ kind: 'applied' });
  expect(await uidOf('ma')).toBe('second');
});

it('counts the time to live from each write anew, and ends it where a write has none', async () => {
  const { store, write, uidOf, at } = await withClock(0);
  await write('ma', 'u', 100);
  at(50);
  await write('ma', 'u', 100, { uid: 'u' });
  at(149);
  expect(await uidOf('ma')).toBe('u');
  await write('ma', 'u', null, { uid: 'u' });
  at(1_000_000);
  expect(await store.sweep(1_000_000, 10)).toBe(0);
  expect(await uidOf('ma')).toBe('u');
});

it('sweeps what is over, up to a limit, and nothing else', async () => {
  const { store, write, uidOf, at } = await withClock(0);
  await write('mkept', 'u', null);
  await write('mlater', 'u', 10_000);
  const writes = range(0, 1_200).map((i) => ({ expect: ABSENT, row: row(`m${i}`, 'u'), ttlMs: 100 + i }));
  await store.writeMessages('t', 0, writes, 0);
  expect(await store.sweep(99, 10_000)).toBe(0);
  expect(await store.sweep(2_000, 7)).toBe(7);
  expect(await store.sweep(600, 10_000)).toBe(494);
  expect(await store.sweep(2_000, 10_000)).toBe(699);
  expect(await store.sweep(2_000, 10_000)).toBe(0);
  at(2_000);
  expect([await uidOf('mkept'), await uidOf('mlater'), await uidOf('m1199')]).toEqual(['u', 'u', null]);
});
