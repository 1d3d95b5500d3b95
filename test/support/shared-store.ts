/** Several servers on one real SQLite store, as on a keyspace: each can be paused, and answers of the store held back. */
import { onTestFinished } from 'vitest';
import { QueueError } from '../../src/core/errors.ts';
import { deferred } from '../../src/queue/deferred.ts';
import { silentLogger } from '../../src/queue/engine.ts';
import { PeerUnreachableError, type Transport } from '../../src/queue/peers.ts';
import { LocalQueue } from '../../src/queue/queue.ts';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import type { Store } from '../../src/store/store.ts';
import { type ManualEnvironment, manualEnvironment } from './manual-environment.ts';

export interface Server {
  readonly queue: LocalQueue;
  /** From now on the server's calls to the store are not answered, nor what other servers ask it. */
  pause(): void;
  /** They go through again, those that waited first. */
  resume(): void;
  /** Whether it has no room for what other servers ask it. */
  beBusy(isBusy: boolean): void;
  /** From now on calls of one kind are carried out, and not answered until this is released. */
  holdAnswers(of: keyof Store): () => void;
  /** From now on calls of one kind are carried out only when this is released. */
  holdCalls(of: keyof Store): () => void;
}

export interface Place {
  readonly env: ManualEnvironment;
  readonly store: Store;
  /** Another server on the store; `alone`: one that listens nowhere. */
  server(kind?: 'alone'): Promise<Server>;
}

export async function sharedStore(shards = 8): Promise<Place> {
  const env = manualEnvironment();
  const store = await openSqliteStore(':memory:', { now: env.now, meta: { shards } });
  onTestFinished(() => store.close());
  const servers = new Map<string, Server & { readonly isPaused: () => boolean; readonly isBusy: () => boolean }>();
  const transport: Transport = {
    async call(node, method, body, { signal }) {
      const server = servers.get(node.address ?? '');
      if (server === undefined || server.isPaused()) throw new PeerUnreachableError('it does not answer');
      if (server.isBusy()) throw new QueueError('busy');
      return server.queue.peers.answer(method, body, signal);
    },
  };
  return {
    env,
    store,
    async server(kind) {
      const { door, shared } = throughADoor(store);
      let isBusy = false;
      const queue = await LocalQueue.start(shared, env, silentLogger, transport);
      const server = {
        queue,
        pause: door.close,
        resume: door.open,
        isPaused: door.isClosed,
        isBusy: () => isBusy,
        beBusy: (is: boolean) => {
          isBusy = is;
        },
        holdAnswers: door.holdAnswers,
        holdCalls: door.holdCalls,
      };
      onTestFinished(async () => {
        door.open();
        // A stop tells other servers, which a clock that stands still would keep waiting.
        const stopped = queue.stop();
        await env.advance(2_000);
        await stopped;
      });
      if (kind !== 'alone') {
        const address = `test://${servers.size}`;
        servers.set(address, server);
        await queue.reachableAt(address);
        // Those who are there hand over their part at once.
        await env.advance(10);
      }
      return server;
    },
  };
}

/** The store as one of several servers sees it, behind a door that can be shut. */
export function throughADoor(store: Store) {
  let opened: Promise<void> | null = null;
  let open = (): void => {};
  const answers = new Map<string | symbol, Promise<void>>();
  const calls = new Map<string | symbol, Promise<void>>();
  const hold = (held: Map<string | symbol, Promise<void>>, of: keyof Store) => {
    const { promise, resolve } = deferred();
    held.set(of, promise);
    return () => {
      held.delete(of);
      resolve();
    };
  };
  const door = {
    close: () => {
      opened = new Promise((resolve) => {
        open = resolve;
      });
    },
    open: () => {
      opened = null;
      open();
    },
    isClosed: () => opened !== null,
    holdAnswers: (of: keyof Store) => hold(answers, of),
    holdCalls: (of: keyof Store) => hold(calls, of),
  };
  const shared = new Proxy(store, {
    get(target, name) {
      if (name === 'exclusive') return false;
      if (name === 'close') return async () => {};
      if (name === 'now') return () => target.now();
      if (name === 'isFull') return () => target.isFull();
      const member = Reflect.get(target, name) as unknown;
      if (typeof member !== 'function') return member;
      return async (...args: unknown[]) => {
        while (opened !== null) await opened;
        await calls.get(name);
        const answer = (await Reflect.apply(member, target, args)) as unknown;
        await answers.get(name);
        return answer;
      };
    },
  });
  return { door, shared };
}
