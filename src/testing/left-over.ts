import type { Queue, TaskInfo } from '../queue/api.ts';

/** Tasks that an error names one by one. */
const NAMED = 20;

/** What was waited for did not come about in the time given; says what the queue held then. */
export class TestTimeoutError extends Error {
  override readonly name = 'TestTimeoutError';
  /** The tasks that were not settled. */
  readonly left: readonly TaskInfo[];

  constructor(message: string, left: readonly TaskInfo[]) {
    super(message);
    this.left = left;
  }
}

/** Ends a wait with an error that says what is left, and what is in its way. */
export async function timedOut(queue: Queue, what: string, left: readonly TaskInfo[]): Promise<TestTimeoutError> {
  if (left.length === 0) return new TestTimeoutError(`${what}\nNothing is left to be done in the queue.`, left);
  const lines = left.slice(0, NAMED).map((task) => `  ${nameOf(task)}`);
  if (left.length > NAMED) lines.push(`  … and ${left.length - NAMED} more`);
  const topics = [...new Set(left.map(({ topic }) => topic))].slice(0, NAMED);
  const obstacles = (await Promise.all(topics.map((topic) => obstacleOf(queue, topic)))).flat();
  const unsettled = left.length === 1 ? '1 task is not settled:' : `${left.length} tasks are not settled:`;
  return new TestTimeoutError([what, unsettled, ...lines, ...obstacles].join('\n'), left);
}

async function obstacleOf(queue: Queue, topic: string): Promise<readonly string[]> {
  const { obstacles } = await queue.why(topic);
  // That tasks are delayed or in hand is told by themselves.
  const inTheWay = obstacles.filter(({ code }) => code !== 'no-ready-task');
  return inTheWay.map(({ detail, remedy }) => `  ${topic}: ${detail} What would change it: ${remedy}`);
}

/** What a task is, in a line. */
export function nameOf({ topic, id, messageId, state, attempt, maxAttempts, dueAt, leaseUntil }: TaskInfo): string {
  const known = messageId === null ? id : `${JSON.stringify(messageId)} (${id})`;
  const until =
    dueAt !== null ? `, due ${timeOf(dueAt)}` : leaseUntil !== null ? `, leased until ${timeOf(leaseUntil)}` : '';
  return `${topic} ${known}: ${state}, ${attempt} of ${maxAttempts} attempts${until}`;
}

export const timeOf = (at: number): string => new Date(at).toISOString();
