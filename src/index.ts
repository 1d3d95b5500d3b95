export { ERROR_CODES, type ErrorCode, type InputIssue, QueueError } from './core/errors.ts';
export { DEFAULT_SETTINGS, type RateSettings, type TopicSettings } from './core/settings.ts';
export type { TlsCredentials, TlsSource } from './core/tls.ts';
export * from './queue/api.ts';
export {
  type CopyOptions,
  migrateStore,
  type OpenOptions,
  openQueue,
  type QueueLogger,
  type SavedCopy,
  saveBackup,
} from './queue/open.ts';
export {
  type Migration,
  type Snapshot,
  StoreDamagedError,
  StoreInUseError,
  StoreOutdatedError,
  type StoreSpace,
  StoreUnavailableError,
} from './store/store.ts';
