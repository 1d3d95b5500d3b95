/**
 * What is read when a log becomes active here: what is open between its cursors, what is in flight, when the newest
 * lease was handed out. Nothing of it is known from before: it may have been another process's.
 */
import { ANSWER_BYTES } from '../core/bounds.ts';
import { isPurged } from '../core/claim.ts';
import { bytesOf, type EntryHead } from '../core/entry.ts';
import { entriesEnd, segmentEnd, segmentOf, segmentStart } from '../core/log.ts';
import { mustBeChecked } from '../core/scan.ts';
import type { Engine } from '../queue/engine.ts';
import { monotonicAt } from '../queue/environment.ts';
import type { Log } from '../queue/log.ts';
import { openEntry } from '../queue/open-entries.ts';
import { changeDefinitely } from '../queue/outcomes.ts';
import type { Topic } from '../queue/topics.ts';

const HEADS_PER_PAGE = 1_000;
/** Up to so many entries above the scan cursor are looked at, so that counts are right from the start. */
const COUNTED = 10_000;
const RECOUNTS = 5;

export async function recoverLog(engine: Engine, log: Log, topic: Topic | null): Promise<void> {
  // What is in a slot of delayed tasks is counted later, and read when its time comes.
  if (topic === null) return;
  if (log.isDead) await recoverDead(engine, log, topic);
  else await recoverTier(engine, log, topic);
}

async function recoverTier(engine: Engine, log: Log, topic: Topic): Promise<void> {
  // What a topic's limits count must not change behind the count.
  if (topic.limited) await takeTerm(engine, log);
  log.unseen = null;
  await openBetween(engine, log, topic, log.completion, log.scan);
  // What was not counted may have been purged, or have expired: it is swept and looked through soon.
  log.sweep = topic.settings.purgedAt !== null;
  // A quota rests on the counts.
  const counted = topic.settings.maxWaiting === null ? COUNTED : Number.POSITIVE_INFINITY;
  if (topic.settings.maxWaitingBytes !== null) await measureWaiting(engine, log);
  if (log.unscanned > counted) {
    log.expiresAt = engine.env.now();
    for await (const head of heads(engine, log, log.scan, log.scan + 1)) log.readySince = head.placedAt;
  }
  if (log.unscanned > 0 && log.unscanned <= counted) {
    const interrupted: EntryHead[] = [];
    let readySince = Number.POSITIVE_INFINITY;
    log.ready = 0;
    log.expiresAt = Number.POSITIVE_INFINITY;
    for await (const head of heads(engine, log, log.scan, log.nextId)) {
      if (head.status === 'pending') interrupted.push(head);
      const countsEarly = head.status === 'pending' && !isPurged(head, topic.settings.purgedAt);
      if (countsEarly) log.addCountedEarly(head.id);
      if (countsEarly || counts(head, topic)) {
        log.countReady(1);
        readySince = Math.min(readySince, head.placedAt);
      }
      if (head.expiresAt !== null) log.expiresAt = Math.min(log.expiresAt, head.expiresAt);
    }
    log.interrupted = interrupted;
    if (log.ready > 0) log.readySince = readySince;
  }
}

/** Counts anew what is ready from the scan cursor on. */
export async function recountReady(engine: Engine, log: Log, topic: Topic): Promise<void> {
  let ready = 0;
  const end = topic.settings.maxWaiting === null ? Math.min(log.nextId, log.scan + COUNTED) : log.nextId;
  for await (const head of heads(engine, log, log.scan, end)) if (counts(head, topic)) ready++;
  if (ready > log.ready) log.ready = ready;
}

/**
 * Counts anew what waits from the scan cursor on: final entries may stand there that were never taken off. Nothing may be
 * claimed meanwhile; what is put there meanwhile is added.
 */
export async function recountWaiting(engine: Engine, log: Log, topic: Topic): Promise<void> {
  const before = log.ready;
  let waiting = 0;
  for await (const head of heads(engine, log, log.scan, log.nextId)) {
    if (counts(head, topic) || (head.status === 'pending' && log.countsEarly(head.id))) waiting++;
  }
  log.ready = waiting + Math.max(0, log.ready - before);
}

/**
 * Measures what stands from the scan cursor on. Of the cursor's segment, which is begun, entries are read; how much is in
 * those behind it their headers say. What is put there meanwhile is added as it is; nothing may be claimed meanwhile.
 */
export async function measureWaiting({ store }: Engine, log: Log): Promise<void> {
  const size = store.meta.segmentSize;
  const { end, scan } = log;
  log.keepWaitingBytes();
  if (end === null) return;
  const first = segmentOf(scan, size);
  let bytes = 0;
  for (let segment = first; segment <= end.segment; segment++) {
    const isLast = segment === end.segment;
    const header = isLast ? null : await store.readSegment(log.address, segment);
    if (segment > first || scan === segmentStart(segment, size)) {
      bytes += isLast ? end.bytes : (header?.bytes ?? 0);
      continue;
    }
    const stop = isLast ? (end.next ?? scan) : header === null ? scan : entriesEnd(header);
    for (let at = scan; at < stop; ) {
      const limit = Math.max(1, Math.min(HEADS_PER_PAGE, Math.floor(ANSWER_BYTES / Math.max(1, log.averageBytes))));
      const page = await store.readEntries({ log: log.address, from: at, to: stop, limit });
      bytes += bytesOf(page);
      if (page.length < limit) break;
      at = page.at(-1)!.id + 1;
    }
  }
  log.addWaitingBytes(bytes);
}

/** Counts anew the dead letters, of which others may have redriven some. */
export async function recountDead(engine: Engine, log: Log, topic: Topic): Promise<void> {
  // What comes or goes meanwhile is counted as it does; then it is counted anew.
  for (let tries = 0; tries < RECOUNTS; tries++) {
    const [end, before] = [log.nextId, log.ready];
    log.recount = false;
    let dead = 0;
    let pending = 0;
    try {
      for await (const head of heads(engine, log, log.completion, end)) {
        if (counts(head, topic)) dead++;
        else if (head.status === 'pending') pending++;
      }
    } catch (error) {
      log.recount = true;
      throw error;
    }
    if (log.nextId !== end || log.ready !== before || log.recount) continue;
    log.ready = dead;
    // A predecessor may still ready some of them, late, and nobody here would count those.
    log.recount = pending > 0;
    return;
  }
  log.recount = true;
}

/**
 * Writes our term where the scan cursor stands, so that no claim of a predecessor can land any more. One that was under way
 * names the segment in which the cursor stood while its sender held the shard; where that is scanned to its end by now, it
 * has landed or never will.
 */
export async function takeTerm(engine: Engine, log: Log): Promise<void> {
  const { term } = log.tenure;
  while (term !== null) {
    const header = await log.enterScanSegment();
    if (header === null || header.term >= term) return;
    const scan = { from: log.scan, to: log.scan, seenTerm: header.term, term };
    const change = { log: log.address, segment: header.segment, changes: [], scan };
    const outcome = await changeDefinitely(engine.store, engine.env, change);
    if (outcome.kind === 'applied') header.term = term;
    else log.scanHeader = null;
  }
}

/** Takes in what was handed out by a claim that nobody here knows of. */
export async function adoptUnseen(engine: Engine, log: Log, topic: Topic): Promise<void> {
  if (log.unseen === null) return;
  const { from, to } = log.unseen;
  await openBetween(engine, log, topic, from, to);
  log.unseen = null;
  engine.signals.due(log, engine.env.now());
}

/** Notes as open what is handed out, or has to be checked, in a range of ids behind all that is open already. */
async function openBetween(engine: Engine, log: Log, topic: Topic, from: number, to: number): Promise<void> {
  const found: EntryHead[] = [];
  for await (const head of heads(engine, log, from, to)) found.push(head);
  for (const head of found) {
    if (head.status === 'leased') {
      if (head.leasedAt !== null) topic.hadLease(monotonicAt(engine.env, head.leasedAt));
      log.opens(head.id, openEntry(head, true, head.leaseUntil ?? 0));
    } else if (mustBeChecked(head)) log.opens(head.id, openEntry(head, false, 0));
  }
}

/** Whether an entry counts as waiting: purged ones don't, wherever they stand. */
const counts = (head: EntryHead, topic: Topic): boolean =>
  head.status === 'ready' && !isPurged(head, topic.settings.purgedAt);

async function recoverDead(engine: Engine, log: Log, topic: Topic): Promise<void> {
  log.scan = log.completion;
  await recountDead(engine, log, topic);
}

/** Heads of a range of ids, segment by segment; a closed segment is skipped by one read. */
export async function* heads(engine: Engine, log: Log, from: number, to: number): AsyncGenerator<EntryHead> {
  const size = engine.store.meta.segmentSize;
  for (let at = from; at < to; ) {
    const segment = segmentOf(at, size);
    const end = Math.min(to, segmentEnd(segment, size));
    const header = await engine.store.readSegment(log.address, segment);
    if (header === null) return;
    const stop = header.closed ? at : Math.min(end, entriesEnd(header));
    while (at < stop) {
      const page = await engine.store.readHeads({ log: log.address, from: at, to: stop, limit: HEADS_PER_PAGE });
      yield* page;
      if (page.length < HEADS_PER_PAGE) break;
      at = page.at(-1)!.id + 1;
    }
    at = end;
  }
}
