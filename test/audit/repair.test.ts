/** What a repair brings back is delivered afterwards. */
import { describe, expect, onTestFinished, test } from 'vitest';
import { auditStore } from '../../src/audit/audit.ts';
import { startQueue } from '../../src/queue/open.ts';
import { MemoryStore } from '../../src/store/memory/store.ts';
import { manualEnvironment } from '../support/manual-environment.ts';
import { DAMAGES } from './support/damage.ts';
import { Hand, LOG, NOW, uidAt } from './support/hand.ts';

/** Repairs a store, starts a queue on it, and tells which tasks that hands out within a minute. */
async function deliveredAfterRepair(hand: Hand): Promise<readonly string[]> {
  const env = manualEnvironment(NOW);
  await auditStore(new MemoryStore(hand.tables, { now: env.now }), { repair: true, environment: env });
  return delivered(hand, env);
}

async function delivered(hand: Hand, env = manualEnvironment(NOW)): Promise<readonly string[]> {
  const queue = await startQueue(new MemoryStore(hand.tables, { now: env.now }), { environment: env });
  onTestFinished(() => queue.stop());
  const uids: string[] = [];
  for (let seconds = 0; seconds < 60; seconds += 5) {
    const tasks = await queue.lease({ max: 100 });
    uids.push(...tasks.map(({ id }) => id.split(/[.~]/)[0]!));
    await queue.settle({ ack: tasks.map(({ leaseId }) => ({ leaseId })) });
    await env.advance(5_000);
  }
  expect((await auditStore(new MemoryStore(hand.tables, { now: env.now }))).rules).toEqual([]);
  return uids.sort();
}

const damaged = (rule: keyof typeof DAMAGES, what: string): Hand => {
  const hand = Hand.inUse();
  DAMAGES[rule].find((damage) => damage.what === what)!.apply(hand);
  return hand;
};

const OTHER = { topic: 't', tier: 4 };
const [LEASED, READY] = [uidAt(LOG, 1), uidAt(LOG, 2)];

test('without a repair, a log that nobody knows of is delivered by nobody', async () => {
  const hand = Hand.inUse();
  hand.unrecord();
  const env = manualEnvironment(NOW);
  const queue = await startQueue(new MemoryStore(hand.tables, { now: env.now }), { environment: env });
  onTestFinished(() => queue.stop());
  await env.advance(60_000);
  expect(await queue.lease({ max: 10 })).toEqual([]);
});

describe('is delivered after a repair', () => {
  test.each([
    ['unrecorded-log', 'a log', [LEASED, READY]],
    ['unrecorded-log', 'a time slot', [LEASED, READY, expect.stringContaining('slot')]],
    ['unrecorded-log', 'a far time slot', [LEASED, READY, expect.stringContaining('later')]],
    ['unrecorded-log', 'a move of which only the last step is missing', [LEASED, READY]],
    ['missed-arrival', 'that is still pending', [uidAt(LOG, 0), LEASED, READY]],
    ['open-below-completion', 'one that waits', [uidAt(OTHER, 0), LEASED, READY]],
    ['open-below-completion', 'one whose lease is over', [uidAt(OTHER, 0), LEASED, READY]],
    ['open-in-closed-segment', 'one that waits', [uidAt(OTHER, 0), LEASED, READY]],
    ['unowned-entry', 'without a row', [LEASED, READY]],
    ['row-settled-early', 'of a leased task', [LEASED, READY]],
    ['orphaned-pending', 'below the scan cursor', [READY]],
  ] as const)('%s: %s', async (rule, what, uids) => {
    const found = await deliveredAfterRepair(damaged(rule, what));
    expect(found).toHaveLength(uids.length);
    expect(found).toEqual(expect.arrayContaining([...uids]));
  });
});

test('an id whose task is gone is free again', async () => {
  const hand = damaged('row-of-ended-task', 'of one that is done and passed');
  const env = manualEnvironment(NOW);
  const store = new MemoryStore(hand.tables, { now: env.now });
  await auditStore(store, { repair: true, environment: env });
  const row = (await store.readMessages('t', ['mm'])).get('mm');
  expect(row).toMatchObject({ uid: uidAt(LOG, 0), status: 'done', settledAt: expect.any(Number) });
  const queue = await startQueue(store, { environment: env });
  onTestFinished(() => queue.stop());
  expect(await queue.enqueue('t', { payload: 1, messageId: 'm', onDuplicate: 'again' })).toMatchObject({
    deduplicated: false,
  });
});

test('what cannot be mended is left, and it is said why', async () => {
  const hand = Hand.inUse();
  hand.header(LOG, 0, { term: 2 });
  hand.unrecord();
  const report = await auditStore(new MemoryStore(hand.tables), { repair: true });
  expect(report).toMatchObject({ found: 2, mended: 1 });
  const [lost, term] = report.rules;
  expect(lost).toMatchObject({
    rule: 'unrecorded-log',
    mended: 1,
    examples: [{ did: expect.stringMatching(/recorded/), left: null }],
  });
  expect(term).toMatchObject({ rule: 'term-ahead', mended: 0, examples: [{ did: null }] });
  expect(term!.examples[0]!.left).toMatch(/never set by hand/);
});

test('a repair moves no cursor and settles nothing', async () => {
  const hand = damaged('open-below-completion', 'one that waits');
  const before = structuredClone([...hand.tables.checkpoints]);
  await auditStore(new MemoryStore(hand.tables), { repair: true });
  expect([...hand.tables.checkpoints]).toEqual(before);
  const store = new MemoryStore(hand.tables);
  expect(await store.readSegment(OTHER, 0)).toMatchObject({ scan: 1, nextId: 2 });
  expect(await store.readEntries({ log: OTHER, from: 0, to: 2, limit: 9 })).toMatchObject([
    { status: 'moved', dest: { ...OTHER, id: 1 } },
    { status: 'ready', attempt: 0 },
  ]);
});
