/**
 * The bell: where a server tells what it cannot tell the holder of a shard itself. Rows of the activity table in
 * partitions of their own, one a minute, which all holders follow; each is used again after an hour, and emptied before.
 */
import type { LogAddress } from '../core/entry.ts';
import type { ActivityRow, Store } from '../store/store.ts';

const SHARD = -1;
const MINUTE_MS = 60_000;
const MINUTES = 60;
const ROWS_PER_PAGE = 1_000;

const minuteOf = (at: number): number => Math.floor(at / MINUTE_MS) % MINUTES;

/** Makes the holders of logs look at them, within a second. */
export async function ringBell(store: Store, at: number, logs: readonly LogAddress[]): Promise<void> {
  if (logs.length === 0) return;
  await store.recordActivity(
    SHARD,
    minuteOf(at),
    logs.map(({ topic, tier }): ActivityRow => ({ topic, tier, at })),
  );
}

/** What was rung for from a time on, up to now. */
export async function* heardSince(store: Store, since: number, now: number): AsyncGenerator<ActivityRow> {
  for (const minute of new Set([minuteOf(since), minuteOf(now)])) {
    let from: string | number | null = since;
    do {
      const page: Awaited<ReturnType<Store['readActivity']>> = await store.readActivity(
        SHARD,
        minute,
        from,
        ROWS_PER_PAGE,
      );
      yield* page.rows;
      from = page.next;
    } while (from !== null);
  }
}

/** The partition that is to be emptied now: that of half an hour ago. */
export const oldMinute = (now: number): number => (minuteOf(now) + MINUTES / 2) % MINUTES;

export const emptyMinute = (store: Store, minute: number): Promise<void> => store.dropPeriod(SHARD, minute);
