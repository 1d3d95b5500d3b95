import { randomInt, randomUUID } from 'node:crypto';
import {
  type Entry,
  type EntryChange,
  type EntryPatch,
  FINAL_VERSION,
  FIRST_VERSION,
  type LogAddress,
  type NewEntry,
} from '../../src/core/entry.ts';
import type { Append, Store, StoreMeta } from '../../src/store/store.ts';

/** A store that a test may use, and how to get the same one again. */
export interface Opened {
  readonly store: Store;
  /** Closes it and opens it anew. */
  reopen(): Promise<Store>;
  /** Closes it and removes what it kept. */
  dispose(): Promise<void>;
}

export type OpenStore = (meta?: Partial<StoreMeta>) => Promise<Opened>;

/** What a store may lack; each with the reason why. */
export interface StoreCapabilities {
  readonly noReopen?: string;
}

/** The store under test; the same one for many tests, so each uses names of its own. */
export type StoreUnderTest = () => Store;

/** Ids of one segment in these tests: a batch of 200 fits, and two fill it. */
export const SEGMENT = 250;

export const uniqueTopic = (name: string): string => `${name}-${randomUUID()}`;
export const uniqueLog = (name: string, tier = 5): LogAddress => ({ topic: uniqueTopic(name), tier });
/** Shards, like topics, are a test's own. */
export const uniqueShard = (): number => randomInt(1, 2 ** 31 - 1);

export const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

/** An entry as an enqueue makes it. */
export const entry = (name: number | string, changed: Partial<NewEntry> = {}): NewEntry => ({
  uid: `uid-${name}`,
  messageId: null,
  payload: `{"n":${JSON.stringify(name)}}`,
  metadata: null,
  priority: 5,
  maxAttempts: null,
  attempt: 0,
  hops: 0,
  history: null,
  enqueuedAt: 1_700_000_000_000,
  expiresAt: null,
  dueAt: null,
  target: null,
  placedAt: 1_700_000_000_001,
  origin: null,
  originVersion: null,
  supersedes: null,
  taskId: null,
  status: 'ready',
  progress: null,
  reason: null,
  ...changed,
});

/** An entry with every part set. */
export const fullEntry = (name: string): NewEntry =>
  entry(name, {
    messageId: 'https://example.org/a?b=c#d',
    metadata: '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
    priority: 87,
    maxAttempts: 7,
    attempt: 3,
    hops: 4,
    history: '[{"at":1}]',
    expiresAt: 1_800_000_000_000,
    dueAt: 1_750_000_000_250,
    target: 'the/target',
    origin: { topic: 'an/origin/of its own', tier: 9, id: 9_007_199_254_740_991 },
    originVersion: 12,
    supersedes: 'uid-old',
    taskId: '01ARZ3NDEKTSV4RRFFQ69G5FAV.5.17',
    status: 'pending',
    progress: '{"page":4}',
    reason: 'lease over',
  });

/** What reading back an entry gives. */
export const asAppended = (entry: NewEntry, id: number): Entry => ({
  ...entry,
  id,
  version: FIRST_VERSION,
  leaseId: null,
  worker: null,
  leasedAt: null,
  leaseUntil: null,
  updatedAt: entry.placedAt,
  dest: null,
  result: null,
});

export const headOf = ({ payload, metadata, history, result, progress, ...head }: Entry): object => head;

/** Repeats a call whose outcome is unknown, as every caller has to. */
export async function definite<T extends { readonly kind: string }>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    const outcome = await call();
    if (outcome.kind !== 'unknown') return outcome;
  }
}

/** Appends to a segment's end, as it is read now; returns the first id. */
export async function append(
  store: Store,
  log: LogAddress,
  entries: readonly NewEntry[],
  changed: Partial<Append> = {},
): Promise<number> {
  const segment = changed.segment ?? 0;
  const header = await store.readSegment(log, segment, true);
  const firstId = header?.nextId ?? segment * store.meta.segmentSize;
  const outcome = await definite(() =>
    store.append({
      log,
      segment,
      expectNext: header?.nextId ?? null,
      firstId,
      entries,
      bytes: (header?.bytes ?? 0) + entries.length,
      seal: false,
      ...changed,
    }),
  );
  if (outcome.kind !== 'applied') throw new Error(`append: ${outcome.kind}`);
  return firstId;
}

export const readAll = (store: Store, log: LogAddress, segment = 0): Promise<readonly Entry[]> => {
  const from = segment * store.meta.segmentSize;
  return store.readEntries({
    log,
    from,
    to: from + store.meta.segmentSize,
    limit: store.meta.segmentSize,
    serial: true,
  });
};

export const leaseSet = (leaseId: string, changed: Partial<EntryPatch> = {}): EntryPatch => ({
  status: 'leased',
  version: FIRST_VERSION + 1,
  updatedAt: 1_700_000_001_000,
  leaseId,
  worker: 'worker-1',
  leasedAt: 1_700_000_001_000,
  leaseUntil: 1_700_000_031_000,
  ...changed,
});

export const doneSet = (changed: Partial<EntryPatch> = {}): EntryPatch => ({
  status: 'done',
  version: FINAL_VERSION,
  updatedAt: 1_700_000_002_000,
  ...changed,
});

/** Claims entries `uid-<id>` as they were appended. */
export const claims = (ids: readonly number[], set: EntryPatch): EntryChange[] =>
  ids.map((id) => ({ id, expect: { uid: `uid-${id}`, version: FIRST_VERSION }, set }));

export const settlements = (ids: readonly number[], leaseId: string, set: EntryPatch): EntryChange[] =>
  ids.map((id) => ({ id, expect: { leaseId }, set }));
