export { ERROR_CODES, type ErrorCode, type InputIssue, QueueError } from './core/errors.ts';
export { DEFAULT_SETTINGS, type RateSettings, type TopicSettings } from './core/settings.ts';
export * from './queue/api.ts';
export { type OpenOptions, openQueue, type QueueLogger } from './queue/open.ts';
export { StoreDamagedError, StoreInUseError, StoreUnavailableError } from './store/store.ts';
