import { LRUCache } from 'lru-cache';
import type { KnownTopic, Topic } from '../queue/topics.ts';
import type { CheckedLease } from '../queue/validate.ts';
import { Rounds } from './rounds.ts';

/** Which topics a lease asks for. */
export type Selection = Pick<CheckedLease, 'names' | 'prefixes' | 'tiers'>;

/** Topics of some names and prefixes, in the order of their rounds. */
interface View {
  readonly names: readonly string[];
  readonly prefixes: readonly string[];
  /** By tiers: those that have something in one of them; null: in any. */
  readonly parts: Map<string, { readonly tiers: ReadonlySet<number> | null; readonly rounds: Rounds }>;
}

const MOST_VIEWS = 1_000;
/** Places in views, for each topic that has something to give, and besides. */
const PLACES_PER_TOPIC = 2;
const PLACES = 10_000;

/**
 * The topics that have something to lease now, in the order in which they are served, and for leases that ask for some of
 * them the same as a view of those alone: it is made by a look at all topics when it is first asked for, and kept up from
 * then on. So a lease costs what it gets, however many topics there are that it does not ask for. Views that were asked for
 * longest ago go where there are too many of them, or too many topics in them.
 */
export class ReadyTopics {
  readonly #all = new Rounds();
  readonly #views = new LRUCache<string, View>({ max: MOST_VIEWS, dispose: (view) => this.#forget(view) });
  readonly #byName = new Map<string, Set<View>>();
  readonly #byPrefix = new Map<string, Set<View>>();
  /** How many prefixes there are of each length. */
  readonly #lengths = new Map<number, number>();
  #places = 0;

  get(name: string): KnownTopic | undefined {
    return this.#all.get(name);
  }

  /** It has something to give: behind all others, where it is not there yet. */
  add(topic: Topic): void {
    if (!this.#all.has(topic.name)) this.#all.add(topic);
    for (const view of this.#viewsOf(topic.name)) {
      for (const { tiers, rounds } of view.parts.values()) this.#place(topic, tiers, rounds);
    }
    this.#bound();
  }

  /** It was folded, or unfolded. */
  replace(before: KnownTopic, topic: KnownTopic): void {
    if (this.#all.get(before.name) !== before) return;
    this.#all.replace(topic);
    for (const view of this.#viewsOf(topic.name)) for (const { rounds } of view.parts.values()) rounds.replace(topic);
  }

  /** Another one of its name, of another tenure, stays. */
  delete(topic: KnownTopic): void {
    if (this.#all.get(topic.name) !== topic) return;
    this.#all.delete(topic.name);
    this.#leaveViews(topic.name);
  }

  /** A topic was served so many turns, and leaves. */
  served(topic: Topic, turns: number): void {
    this.#all.served(topic, turns);
    this.#leaveViews(topic.name);
  }

  /** Topics of a selection, next first. Some may have nothing to give any more. */
  select({ names, prefixes, tiers }: Selection): Iterable<KnownTopic> {
    if (prefixes.includes('') && tiers === null) return this.#all.values();
    const view = this.#view(names ?? [], prefixes);
    const key = tiers === null ? '' : [...tiers].sort().join();
    let part = view.parts.get(key);
    if (part === undefined) {
      part = { tiers, rounds: new Rounds() };
      for (const topic of this.#all.values()) if (isSelected(topic, view)) this.#place(topic, tiers, part.rounds);
      view.parts.set(key, part);
      this.#bound();
    }
    return part.rounds.values();
  }

  #view(names: readonly string[], prefixes: readonly string[]): View {
    const key = JSON.stringify([[...names].sort(), [...prefixes].sort()]);
    let view = this.#views.get(key);
    if (view === undefined) {
      view = { names, prefixes, parts: new Map() };
      this.#views.set(key, view);
      for (const name of names) note(this.#byName, name, view);
      for (const prefix of prefixes) {
        if (!note(this.#byPrefix, prefix, view)) continue;
        this.#lengths.set(prefix.length, (this.#lengths.get(prefix.length) ?? 0) + 1);
      }
    }
    return view;
  }

  *#viewsOf(name: string): Generator<View> {
    for (const length of this.#lengths.keys()) yield* this.#byPrefix.get(name.slice(0, length)) ?? [];
    yield* this.#byName.get(name) ?? [];
  }

  #place(topic: KnownTopic, tiers: ReadonlySet<number> | null, rounds: Rounds): void {
    const isThere = rounds.has(topic.name);
    if (tiers !== null && !topic.hasReady(tiers)) {
      if (isThere) this.#places--;
      rounds.delete(topic.name);
    } else if (!isThere) {
      this.#places++;
      rounds.add(topic);
    }
  }

  #leaveViews(name: string): void {
    for (const view of this.#viewsOf(name)) {
      for (const { rounds } of view.parts.values()) {
        if (!rounds.has(name)) continue;
        this.#places--;
        rounds.delete(name);
      }
    }
  }

  /** The view that is in use is the last to go, and stays whatever it takes. */
  #bound(): void {
    while (this.#places > PLACES_PER_TOPIC * this.#all.size + PLACES && this.#views.size > 1) this.#views.pop();
  }

  #forget(view: View): void {
    for (const { rounds } of view.parts.values()) this.#places -= rounds.size;
    for (const name of view.names) forget(this.#byName, name, view);
    for (const prefix of view.prefixes) {
      if (!forget(this.#byPrefix, prefix, view)) continue;
      const left = this.#lengths.get(prefix.length)! - 1;
      if (left > 0) this.#lengths.set(prefix.length, left);
      else this.#lengths.delete(prefix.length);
    }
  }
}

/** @returns whether it is the first of its key */
function note(index: Map<string, Set<View>>, key: string, view: View): boolean {
  const views = index.get(key);
  if (views === undefined) index.set(key, new Set([view]));
  else views.add(view);
  return views === undefined;
}

/** @returns whether it was the last of its key */
function forget(index: Map<string, Set<View>>, key: string, view: View): boolean {
  const views = index.get(key);
  if (!views?.delete(view) || views.size > 0) return false;
  return index.delete(key);
}

const isSelected = ({ name }: KnownTopic, { names, prefixes }: View): boolean =>
  prefixes.some((prefix) => name.startsWith(prefix)) || names.includes(name);
