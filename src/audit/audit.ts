/**
 * The audit: holds everything in a store against everything else, and says what no one would find, what must not be, and
 * what is left over. It reads segment by segment and row by row and keeps nothing of them but what it suspects.
 *
 * Servers may work on the store meanwhile, and what is read one after the other then need not go together: so a
 * suspicion is only told once it has stood several looks, some seconds apart, each by serial reads of all it rests on.
 */
import { SCHEDULE_PAGE } from '../core/bounds.ts';
import type { LogAddress, Place } from '../core/entry.ts';
import type { ScheduleHead } from '../core/schedule.ts';
import type { Environment } from '../queue/environment.ts';
import type { Store, StoredMessage } from '../store/store.ts';
import { allOf, isLeasable, pagesOf, periodsOf, Reader } from './read.ts';
import { Repairer } from './repair.ts';
import {
  checkpointFaults,
  doubleFaults,
  entryFaults,
  type Fault,
  periodFaults,
  RULES,
  type RuleGroup,
  type RuleName,
  rowFaults,
  scheduleFaults,
  segmentFaults,
  settingsFaults,
} from './rules.ts';
import { SeenBefore } from './sketch.ts';

export interface AuditOptions {
  /** Mend what can be. */
  readonly repair?: boolean;
  /** Examples of each rule in the report; 5 when absent. */
  readonly limit?: number;
  /** Before each further look at what is suspected, in milliseconds; on a store that others may use, three times. */
  readonly looksAfterMs?: readonly number[];
  readonly pause?: (ms: number) => Promise<void>;
  /** Told how many rows were read. */
  readonly progress?: (rows: number) => void;
  /** Time and randomness of repairs; the system's when absent. */
  readonly environment?: Environment;
}

export interface Finding extends Fault {
  /** What was done about it. */
  readonly did: string | null;
  /** Why it was left. */
  readonly left: string | null;
}

export interface RuleReport {
  readonly rule: RuleName;
  readonly group: RuleGroup;
  readonly about: string;
  readonly found: number;
  readonly mended: number;
  readonly examples: readonly Finding[];
}

export interface AuditReport {
  readonly store: string;
  /** What was read. */
  readonly segments: number;
  readonly entries: number;
  readonly messages: number;
  /** Rules that something broke, in the order of RULES. */
  readonly rules: readonly RuleReport[];
  readonly found: number;
  readonly mended: number;
}

/** What is looked at as one, and again. */
type Unit =
  | { readonly kind: 'segment'; readonly log: LogAddress; readonly segment: number }
  | { readonly kind: 'checkpoint'; readonly log: LogAddress }
  | { readonly kind: 'row'; readonly stored: StoredMessage }
  | { readonly kind: 'settings'; readonly topic: string; readonly settings: string }
  | { readonly kind: 'schedule'; readonly shard: number; readonly head: ScheduleHead }
  | { readonly kind: 'period'; readonly shard: number; readonly period: number }
  | { readonly kind: 'double'; readonly uid: string; readonly places: readonly Place[] };

interface Suspicion {
  readonly unit: Unit;
  readonly fault: Fault;
}

/** Longer, together, than a write may be in doubt, and than a pass of the scanner takes to come round. */
const LOOKS_AFTER_MS = [1_000, 5_000, 15_000];
/** Suspicions that are kept before they are looked at again. */
const KEPT = 10_000;
const EXAMPLES = 5;

export async function auditStore(store: Store, options: AuditOptions = {}): Promise<AuditReport> {
  return new Audit(store, options).run();
}

class Audit {
  readonly #store: Store;
  readonly #options: AuditOptions;
  readonly #reader: Reader;
  readonly #repairer: Repairer | null;
  readonly #rules = new Map<RuleName, { found: number; mended: number; examples: Finding[] }>();
  #suspicions: Suspicion[] = [];
  readonly #seen = new SeenBefore();
  /** Tasks of which a second live entry was perhaps met. */
  readonly #doubles = new Set<string>();
  #segments = 0;
  #checkpoints = 0;
  #entries = 0;
  #messages = 0;

  constructor(store: Store, options: AuditOptions) {
    this.#store = store;
    this.#options = options;
    this.#reader = new Reader(store);
    this.#repairer = options.repair ? new Repairer(store, this.#reader, options.environment) : null;
  }

  async run(): Promise<AuditReport> {
    const store = this.#store;
    await this.#reader.refresh();
    for await (const { segment, topic, tier } of allOf((after, limit) => store.scanSegments(after, limit))) {
      this.#segments++;
      await this.#look({ kind: 'segment', log: { topic, tier }, segment });
    }
    for await (const { topic, tier } of allOf((after, limit) => store.scanCheckpoints(after, limit))) {
      this.#checkpoints++;
      await this.#look({ kind: 'checkpoint', log: { topic, tier } });
      this.#progress();
    }
    for await (const rows of pagesOf((after, limit) => store.scanMessages(after, limit))) {
      for (const [at, facts] of (await this.#reader.rowFacts(rows, false)).entries()) {
        await this.#suspect({ kind: 'row', stored: rows[at]! }, rowFaults(facts));
      }
      this.#messages += rows.length;
      this.#progress();
    }
    for await (const { topic, settings } of allOf((after, limit) => store.scanTopics(after, limit))) {
      await this.#look({ kind: 'settings', topic, settings });
    }
    for (let shard = 0; shard < store.meta.shards; shard++) {
      for (const period of await store.listPeriods(shard)) await this.#look({ kind: 'period', shard, period });
      await this.#lookAtSchedules(shard);
    }
    await this.#lookAtDoubles();
    await this.#settle();
    return this.#report();
  }

  async #lookAtSchedules(shard: number): Promise<void> {
    for (let after: string | null = null; ; ) {
      const page: readonly ScheduleHead[] = await this.#store.readSchedules(shard, after, SCHEDULE_PAGE);
      for (const head of page) await this.#look({ kind: 'schedule', shard, head });
      if (page.length < SCHEDULE_PAGE) return;
      after = page.at(-1)!.name;
    }
  }

  #progress(): void {
    this.#options.progress?.(this.#entries + this.#messages + this.#segments + this.#checkpoints);
  }

  async #look(unit: Unit): Promise<void> {
    await this.#suspect(unit, await this.#inspect(unit, false));
  }

  async #suspect(unit: Unit, faults: readonly Fault[]): Promise<void> {
    if (faults.length === 0) return;
    for (const fault of faults) this.#suspicions.push({ unit, fault });
    if (this.#suspicions.length >= KEPT) await this.#settle();
  }

  /** @param again it is looked at because of what was suspected: serially, and nothing is counted */
  async #inspect(unit: Unit, again: boolean): Promise<readonly Fault[]> {
    switch (unit.kind) {
      case 'segment':
        return this.#inspectSegment(unit.log, unit.segment, again);
      case 'checkpoint':
        return checkpointFaults(await this.#reader.checkpoint(unit.log, again));
      case 'row':
        return this.#inspectRow(unit.stored);
      case 'settings': {
        const settings = again ? (await this.#store.readTopic(unit.topic))?.settings : unit.settings;
        return settings === undefined ? [] : settingsFaults(unit.topic, settings);
      }
      case 'schedule': {
        const { shard, head } = unit;
        const row = again ? await this.#store.readSchedule(shard, head.name, true) : head;
        return row === null ? [] : scheduleFaults(row);
      }
      case 'period': {
        const { oldestPeriod } = await periodsOf(this.#store, unit.shard);
        const page = await this.#store.readActivity(unit.shard, unit.period, null, 1);
        return page.rows.length === 0 ? [] : periodFaults(unit.shard, unit.period, oldestPeriod);
      }
      case 'double':
        return doubleFaults(unit.uid, await this.#reader.liveAt(unit.uid, unit.places, true));
    }
  }

  async #inspectSegment(log: LogAddress, segment: number, again: boolean): Promise<readonly Fault[]> {
    const faults: Fault[] = [];
    const repeated: Parameters<Reader['hasArrived']>[0][] = [];
    const facts = await this.#reader.segment(log, segment, again, (entry) => {
      faults.push(...entryFaults(entry));
      if (again) return;
      this.#entries++;
      if (isLeasable(entry.head) && this.#seen.note(entry.head.uid)) repeated.push(entry);
    });
    this.#progress();
    for (const entry of repeated) {
      // While others move tasks, one is easily met before its move and behind it.
      const moved = !this.#store.exclusive && (await this.#reader.hasArrived(entry));
      if (!moved && this.#doubles.size < KEPT) this.#doubles.add(entry.head.uid);
    }
    return [...faults, ...segmentFaults(facts)];
  }

  /** Of a page's rows, those that are suspected. */
  async #inspectRow(stored: StoredMessage): Promise<readonly Fault[]> {
    const row = await this.#reader.row(stored.topic, stored.row.key);
    if (row === null || row.uid !== stored.row.uid || row.status !== stored.row.status) return [];
    return (await this.#reader.rowFacts([{ ...stored, row }], true)).flatMap(rowFaults);
  }

  /** Where two live entries of one task were perhaps seen, all entries are read once more for where they stand. */
  async #lookAtDoubles(): Promise<void> {
    if (this.#doubles.size === 0) return;
    const store = this.#store;
    const places = new Map<string, Place[]>();
    for await (const { segment, topic, tier } of allOf((after, limit) => store.scanSegments(after, limit))) {
      await this.#reader.segment({ topic, tier }, segment, false, ({ head }) => {
        if (!isLeasable(head) || !this.#doubles.has(head.uid)) return;
        places.set(head.uid, [...(places.get(head.uid) ?? []), { topic, tier, id: head.id }]);
      });
    }
    for (const [uid, some] of places) if (some.length > 1) await this.#look({ kind: 'double', uid, places: some });
  }

  /** Looks at what is suspected again, as often as it takes; what still stands is found, and mended if that is asked. */
  async #settle(): Promise<void> {
    let suspicions = this.#suspicions;
    this.#suspicions = [];
    for (const ms of this.#options.looksAfterMs ?? (this.#store.exclusive ? [] : LOOKS_AFTER_MS)) {
      if (suspicions.length === 0) return;
      await (this.#options.pause ?? sleep)(ms);
      suspicions = await this.#standing(suspicions);
    }
    if (this.#repairer === null) {
      for (const { fault } of suspicions) this.#found({ ...fault, did: null, left: null });
    } else await this.#mend(suspicions, this.#repairer);
  }

  /** Those that a second look finds, too. */
  async #standing(suspicions: readonly Suspicion[]): Promise<Suspicion[]> {
    await this.#reader.refresh();
    const faults = new Map<string, ReadonlySet<string>>();
    for (const { unit } of suspicions) {
      const key = JSON.stringify(unit);
      if (!faults.has(key)) faults.set(key, new Set((await this.#inspect(unit, true)).map(identityOf)));
    }
    return suspicions.filter(({ unit, fault }) => faults.get(JSON.stringify(unit))!.has(identityOf(fault)));
  }

  async #mend(suspicions: readonly Suspicion[], repairer: Repairer): Promise<void> {
    const tried: (Suspicion & { readonly did: string | null; readonly left: string | null })[] = [];
    for (const suspicion of suspicions) {
      const mended = await repairer.mend(suspicion.fault);
      tried.push({ did: null, left: null, ...suspicion, ...mended });
    }
    // Some were mended along with others: it counts what is found now.
    const standing = new Set(tried.length === 0 ? [] : await this.#standing(tried.filter((one) => !goesByItself(one))));
    for (const one of tried) {
      const { fault, did, left } = one;
      if (!standing.has(one)) this.#found({ ...fault, did: did ?? 'gone, along with another', left: null });
      else this.#found({ ...fault, did: null, left: left ?? `it is still there, though: ${did}` });
    }
  }

  #found(finding: Finding): void {
    let rule = this.#rules.get(finding.rule);
    if (rule === undefined) {
      rule = { found: 0, mended: 0, examples: [] };
      this.#rules.set(finding.rule, rule);
    }
    rule.found++;
    if (finding.did !== null) rule.mended++;
    if (rule.examples.length < (this.#options.limit ?? EXAMPLES)) rule.examples.push(finding);
  }

  #report(): AuditReport {
    const rules = (Object.keys(RULES) as RuleName[]).flatMap((rule): RuleReport[] => {
      const counted = this.#rules.get(rule);
      return counted === undefined ? [] : [{ rule, group: RULES[rule][0], about: RULES[rule][1], ...counted }];
    });
    return {
      store: this.#store.description,
      segments: this.#segments,
      entries: this.#entries,
      messages: this.#messages,
      rules,
      found: rules.reduce((sum, { found }) => sum + found, 0),
      mended: rules.reduce((sum, { mended }) => sum + mended, 0),
    };
  }
}

/** A row that was given an end stands there until then, and looks as it did. */
const goesByItself = ({ fault, did }: { readonly fault: Fault; readonly did: string | null }): boolean =>
  fault.rule === 'endless-row' && did !== null;

/** The same fault has the same, whatever it says of numbers that change. */
const identityOf = ({ rule, topic, tier, id, uid, key }: Fault): string =>
  JSON.stringify([rule, topic, tier, id, uid, key]);

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
