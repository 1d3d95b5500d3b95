/** Watches the rows themselves: what no interleaving may ever write, whoever it was and whatever was told to clients. */
import { type Entry, isFinal, type LogAddress, mayBecome } from '../../src/core/entry.ts';
import { DEAD_TIER, type SegmentHeader } from '../../src/core/log.ts';
import type { Tables, Witness } from '../../src/store/memory/tables.ts';

export class Ledger implements Witness {
  readonly violations: string[] = [];
  readonly #tables: Tables;
  /** Entries of a task that can be leased or settled. */
  readonly #live = new Map<string, number>();
  readonly #settled = new Map<string, string>();

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  appended(log: LogAddress, entry: Entry): void {
    if (entry.status === 'ready') this.#count(log, entry, 1);
  }

  changed(log: LogAddress, before: Entry, after: Entry): void {
    const where = `${log.topic}:${log.tier} ${before.id}`;
    if (!mayBecome(before.status, after.status))
      this.#say(`Q3 entry: ${where} went from ${before.status} to ${after.status}`);
    if (after.version <= before.version) this.#say(`Q3 entry: ${where} kept version ${before.version}`);
    if (isLive(after) !== isLive(before)) this.#count(log, after, isLive(after) ? 1 : -1);
    if (after.status === 'done') {
      const earlier = this.#settled.get(after.uid);
      if (earlier !== undefined) this.#say(`Q3: ${where} was settled, as was ${earlier}`);
      this.#settled.set(after.uid, where);
    }
  }

  claimed(log: LogAddress, before: SegmentHeader, after: SegmentHeader): void {
    const where = `${log.topic}:${log.tier}`;
    if (after.scan < before.scan)
      this.#say(`Q4: the scan cursor of ${where} fell from ${before.scan} to ${after.scan}`);
    // Who was replaced counts no more what is in flight, and must not hand out.
    if (after.term < before.term)
      this.#say(`Q9: ${where} was claimed in under term ${before.term}, then ${after.term}`);
  }

  passed(log: LogAddress, entries: readonly Entry[]): void {
    for (const { id, status, uid, dest } of entries) {
      const where = `${log.topic}:${log.tier} ${id}`;
      if (!isFinal(status)) this.#say(`Q4: ${where} was passed while ${status}`);
      if (status !== 'moved') continue;
      const next = this.#tables.entryAt(dest!);
      if (next?.uid === uid && next.status === 'pending') {
        this.#say(
          `Q1 passed: ${where} was passed while ${dest!.topic}:${dest!.tier} ${dest!.id}, where it went, is pending`,
        );
      }
    }
  }

  trimmed(log: LogAddress, entry: Entry): void {
    if (!isFinal(entry.status)) this.#say(`Q1: ${log.topic}:${log.tier} ${entry.id} was trimmed while ${entry.status}`);
  }

  /** Whether nothing is left that could be leased some time: nothing but dead letters. */
  isSettled(): boolean {
    for (const { address, segments } of this.#tables.logs.values()) {
      if (address.tier === DEAD_TIER) continue;
      for (const { rows } of segments.values())
        for (const { status } of rows.values()) if (!isFinal(status)) return false;
    }
    return true;
  }

  #count(log: LogAddress, entry: Entry, by: number): void {
    const live = (this.#live.get(entry.uid) ?? 0) + by;
    this.#live.set(entry.uid, live);
    if (live > 1)
      this.#say(`Q2: ${entry.uid} has ${live} live entries, the last at ${log.topic}:${log.tier} ${entry.id}`);
  }

  #say(text: string): void {
    if (this.violations.length < 20) this.violations.push(text);
  }

  /** What must hold once everything has come to rest. */
  atRest(): readonly string[] {
    const violations = [...this.violations];
    for (const { address, segments } of this.#tables.logs.values()) {
      const completion = this.#tables.checkpoints.get(address.topic)?.get(address.tier)?.completion ?? 0;
      for (const { rows } of segments.values()) {
        for (const entry of rows.values()) {
          const where = `${address.topic}:${address.tier} ${entry.id}`;
          if (entry.id < completion && !isFinal(entry.status))
            violations.push(`Q4: ${where} is ${entry.status} below the completion cursor ${completion}`);
        }
      }
    }
    return violations;
  }
}

const isLive = (entry: Entry): boolean => entry.status === 'ready' || entry.status === 'leased';
