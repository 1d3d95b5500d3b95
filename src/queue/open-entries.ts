import type { EntryHead } from '../core/entry.ts';
import { messageKey } from '../core/message.ts';
import { Totals } from './totals.ts';

/** An entry below the scan cursor that is not known to be settled. */
export interface OpenEntry {
  readonly uid: string;
  /** The key of its message row, null where it has none. */
  readonly key: string | null;
  readonly hops: number;
  readonly enqueuedAt: number;
  /** Whether it counts as in flight. */
  readonly leased: boolean;
  /** When the scanner has to look at it: the end of its lease, or 0 where it was left in doubt. */
  until: number;
}

export const openEntry = (
  entry: Pick<EntryHead, 'uid' | 'messageId' | 'hops' | 'enqueuedAt'>,
  leased: boolean,
  until: number,
): OpenEntry => ({
  uid: entry.uid,
  key: messageKey(entry),
  hops: entry.hops,
  enqueuedAt: entry.enqueuedAt,
  leased,
  until,
});

/** The open entries of a log by id, in the order of their ids. */
export class OpenEntries extends Map<number, OpenEntry> {
  readonly #totals: Totals;
  #leased = 0;

  /** @param totals to which what is under a lease adds */
  constructor(totals: Totals) {
    super();
    this.#totals = totals;
  }

  /** How many of them are under a lease. */
  get leased(): number {
    return this.#leased;
  }

  override set(id: number, entry: OpenEntry): this {
    this.#count(Number(entry.leased) - Number(this.get(id)?.leased ?? false));
    return super.set(id, entry);
  }

  override delete(id: number): boolean {
    this.#count(-Number(this.get(id)?.leased ?? false));
    return super.delete(id);
  }

  /** Nobody here sees to them any more. */
  override clear(): void {
    this.#count(-this.#leased);
    super.clear();
  }

  #count(by: number): void {
    this.#leased += by;
    this.#totals.leased += by;
  }

  /**
   * An entry's lease is over, and the scanner is to see to the entry next.
   * @returns whether it was under a lease
   */
  endLease(id: number): boolean {
    const open = this.get(id);
    if (open === undefined) return false;
    this.set(id, { ...open, leased: false, until: 0 });
    return open.leased;
  }
}

/** Of a log in which nothing is open. */
export const NONE_OPEN: OpenEntries = new (class extends OpenEntries {
  override set(): never {
    throw new TypeError('what is open is kept by its log');
  }
})(new Totals());
