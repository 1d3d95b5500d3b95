/** Q4: both cursors only grow, and completion ≤ scan ≤ next id. */
import type { PriorityCursors } from '../../../src/queue/api.ts';
import type { Call } from '../history.ts';
import { type Facts, name } from './facts.ts';

interface Mark {
  readonly call: Call<'cursors'>;
  readonly at: PriorityCursors;
}

export function cursorsGrow(facts: Facts): readonly string[] {
  const violations: string[] = [];
  const marks = new Map<string, Mark[]>();
  for (const call of facts.calls('cursors')) {
    if (call.answer?.kind !== 'ok') continue;
    for (const at of call.answer.value.priorities) {
      const log = `${call.args.topic}:${at.priority}`;
      const { trimmed, completionCursor, scanCursor, nextId } = at;
      if (!(trimmed <= completionCursor && completionCursor <= scanCursor && scanCursor <= nextId)) {
        violations.push(
          `Q4: ${log} in ${name(call)}: ${trimmed} ≤ ${completionCursor} ≤ ${scanCursor} ≤ ${nextId} does not hold`,
        );
      }
      const earlier = marks.get(log) ?? [];
      for (const mark of earlier) {
        const fault = mark.call.ended!.at <= call.began.at ? fallen(mark, { call, at }, facts.history.servers) : null;
        if (fault !== null) violations.push(`Q4: ${log} fell: ${fault} (${name(mark.call)}, ${name(call)})`);
      }
      marks.set(log, [...earlier, { call, at }]);
    }
  }
  return violations;
}

/**
 * What fell between two looks. Where another server answers, or one that was deposed meanwhile, the completion cursor
 * begins at what was written down of it last: that is a hint, and rises again as the entries are looked at.
 */
function fallen(before: Mark, after: Mark, servers: number): string | null {
  const sameServer = servers === 1 && before.call.server === after.call.server;
  const fields: readonly (keyof PriorityCursors)[] =
    before.at.priority === 'dead' ? ['nextId'] : ['nextId', 'scanCursor'];
  for (const field of sameServer ? [...fields, 'completionCursor' as const, 'trimmed' as const] : fields) {
    if ((after.at[field] as number) < (before.at[field] as number)) {
      return `${field} from ${before.at[field] as number} to ${after.at[field] as number}`;
    }
  }
  return null;
}
