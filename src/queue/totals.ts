/** How many tasks of a shard are where, in one tenure of it; kept by its logs as they count them. */
export class Totals {
  ready = 0;
  leased = 0;
  dead = 0;
}
