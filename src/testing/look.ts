/** Looks at all that is in a queue, page by page. */
import { PAGE_TASKS } from '../core/bounds.ts';
import type { Queue, TaskInfo, TaskState, TopicSummary } from '../queue/api.ts';

export async function* allTopics(queue: Queue): AsyncGenerator<TopicSummary> {
  let page = await queue.topics({ limit: PAGE_TASKS });
  yield* page.topics;
  while (page.after !== undefined) {
    page = await queue.topics({ limit: PAGE_TASKS, after: page.after });
    yield* page.topics;
  }
}

export async function* allTasks(queue: Queue, topic: string, state: TaskState): AsyncGenerator<TaskInfo> {
  let page = await queue.tasks(topic, { state, limit: PAGE_TASKS });
  yield* page.tasks;
  while (page.after !== undefined) {
    page = await queue.tasks(topic, { state, limit: PAGE_TASKS, after: page.after });
    yield* page.tasks;
  }
}

/** The tasks of a topic that are not settled: those in hand first, then what is ready, then what is delayed. */
export async function unsettledOf(queue: Queue, topic: string): Promise<readonly TaskInfo[]> {
  const found: TaskInfo[] = [];
  for (const state of ['leased', 'ready', 'delayed'] as const) {
    for await (const task of allTasks(queue, topic, state)) found.push(task);
  }
  return found;
}
