/**
 * How shards are spread over the servers that are alive. Every server makes the same plan from the same view and carries
 * out its own part; where their views differ, the conditions of the writes decide.
 */

export interface SpreadInput {
  /** All shards, by who holds them; null: nobody that is alive. */
  readonly holders: readonly (string | null)[];
  /** Servers that are to have a share of the shards. */
  readonly members: readonly string[];
}

export interface SpreadPlan {
  /** Shards that are nobody's, and who takes them. */
  readonly take: ReadonlyMap<number, string>;
  /** Shards that their holder hands over, and to whom. */
  readonly handOver: ReadonlyMap<number, string>;
}

/** Moves as few shards as may be so that shares differ by one at the most. */
export function planSpread({ holders, members }: SpreadInput): SpreadPlan {
  const take = new Map<number, string>();
  const handOver = new Map<number, string>();
  if (members.length === 0) return { take, handOver };
  const held = new Map<string, number[]>([...members].sort().map((member) => [member, []]));
  for (const [shard, holder] of holders.entries()) if (holder !== null) held.get(holder)?.push(shard);
  const quotas = quotasOf(holders.length, held);
  const room = [...held].flatMap(([member, shards]) => {
    const missing = Math.max(0, quotas.get(member)! - shards.length);
    return Array.from({ length: missing }, () => member);
  });
  const free = holders.flatMap((holder, shard) => (holder === null ? [shard] : []));
  // Shards of a server that is alive and no member are its own to hand over; then not all fits in the quotas, or not all is there.
  for (const shard of free) {
    const member = room.shift();
    if (member !== undefined) take.set(shard, member);
  }
  for (const [member, shards] of held) {
    for (const shard of shards.slice(quotas.get(member)!)) {
      const heir = room.shift();
      if (heir !== undefined) handOver.set(shard, heir);
    }
  }
  return { take, handOver };
}

/** Who is to have one more where the shards can't be shared evenly: those that have most already, so that least moves. */
function quotasOf(shards: number, held: ReadonlyMap<string, readonly number[]>): ReadonlyMap<string, number> {
  const least = Math.floor(shards / held.size);
  let extra = shards % held.size;
  const byCount = [...held].sort(([a, some], [b, others]) => others.length - some.length || (a < b ? -1 : 1));
  return new Map(byCount.map(([member]) => [member, least + (extra-- > 0 ? 1 : 0)]));
}

/** To whom a server that stops hands over what it holds, so that the others' shares stay even. */
export function planLeaving(holders: readonly (string | null)[], leaving: string, members: readonly string[]) {
  const others = members.filter((member) => member !== leaving);
  const without = holders.map((holder) => (holder === leaving ? null : holder));
  const { take } = planSpread({ holders: without, members: others });
  return new Map([...take].filter(([shard]) => holders[shard] === leaving));
}
