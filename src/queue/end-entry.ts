import { isPurged } from '../core/claim.ts';
import { FINAL_VERSION } from '../core/entry.ts';
import { isSlotTopic } from '../core/log.ts';
import type { Engine } from './engine.ts';
import { type Located, sizesOf } from './locate.ts';
import type { Topic } from './topics.ts';

/**
 * Ends one entry that waits or is leased, under the version that was read: a claim of it may be under way, and only one
 * of both can be carried out.
 * @returns whether it ended; not where it has changed since it was read
 */
export async function endEntry(
  engine: Engine,
  of: Topic,
  { place, head }: Located,
  status: 'cancelled' | 'expired',
  reason: string | null,
): Promise<boolean> {
  const { messages, signals, book, env } = engine;
  const log = await book.log(place);
  const at = env.now();
  const endedAt = env.monotonic();
  const size = log.slot !== null && of.hasByteQuota ? await sizesOf(engine.store, place, [place.id]) : null;
  const isCounted = (log.slot?.counts(place.id) ?? true) && !isPurged(head, of.settings.purgedAt);
  const [answer] = await log.change([
    {
      id: place.id,
      expect: { uid: head.uid, version: head.version },
      set: { status, version: FINAL_VERSION, updatedAt: at, reason },
    },
  ]);
  if (!answer!.applied) return false;
  const topic = await book.topicOf(log, of.name);
  if (log.open.has(place.id)) {
    if (log.open.endLease(place.id)) topic.leaseEnded(endedAt);
  } else if (isCounted) {
    if (log.slot === null) log.countReady(-1);
    else log.slot.add(topic.name, -1, size?.get(place.id));
  }
  await messages.settle(topic.name, topic.settings, [{ task: head, place, status, at }]);
  // The claim that had leased it may have been answered only now.
  if (log.open.endLease(place.id)) topic.leaseEnded(endedAt);
  log.settled(place.id);
  await signals.left(log, [place.id]);
  signals.settled(head.uid);
  if (!isSlotTopic(place.topic)) {
    signals.due(log, at);
    signals.ready(topic);
  }
  signals.changed(topic);
  return true;
}
