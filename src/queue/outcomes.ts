/**
 * Unknown outcomes. A conditional write that timed out may have been applied, may still be, or never will: the
 * identical statement is repeated until the store answers it one way or the other, and then the rows tell whose
 * write stands there. Only past the deadline does the caller learn that the outcome is unknown.
 */
import { appendLanding, changeLanded } from '../core/doubt.ts';
import type { EntryCondition, EntryHead } from '../core/entry.ts';
import { QueueError } from '../core/errors.ts';
import type { MessageCondition, MessageRow, MessageWrite } from '../core/message.ts';
import {
  type Append,
  type ChangeOutcome,
  type MessageOutcome,
  type Outcome,
  type SegmentChange,
  type Store,
  StoreUnavailableError,
} from '../store/store.ts';
import type { Environment } from './environment.ts';

/** How long an outcome may stay unknown, in milliseconds. */
const DEADLINE_MS = 15_000;
const PAUSE_MS = { first: 5, most: 500 } as const;

/** A store that is out of reach, said as callers are told of it; other errors as they are. */
export const asToldToCallers = (error: unknown): unknown =>
  error instanceof StoreUnavailableError ? new QueueError('store-unavailable', error.message, [], error) : error;

type Definite<T extends { readonly kind: string }> = Exclude<T, { readonly kind: 'unknown' }>;

/** Repeats a call until it is answered definitely; `doubted` tells whether an earlier try may have been applied. */
async function untilDefinite<T extends { readonly kind: string }>(
  env: Environment,
  call: () => Promise<T>,
): Promise<{ readonly outcome: Definite<T>; readonly doubted: boolean }> {
  const outcome = await call();
  if (outcome.kind !== 'unknown') return { outcome: outcome as Definite<T>, doubted: false };
  const deadline = env.now() + DEADLINE_MS;
  for (let pause: number = PAUSE_MS.first; ; pause = Math.min(pause * 2, PAUSE_MS.most)) {
    await new Promise<void>((resolve) => env.timer(pause, resolve));
    // A process that was paused must not repeat what was carried out, and cleared away, long ago.
    if (env.now() >= deadline) throw stillUnknown(env);
    const again = await unlessOutOfReach(call);
    if (again === null || again.kind === 'unknown') continue;
    if (again.kind === 'applied') env.resolved?.('applied');
    return { outcome: again as Definite<T>, doubted: true };
  }
}

function stillUnknown(env: Environment): QueueError {
  env.resolved?.('open');
  return new QueueError('outcome-unknown');
}

/** Tells that a repetition was refused, and why. */
function refused(env: Environment, landed: boolean): boolean {
  env.resolved?.(landed ? 'landed' : 'refused');
  return landed;
}

/** @returns null where the store was out of reach: this try wrote nothing, but the one in doubt may have */
async function unlessOutOfReach<T>(call: () => Promise<T>): Promise<T | null> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof StoreUnavailableError) return null;
    throw error;
  }
}

/**
 * Appends; a conflict after doubt is an append of ours if our entries stand there. Where nothing stands there, what did
 * was settled and trimmed, and nobody can say whose it was.
 */
export async function appendDefinitely(
  store: Store,
  env: Environment,
  append: Append,
): Promise<'applied' | 'conflict'> {
  const { outcome, doubted } = await untilDefinite(env, () => store.append(append));
  if (outcome.kind === 'applied' || !doubted) return outcome.kind;
  const { log, segment, firstId, entries } = append;
  if (entries.length === 0) return 'conflict';
  const range = { log, from: firstId, to: firstId + entries.length, limit: entries.length, serial: true };
  const rows = await unlessOutOfReach(() => store.readHeads(range));
  if (rows === null) throw stillUnknown(env);
  const isWhole = rows.length === entries.length;
  const header = isWhole ? null : await unlessOutOfReach(() => store.readSegment(log, segment, true));
  const landing = appendLanding(entries, firstId, rows, header);
  if (landing === 'unclear') throw stillUnknown(env);
  return refused(env, landing === 'landed') ? 'applied' : 'conflict';
}

/**
 * Changes entries; a conflict after doubt was ours if every row looks as it was to be set, and the scan cursor has moved
 * as it was to. (The rows alone may have been set so by others, in the same millisecond.)
 */
export async function changeDefinitely(
  store: Store,
  env: Environment,
  change: SegmentChange,
): Promise<Definite<ChangeOutcome>> {
  const { outcome, doubted } = await untilDefinite(env, () => store.change(change));
  if (outcome.kind === 'applied' || !doubted) return outcome;
  return refused(env, changeLanded(change, outcome.rows, outcome.header)) ? { kind: 'applied' } : outcome;
}

/** Whether an entry meets the condition of a change. */
export function meetsEntry(row: EntryHead, expect: EntryCondition): boolean {
  return 'leaseId' in expect
    ? row.status === 'leased' && row.leaseId === expect.leaseId
    : row.uid === expect.uid && row.version === expect.version;
}

/** Writes message rows; a conflict after doubt was ours if every row stands as it was to be written. */
export async function writeMessagesDefinitely(
  store: Store,
  env: Environment,
  topic: string,
  bucket: number,
  writes: readonly MessageWrite[],
  now: number,
): Promise<Definite<MessageOutcome>> {
  const { outcome, doubted } = await untilDefinite(env, () => store.writeMessages(topic, bucket, writes, now));
  if (outcome.kind === 'applied' || !doubted) return outcome;
  const rows = new Map(outcome.rows.map((row) => [row.key, row]));
  const landed = writes.every(({ row }) => {
    const found = rows.get(row.key);
    return found?.uid === row.uid && found.status === row.status && found.hops === row.hops;
  });
  return refused(env, landed) ? { kind: 'applied' } : outcome;
}

/** Whether a message row (null: none) meets the condition of a write. */
export function meetsMessage(row: MessageRow | null, expect: MessageCondition): boolean {
  if ('absent' in expect) return row === null;
  if (row === null || row.uid !== expect.uid) return false;
  if (expect.statusIn !== undefined && !expect.statusIn.includes(row.status)) return false;
  return expect.hopsBelow === undefined || row.hops < expect.hopsBelow;
}

/** For writes of one row that answer `applied` or `conflict` alone; after a conflict the caller looks whose it is. */
export async function definitely(env: Environment, call: () => Promise<Outcome>): Promise<'applied' | 'conflict'> {
  return (await untilDefinite(env, call)).outcome.kind;
}
