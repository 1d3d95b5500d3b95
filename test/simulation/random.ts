import { SeededRandom } from '../../src/testing/seeded-random.ts';

/** What a simulation draws. */
export class Random extends SeededRandom {
  between(min: number, max: number): number {
    return min + this.next() * (max - min);
  }

  /** An integer, both ends included. */
  int(min: number, max: number): number {
    return min + Math.floor(this.next() * (max - min + 1));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.next() * list.length)]!;
  }

  /** A name by its weight. */
  weighted<K extends string>(weights: Readonly<Partial<Record<K, number>>>): K {
    const entries = Object.entries(weights) as [K, number][];
    let at = this.next() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [name, weight] of entries) {
      at -= weight;
      if (at < 0) return name;
    }
    return entries.at(-1)![0];
  }

  /** Short mostly, long now and then: exponential around `mean`, at most twenty times that. */
  around(mean: number): number {
    return Math.min(-Math.log(1 - this.next()) * mean, mean * 20);
  }

  fork(): Random {
    return new Random(Math.floor(this.next() * 4_294_967_296));
  }
}
