/** When tasks were certainly there to be leased, for rules on who must have got them, and when. */
import type { Facts, Grant, TaskFacts } from './facts.ts';
import { heldUntil, inOrder } from './facts.ts';

/** A stretch of time in which a task could be leased for certain; by the simulation's clock, which all share when calm. */
export interface Ready {
  readonly task: TaskFacts;
  readonly priority: number;
  readonly from: number;
  /** When it was handed out; infinite: never. */
  readonly to: number;
  readonly why: string;
}

const CHOSEN_BEFORE_MS = 250;
const STALLED_BACK_MS = 2_000;

/** Topics whose gate was never anything but open, and whose tasks nobody purged or redrove. */
export function openTopics(facts: Facts): ReadonlySet<string> {
  const open = new Set<string>();
  for (const [topic, settings] of facts.history.settings) {
    const { maxInFlight, minIntervalMs, cooldownMs, rate, paused, blockedUntil } = settings;
    if (maxInFlight ?? minIntervalMs ?? cooldownMs ?? rate ?? blockedUntil ?? (paused || null)) continue;
    open.add(topic);
  }
  const early = new Set(facts.setup);
  for (const kind of ['configure', 'purge', 'redrive'] as const) {
    for (const call of facts.calls(kind)) {
      if (!early.has(call.n) && !(kind === 'configure' && onlyResumes(call))) open.delete(call.args.topic);
    }
  }
  return open;
}

/** It shuts nothing: every topic is resumed in the end. */
const onlyResumes = ({ args }: { readonly args: object }): boolean =>
  'patch' in args && JSON.stringify(args.patch) === '{"paused":false}';

/** Stretches of tasks that nobody meddled with, in topics that were open all the time. Only for calm histories. */
export function readyStretches(facts: Facts): readonly Ready[] {
  const open = openTopics(facts);
  const stretches: Ready[] = [];
  for (const task of facts.tasks.values()) {
    if (!open.has(task.topic) || meddledWith(facts, task)) continue;
    const accepted = task.attempts.find(({ fate }) => fate === 'accepted');
    const { epoch } = facts.history;
    const grants = inOrder(facts, task.grants);
    const priority = grants[0]?.task.priority ?? accepted?.sent.input.priority;
    if (accepted === undefined || priority === undefined) continue;
    const { delayMs } = accepted.sent.input;
    const slack = delayMs === undefined ? 0 : delayMs + facts.history.delayedLateMs;
    const handedOut = (nth: number): number => {
      const grant = grants[nth];
      if (grant === undefined) return Number.POSITIVE_INFINITY;
      // A call that takes many has chosen them all before it claims the last.
      return Math.max(grant.call.began.at, grant.claimedAt - epoch - CHOSEN_BEFORE_MS);
    };
    stretches.push({ task, priority, from: accepted.call.ended!.at + slack, to: handedOut(0), why: 'it was enqueued' });
    for (const [nth, grant] of grants.entries()) {
      const back = backBy(facts, grant, accepted.sent.input.maxAttempts);
      if (back !== null) stretches.push({ task, priority, ...back, to: handedOut(nth + 1) });
    }
  }
  return stretches;
}

/** When a delivered task is certainly back, and why; null: it need not come back. */
function backBy(
  facts: Facts,
  grant: Grant,
  maxAttempts: number | undefined,
): { readonly from: number; readonly why: string } | null {
  const settings = facts.settings(grant.topic);
  const endings = grant.settlements.filter(({ ending, ok }) => ending && ok !== false);
  if (endings.some(({ ok, kind, dead }) => ok !== true || kind === 'ack' || dead)) return null;
  const failed = grant.task.attempt >= (maxAttempts ?? settings.maxAttempts);
  const [first, second] = endings;
  if (second !== undefined) return null;
  if (first === undefined) {
    if (failed) return null;
    return { from: heldUntil(grant) - facts.history.epoch + STALLED_BACK_MS, why: 'its lease ran out' };
  }
  const at = first.call.ended!.at;
  if (first.kind === 'release') return { from: at, why: 'it was released' };
  if (failed) return null;
  const backoff = Math.min(settings.maxBackoffMs, settings.backoffMs * 2 ** (grant.task.attempt - 1));
  const delayMs = first.delayMs ?? backoff;
  return { from: at + delayMs + (delayMs > 0 ? facts.history.delayedLateMs : 0), why: 'it was given back' };
}

/** Whether something other than producers and workers may have changed the task, or time may have ended it. */
function meddledWith(facts: Facts, task: TaskFacts): boolean {
  if (task.cancels.length > 0 || task.reschedules.length > 0) return true;
  return task.attempts.some(
    ({ sent, messageId }) =>
      sent.input.ttlMs !== undefined ||
      (messageId !== null && facts.attempts.some((other) => other.messageId === messageId && other.sent !== sent)),
  );
}
