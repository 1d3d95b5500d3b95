import { ANSWER_BYTES, PAGE_TASKS, TIERS } from '../core/bounds.ts';
import { isExpired, isPurged } from '../core/claim.ts';
import { type Entry, type EntryHead, entryBytes, FINAL_VERSION, type LogAddress } from '../core/entry.ts';
import { invalid, QueueError } from '../core/errors.ts';
import { parseHistory } from '../core/history.ts';
import { DEAD_TIER, entriesEnd, isFarTopic, isSlotTopic, segmentEnd, segmentOf, segmentStart } from '../core/log.ts';
import { optionalInteger } from '../core/numbers.ts';
import type { TopicSettings } from '../core/settings.ts';
import { taskIdOf } from '../core/task-id.ts';
import type { ReadyRing } from '../scheduler/ready-ring.ts';
import {
  type AttemptInfo,
  type BusyTopic,
  type ListRequest,
  type PriorityCursors,
  TASK_STATES,
  type TaskInfo,
  type TaskPage,
  type TaskState,
  type TopicCursors,
  type TopicPage,
  type TopicSummary,
} from './api.ts';
import type { Engine } from './engine.ts';
import { decodePayload } from './lease.ts';
import { type Located, readByIds } from './locate.ts';
import type { Log } from './log.ts';
import { readHead } from './move.ts';
import type { Survey } from './survey.ts';
import { type KnownTopic, placeIn, type Topic } from './topics.ts';
import { decodeJson } from './validate.ts';
import type { Workers } from './workers.ts';

/** Rows that one page of a listing reads, whatever it finds: a page may be short and still have a next. */
const ROWS_PER_PAGE = 5_000;
const HEADS_PER_READ = 500;

/** The state of a task as its newest entry tells it. */
export function stateOf(head: EntryHead, log: LogAddress, settings: TopicSettings, now: number): TaskState {
  switch (head.status) {
    case 'done':
    case 'expired':
    case 'cancelled':
      return head.status;
    case 'leased':
      return 'leased';
    default:
      if (isPurged(head, settings.purgedAt)) return 'cancelled';
      if (log.tier === DEAD_TIER && !isSlotTopic(log.topic)) return 'dead';
      if (isExpired(head, now)) return 'expired';
      return isSlotTopic(log.topic) ? 'delayed' : 'ready';
  }
}

/** Answers what is where: tasks, topics, cursors. */
export class Inspector {
  readonly #engine: Engine;
  readonly #survey: Survey;
  readonly #ring: ReadyRing;
  readonly #workers: Workers;

  constructor(engine: Engine, survey: Survey, ring: ReadyRing, workers: Workers) {
    this.#engine = engine;
    this.#survey = survey;
    this.#ring = ring;
    this.#workers = workers;
  }

  async info(topic: Topic, located: Located): Promise<TaskInfo> {
    const entry = (await readByIds(this.#engine.store, located.place, [located.place.id])).get(located.place.id);
    if (entry === undefined || entry.uid !== located.head.uid) throw new QueueError('task-not-found');
    return this.#describe(topic, located.place, entry);
  }

  #describe(topic: Topic, log: LogAddress, entry: Entry): TaskInfo {
    const state = stateOf(entry, log, topic.settings, this.#engine.env.now());
    const settled = state !== 'ready' && state !== 'delayed' && state !== 'leased';
    const delivered = entry.leasedAt !== null;
    return {
      topic: topic.name,
      id: taskIdOf(entry, placeIn(log, entry.id)),
      messageId: entry.messageId,
      state,
      priority: entry.priority,
      payload: decodePayload(entry.payload),
      metadata: entry.metadata === null ? {} : (JSON.parse(entry.metadata) as Record<string, string>),
      attempt: entry.attempt + (delivered ? 1 : 0),
      maxAttempts: entry.maxAttempts ?? topic.settings.maxAttempts,
      attempts: attemptsOf(entry),
      progress: decodeJson(entry.progress),
      result: decodeJson(entry.result),
      enqueuedAt: entry.enqueuedAt,
      dueAt: state === 'delayed' ? entry.dueAt : null,
      expiresAt: entry.expiresAt,
      leaseUntil: state === 'leased' ? entry.leaseUntil : null,
      settledAt: settled ? entry.updatedAt : null,
      reason: settled ? entry.reason : null,
    };
  }

  // ── listing ───────────────────────────────────────────────────────────────────────────────────────────────────

  async list(topic: Topic, request: ListRequest): Promise<TaskPage> {
    const { state } = request;
    if (state !== undefined && !TASK_STATES.includes(state)) {
      throw invalid('/state', state, `one of ${TASK_STATES.join(', ')}`, 'dead');
    }
    const limit = optionalInteger(request.limit, '/limit', 1, PAGE_TASKS) ?? 100;
    const logs = await this.#logsFor(topic, state);
    const start = readCursor(request.after);
    const tasks: TaskInfo[] = [];
    let rows = 0;
    let bytes = 0;
    for (const address of logs) {
      const rank = rankOf(address);
      if (start !== null && compareRanks(rank, start.rank) < 0) continue;
      const log = await this.#engine.book.scheduledLog(address);
      let at = start !== null && compareRanks(rank, start.rank) === 0 ? start.id : firstId(log, state);
      const end = state === 'leased' ? log.scan : log.nextId;
      while (at < end) {
        const { entries, next } = await this.#readOn(log, Math.max(at, log.trimmed), end);
        rows += entries.length;
        for (const entry of entries) {
          if (belongs(entry, topic)) {
            const shown = stateOf(entry, address, topic.settings, this.#engine.env.now());
            if (isTask(entry) && (state === undefined || shown === state)) {
              tasks.push(this.#describe(topic, address, entry));
              bytes += entryBytes(entry) + (entry.result?.length ?? 0);
            }
          }
          if (tasks.length >= limit || bytes >= ANSWER_BYTES) return { tasks, after: cursorText(rank, entry.id + 1) };
        }
        at = next;
        if (rows >= ROWS_PER_PAGE) return { tasks, after: cursorText(rank, at) };
      }
    }
    return { tasks };
  }

  /** The logs in which tasks of a state can be, in the order of ranks. */
  async #logsFor(topic: Topic, state: TaskState | undefined): Promise<readonly LogAddress[]> {
    const logs: LogAddress[] = [];
    const inTiers = state !== 'delayed';
    if (inTiers) {
      for (const tier of await this.#engine.book.tiersOf(topic.name)) {
        if (
          state !== undefined &&
          (state === 'dead') !== (tier === DEAD_TIER) &&
          !(tier === DEAD_TIER && isEnded(state))
        )
          continue;
        logs.push({ topic: topic.name, tier });
      }
    }
    if (state === undefined || state === 'delayed' || state === 'cancelled' || state === 'expired') {
      for (const slot of this.#engine.book.slotsOf(topic.tenure).all()) {
        const isAsked = state !== 'delayed' || !slot.isCounted || slot.waiting.has(topic.name);
        if (isAsked) logs.push(slot.address);
      }
    }
    return logs.sort((a, b) => compareRanks(rankOf(a), rankOf(b)));
  }

  async #readOn(
    log: Log,
    from: number,
    end: number,
  ): Promise<{ readonly entries: readonly Entry[]; readonly next: number }> {
    const { store } = this.#engine;
    const size = store.meta.segmentSize;
    const to = Math.min(end, segmentEnd(segmentOf(from, size), size));
    const bySize = Math.floor(ANSWER_BYTES / Math.max(1, log.averageBytes));
    const limit = Math.max(1, Math.min(HEADS_PER_READ, bySize));
    const entries = await store.readEntries({ log: log.address, from, to, limit });
    return { entries, next: entries.length < limit ? to : entries.at(-1)!.id + 1 };
  }

  // ── cursors ───────────────────────────────────────────────────────────────────────────────────────────────────

  async cursors(topic: Topic): Promise<TopicCursors> {
    const priorities: PriorityCursors[] = [];
    for (const tier of await this.#engine.book.tiersOf(topic.name)) {
      priorities.push(await this.#logCursors(topic, await this.#engine.book.scheduledLog({ topic: topic.name, tier })));
    }
    return { topic: topic.name, priorities: priorities.sort(byTier) };
  }

  async #logCursors(topic: Topic, log: Log): Promise<PriorityCursors> {
    const { store, env } = this.#engine;
    const size = store.meta.segmentSize;
    if (!store.exclusive) await log.findNewTail();
    let segments = 0;
    for (let segment = segmentOf(log.trimmed, size); segment <= segmentOf(log.nextId, size); segment++) {
      const header = await store.readSegment(log.address, segment);
      if (header === null || entriesEnd(header) <= Math.max(log.trimmed, segmentStart(segment, size))) continue;
      // One that was closed may be trimmed above the cursor.
      if (!header.closed || (await this.#holdsEntries(log, segment))) segments++;
    }
    const oldest = log.ready === 0 || log.isDead ? null : await this.#oldestReady(topic, log);
    return {
      priority: log.isDead ? 'dead' : log.address.tier,
      nextId: log.nextId,
      scanCursor: log.scan,
      completionCursor: log.completion,
      trimmed: log.trimmed,
      lag: log.scan - log.completion,
      ready: log.ready,
      inFlight: log.open.leased,
      oldestReadyMs: oldest === null ? null : Math.max(0, env.now() - oldest),
      segments,
      heldBy: await this.#heldBy(log),
    };
  }

  async #holdsEntries({ address }: Log, segment: number): Promise<boolean> {
    const size = this.#engine.store.meta.segmentSize;
    const range = { from: segmentStart(segment, size), to: segmentEnd(segment, size) };
    return (await this.#engine.store.readHeads({ log: address, ...range, limit: 1 })).length > 0;
  }

  /** The entry that the completion cursor waits for. */
  async #heldBy(log: Log): Promise<PriorityCursors['heldBy']> {
    const first = log.open.entries().next();
    if (first.done) return null;
    const [id, open] = first.value;
    const place = placeIn(log.address, id);
    const head = await readHead(this.#engine.store, place);
    const task = head === null ? open.uid : taskIdOf(head, place);
    return { entry: id, task, leaseUntil: open.leased ? open.until : null };
  }

  async #oldestReady(topic: Topic, log: Log): Promise<number | null> {
    const { store, env } = this.#engine;
    const size = store.meta.segmentSize;
    const to = segmentEnd(segmentOf(log.scan, size), size);
    const heads = await store.readHeads({ log: log.address, from: log.scan, to, limit: HEADS_PER_READ });
    const first = heads.find(
      (head) => head.status === 'ready' && stateOf(head, log.address, topic.settings, env.now()) === 'ready',
    );
    return first?.placedAt ?? null;
  }

  // ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Of the shards that this server schedules. */
  async topics(request: {
    readonly after?: string;
    readonly limit?: number;
    readonly prefix?: string;
  }): Promise<TopicPage> {
    const limit = optionalInteger(request.limit, '/limit', 1, PAGE_TASKS) ?? 100;
    const names = await this.#survey.names(limit + 1, request.after ?? '', request.prefix ?? '');
    // Some may have been let go of while the others were looked at.
    const page = names.slice(0, limit).flatMap((name) => this.#engine.book.known(name) ?? []);
    return names.length > limit
      ? { topics: page.map(summary), after: names[limit - 1]! }
      : { topics: page.map(summary) };
  }

  /** The topics with most tasks, of those shards. */
  async busiest(): Promise<readonly BusyTopic[]> {
    const { book, env } = this.#engine;
    const names = await this.#survey.busiest();
    const topics = names.flatMap((name) => book.peek(name) ?? []);
    return topics.map((topic) => {
      const waiting = this.#ring.waitingFor(topic.name);
      const workers = new Set(this.#workers.lately(topic.name, env.now()));
      let unnamed = 0;
      for (const { worker } of waiting) {
        if (worker === null) unnamed++;
        else workers.add(worker);
      }
      return {
        ...summary(topic),
        waitingBytes: book.waitingBytes(topic),
        subscribers: workers.size + unnamed,
        idle: waiting.length,
      };
    });
  }
}

const summary = (topic: KnownTopic): TopicSummary => ({
  topic: topic.name,
  counts: topic.counts(),
  paused: topic.settings.paused,
});

const isEnded = (state: TaskState): boolean => state === 'expired' || state === 'cancelled';

/** Whether an entry stands for its task: moved ones stand elsewhere, and the others never were one. */
const isTask = (entry: EntryHead): boolean =>
  entry.status !== 'moved' && entry.status !== 'void' && entry.status !== 'duplicate' && entry.status !== 'pending';

const belongs = (entry: EntryHead, topic: Topic): boolean => entry.target === null || entry.target === topic.name;

/** Below the scan cursor nothing is ready, and below the completion cursor nothing is leased. */
function firstId(log: Log, state: TaskState | undefined): number {
  if (log.isDead || isSlotTopic(log.address.topic)) return log.trimmed;
  return state === 'ready' ? log.scan : state === 'leased' ? log.completion : log.trimmed;
}

/** Tiers by rank, highest priority first, then the dead letters, then near time slots, then far ones. */
const rankOf = (log: LogAddress): readonly [number, number] =>
  isSlotTopic(log.topic)
    ? [isFarTopic(log.topic) ? 3 : 2, log.tier]
    : log.tier === DEAD_TIER
      ? [1, 0]
      : [0, TIERS - 1 - log.tier];
const compareRanks = (a: readonly [number, number], b: readonly [number, number]): number => a[0] - b[0] || a[1] - b[1];
const byTier = (a: PriorityCursors, b: PriorityCursors): number =>
  (b.priority === 'dead' ? -1 : b.priority) - (a.priority === 'dead' ? -1 : a.priority);

/** What to throw for text that no page gave as its `after`. */
export const noCursor = (text: string): QueueError =>
  invalid('/after', text, 'a cursor that a page gave', 'the "after" of the page before');

const cursorText = (rank: readonly [number, number], id: number): string => `${rank[0]}-${rank[1]}-${id}`;
function readCursor(
  text: string | undefined,
): { readonly rank: readonly [number, number]; readonly id: number } | null {
  if (text === undefined) return null;
  const match = /^([0123])-(\d{1,15})-(\d{1,15})$/.exec(text);
  if (match === null) throw noCursor(text);
  return { rank: [Number(match[1]), Number(match[2])], id: Number(match[3]) };
}

function attemptsOf(entry: Entry): readonly AttemptInfo[] {
  const past: AttemptInfo[] = [...parseHistory(entry.history)];
  if (entry.leasedAt === null) return past;
  const ended = entry.version === FINAL_VERSION;
  past.push({
    attempt: entry.attempt + 1,
    worker: entry.worker,
    leasedAt: entry.leasedAt,
    endedAt: ended ? entry.updatedAt : null,
    outcome: entry.status === 'done' ? 'done' : entry.status === 'cancelled' ? 'cancelled' : ended ? 'lapsed' : null,
    reason: ended ? entry.reason : null,
  });
  return past;
}
