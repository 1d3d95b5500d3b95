/** A queue on a store that several processes can open one after the other, and that any of them can leave by dying. */
import { onTestFinished } from 'vitest';
import { type AuditOptions, type AuditReport, auditStore } from '../../../src/audit/audit.ts';
import type { Queue } from '../../../src/queue/api.ts';
import { startQueue } from '../../../src/queue/open.ts';
import { MemoryStore } from '../../../src/store/memory/store.ts';
import { Tables } from '../../../src/store/memory/tables.ts';
import { openSqliteStore } from '../../../src/store/sqlite/store.ts';
import type { Store } from '../../../src/store/store.ts';
import { type ManualEnvironment, manualEnvironment } from '../../support/manual-environment.ts';

const META = { segmentSize: 10, shards: 2, messageBuckets: 2, slotMs: 250 };

export type Kind = 'memory' | 'SQLite';

export interface World {
  readonly env: ManualEnvironment;
  readonly queue: Queue;
  readonly store: Store;
  /** The process dies: nothing it has under way goes on. Another one starts. */
  crash(): Promise<Queue>;
  audit(options?: AuditOptions): Promise<AuditReport>;
}

export async function world(kind: Kind): Promise<World> {
  const env = manualEnvironment();
  const store: Store =
    kind === 'memory'
      ? new MemoryStore(new Tables(META, env.now))
      : await openSqliteStore(':memory:', { now: env.now, meta: META });
  let process = mortal(store);
  let queue = await startQueue(process.store, { environment: env });
  onTestFinished(async () => {
    process.die();
    await store.close();
  });
  return {
    env,
    store,
    get queue() {
      return queue;
    },
    async crash() {
      process.die();
      process = mortal(store);
      queue = await startQueue(process.store, { environment: env });
      return queue;
    },
    audit: (options) => auditStore(store, { environment: env, ...options }),
  };
}

/** The store as one process has it: once that is dead, no call of it is answered. */
function mortal(store: Store): { readonly store: Store; die(): void } {
  let alive = true;
  const never = new Promise<never>(() => {});
  const proxy = new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== 'function') return member;
      if (name === 'now' || name === 'isFull') return member.bind(target);
      return (...args: unknown[]) => {
        if (!alive) return never;
        const answer = Reflect.apply(member, target, args) as Promise<unknown>;
        return answer.then(
          (value) => (alive ? value : never),
          (error: unknown) => (alive ? Promise.reject(error) : never),
        );
      };
    },
  });
  return {
    store: proxy,
    die: () => {
      alive = false;
    },
  };
}
