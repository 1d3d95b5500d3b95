/**
 * Looks the tables over as `ebbmark audit` does, at any moment: between two steps of the loop the store is as a server
 * would leave it that died just then, and so there is nothing to find.
 */
import { auditStore, type Finding } from '../../src/audit/audit.ts';
import { type Entry, isFinal, type LogAddress, samePlace } from '../../src/core/entry.ts';
import { logKey } from '../../src/core/log.ts';
import { MemoryStore } from '../../src/store/memory/store.ts';
import type { Tables } from '../../src/store/memory/tables.ts';
import type { AnyCall } from './history.ts';

const EXAMPLES = 1_000;
/** A server that dies between an append and the row of its log leaves a log that is known to nobody, until it is used again. */
const LEFT_BY_A_CRASH: ReadonlySet<string> = new Set(['untended-log', 'old-slot']);

/** @param calls by which it is known whose enqueue was answered; what was not may be gone, or lie where nobody looks */
export async function findings(tables: Tables, calls: readonly AnyCall[]): Promise<readonly string[]> {
  const { rules } = await auditStore(new MemoryStore(tables), { limit: EXAMPLES });
  if (rules.length === 0) return [];
  const answered = uidsOf(calls);
  return rules
    .flatMap(({ examples }) => examples)
    .filter(({ rule }) => !LEFT_BY_A_CRASH.has(rule))
    .filter((finding) => finding.rule !== 'unrecorded-log' || holdsSome(tables, finding, answered))
    .map((finding) => `audit: ${text(finding)}`);
}

/** Tasks whose enqueue was answered; an id begins with the uid. */
function uidsOf(calls: readonly AnyCall[]): ReadonlySet<string> {
  const uids = new Set<string>();
  for (const { kind, answer } of calls) {
    if (kind !== 'enqueue' || answer?.kind !== 'ok') continue;
    for (const { id } of answer.value as readonly { readonly id: string | null }[]) if (id) uids.add(id.slice(0, 26));
  }
  return uids;
}

/** Whether something of an answered enqueue stands in a log; what is pending does so only once its origin says so. */
function holdsSome(tables: Tables, { topic, tier }: Finding, uids: ReadonlySet<string>): boolean {
  const address = { topic, tier: tier! };
  return entriesOf(tables, address).some(({ id, uid, status, origin }) => {
    if (!uids.has(uid) || isFinal(status)) return false;
    if (status !== 'pending' || origin === null) return true;
    const from = entriesOf(tables, origin).find((entry) => entry.id === origin.id);
    return from?.uid === uid && samePlace(from.dest, { ...address, id });
  });
}

const entriesOf = (tables: Tables, log: LogAddress): readonly Entry[] =>
  [...(tables.logs.get(logKey(log))?.segments.values() ?? [])].flatMap(({ rows }) => [...rows.values()]);

const text = ({ rule, topic, tier, id, uid, key, detail }: Finding): string =>
  `${rule} ${topic.replace('\u0001', '')}:${tier} ${[id, uid, key].filter((part) => part !== null).join(' ')}: ${detail}`;
