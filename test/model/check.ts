/** What must hold in every state that can be reached, and what must still be possible from it. */
import { isFinal } from '../../src/core/entry.ts';
import { segmentOf } from '../../src/core/log.ts';
import { PRODUCTION } from './decisions.ts';
import { type HolderDeed, holder, type Memory, turn } from './programs.ts';
import { type Answer, carryOut, DEAD, type Lease, type Op, type Row, SIZE, type State } from './table.ts';

interface Standing {
  readonly tier: number;
  readonly id: number;
  readonly row: Row;
  /** Below the completion cursor, or in a closed segment: nobody looks at it any more. */
  readonly passed: boolean;
}

function standing(state: State): readonly Standing[] {
  return Object.entries(state.logs).flatMap(([tier, log]) =>
    Object.values(log.segments).flatMap(({ header, rows }) =>
      Object.entries(rows).map(([text, row]) => {
        const id = Number(text);
        return { tier: Number(tier), id, row, passed: header.closed || id < log.mark.completion };
      }),
    ),
  );
}

const rowAt = (state: State, tier: number, id: number): Row | undefined =>
  state.logs[tier]?.segments[segmentOf(id, SIZE)]?.rows[id];

/** Whether a move to this pending entry was committed. */
function isCommitted(state: State, { row, tier, id }: Standing): boolean {
  const origin = row.origin && rowAt(state, row.origin.tier, row.origin.id);
  return origin?.status === 'moved' && origin.dest?.tier === tier && origin.dest.id === id;
}

const isLive = ({ status }: Row): boolean => status === 'ready' || status === 'leased';

/** What is broken in a state, if anything is. */
export function violation(state: State): string | null {
  if (state.broken !== undefined) return state.broken;
  const all = standing(state);
  for (const [uid, times] of Object.entries(state.done)) if (times > 1) return `Q3: ${uid} was settled ${times} times`;
  for (const [uid, leases] of Object.entries(state.told)) {
    if (leases.length > 1) return `Q3: ${uid} was acknowledged under ${leases.join(' and ')}`;
    if (!state.done[uid]) return `Q3: ${uid} was acknowledged, and is not settled`;
  }
  const live = new Map<string, number>();
  for (const { row } of all) if (isLive(row)) live.set(row.uid, (live.get(row.uid) ?? 0) + 1);
  for (const [uid, count] of live) {
    if (count > 1) return `Q2: ${uid} has ${count} live entries`;
    if (state.done[uid]) return `Q3: ${uid} is settled, and lives`;
  }
  for (const uid of state.acked) {
    if (state.done[uid]) continue;
    const kept = all.some(
      (one) =>
        one.row.uid === uid &&
        !one.passed &&
        (isLive(one.row) || (one.row.status === 'pending' && isCommitted(state, one))),
    );
    if (!kept) return `Q1: ${uid} is lost`;
  }
  for (const { mark } of Object.values(state.logs)) {
    if (mark.completion > mark.scan) return `Q4: completion ${mark.completion} is above scan ${mark.scan}`;
  }
  for (const { tier, id, row, passed } of all) {
    if (!passed) continue;
    if (!isFinal(row.status)) return `Q4: ${tier}/${id} was passed while ${row.status}`;
    const dest = row.dest && rowAt(state, row.dest.tier, row.dest.id);
    if (row.status === 'moved' && dest?.uid === row.uid && dest.status === 'pending') {
      return `Q1: ${tier}/${id} was passed while ${row.dest!.tier}/${row.dest!.id} is pending`;
    }
  }
  return null;
}

/** Carries a turn out, with nobody in between. */
function alone(state: State, memory: Memory, by = PRODUCTION): Memory | null {
  const steps = turn(memory, by);
  let step = steps.next();
  while (!step.done) {
    const op: Op = step.value;
    // Leases are over, and each thing that is open gets its turn.
    step = steps.next(op.kind === 'choose' ? 0 : carryOut(state, op));
  }
  return step.value;
}

const ROUNDS = 30;

/**
 * Whatever stopped where: a server that is started now, alone, hands out and settles all that was acknowledged, passes
 * all, and leaves nothing behind. The state is used up.
 */
export function unfinished(state: State, decisions = PRODUCTION): string | null {
  const by = { ...decisions, mostIds: 100 };
  state.leases.splice(0);
  const tiers = () =>
    Object.keys(state.logs)
      .map(Number)
      .filter((tier) => tier !== DEAD);
  for (const tier of tiers()) {
    let memory: Memory | null = { ...holder(tier, 1_000, 10_000) };
    const deeds: readonly HolderDeed[] = ['claim', 'look', 'claim', 'raise'];
    let before = '';
    for (let round = 0; round < ROUNDS || before !== JSON.stringify(state.logs); round++) {
      if (round > 200) return `liveness: a server alone does not come to an end in ${tier}`;
      before = JSON.stringify(state.logs);
      for (const only of deeds) {
        memory = alone(state, memory!.kind === 'holder' && memory.loaded ? { ...memory, only } : memory!, by);
        if (memory === null) return `liveness: a server alone was deposed in ${tier}`;
        for (const lease of state.leases.splice(0)) ack(state, lease);
      }
    }
  }
  for (const uid of state.acked) {
    const isDead = standing(state).some(({ tier, row }) => tier === DEAD && row.uid === uid && row.status === 'ready');
    if (!state.done[uid] && !isDead) return `Q1: ${uid} can no longer be handed out`;
  }
  for (const tier of tiers()) {
    const left = standing(state).find((one) => one.tier === tier && !one.passed);
    if (left !== undefined) return `Q4: ${tier}/${left.id} is ${left.row.status}, and was never passed`;
  }
  return violation(state);
}

function ack(state: State, { tier, id, leaseId }: Lease): void {
  const op: Op = {
    kind: 'change',
    tier,
    segment: segmentOf(id, SIZE),
    changes: [{ id, expect: { leaseId }, set: PRODUCTION.donePatch(null, 0) }],
  };
  carryOut(state, op) as Answer;
}
