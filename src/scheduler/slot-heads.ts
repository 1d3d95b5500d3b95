import type { EntryHead, LogAddress } from '../core/entry.ts';
import type { Store } from '../store/store.ts';

const HEADS_PER_PAGE = 1_000;

/**
 * A page of heads of one segment, and up to where it reaches. Beside a commit under way a read may miss entries that
 * the segment's header tells of already; so where ids are missing they are read again serially. What is missing then
 * was trimmed, or never was, behind the end of a sealed segment.
 */
export async function readSlotHeads(
  store: Store,
  log: LogAddress,
  from: number,
  to: number,
): Promise<{ readonly heads: readonly EntryHead[]; readonly next: number }> {
  for (const serial of [false, true]) {
    const heads = await store.readHeads({ log, from, to, limit: HEADS_PER_PAGE, serial });
    const next = heads.length < HEADS_PER_PAGE ? to : heads.at(-1)!.id + 1;
    if (serial || heads.length === next - from) return { heads, next };
  }
  throw new Error('a serial read is taken as it is');
}
