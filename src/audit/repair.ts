/**
 * Mends what the audit found, where the queue itself has a way to do so: by the same conditional writes, so that servers
 * may work on the store meanwhile, and a repair that comes too late changes nothing. No cursor is moved, and nothing is
 * deleted but what the queue has let go of.
 */
import { type Entry, type EntryHead, isFinal, type LogAddress, type Place } from '../core/entry.ts';
import { withAttempt } from '../core/history.ts';
import { DEAD_TIER, isSlotTopic, segmentOf, shardOfLog } from '../core/log.ts';
import { isLive, type MessageRow, type MessageWrite, messageKey } from '../core/message.ts';
import { failedAttempt } from '../core/scan.ts';
import { Counters, type Engine, silentLogger } from '../queue/engine.ts';
import { type Environment, systemEnvironment } from '../queue/environment.ts';
import { readByIds } from '../queue/locate.ts';
import { Measures } from '../queue/measures.ts';
import { liveRow, Messages, topicOf } from '../queue/messages.ts';
import { asPending, Mover, readHead } from '../queue/move.ts';
import { definitely } from '../queue/outcomes.ts';
import { TopicBook } from '../queue/topics.ts';
import { ringBell } from '../scheduler/bell.ts';
import type { Store } from '../store/store.ts';
import { periodsOf, type Reader } from './read.ts';
import { type Fault, placeText, type RuleName, rowStatusOf } from './rules.ts';

/** What was done about a fault, or why nothing was. */
export type Mended = { readonly did: string } | { readonly left: string };

const left = (why: string): Mended => ({ left: why });

/** Why some faults are left as they are. */
const LEFT: Partial<Record<RuleName, string>> = {
  'missing-entries': 'what is not there cannot be brought back; restore a backup, or enqueue it again',
  'missing-header': 'ids may be given out twice; restore a backup',
  'cursor-order': 'cursors are never set by hand',
  'checkpoint-ahead': 'cursors are never set by hand; a holder that starts here looks at all between its cursors',
  'scan-skips-segment': 'cursors are never set by hand',
  'entry-beyond-next-id': 'the next id is never set by hand',
  'two-live-entries': 'which of them is right cannot be told; cancel one of them',
  'two-live-tasks': 'which of them is right cannot be told; cancel one of them',
  'term-ahead': 'the term is never set by hand; it rises with each start of a server',
  'unreadable-settings': 'what was set cannot be told; set it anew',
  'unreadable-schedule': 'set it anew, or use a version of Node that knows its time zone',
  'sleeping-schedule': 'set it anew, as it is',
};

export class Repairer {
  readonly #store: Store;
  readonly #env: Environment;
  readonly #reader: Reader;
  readonly #engine: Engine;
  readonly #mover: Mover;

  constructor(store: Store, reader: Reader, environment: Environment = systemEnvironment()) {
    this.#store = store;
    this.#reader = reader;
    this.#env = { ...environment, now: () => store.now() };
    this.#engine = this.#engineOf(store, this.#env);
    this.#mover = new Mover(this.#engine);
  }

  /** What moves need of an engine; nobody listens to what they signal, for the holder looks at recorded logs itself. */
  #engineOf(store: Store, env: Environment): Engine {
    return {
      store,
      env,
      book: new TopicBook(store, env),
      messages: new Messages(store, env),
      activity: { ensure: (log) => this.#record(log.address), confirm: (log) => this.#record(log.address) },
      counters: new Counters(),
      measures: new Measures(),
      signals: { ready() {}, due() {}, news() {}, delayed() {}, left: async () => {}, settled() {}, changed() {} },
      log: silentLogger,
      holds: () => false,
      mayClaim: () => false,
      deposed() {},
    };
  }

  async mend(fault: Fault): Promise<Mended> {
    const why = LEFT[fault.rule];
    if (why !== undefined) return left(why);
    switch (fault.rule) {
      case 'unrecorded-log':
      case 'untended-log':
      case 'old-slot':
        await this.#record({ topic: fault.topic, tier: fault.tier! });
        return { did: 'recorded in the activity index: a holder finds it at its next start, or within a second' };
      case 'row-of-ended-task':
      case 'endless-row':
        return this.#mendRow(fault);
      case 'deleted-period':
        return this.#dropPeriods();
      default:
        return this.#mendEntry(fault);
    }
  }

  /** Records a log in the period that is current, also where a server advances it meanwhile. */
  async #record(log: LogAddress): Promise<void> {
    const shard = shardOfLog(log.topic, this.#store.meta.shards);
    for (;;) {
      const { period } = await periodsOf(this.#store, shard);
      await this.#store.recordActivity(shard, period, [{ ...log, at: this.#env.now() }]);
      if ((await periodsOf(this.#store, shard)).oldestPeriod > period) continue;
      await ringBell(this.#store, this.#env.now(), [log]);
      return;
    }
  }

  async #dropPeriods(): Promise<Mended> {
    for (let shard = 0; shard < this.#store.meta.shards; shard++) {
      const { oldestPeriod } = await periodsOf(this.#store, shard);
      for (const period of await this.#store.listPeriods(shard)) {
        if (period < oldestPeriod) await this.#store.dropPeriod(shard, period);
      }
    }
    return { did: 'deleted' };
  }

  // ── message rows ──────────────────────────────────────────────────────────────────────────────────────────────

  async #mendRow({ topic, key }: Fault): Promise<Mended> {
    const row = await this.#reader.row(topic, key!);
    if (row === null) return { did: 'it went by itself' };
    if (!isLive(row.status)) {
      const written = await this.#writeRow(topic, { expect: asFound(row), row, ttlMs: 1 });
      return written ? { did: 'deleted' } : left('it changed meanwhile');
    }
    const task = await this.#reader.task(row, true);
    if (task.kind === 'alive') return left('its task came up meanwhile');
    const status = rowStatusOf(task);
    const at = task.kind === 'final' ? task.updatedAt : this.#env.now();
    const known = { ...row, messageId: row.key.startsWith('m') ? row.key.slice(1) : null };
    const settings = await this.#reader.settings(topic);
    await this.#engine.messages.settle(topic, settings, [{ task: known, place: task.place, status, at }]);
    return { did: `settled as ${status}` };
  }

  async #writeRow(topic: string, write: MessageWrite): Promise<boolean> {
    const [answer] = await this.#engine.messages.write(topic, [write]);
    return answer === null;
  }

  // ── entries ───────────────────────────────────────────────────────────────────────────────────────────────────

  async #mendEntry(fault: Fault): Promise<Mended> {
    const place: Place = { topic: fault.topic, tier: fault.tier!, id: fault.id! };
    const head = await readHead(this.#store, place);
    if (head === null || head.uid !== fault.uid) return { did: 'it went by itself' };
    switch (fault.rule) {
      case 'missed-arrival':
        return this.#arrive(head);
      case 'unowned-entry':
      case 'row-settled-early':
        return this.#own(place, head);
      case 'entry-below-trimmed':
        return this.#trim(place, head);
      default:
        return this.#bringBack(place, head);
    }
  }

  async #arrive(head: EntryHead): Promise<Mended> {
    const dest = await readHead(this.#store, head.dest!);
    if (dest === null) return left('where it went nothing was ever put; enqueue it again');
    await this.#mover.ensureArrived(head);
    await this.#record(head.dest!);
    return { did: `its move was carried to an end: ready at ${placeText(head.dest!)}` };
  }

  /** The row that the claim would write, or the redrive. */
  async #own(place: Place, head: EntryHead): Promise<Mended> {
    const topic = topicOf(place, head);
    const key = messageKey(head)!;
    const found = await this.#reader.row(topic, key);
    if (found !== null && found.uid !== head.uid) return left(`the row of ${found.uid} stands there`);
    const expect = found === null ? ({ absent: true } as const) : asFound(found);
    const written = await this.#writeRow(topic, { expect, row: liveRow(key, head, place), ttlMs: null });
    return written ? { did: 'its row says so now' } : left('its row changed meanwhile');
  }

  async #trim({ topic, tier, id }: Place, head: EntryHead): Promise<Mended> {
    if (!isFinal(head.status)) return left(`it is ${head.status}`);
    const segment = segmentOf(id, this.#store.meta.segmentSize);
    await definitely(this.#env, () => this.#store.trim({ topic, tier }, segment, id, id + 1));
    return { did: 'deleted' };
  }

  /** An entry that no cursor will meet goes to the tail of its log, as the scanner moves a stalled one. */
  async #bringBack(place: Place, head: EntryHead): Promise<Mended> {
    const { book } = this.#engine;
    const log = await book.log(place);
    if (head.status === 'pending') {
      const [ready] = await this.#mover.resolve(log, [asPending(log, head)]);
      if (!ready) return { did: 'its move did not happen: void' };
      const arrived = await readHead(this.#store, place);
      return arrived === null ? { did: 'it went by itself' } : this.#bringBack(place, arrived);
    }
    if (isFinal(head.status)) return { did: `${head.status} meanwhile` };
    const now = this.#env.now();
    if (head.status === 'leased' && (head.leaseUntil ?? 0) > now) {
      return left(`it is leased until ${new Date(head.leaseUntil!).toISOString()}; run this again then`);
    }
    const entry = (await readByIds(this.#store, log.address, [place.id])).get(place.id);
    if (entry?.version !== head.version) return left('it changed meanwhile');
    const to = await this.#moveStalled(log.address, entry, now);
    return to === null ? left('it changed meanwhile') : { did: `moved to ${placeText(to)}` };
  }

  async #moveStalled(from: LogAddress, entry: Entry, at: number): Promise<Place | null> {
    const { book } = this.#engine;
    const reason = 'below the cursor, found by an audit';
    const settings = await this.#reader.settings(topicOf(from, entry));
    const lapsed = entry.status === 'leased';
    const next = failedAttempt(entry, settings, reason);
    const buries = lapsed && next.kind === 'bury' && !isSlotTopic(from.topic);
    const to = buries ? { topic: from.topic, tier: DEAD_TIER } : from;
    const history = withAttempt(entry.history, entry, { at, outcome: 'lapsed', reason });
    const [place] = await this.#mover.move(await book.log(from), [entry], to, () => ({
      placedAt: at,
      reason,
      ...(lapsed ? { attempt: next.attempt, history } : {}),
    }));
    return place ?? null;
  }
}

/** The row, as it was read. */
const asFound = ({ uid, status }: MessageRow) => ({ uid, statusIn: [status] });
