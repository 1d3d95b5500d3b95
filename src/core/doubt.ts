/** What came of a write whose answer was lost, by what stands there once a repetition of it was refused. */
import { type EntryChange, type EntryHead, type EntryTask, samePlace } from './entry.ts';
import { entriesEnd, type SegmentHeader } from './log.ts';

/**
 * Whether an append was carried out: all our entries stand there. One alone may stand there by another append: where two
 * servers move the same task, it may have gone there with others of its own. Where nothing stands there, what did was
 * settled and trimmed, and nobody can say whose it was.
 *
 * @param rows what stands where the entries were to go, in the order of ids
 * @param header where something is missing there: its segment's; null: not known
 */
export function appendLanding(
  entries: readonly Pick<EntryTask, 'uid' | 'hops'>[],
  firstId: number,
  rows: readonly Pick<EntryHead, 'id' | 'uid' | 'hops'>[],
  header: Pick<SegmentHeader, 'nextId' | 'sealedAt'> | null,
): 'landed' | 'refused' | 'unclear' {
  // The uid alone would not tell this append from an earlier entry of the same task.
  const areOurs = rows.every(({ id, uid, hops }) => {
    const entry = entries[id - firstId];
    return entry?.uid === uid && entry.hops === hops;
  });
  if (!areOurs) return 'refused';
  if (rows.length === entries.length) return 'landed';
  return header === null || entriesEnd(header) >= firstId + entries.length ? 'unclear' : 'refused';
}

/** A change of entries of one segment, and of its scan cursor. */
interface Change {
  readonly changes: readonly EntryChange[];
  readonly scan?: { readonly to: number; readonly term: number };
}
type State = Pick<EntryHead, 'id' | 'status' | 'version' | 'updatedAt' | 'leaseId' | 'dest'>;

/**
 * Whether a change was carried out: every row looks as it was to be set, and the scan cursor has moved as it was to.
 * (The rows alone may have been set so by others, in the same millisecond.)
 */
export function changeLanded(
  { changes, scan }: Change,
  rows: readonly State[],
  header: Pick<SegmentHeader, 'scan' | 'term'> | null,
): boolean {
  const byId = new Map(rows.map((row) => [row.id, row]));
  const areSet = changes.every((one) => {
    const row = byId.get(one.id);
    return row !== undefined && isSet(row, one);
  });
  return areSet && (scan === undefined || (header !== null && header.scan >= scan.to && header.term >= scan.term));
}

function isSet(row: State, { set }: EntryChange): boolean {
  if (row.status !== set.status || row.version !== set.version || row.updatedAt !== set.updatedAt) return false;
  if (set.leaseId !== undefined && row.leaseId !== set.leaseId) return false;
  return !set.dest || samePlace(row.dest, set.dest);
}
