/** For each rule, stores that break it and no other one. */
import type { RuleName } from '../../../src/audit/rules.ts';
import { DEAD_TIER, farLog, nearLog } from '../../../src/core/log.ts';
import { type Hand, LOG, NOW, SIZE, uidAt } from './hand.ts';

const OTHER = { topic: 't', tier: 4 };
const SLOT = nearLog(0, NOW / 250 - 100_000);
const FAR = farLog(0, Math.floor(NOW / 250 / 360) - 100);
const DAY_MS = 86_400_000;

export interface Damage {
  readonly what: string;
  /** Breaks something in a log that is in use. */
  readonly apply: (hand: Hand) => void;
  /** Whether `--repair` mends it, all of it. */
  readonly mends: boolean;
}

export const DAMAGES: Readonly<Record<RuleName, readonly Damage[]>> = {
  'unrecorded-log': [
    { what: 'a log', mends: true, apply: (hand) => hand.unrecord() },
    {
      what: 'dead letters',
      mends: true,
      apply: (hand) => hand.put({ topic: 't', tier: DEAD_TIER }, 0, 'ready'),
    },
    {
      what: 'a time slot',
      mends: true,
      apply: (hand) => hand.put(SLOT, 0, 'ready', { target: 't', dueAt: NOW }),
    },
    {
      what: 'a far time slot',
      mends: true,
      apply: (hand) => hand.put(FAR, 0, 'ready', { target: 't', dueAt: NOW }),
    },
    {
      what: 'a log that is recorded in a deleted period',
      mends: true,
      apply: (hand) => {
        hand.put(OTHER, 0, 'ready');
        hand.shard({ term: 1, period: 3, oldestPeriod: 3 });
        hand.unrecord();
        hand.record(LOG, 3);
      },
    },
    {
      what: 'a move of which only the last step is missing',
      mends: true,
      apply: (hand) => {
        hand.put(LOG, 2, 'moved', { dest: { ...OTHER, id: 0 } });
        hand.put(OTHER, 0, 'pending', { uid: uidAt(LOG, 2), hops: 1, origin: { ...LOG, id: 2 }, originVersion: 1 });
      },
    },
  ],
  'row-of-ended-task': [
    {
      what: 'of one that is done and passed',
      mends: true,
      apply: (hand) => {
        hand.put(LOG, 0, 'done', { messageId: 'm' });
        hand.header(LOG, 0, { nextId: 3 });
        hand.row('t', { key: 'mm', uid: uidAt(LOG, 0) }, null);
      },
    },
    {
      what: 'of one that was trimmed',
      mends: true,
      apply: (hand) => hand.row('t', { key: 'ugone', uid: 'gone', hops: 1 }, null),
    },
  ],
  'unowned-entry': [
    { what: 'without a row', mends: true, apply: (hand) => leasedWithId(hand) },
    {
      what: 'with a row of a settled task',
      mends: false,
      apply: (hand) => {
        leasedWithId(hand);
        hand.row('t', { key: 'mm', uid: 'earlier', status: 'done', settledAt: NOW }, NOW + DAY_MS);
      },
    },
  ],
  'missed-arrival': [
    {
      what: 'that is still pending',
      mends: true,
      apply: (hand) => {
        hand.put(LOG, 0, 'moved', { dest: { ...OTHER, id: 0 } });
        hand.header(LOG, 0, { nextId: 3 });
        hand.put(OTHER, 0, 'pending', { uid: uidAt(LOG, 0), hops: 1, origin: { ...LOG, id: 0 }, originVersion: 1 });
        hand.record(OTHER);
      },
    },
    {
      what: 'that was never given out',
      mends: false,
      apply: (hand) => {
        hand.put(LOG, 0, 'moved', { dest: { ...OTHER, id: 7 } });
        hand.header(LOG, 0, { nextId: 3 });
      },
    },
  ],
  'missing-entries': [
    { what: 'between others', mends: false, apply: (hand) => hand.remove(LOG, 1) },
    { what: 'at the end', mends: false, apply: (hand) => hand.remove(LOG, 2) },
    {
      what: 'at the beginning, though nothing of it was handed out',
      mends: false,
      apply: (hand) => {
        hand.put(OTHER, 0, 'ready');
        hand.put(OTHER, 1, 'ready');
        hand.remove(OTHER, 0);
        hand.record(OTHER);
      },
    },
  ],
  'missing-header': [
    { what: 'of entries', mends: false, apply: (hand) => hand.loseHeader(LOG, 0) },
    {
      what: 'where a checkpoint points',
      mends: false,
      apply: (hand) => hand.checkpoint(OTHER, { scan: 4, completion: 4, trimmed: 4 }),
    },
  ],
  'cursor-order': [
    { what: 'scan behind the next id', mends: false, apply: (hand) => hand.header(LOG, 0, { scan: 4 }) },
    {
      what: 'completion behind scan',
      mends: false,
      apply: (hand) => {
        hand.header(OTHER, 0, { nextId: 5, scan: 5 });
        hand.checkpoint(OTHER, { scan: 4, completion: 5, trimmed: 4 });
      },
    },
    {
      what: 'a checkpoint behind the next id',
      mends: false,
      apply: (hand) => {
        hand.header(OTHER, 0, { nextId: 5, scan: 5 });
        hand.checkpoint(OTHER, { scan: 7, completion: 5, trimmed: 5 });
      },
    },
  ],
  'open-below-completion': [
    {
      what: 'one that waits',
      mends: true,
      apply: (hand) => {
        hand.put(OTHER, 0, 'ready');
        hand.header(OTHER, 0, { scan: 1 });
        hand.checkpoint(OTHER, { scan: 1, completion: 1, trimmed: 0 });
        hand.record(OTHER);
      },
    },
    {
      what: 'one whose lease is over',
      mends: true,
      apply: (hand) => {
        hand.put(OTHER, 0, 'leased', { leaseId: 'L', leaseUntil: NOW - 1 });
        hand.header(OTHER, 0, { scan: 1 });
        hand.checkpoint(OTHER, { scan: 1, completion: 1, trimmed: 0 });
        hand.record(OTHER);
      },
    },
    {
      what: 'one that is leased',
      mends: false,
      apply: (hand) => hand.checkpoint(LOG, { scan: 2, completion: 2, trimmed: 0 }),
    },
  ],
  'open-in-closed-segment': [
    {
      what: 'one that waits',
      mends: true,
      apply: (hand) => {
        hand.put(OTHER, 0, 'ready');
        hand.header(OTHER, 0, { nextId: SIZE, sealedAt: 1, scan: 1, closed: true });
        hand.record(OTHER);
      },
    },
  ],
  'checkpoint-ahead': [
    {
      what: 'of its segment',
      mends: false,
      apply: (hand) => hand.checkpoint(LOG, { scan: 3, completion: 1, trimmed: 0 }),
    },
  ],
  'scan-skips-segment': [
    {
      what: 'that has entries left',
      mends: false,
      apply: (hand) => {
        hand.header(LOG, 0, { nextId: SIZE, sealedAt: 3 });
        hand.put(LOG, SIZE, 'leased', { leaseId: 'L', leaseUntil: NOW + 1 });
        hand.header(LOG, 1, { scan: SIZE + 1, term: 1 });
      },
    },
  ],
  'entry-beyond-next-id': [{ what: 'at the tail', mends: false, apply: (hand) => hand.header(LOG, 0, { nextId: 2 }) }],
  'two-live-entries': [
    {
      what: 'in two tiers',
      mends: false,
      apply: (hand) => {
        hand.put(OTHER, 0, 'ready', { uid: uidAt(LOG, 2) });
        hand.record(OTHER);
      },
    },
    {
      what: 'in a tier and a time slot',
      mends: false,
      apply: (hand) => {
        hand.put(SLOT, 0, 'ready', { uid: uidAt(LOG, 1), target: 't', dueAt: NOW });
        hand.record(SLOT);
      },
    },
  ],
  'two-live-tasks': [
    {
      what: 'one leased, one waiting',
      mends: false,
      apply: (hand) => {
        leasedWithId(hand);
        hand.put(LOG, 2, 'ready', { messageId: 'm' });
        hand.row('t', { key: 'mm', uid: uidAt(LOG, 2), place: { ...LOG, id: 2 } }, null);
      },
    },
  ],
  'row-settled-early': [
    {
      what: 'of a leased task',
      mends: true,
      apply: (hand) => {
        leasedWithId(hand);
        const ended = { status: 'done', settledAt: NOW } as const;
        hand.row('t', { key: 'mm', uid: uidAt(LOG, 1), place: { ...LOG, id: 1 }, ...ended }, NOW + DAY_MS);
      },
    },
    {
      what: 'of a redriven one',
      mends: true,
      apply: (hand) => {
        hand.put(LOG, 2, 'ready', { hops: 2 });
        const ended = { status: 'dead', settledAt: NOW, hops: 1 } as const;
        hand.row('t', { key: `u${uidAt(LOG, 2)}`, uid: uidAt(LOG, 2), ...ended }, NOW + DAY_MS);
      },
    },
  ],
  'orphaned-pending': [
    {
      what: 'below the scan cursor',
      mends: true,
      apply: (hand) => {
        hand.put(LOG, 1, 'pending', { origin: { ...OTHER, id: 0 }, originVersion: 1, hops: 1 });
        hand.header(LOG, 0, { nextId: 3 });
      },
    },
  ],
  'term-ahead': [{ what: 'of the scheduler', mends: false, apply: (hand) => hand.header(LOG, 0, { term: 2 }) }],
  'unreadable-settings': [
    {
      what: 'cut off',
      mends: false,
      apply: (hand) => hand.tables.topics.set('t', { settings: '{"paused":', version: 1 }),
    },
  ],
  'sleeping-schedule': [
    { what: 'with a pattern', mends: false, apply: (hand) => hand.schedule('s', {}, { nextAt: null }) },
  ],
  'unreadable-schedule': [
    { what: 'a pattern', mends: false, apply: (hand) => hand.schedule('s', { pattern: '61 * * * *' }) },
    { what: 'a time zone', mends: false, apply: (hand) => hand.schedule('s', { timeZone: 'Mars/Base' }) },
  ],
  'entry-below-trimmed': [
    {
      what: 'one',
      mends: true,
      apply: (hand) => hand.checkpoint(LOG, { scan: 2, completion: 1, trimmed: 1 }),
    },
  ],
  'untended-log': [
    {
      what: 'all of it settled',
      mends: true,
      apply: (hand) => {
        hand.put(OTHER, 0, 'done');
        hand.header(OTHER, 0, { scan: 1 });
      },
    },
  ],
  'old-slot': [
    { what: 'without entries', mends: true, apply: (hand) => hand.header(SLOT, 0, { nextId: 3 }) },
    { what: 'a far one', mends: true, apply: (hand) => hand.header(FAR, 0, { nextId: 3 }) },
  ],
  'deleted-period': [{ what: 'before the oldest', mends: true, apply: (hand) => hand.record(LOG, 1) }],
  'endless-row': [
    {
      what: 'past its window',
      mends: true,
      apply: (hand) => {
        const ended = { status: 'done', settledAt: NOW - 2 * DAY_MS } as const;
        hand.row('t', { key: 'mm', uid: 'long-gone', ...ended }, null);
      },
    },
  ],
};

function leasedWithId(hand: Hand): void {
  hand.put(LOG, 1, 'leased', { messageId: 'm', leaseId: 'L', leaseUntil: NOW + 30_000 });
  hand.header(LOG, 0, { nextId: 3 });
}
