import type { TopicSettings } from '../../src/core/settings.ts';
/** What happened, as the clients saw it: calls and answers. The auditor knows nothing else. */
import type {
  EnqueueResult,
  LeasedTask,
  LeaseRequest,
  RedriveRequest,
  RedriveResult,
  ScheduleInfo,
  ScheduleInput,
  SettingsPatch,
  SettleRequest,
  SettleResult,
  TaskInfo,
  TaskInput,
  TaskState,
  TopicCounts,
  TopicCursors,
} from '../../src/queue/api.ts';

/** When something happened: by the simulation, and by the clock of the server that was asked. */
export interface Moment {
  readonly at: number;
  readonly clock: number;
}

/** A task as a producer sent it; its payload is `{ t: token }`, a token of its own. */
export interface SentTask {
  readonly token: number;
  readonly input: TaskInput;
}

/** What is asked and answered in each kind of call. */
export interface Calls {
  enqueue: { args: { topic: string; tasks: readonly SentTask[]; key?: string }; value: readonly EnqueueResult[] };
  lease: { args: Omit<LeaseRequest, 'signal'>; value: readonly LeasedTask[] };
  settle: { args: SettleRequest; value: SettleResult };
  cancel: { args: { topic: string; id: string }; value: TaskInfo };
  reschedule: {
    args: { topic: string; id: string; change: { priority?: number; delayMs?: number } };
    value: TaskInfo;
  };
  configure: { args: { topic: string; patch: SettingsPatch }; value: null };
  purge: { args: { topic: string }; value: null };
  redrive: { args: { topic: string; request: RedriveRequest }; value: RedriveResult };
  cursors: { args: { topic: string }; value: TopicCursors };
  drained: { args: { topic: string; timeoutMs: number }; value: boolean };
  task: { args: { topic: string; id: string }; value: TaskInfo };
  list: { args: { topic: string; state: TaskState | null }; value: readonly TaskInfo[] };
  counts: { args: { topic: string }; value: TopicCounts };
  setSchedule: { args: { name: string; input: ScheduleInput }; value: ScheduleInfo };
  schedule: { args: { name: string }; value: ScheduleInfo };
  deleteSchedule: { args: { name: string }; value: null };
}
export type CallKind = keyof Calls;

/**
 * - `ok`: the answer arrived;
 * - `refused`: an error with a code;
 * - `lost`: the connection broke, or the server died; whether anything was done is not known.
 */
export type Answer<V> =
  | { readonly kind: 'ok'; readonly value: V }
  | { readonly kind: 'refused'; readonly code: string }
  | { readonly kind: 'lost' };

export interface Call<K extends CallKind = CallKind> {
  /** In the order in which calls began. */
  readonly n: number;
  readonly kind: K;
  readonly actor: string;
  /** Which server was asked. */
  readonly server: number;
  readonly args: Calls[K]['args'];
  readonly began: Moment;
  /** null: it never ended. */
  ended: Moment | null;
  answer: Answer<Calls[K]['value']> | null;
}
export type AnyCall = { [K in CallKind]: Call<K> }[CallKind];

export interface History {
  readonly calls: readonly AnyCall[];
  /** Nothing went wrong: what is promised of time holds as well. */
  readonly calm: boolean;
  /** How late a delayed task may come up in such a history. */
  readonly delayedLateMs: number;
  /** What the database's clock showed when the simulation's stood at 0. */
  readonly epoch: number;
  /** Calls that set the topics up, before anything else happened. */
  readonly setup: readonly number[];
  /** Servers at the same time: with several, whoever is asked passes on to others. */
  readonly servers: number;
  /** By how much the clocks of two servers may differ. */
  readonly clockErrorMs: number;
  /** When the last phase began, in which nothing goes wrong and everything is worked off. */
  readonly quietFrom: number;
  /** Settings of the topics as they were before anything else happened; calls tell of changes. */
  readonly settings: ReadonlyMap<string, TopicSettings>;
  /** What was put into a topic by nobody but this. */
  readonly schedule: { readonly topic: string; readonly periodMs: number } | null;
}
