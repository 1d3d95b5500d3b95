/** A process of its own around one queue with very many topics, whose calls of the store are counted. */
import { setTimeout as wait } from 'node:timers/promises';
import type { Queue } from '../src/queue/api.ts';
import type { Store } from '../src/store/store.ts';
import { answerOrders } from './child.ts';
import { drainRate, enqueueRate } from './drive.ts';
import { tasksOf } from './payload.ts';
import { built } from './place.ts';
import { type Percentiles, Times } from './rounds.ts';

export type TopicsOrder =
  | { readonly kind: 'open'; readonly store: string }
  /** Puts so many tasks into topics in turn, one a call. */
  | { readonly kind: 'fill'; readonly topics: number; readonly tasks: number }
  /** Takes and acknowledges so many tasks, by leases over all topics. */
  | { readonly kind: 'drain'; readonly tasks: number }
  /** So many times: puts a task into a topic of so many, drawn at random, and takes it by a lease over all of them. */
  | { readonly kind: 'pass'; readonly topics: number; readonly samples: number }
  /** Puts tasks at a given pace into topics in turn, and takes one of the same topic each time, for so many seconds. */
  | { readonly kind: 'pace'; readonly topics: number; readonly perSecond: number; readonly seconds: number }
  /** Does nothing for so long, then reports. */
  | { readonly kind: 'rest'; readonly ms: number }
  | { readonly kind: 'stop' };

export interface TopicsReport extends Percentiles {
  /** Tasks a second. */
  readonly perSecond: number;
  /** Calls of the store so far. */
  readonly storeCalls: number;
  readonly residentMb: number;
  readonly activeTopics: number;
}

const CALLERS = 64;
const DRAIN = { workers: 64, max: 10 } as const;
const LEASE_MS = 600_000;

let queue: Queue | null = null;
let storeCalls = 0;

const theQueue = (): Queue => {
  if (queue === null) throw new Error('no store is open');
  return queue;
};

/** The store, of which each call is counted. */
function counted(store: Store): Store {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        // To ask what time it is costs nothing.
        if (name !== 'now') storeCalls++;
        return Reflect.apply(value, target, args) as unknown;
      };
    },
  });
}

async function open(address: string): Promise<void> {
  const { openStore, startQueue } = await built<typeof import('../src/queue/open.ts')>('queue/open.js');
  queue = await startQueue(counted(await openStore({ store: address })));
}

const nameOf = (nth: number): string => `tenant-${nth}`;

function fill(topics: number, tasks: number): Promise<number> {
  const input = tasksOf(1);
  let next = 0;
  return enqueueRate(theQueue(), CALLERS, () =>
    next < tasks ? { topic: nameOf(next++ % topics), tasks: input } : null,
  );
}

async function passOne(topic: string, leasedFrom: readonly string[] | null, times: Times): Promise<void> {
  await theQueue().enqueue(topic, tasksOf(1));
  const start = performance.now();
  const named = leasedFrom === null ? {} : { topics: leasedFrom };
  const got = await theQueue().lease({ ...named, max: 1, leaseMs: LEASE_MS });
  times.add(performance.now() - start);
  if (got.length !== 1) throw new Error(`${got.length} tasks leased instead of 1`);
  await theQueue().settle({ ack: got.map(({ leaseId }) => ({ leaseId })) });
}

async function pass(topics: number, samples: number): Promise<Times> {
  const times = new Times();
  for (let nth = 0; nth < samples; nth++) await passOne(nameOf(Math.floor(Math.random() * topics)), null, times);
  return times;
}

async function pace(topics: number, perSecond: number, seconds: number): Promise<Times> {
  const times = new Times();
  const start = performance.now();
  for (let nth = 0; nth < perSecond * seconds; nth++) {
    await wait(Math.max(0, start + (nth * 1_000) / perSecond - performance.now()));
    const topic = nameOf(nth % topics);
    await passOne(topic, [topic], times);
  }
  return times;
}

answerOrders<TopicsOrder, TopicsReport>(async (order) => {
  let perSecond = Number.NaN;
  let times = new Times();
  if (order.kind === 'open') await open(order.store);
  else if (order.kind === 'fill') perSecond = await fill(order.topics, order.tasks);
  else if (order.kind === 'drain') perSecond = await drainRate(theQueue(), { ...DRAIN, tasks: order.tasks });
  else if (order.kind === 'pass') times = await pass(order.topics, order.samples);
  else if (order.kind === 'pace') times = await pace(order.topics, order.perSecond, order.seconds);
  else if (order.kind === 'rest') await wait(order.ms);
  else await theQueue().stop();
  return {
    perSecond,
    ...times.percentiles(),
    storeCalls,
    residentMb: process.memoryUsage.rss() / 1024 / 1024,
    activeTopics: theQueue().status().activeTopics,
  };
});
