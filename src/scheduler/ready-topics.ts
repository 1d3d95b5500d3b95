import { LRUCache } from 'lru-cache';
import type { Topic } from '../queue/topics.ts';
import type { CheckedLease } from '../queue/validate.ts';
import { Rounds } from './rounds.ts';

/** Which topics a lease asks for. */
export type Selection = Pick<CheckedLease, 'names' | 'prefixes' | 'tiers'>;

/** Topics of a selection in the order of their rounds. */
interface View {
  readonly selection: Selection;
  readonly rounds: Rounds;
}

/** Selections that are kept up: each costs a look at its prefixes whenever something comes up in a topic. */
const VIEWS = 64;

/**
 * The topics that have something to lease now, in the order in which they are served, and for leases that ask for some of
 * them the same as a view of those alone: it is made by a look at all topics when it is first asked for, and kept up from
 * then on. So a lease costs what it gets, however many topics there are that it does not ask for.
 */
export class ReadyTopics {
  readonly #all = new Rounds();
  readonly #views = new LRUCache<string, View>({ max: VIEWS });

  get(name: string): Topic | undefined {
    return this.#all.get(name);
  }

  /** It has something to give: behind all others, where it is not there yet. */
  add(topic: Topic): void {
    if (!this.#all.has(topic.name)) this.#all.add(topic);
    if (this.#views.size === 0) return;
    for (const { selection, rounds } of this.#views.values()) {
      if (!isSelected(topic, selection)) rounds.delete(topic.name);
      else if (!rounds.has(topic.name)) rounds.add(topic);
    }
  }

  delete(name: string): void {
    this.#all.delete(name);
    this.#leaveViews(name);
  }

  /** A topic was served so many turns, and leaves. */
  served(topic: Topic, turns: number): void {
    this.#all.served(topic, turns);
    this.#leaveViews(topic.name);
  }

  #leaveViews(name: string): void {
    if (this.#views.size === 0) return;
    for (const { rounds } of this.#views.values()) rounds.delete(name);
  }

  /** Topics of a selection, next first. Some may have nothing to give any more. */
  select(selection: Selection): Iterable<Topic> {
    const { names, prefixes, tiers } = selection;
    if (prefixes.includes('') && tiers === null) return this.#all.values();
    const key = JSON.stringify([names, prefixes, tiers && [...tiers]]);
    let view = this.#views.get(key);
    if (view === undefined) {
      view = { selection, rounds: new Rounds() };
      for (const topic of this.#all.values()) if (isSelected(topic, selection)) view.rounds.add(topic);
      this.#views.set(key, view);
    }
    return view.rounds.values();
  }
}

const isSelected = (topic: Topic, { names, prefixes, tiers }: Selection): boolean =>
  (prefixes.some((prefix) => topic.name.startsWith(prefix)) || names?.includes(topic.name) === true) &&
  (tiers === null || hasReady(topic, tiers));

/** Whether something is ready in one of the tiers that no claim under way will take. */
export function hasReady(topic: Topic, tiers: ReadonlySet<number>): boolean {
  for (const tier of tiers) {
    const log = topic.logs.get(tier);
    if (log !== undefined && log.ready > log.reserved) return true;
  }
  return false;
}
