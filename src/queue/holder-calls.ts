/** Calls about a topic or a schedule that only the server which schedules it can answer; any other one passes them on. */
import { QueueError } from '../core/errors.ts';
import { DEAD_TIER } from '../core/log.ts';
import type { ScheduleDefinition, ScheduleState } from '../core/schedule.ts';
import { recountDead } from '../scheduler/recover.ts';
import type {
  Explanation,
  ListRequest,
  RedriveRequest,
  RedriveResult,
  SettingsPatch,
  TaskPage,
  TopicCursors,
  TopicInfo,
} from './api.ts';
import type { Engine } from './engine.ts';
import type { Waiting } from './quotas.ts';
import type { Session } from './session.ts';
import type { Tenure } from './tenure.ts';
import type { Topic } from './topics.ts';

/** More dead letters than this are not counted one by one for a caller. */
const COUNTED_DEAD = 10_000;
/** How long an answer waits until what other servers have delayed is counted, in milliseconds. */
const COUNT_MS = 10_000;

export const holderCalls = {
  async topic(session: Session, topic: Topic): Promise<TopicInfo> {
    await mustExist(session, topic);
    const dead = topic.logs.get(DEAD_TIER);
    if (dead?.recount && dead.nextId - dead.completion <= COUNTED_DEAD) await recountDead(session.engine, dead, topic);
    return describe(topic);
  },

  async configure({ engine, manager }: Session, topic: Topic, patch: SettingsPatch): Promise<TopicInfo> {
    await manager.configure(topic, patch);
    mustServe(engine, topic.tenure);
    return describe(topic);
  },

  waiting: async ({ quotas }: Session, topic: Topic): Promise<Waiting> => quotas.waiting(topic),

  async purge(session: Session, topic: Topic): Promise<void> {
    await mustExist(session, topic);
    await session.manager.purge(topic);
    mustServe(session.engine, topic.tenure);
  },

  redrive: ({ manager }: Session, topic: Topic, request: RedriveRequest): Promise<RedriveResult> =>
    manager.redrive(topic, request),

  tasks: ({ inspector }: Session, topic: Topic, request: ListRequest): Promise<TaskPage> =>
    inspector.list(topic, request),

  cursors: ({ inspector }: Session, topic: Topic): Promise<TopicCursors> => inspector.cursors(topic),

  async why(session: Session, topic: Topic, id: string | null): Promise<Explanation> {
    if (id !== null) return session.explainer.task(topic, id);
    await mustExist(session, topic);
    return session.explainer.topic(topic);
  },

  async scan({ scanner, inspector }: Session, topic: Topic): Promise<TopicCursors> {
    for (const log of [...topic.logs]) await scanner.passNow(log);
    return inspector.cursors(topic);
  },

  async drained(
    { engine, waits, neighbours }: Session,
    topic: Topic,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<boolean> {
    const drained = await waits.forDrain(topic, timeoutMs, signal);
    if (!drained || engine.store.exclusive) return drained;
    // What other servers have acknowledged may not be known here yet.
    await neighbours.lookInto(topic.name);
    await waits.forCount(topic, COUNT_MS, signal);
    return waits.forDrain(topic, 0, signal);
  },
} as const;

/** A definition as it goes to another server: bytes as base64. */
export type WireDefinition = Omit<ScheduleDefinition, 'payload'> & {
  readonly payload: string | { readonly base64: string };
};

export const wireDefinition = ({ payload, ...rest }: ScheduleDefinition): WireDefinition => ({
  ...rest,
  payload: typeof payload === 'string' ? payload : { base64: Buffer.from(payload).toString('base64') },
});

const fromWire = ({ payload, ...rest }: WireDefinition): ScheduleDefinition => ({
  ...rest,
  payload: typeof payload === 'string' ? payload : new Uint8Array(Buffer.from(payload.base64, 'base64')),
});

/** The same about a schedule, which is known by its name alone. */
export const scheduleCalls = {
  async setSchedule(session: Session, name: string, definition: WireDefinition): Promise<ScheduleState> {
    const { engine, schedules, scheduleRunner } = session;
    try {
      const state = await schedules.set(name, fromWire(definition));
      // Who took the shard over meanwhile may have read its schedules before.
      mustServe(engine, engine.book.tenureOf(name));
      scheduleRunner.arm(name, state.nextAt);
      return state;
    } catch (error) {
      scheduleRunner.arm(name, null, true);
      throw error;
    }
  },

  async deleteSchedule({ schedules, scheduleRunner }: Session, name: string): Promise<void> {
    await schedules.delete(name);
    scheduleRunner.disarm(name);
  },
} as const;

type Calls = typeof holderCalls & typeof scheduleCalls;
export type HolderMethod = keyof Calls;
export type HolderAnswer<M extends HolderMethod> = ReturnType<Calls[M]>;
/** What a call takes beside the topic, or the name. */
export type HolderCall<M extends HolderMethod> =
  Parameters<Calls[M]> extends [Session, Topic | string, ...infer Args] ? Args : never;

export const isAboutSchedule = (method: string): method is keyof typeof scheduleCalls =>
  Object.hasOwn(scheduleCalls, method);

/** @throws QueueError `topic-not-found` where nothing was ever put into it or set */
async function mustExist(session: Session, topic: Topic): Promise<void> {
  const tiers = await session.engine.book.tiersOf(topic.name);
  if (tiers.length > 0 || topic.version !== null || topic.delayed > 0) return;
  // Until all that is delayed was counted, after a start, something may be.
  if (session.isCounted(topic)) throw new QueueError('topic-not-found');
}

/**
 * Settings are acknowledged by the one that goes by them. Where the shard went to another server meanwhile, that one may
 * have read them before: it is asked to set them once more, and reads them again for it.
 * @throws QueueError `not-holder`
 */
function mustServe(engine: Engine, tenure: Tenure): void {
  if (!engine.mayClaim(tenure)) throw new QueueError('not-holder');
}

const describe = (topic: Topic): TopicInfo => ({ topic: topic.name, counts: topic.counts(), settings: topic.settings });
