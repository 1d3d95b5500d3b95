/**
 * Holds the wire's shapes and the queue's types together: where they drift apart, `tsc` fails here.
 *
 * On the wire bytes travel as `payloadBase64`; a result is one flat shape where the queue has a union; an answer may
 * say more than the queue's type. Everything else is the same.
 */
import type * as Api from '../../queue/api.ts';
import type * as Leases from './leases.ts';
import type * as Schedules from './schedules.ts';
import type { DeepReadonly, Wire } from './schema.ts';
import type * as Service from './service.ts';
import type * as Tasks from './tasks.ts';
import type * as Topics from './topics.ts';

/** True only where both are the same type, field by field, optional or not. */
type Same<A, B> =
  (<T>() => T extends DeepReadonly<A> ? 1 : 2) extends <T>() => T extends DeepReadonly<B> ? 1 : 2 ? true : false;
/** True where every value of the queue's union has the wire's shape, and the wire has no field beyond them. */
type Flattened<Flat, Union, All = Union> = Union extends Flat ? (keyof Flat extends KeysOf<All> ? true : false) : false;
type KeysOf<U> = U extends unknown ? keyof U : never;
type WithoutPayload<T> = Omit<T, 'payload' | 'payloadBase64'>;

interface Agreed {
  TaskInput: Same<WithoutPayload<Wire<typeof Tasks.TaskInput>>, WithoutPayload<Api.TaskInput>>;
  EnqueueItem: Flattened<Wire<typeof Tasks.EnqueueItem>, Api.EnqueueResult>;
  Task: Same<WithoutPayload<Wire<typeof Tasks.Task>>, WithoutPayload<Api.TaskInfo>>;
  AttemptInfo: Same<Wire<typeof Tasks.AttemptInfo>, Api.AttemptInfo>;
  ListQuery: Same<Omit<Wire<typeof Tasks.ListQuery>, 'messageId'>, Api.ListRequest>;
  TaskPage: Same<keyof Wire<typeof Tasks.TaskPage>, keyof Api.TaskPage>;
  RescheduleBody: Same<Wire<typeof Tasks.RescheduleBody>, Parameters<Api.Queue['reschedule']>[2]>;
  LeaseBody: Same<Wire<typeof Leases.LeaseBody>, Omit<Api.LeaseRequest, 'signal'>>;
  LeasedTask: Same<WithoutPayload<Wire<typeof Leases.LeasedTask>>, WithoutPayload<Api.LeasedTask>>;
  SettleBody: Same<Wire<typeof Leases.SettleBody>, Api.SettleRequest>;
  SettleItem: Flattened<Wire<typeof Leases.SettleItem>, Api.SettleItem>;
  SettleAnswer: Same<keyof Wire<typeof Leases.SettleAnswer>, keyof Api.SettleResult>;
  SettingsPatch: Same<Wire<typeof Topics.SettingsPatch>, Api.SettingsPatch>;
  Topic: Same<Wire<typeof Topics.Topic>, Api.TopicInfo>;
  TopicPage: Same<Wire<typeof Topics.TopicPage>, Api.TopicPage>;
  TopicsQuery: Same<Wire<typeof Topics.TopicsQuery>, NonNullable<Parameters<Api.Queue['topics']>[0]>>;
  Cursors: Same<Wire<typeof Topics.Cursors>, Api.TopicCursors>;
  Explanation: Same<Wire<typeof Topics.Explanation>, Api.Explanation>;
  RedriveBody: Same<Wire<typeof Topics.RedriveBody>, Api.RedriveRequest>;
  RedriveAnswer: Same<Wire<typeof Topics.RedriveAnswer>, Api.RedriveResult>;
  ScheduleInput: Same<WithoutPayload<Wire<typeof Schedules.ScheduleBody>>, WithoutPayload<Api.ScheduleInput>>;
  Schedule: Same<WithoutPayload<Wire<typeof Schedules.Schedule>>, WithoutPayload<Api.ScheduleInfo>>;
  SchedulePage: Same<Wire<typeof Schedules.SchedulePage>, Api.SchedulePage>;
  SchedulesQuery: Same<Wire<typeof Schedules.SchedulesQuery>, NonNullable<Parameters<Api.Queue['schedules']>[0]>>;
  QueueStatus: Same<Wire<typeof Service.QueueStatus>, Api.QueueStatus>;
  Ready: Same<Wire<typeof Service.Ready>, Api.Readiness>;
}

/** The names of the shapes that drifted apart. */
type Drifted = { [K in keyof Agreed]: Agreed[K] extends true ? never : K }[keyof Agreed];

/** Where something drifted, the error of this line names it. */
const drifted: [Drifted] extends [never] ? 'nothing' : Drifted = 'nothing';
void drifted;
