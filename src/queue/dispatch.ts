import { LEASE_TASKS, TIERS } from '../core/bounds.ts';
import { QueueError } from '../core/errors.ts';
import type { ReadyRing } from '../scheduler/ready-ring.ts';
import type { NodeRow } from '../store/store.ts';
import type { LeasedTask, LeaseRequest } from './api.ts';
import type { Environment } from './environment.ts';
import { isFull, type LeaseCall, type Leaser } from './lease.ts';
import type { Measures } from './measures.ts';
import { PeerWaits } from './peer-waits.ts';
import { type PeerCalls, type Transport, unlessBusy } from './peers.ts';
import { type CheckedLease, checkLease, checkLeaseFields } from './validate.ts';

/** How long another server may take to lease what it has, in milliseconds. */
const LEASE_TIMEOUT_MS = 10_000;
/** For how long another server is not asked again that had nothing for the same request, unless it says otherwise. */
const EMPTY_MS = 200;
const EMPTIES = 10_000;

/** Which servers hold what, as seen here. */
export interface Holders {
  /** Whether this server holds any shard in which one of the topics may be. */
  holdsAnyOf(names: readonly string[] | null): boolean;
  /** Other servers that can be reached and hold such a shard. */
  othersFor(names: readonly string[] | null): readonly NodeRow[];
  /** Another server does not hold what it was thought to hold. */
  lookAgain(): Promise<void>;
}

interface DispatchContext {
  readonly env: Environment;
  readonly measures: Measures;
  readonly transport: Transport;
  readonly leaser: Leaser;
  readonly ring: ReadyRing;
  readonly holders: Holders;
  /** Gives tasks back whose caller has gone. */
  readonly release: (leaseIds: readonly string[]) => Promise<void>;
}

/**
 * Answers lease calls from all servers that may have something: from the shards held here, and by passing the call on.
 * Each call begins with another server, so that none is drained before the others; where none has anything, it waits at
 * all of them.
 */
export class Dispatcher {
  readonly #env: Environment;
  readonly #measures: Measures;
  readonly #transport: Transport;
  readonly #leaser: Leaser;
  readonly #ring: ReadyRing;
  readonly #holders: Holders;
  readonly #release: DispatchContext['release'];
  readonly #waits: PeerWaits;
  /** By server and request: until when it has nothing, by the monotonic clock. */
  readonly #emptyUntil = new Map<string, number>();
  readonly #waiting = new Set<() => void>();
  #turn = 0;
  #stopped = false;

  constructor({ env, measures, transport, leaser, ring, holders, release }: DispatchContext) {
    this.#env = env;
    this.#measures = measures;
    this.#transport = transport;
    this.#leaser = leaser;
    this.#ring = ring;
    this.#holders = holders;
    this.#release = release;
    this.#waits = new PeerWaits(env, transport);
  }

  /** Lease calls that wait here. */
  get waiting(): number {
    return this.#waiting.size;
  }

  async lease(input: LeaseRequest): Promise<readonly LeasedTask[]> {
    checkLeaseFields(input);
    const request = checkLease(input);
    const { signal } = input;
    // By the clock that no one sets: while the store's stands still, having been set back, calls end all the same.
    const deadline = this.#env.monotonic() + request.waitMs;
    const call = this.#leaser.begin(request, signal);
    let askedAt = this.#env.monotonic();
    for (;;) {
      const isWrong = await this.#takeAnywhere(call, input);
      if (isWrong && !isFull(call)) {
        await this.#holders.lookAgain();
        await this.#takeAnywhere(call, input);
      }
      if (call.tasks.length > 0 || this.#stopped || signal?.aborted || this.#env.monotonic() >= deadline) break;
      await this.#wait(request, input, deadline, signal);
      askedAt = this.#env.monotonic();
    }
    if (signal?.aborted) {
      // Whoever asked is gone: others get what it was given, or was woken for.
      if (call.tasks.length > 0) await this.#release(call.tasks.map(({ leaseId }) => leaseId));
      this.#ring.passOn();
      return [];
    }
    if (call.tasks.length > 0) this.#measures.lease.observe((this.#env.monotonic() - askedAt) / 1000);
    if (this.#stopped && call.tasks.length === 0) throw new QueueError('shutting-down');
    return call.tasks;
  }

  /** What another server asks for: of the shards held here, at once. */
  async leaseHere({ request, had = {} }: PeerCalls['lease']['body']): Promise<PeerCalls['lease']['answer']> {
    const call = this.#leaser.begin(checkLease(request), undefined, had);
    await this.#leaser.take(call);
    const names = namesOf(call.request);
    const misdirected = names !== null && !this.#holders.holdsAnyOf(names);
    return { tasks: call.tasks, ...(misdirected ? { misdirected } : {}) };
  }

  /** Shards have changed hands: who waits looks again where. */
  moved(): void {
    this.#emptyUntil.clear();
    for (const wake of [...this.#waiting]) wake();
  }

  stop(): void {
    this.#stopped = true;
    this.#waits.stop();
    this.moved();
  }

  /** @returns whether a server was asked for what it does not hold */
  async #takeAnywhere(call: LeaseCall, input: LeaseRequest): Promise<boolean> {
    const { request } = call;
    const names = namesOf(request);
    const others = this.#holders.othersFor(names);
    if (others.length === 0) {
      await this.#leaser.take(call);
      return false;
    }
    if (request.order === 'priority') return this.#takeByTier(call, input, others);
    let isWrong = false;
    const sources = this.#holders.holdsAnyOf(names) ? [null, ...others] : others;
    const first = this.#turn++ % sources.length;
    for (let nth = 0; nth < sources.length && !isFull(call) && !call.signal?.aborted; nth++) {
      const node = sources[(first + nth) % sources.length]!;
      if (node === null) await this.#leaser.take(call);
      else if (await this.#takeAt(node, call, input)) isWrong = true;
    }
    return isWrong;
  }

  /** Tiers first over all servers: each is asked how much it has of which tier, highest first. */
  async #takeByTier(call: LeaseCall, input: LeaseRequest, others: readonly NodeRow[]): Promise<boolean> {
    const { request } = call;
    let isWrong = false;
    const here = this.#ring.census(request);
    const there = await Promise.all(others.map((node) => this.#censusOf(node, input)));
    for (let tier = TIERS - 1; tier >= 0 && !isFull(call); tier--) {
      if (request.tiers !== null && !request.tiers.has(tier)) continue;
      if (here[tier]! > 0) await this.#leaser.take(call, { ...request, tiers: new Set([tier]) });
      for (const [nth, node] of others.entries()) {
        if (isFull(call) || (there[nth]![tier] ?? 0) === 0) continue;
        if (await this.#takeAt(node, call, { ...input, priorities: [tier] })) isWrong = true;
      }
    }
    return isWrong;
  }

  async #censusOf(node: NodeRow, input: LeaseRequest): Promise<readonly number[]> {
    const call = this.#transport.call(node, 'census', asked(input), { timeoutMs: LEASE_TIMEOUT_MS });
    return (await unlessBusy(call))?.ready ?? [];
  }

  /** @returns whether it was asked for what it does not hold */
  async #takeAt(node: NodeRow, call: LeaseCall, input: LeaseRequest): Promise<boolean> {
    const key = `${node.id}/${keyOf(input)}`;
    if ((this.#emptyUntil.get(key) ?? 0) > this.#env.monotonic()) return false;
    const { request, signal } = call;
    const max = Math.min(LEASE_TASKS, request.max - call.tasks.length);
    const had = input.maxPerTopic === undefined || call.had.size === 0 ? {} : { had: Object.fromEntries(call.had) };
    const body = { request: { ...asked(input), max }, ...had };
    const answer = await unlessBusy(this.#transport.call(node, 'lease', body, { signal, timeoutMs: LEASE_TIMEOUT_MS }));
    const tasks = answer?.tasks ?? [];
    for (const task of tasks) {
      call.tasks.push(task);
      call.bytes += sizeOf(task);
      call.had.set(task.topic, (call.had.get(task.topic) ?? 0) + 1);
    }
    if (tasks.length > 0 || this.#emptyUntil.size > EMPTIES) this.#emptyUntil.clear();
    if (answer?.misdirected) return true;
    if (tasks.length === 0) this.#emptyUntil.set(key, this.#env.monotonic() + EMPTY_MS);
    return false;
  }

  #wait(request: CheckedLease, input: LeaseRequest, deadline: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const cancels: (() => void)[] = [];
      const done = (): void => {
        this.#waiting.delete(done);
        for (const cancel of cancels) cancel();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      this.#waiting.add(done);
      cancels.push(this.#leaser.wait(request, done));
      cancels.push(this.#env.timer(deadline - this.#env.monotonic(), done));
      for (const node of this.#holders.othersFor(namesOf(request))) {
        const wake = (): void => {
          this.#emptyUntil.delete(`${node.id}/${keyOf(input)}`);
          done();
        };
        cancels.push(this.#waits.add(node, interestOf(input), wake));
      }
      signal?.addEventListener('abort', done, { once: true });
      if (this.#stopped) done();
    });
  }
}

/** null where it may be any topic. */
const namesOf = ({ names, prefixes }: CheckedLease): readonly string[] | null => (prefixes.length > 0 ? null : names);

/** A request as another server is asked: without what only this one can do. */
function asked({ topics, maxPerTopic, priorities, order, leaseMs, worker, max }: LeaseRequest) {
  return defined({ topics, maxPerTopic, priorities, order, leaseMs, worker, max });
}

const interestOf = ({ topics, priorities }: LeaseRequest) => defined({ topics, priorities });
const keyOf = (input: LeaseRequest): string => JSON.stringify([input.topics ?? null, input.priorities ?? null]);

/** The same without what is absent. */
function defined<T extends object>(of: T): { [K in keyof T]: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(of).filter(([, value]) => value !== undefined)) as never;
}

const sizeOf = ({ payload, metadata }: LeasedTask): number =>
  (payload instanceof Uint8Array ? payload.length : (JSON.stringify(payload)?.length ?? 0)) +
  JSON.stringify(metadata).length;
