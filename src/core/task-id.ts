import type { Place } from './entry.ts';
import { farLog, isFarTopic, isSlotTopic, nearLog } from './log.ts';
import { shardOf } from './message.ts';

/**
 * What a task id says. It names the task's first place, so that a task needs no index row to be found; with a
 * message id it names that instead, whose row says where the task is.
 */
export type TaskId =
  | { readonly uid: string; readonly place: Place }
  | { readonly uid: string; readonly messageId: string };

const UID = /^[0-9A-HJKMNP-TV-Z]{26}$/;
const NUMBER = /^(0|[1-9]\d{0,14})$/;

/**
 * `UID.TIER.ID`; `UID.sSLOT.ID` for a delayed task, `UID.lSLOT.ID` for one that waits in a far slot;
 * `UID~MESSAGE-ID` (base64url) with a message id.
 */
export function formatTaskId(task: { readonly uid: string; readonly messageId: string | null }, place: Place): string {
  if (task.messageId !== null) return `${task.uid}~${Buffer.from(task.messageId, 'utf8').toString('base64url')}`;
  const kind = isSlotTopic(place.topic) ? (isFarTopic(place.topic) ? 'l' : 's') : '';
  return `${task.uid}.${kind}${place.tier}.${place.id}`;
}

/** The id of an entry's task, the same wherever the task has moved. */
export const taskIdOf = (
  entry: { readonly uid: string; readonly messageId: string | null; readonly taskId: string | null },
  place: Place,
): string => entry.taskId ?? formatTaskId(entry, place);

/** Reads a task id of a topic; null for what is none. */
export function parseTaskId(text: string, topic: string, shards: number): TaskId | null {
  const uid = text.slice(0, 26);
  if (!UID.test(uid)) return null;
  const rest = text.slice(27);
  if (text[26] === '~') {
    const messageId = Buffer.from(rest, 'base64url').toString('utf8');
    return Buffer.from(messageId, 'utf8').toString('base64url') === rest && rest !== '' ? { uid, messageId } : null;
  }
  if (text[26] !== '.') return null;
  const [tier, id, more] = rest.split('.');
  if (tier === undefined || id === undefined || more !== undefined || !NUMBER.test(id)) return null;
  const slotLog = { s: nearLog, l: farLog }[tier[0] ?? ''];
  if (slotLog !== undefined) {
    if (!NUMBER.test(tier.slice(1))) return null;
    return { uid, place: { ...slotLog(shardOf(topic, shards), Number(tier.slice(1))), id: Number(id) } };
  }
  return NUMBER.test(tier) && Number(tier) < 100 ? { uid, place: { topic, tier: Number(tier), id: Number(id) } } : null;
}
