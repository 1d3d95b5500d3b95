/**
 * Who may call what. Each route says in its `config.access` who may call it, and one that doesn't keeps the server from
 * starting; handlers reach the queue through `request.caller` alone, which is confined to what the caller may see. So neither
 * can be forgotten by a new route.
 */
import type { FastifyRequest } from 'fastify';
import { type KeyRow, ROLES, type Role } from '../core/api-key.ts';
import { QueueError } from '../core/errors.ts';
import { ConfinedQueue, type TopicQueue } from '../queue/confined-queue.ts';
import { CursorSeal } from '../queue/cursor-seal.ts';
import type { Keyring } from '../queue/keys.ts';
import type { App } from './app.ts';
import { RateLimits } from './rate-limits.ts';

/** Who may call a route. */
export type Access =
  /** Anybody. */
  | 'open'
  /** Other servers on the same store; the route itself asks them for their secret. */
  | 'servers'
  /** Holders of a key. */
  | {
      /** One of them at least. */
      readonly roles: readonly Role[];
      /** Only keys for all topics: what it answers is about all. */
      readonly allTopics?: boolean;
    };

/** For what anybody may look at who has to do with a topic. */
export const ANY_ROLE: Access = { roles: ROLES };

/** Who sent a request. */
export interface Caller {
  /** null: no key is asked for. */
  readonly key: KeyRow | null;
  /** When its key was checked, by the monotonic clock. */
  readonly since: number;
  /** The queue as this caller may see it. */
  readonly queue: TopicQueue;
  /** After a wait: whether the caller may still be told what came of it. @throws QueueError `unauthenticated` */
  recheck(): Promise<void>;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: Access;
  }
  interface FastifyRequest {
    caller: Caller;
  }
}

/** A read that took longer is looked at again before it is answered: its key may be revoked by now. */
const LONG_MS = 1_000;

/**
 * Checks every request, before its body is read. Call before there are routes.
 * @param keys null: no key is asked for, and whoever reaches the server may do everything
 */
export function controlAccess(app: App, queue: TopicQueue, keys: Keyring | null): void {
  // Where keys are asked for, who calls an open route sees no topic.
  const seen = keys === null ? queue : new ConfinedQueue(queue, [], new CursorSeal(''));
  const anybody: Caller = { key: null, since: 0, queue: seen, recheck: async () => {} };
  const limits = new RateLimits();
  const views = new WeakMap<KeyRow, TopicQueue>();

  const queueOf = (key: KeyRow): TopicQueue => {
    if (key.prefixes === null) return queue;
    let view = views.get(key);
    if (view === undefined) {
      view = new ConfinedQueue(queue, key.prefixes, new CursorSeal(key.seal));
      views.set(key, view);
    }
    return view;
  };

  app.addHook('onRoute', ({ url, method, config }) => {
    if (config?.access === undefined && !isDocs(url)) {
      throw new Error(`${method} ${url} does not say who may call it: config.access`);
    }
  });

  app.decorateRequest('caller');
  app.addHook('onRequest', (request, _reply, done) => {
    request.caller = anybody;
    done();
  });
  if (keys === null) return;
  app.addHook('onRequest', async (request, reply) => {
    const access = accessOf(request);
    if (typeof access === 'string') return;
    const key = await keys.check(bearerOf(request.headers.authorization));
    if (key === null) throw unauthenticated();
    const waitMs = limits.take(key, performance.now());
    if (waitMs > 0) {
      reply.header('retry-after', Math.ceil(waitMs / 1000));
      throw new QueueError('rate-limited', rateText(key));
    }
    mayCall(key, access);
    request.caller = {
      key,
      since: performance.now(),
      queue: queueOf(key),
      recheck: async () => {
        if (!(await keys.isGood(key))) throw unauthenticated();
      },
    };
  });
  // Only reads: what a change has done it is better to be told.
  app.addHook('preSerialization', async (request, reply, payload) => {
    const { key, since, recheck } = request.caller;
    const isLong = key !== null && performance.now() - since > LONG_MS;
    if (isLong && request.method === 'GET' && reply.statusCode < 400) await recheck();
    return payload;
  });
}

/** A miss is open: what addresses there are anybody can read in the documentation. */
function accessOf({ is404, routeOptions: { url, config } }: FastifyRequest): Access {
  if (is404 || isDocs(url ?? '')) return config.access ?? 'open';
  if (config.access === undefined) throw new QueueError('forbidden');
  return config.access;
}

/** The routes of the package that shows the documentation. */
const isDocs = (url: string): boolean => url === '/docs' || url.startsWith('/docs/');

/** '' where there is none: what is no key is looked for in the same way as what is one. */
const bearerOf = (authorization = ''): string => /^Bearer +(\S+) *$/i.exec(authorization)?.[1] ?? '';

/** The same for whichever reason, so that nobody learns which keys there were. */
const unauthenticated = (): QueueError =>
  new QueueError(
    'unauthenticated',
    'Send "Authorization: Bearer KEY" with a key that was neither revoked nor has expired',
  );

function mayCall({ roles, prefixes }: KeyRow, access: Exclude<Access, string>): void {
  if (!access.roles.some((role) => roles.includes(role))) {
    const wanted = access.roles.join(' or ');
    throw new QueueError(
      'forbidden',
      `This call is for keys with the role ${wanted}; this one has ${roles.join(', ')}`,
    );
  }
  if (access.allTopics && prefixes !== null) {
    throw new QueueError('forbidden', 'This call is for keys that are for all topics; this one is for some');
  }
}

const rateText = ({ rate }: KeyRow): string =>
  `This key may send ${rate!.perSecond} requests a second to this server, up to ${rate!.burst} at once`;
