export { ERROR_CODES, type ErrorCode, type InputIssue, QueueError } from '../core/errors.ts';
export type { TlsCredentials, TlsSource } from '../core/tls.ts';
export type { JsonValue, TaskPayload } from '../queue/api.ts';
export type { Backend } from './backend.ts';
export { Client, type ClientOptions } from './client.ts';
export type { Trouble } from './context.ts';
export type { TwoPhase } from './drainable.ts';
export {
  ClientClosedError,
  ClientDrainingError,
  ConnectionError,
  DrainInHandlerError,
  ResultTimeoutError,
  RetryAfterError,
  TaskFailedError,
  UnrecoverableError,
} from './errors.ts';
export { keyFromEnvironment } from './key.ts';
export type { Publisher, PublishOptions, ResultOptions, TaskHandle } from './publisher.ts';
export type { Handler, RunOptions, Subscriber, SubscriberOptions } from './subscriber.ts';
export type { Task, TaskOf } from './task.ts';
export {
  type AnyTopics,
  defineTopics,
  type PayloadOf,
  type TopicName,
  type TopicSchemas,
} from './topics.ts';
