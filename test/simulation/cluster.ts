/** The servers of a simulation on one store, the way to them, and between them. */

import { QueueError } from '../../src/core/errors.ts';
import type { Queue } from '../../src/queue/api.ts';
import type { QueueLogger } from '../../src/queue/engine.ts';
import { PeerUnreachableError, type Transport } from '../../src/queue/peers.ts';
import { LocalQueue } from '../../src/queue/queue.ts';
import { directly, MemoryStore } from '../../src/store/memory/store.ts';
import type { Tables } from '../../src/store/memory/tables.ts';
import { StoreUnavailableError } from '../../src/store/store.ts';
import type { Faults, Trace } from './faults.ts';
import type { Answer, AnyCall, Call, CallKind, Calls, Moment } from './history.ts';
import type { Loop } from './loop.ts';
import type { Random } from './random.ts';
import { type ClockFault, EPOCH, ServerProcess } from './server-process.ts';

export interface ClusterOptions {
  /** How long until a server that is gone is replaced, in milliseconds. */
  readonly restartMs: number;
  readonly clock: (random: Random) => ClockFault;
  /** Only one process can have the store open. */
  readonly exclusive: boolean;
  /** Servers at the same time. */
  readonly servers: number;
  /** What goes wrong with calls about schedules; null: nothing, there are none. */
  readonly scheduleRandom: Random | null;
}

/** Calls about schedules are few beside the others: each goes wrong so many times as often. */
const SCHEDULE_TROUBLE = 10;

/** Calls that end when their client goes away. */
const ABORTABLE: ReadonlySet<CallKind> = new Set(['lease', 'drained']);

interface Running {
  readonly process: ServerProcess;
  readonly queue: LocalQueue;
  /** Which of the servers it is, whichever process that is just now. */
  readonly slot: number;
}

export class Cluster {
  readonly #loop: Loop;
  readonly #random: Random;
  readonly #tables: Tables;
  readonly #faults: Faults;
  readonly #options: ClusterOptions;
  readonly #trace: Trace;
  readonly calls: AnyCall[] = [];
  /** What must not happen, whatever goes wrong: an error that nobody throws on purpose, say. */
  readonly troubles: string[] = [];
  /** The servers that clients reach. */
  readonly #running = new Map<number, Running>();
  /** Those and others that other servers still reach, by address. */
  readonly #reachable = new Map<string, Running>();
  readonly #slots = new Map<ServerProcess, number>();
  #processes = 0;
  restarts = 0;
  /** When a server was last gone. */
  lastGoneAt = Number.NEGATIVE_INFINITY;
  /** How likely a message between two servers gets lost. */
  lostMessages = 0;

  constructor(loop: Loop, random: Random, tables: Tables, faults: Faults, options: ClusterOptions, trace: Trace) {
    this.#loop = loop;
    this.#random = random;
    this.#tables = tables;
    this.#faults = faults;
    this.#options = options;
    this.#trace = trace;
  }

  /** One of the servers that can be reached; null: there is none just now. */
  pick(random: Random): Running | null {
    const running = [...this.#running.values()];
    return running.length === 0 ? null : random.pick(running);
  }

  /** Starts the servers, and another one whenever one is gone. */
  startAll(): void {
    for (let slot = 0; slot < this.#options.servers; slot++) this.#start(slot);
  }

  /** Whether no server that lives is at a call, of a client or of another server. */
  get idle(): boolean {
    return [...this.#reachable.values()].every(({ process }) => !process.alive || process.calls === 0);
  }

  /** Resolves once all servers that run have come to their end as they do when they are asked to. */
  async stopAll(): Promise<void> {
    await Promise.all([...this.#running.values()].map(({ queue }) => queue.stop()));
  }

  #start(slot: number): void {
    const process = new ServerProcess(
      ++this.#processes,
      this.#loop,
      this.#random.fork(),
      this.#options.clock(this.#random),
    );
    process.onCrash(() => {
      this.#trace(() => `server ${process.id}: gone`);
      this.replace(process);
    });
    this.#slots.set(process, slot);
    this.#trace(() => `server ${process.id}: starts`);
    const store = new MemoryStore(this.#tables, {
      carrier: this.#faults.carrier(process),
      scheduleCarrier:
        this.#options.scheduleRandom === null
          ? directly
          : this.#faults.carrier(process, this.#options.scheduleRandom, SCHEDULE_TROUBLE),
      exclusive: this.#options.exclusive,
      now: process.environment.now,
    });
    LocalQueue.start(store, process.environment, this.#logger(process), this.#transport(process)).then(
      (queue) => {
        // It can crash in the very step in which it is ready.
        if (!process.alive) return;
        const running = { process, queue, slot };
        const address = `sim://${process.id}`;
        this.#reachable.set(address, running);
        this.#running.set(slot, running);
        this.#trace(() => `server ${process.id}: started`);
        void queue.reachableAt(address);
      },
      (error: unknown) => {
        if (!(error instanceof StoreUnavailableError) && !(error instanceof QueueError)) this.#trouble(error);
        process.crash();
      },
    );
  }

  /** Another server takes the place of this one, which may live on. */
  replace(process: ServerProcess): void {
    const slot = this.#slots.get(process);
    if (slot === undefined) return;
    this.#slots.delete(process);
    if (this.#running.get(slot)?.process === process) this.#running.delete(slot);
    process.cut();
    this.restarts++;
    this.lastGoneAt = this.#loop.now;
    this.#loop.after(this.#random.around(this.#options.restartMs), () => this.#start(slot));
  }

  /** The way from one server to the others. */
  #transport(from: ServerProcess): Transport {
    return {
      call: (node, method, body, { signal, timeoutMs }) =>
        new Promise((resolve, reject) => {
          let over = false;
          const end = (settle: () => void): void => {
            if (over) return;
            over = true;
            cancel();
            signal?.removeEventListener('abort', abort);
            settle();
          };
          const lose = (): void => end(() => reject(new PeerUnreachableError('simulated')));
          const cancel = from.after(timeoutMs, lose);
          const controller = signal === undefined ? null : new AbortController();
          const there = (run: () => void): void => {
            if (this.#random.chance(this.lostMessages)) return;
            this.#loop.after(this.#random.around(0.3), run);
          };
          const abort = (): void => {
            lose();
            there(() => controller?.abort());
          };
          signal?.addEventListener('abort', abort);
          const to = this.#reachable.get(node.address ?? '');
          if (to === undefined || !to.process.alive || !to.queue.peers.knows(node.secret)) {
            there(() => from.receive(lose));
            return;
          }
          const back = (settle: () => void): void => {
            if (to.process.alive) there(() => from.receive(() => end(settle)));
          };
          there(() =>
            to.process.receive(() => {
              this.#trace(() => `server ${from.id} asks server ${to.process.id}: ${method} ${JSON.stringify(body)}`);
              to.process
                .serve(() => to.queue.peers.answer(method, structuredClone(body), controller?.signal))
                .then(
                  (answer) => back(() => resolve(structuredClone(answer))),
                  (error: unknown) => {
                    if (to.process.alive) this.#codeOf(error);
                    back(() => reject(error));
                  },
                );
            }),
          );
        }),
    };
  }

  #logger(process: ServerProcess): QueueLogger {
    const note = (fields: object, message: string): void => {
      const error = 'err' in fields ? fields.err : undefined;
      this.#trace(() => `server ${process.id}: ${message} ${error instanceof Error ? error.message : ''}`);
      if (error === undefined || error instanceof StoreUnavailableError) return;
      if (error instanceof QueueError && error.code !== 'internal') return;
      this.#trouble(error);
    };
    return { info: note, warn: note, error: note };
  }

  #trouble(error: unknown): void {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.#trace(() => `trouble: ${text}`);
    this.troubles.push(text);
  }

  /** Whether what a server throws at its callers is something that it throws on purpose. */
  #codeOf(error: unknown): string {
    if (error instanceof QueueError) {
      if (error.code === 'internal') this.#trouble(error);
      return error.code;
    }
    if (error instanceof StoreUnavailableError) return 'store-unavailable';
    this.#trouble(error);
    return 'internal';
  }

  /**
   * Calls the server that is there; null where there is none. The connection may break on the way: then the answer is
   * `lost`, and the call may go on.
   *
   * @param breaksAfterMs the client goes away after so many milliseconds
   */
  async call<K extends CallKind>(
    actor: string,
    kind: K,
    args: Calls[K]['args'],
    invoke: (queue: Queue, signal: AbortSignal | undefined) => Promise<Calls[K]['value']>,
    breaksAfterMs = Number.POSITIVE_INFINITY,
  ): Promise<Answer<Calls[K]['value']> | null> {
    await this.#loop.sleep(this.#random.around(0.3));
    const server = this.pick(this.#random);
    if (server === null) return null;
    const { process, queue } = server;
    const now = (): Moment => ({ at: this.#loop.now, clock: process.environment.now() });
    const n = this.calls.length;
    const call: Call<K> = { n, kind, actor, server: process.id, args, began: now(), ended: null, answer: null };
    this.calls.push(call as AnyCall);
    this.#trace(() => `${actor} #${n} ${kind} ${JSON.stringify(args)}`);
    return new Promise((resolve) => {
      // An abort signal costs more than all the rest of most calls.
      const controller = ABORTABLE.has(kind) && breaksAfterMs < Number.POSITIVE_INFINITY ? new AbortController() : null;
      const end = (answer: Answer<Calls[K]['value']>): void => {
        if (call.answer !== null) return;
        connected();
        call.answer = answer;
        call.ended = now();
        this.#trace(() => `${actor} #${n} ${kind} → ${JSON.stringify(answer)}`);
        resolve(answer);
      };
      const lose = (): void => end({ kind: 'lost' });
      const connected = process.onCut(lose);
      if (breaksAfterMs < Number.POSITIVE_INFINITY) {
        this.#loop.after(breaksAfterMs, () => {
          if (call.answer !== null) return;
          this.#faults.counts.disconnect++;
          process.receive(() => controller?.abort());
          lose();
        });
      }
      const reply = (answer: Answer<Calls[K]['value']>): void => {
        if (process.alive) this.#loop.after(this.#random.around(0.3), () => end(answer));
      };
      process.receive(() => {
        process
          .serve(() => invoke(queue, controller?.signal))
          .then(
            (value) => reply({ kind: 'ok', value }),
            (error: unknown) => {
              if (process.alive) reply({ kind: 'refused', code: this.#codeOf(error) });
            },
          );
      });
    });
  }

  /** The clock of the database. */
  get clock(): number {
    return EPOCH + this.#loop.now;
  }
}
