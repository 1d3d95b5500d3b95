/**
 * What servers on one store say to each other. All of it but leases and calls that only a holder can answer is for speed:
 * what gets lost is found in the store.
 */
import type { LogAddress } from '../core/entry.ts';
import { QueueError } from '../core/errors.ts';
import type { NodeRow } from '../store/store.ts';
import type { LeasedTask, LeaseRequest } from './api.ts';
import { type Measures, measured } from './measures.ts';

/** Where a log ends: in the last segment that is not full. */
export interface LogEnd {
  readonly segment: number;
  /** The next id; null: the segment is not there yet. */
  readonly next: number | null;
  /** Of its entries. */
  readonly bytes: number;
}

/** Ready entries that one write has put behind the end of a log. */
export interface Appended {
  readonly segment: number;
  readonly from: number;
  readonly to: number;
  /** Of all entries of the segment. */
  readonly bytes: number;
  /** Nothing goes into the segment any more. */
  readonly full: boolean;
  /** When the first of them expires; null: none does. */
  readonly expiresAt: number | null;
}

/** Something happened in a log. */
export interface Hint extends LogAddress {
  /** Entries were put into it, which are to be looked for. */
  readonly put?: boolean;
  /** Entries that were put into it, in the order of ids. */
  readonly appended?: readonly Appended[];
  /** Ids of entries that ended or went elsewhere, so that they are open no longer; their message rows agree. */
  readonly left?: readonly number[];
}

/** What callers here wait for. */
export interface Interest {
  readonly topics?: readonly string[];
  readonly priorities?: readonly number[];
  /** How many wait for it. */
  readonly slots: number;
}

/** What a server may ask of another, and what it gets. */
export interface PeerCalls {
  /** Leases at once what there is, without waiting. */
  readonly lease: {
    readonly body: {
      readonly request: Omit<LeaseRequest, 'waitMs' | 'signal'>;
      /** How many of each topic the call has got already, where it may have only so many of each. */
      readonly had?: Readonly<Record<string, number>>;
    };
    /** `misdirected`: other servers hold the topics that were asked for. */
    readonly answer: { readonly tasks: readonly LeasedTask[]; readonly misdirected?: boolean };
  };
  /** How many tasks such a lease could get now, by tier. */
  readonly census: {
    readonly body: Omit<LeaseRequest, 'waitMs' | 'signal'>;
    readonly answer: { readonly ready: readonly number[] };
  };
  /** Answers when something is there for one of the interests, or after `waitMs`. */
  readonly wait: {
    readonly body: { readonly interests: readonly Interest[]; readonly waitMs: number };
    /** By their place in the list; how many tasks are ready at least. */
    readonly answer: { readonly woken: readonly { readonly nth: number; readonly ready: number }[] };
  };
  /** Answers with those that are not this server's. */
  readonly hints: {
    readonly body: { readonly hints: readonly Hint[] };
    readonly answer: { readonly missed: readonly Hint[] };
  };
  /**
   * Says where a log ends, once it is the caller's turn to put something there. The holder lets nobody else until it is
   * told of that, or a time is over: so servers don't get in each other's way, which is all that it is for.
   */
  readonly turn: {
    readonly body: LogAddress;
    /** The log's end, and the period of the activity index in which it is recorded; nothing: go ahead without a turn. */
    readonly answer: { readonly end?: LogEnd; readonly period?: number };
  };
  /** Shards have changed hands. */
  readonly look: { readonly body: Record<never, never>; readonly answer: Record<never, never> };
  /** A call about a topic that only its holder can answer. */
  readonly call: {
    readonly body: { readonly method: string; readonly topic: string | null; readonly args: readonly unknown[] };
    readonly answer: { readonly value: unknown };
  };
}
export type PeerMethod = keyof PeerCalls;
export const PEER_METHODS: readonly PeerMethod[] = ['lease', 'census', 'wait', 'hints', 'turn', 'look', 'call'];

export interface PeerCallOptions {
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until it is given up. */
  readonly timeoutMs: number;
}

/** The way to other servers. */
export interface Transport {
  /** @throws QueueError what the other one threw; PeerUnreachableError where it gave no answer */
  call<M extends PeerMethod>(
    node: NodeRow,
    method: M,
    body: PeerCalls[M]['body'],
    options: PeerCallOptions,
  ): Promise<PeerCalls[M]['answer']>;
}

/** The same, with its calls measured by their names. What another server refuses is an answer like any other. */
export const measuredTransport = (transport: Transport, measures: Measures, clock: () => number): Transport => ({
  call: (node, method, body, options) =>
    measured(
      measures.peerCall(method),
      clock,
      () => transport.call(node, method, body, options),
      (error) => error instanceof PeerUnreachableError,
    ),
});

/** Answers what other servers ask. */
export interface PeerService {
  readonly id: string;
  answer<M extends PeerMethod>(
    method: M,
    body: PeerCalls[M]['body'],
    signal?: AbortSignal,
  ): Promise<PeerCalls[M]['answer']>;
  /** Whether a caller has shown what this server's row in the store says it must show. */
  knows(secret: string): boolean;
}

/** Another server gave no answer: it is gone, or it listens nowhere. Whether it did something is not known. */
export class PeerUnreachableError extends Error {
  override readonly name = 'PeerUnreachableError';
}

/** For a store that has one server, and for processes that cannot reach others. */
export const NO_TRANSPORT: Transport = {
  call: () => Promise.reject(new PeerUnreachableError('this process cannot call other servers')),
};

/** @throws what it got, but for a server that gave no answer: then null */
export async function unlessUnreachable<T>(call: Promise<T>): Promise<T | null> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof PeerUnreachableError) return null;
    // Another server that stops, or has handed its shards over meanwhile, has nothing to say either.
    if (error instanceof QueueError && (error.code === 'shutting-down' || error.code === 'not-holder')) return null;
    throw error;
  }
}

/** The same, where a server that has no room for the call is as good as one that gives no answer. */
export async function unlessBusy<T>(call: Promise<T>): Promise<T | null> {
  try {
    return await unlessUnreachable(call);
  } catch (error) {
    if (error instanceof QueueError && error.code === 'busy') return null;
    throw error;
  }
}
