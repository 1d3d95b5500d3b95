/**
 * How much this server takes on at once. What is over budget is refused before it costs anything, so that what was taken
 * on before goes on as if nobody else had asked; what is refused is counted, by reason.
 *
 * What brings work in leaves room for what ends it: three quarters of the memory are for what is published; of the rest of it,
 * answers take no more than three quarters, or settlements would wait for those who don't read; enqueues take no more than
 * a quarter of the tasks, and next to nothing while leases are cut short for want of room: else, under overload, what was
 * accepted piled up, since workers could not lease as fast.
 */
import { totalmem } from 'node:os';
import { QueueError } from '../core/errors.ts';

/**
 * - `connections`  a connection over the limit;
 * - `pipelining`   a connection with too many requests that are not answered yet;
 * - `tasks`        more tasks under way than the limit;
 * - `input`        no memory left for what is published;
 * - `rest`         no memory left for results and other traffic;
 * - `too-large`    a request that never fits;
 * - `headers`      too many headers, or too large ones;
 * - `slow-request` a request that did not arrive in time;
 * - `slow-reader`  an answer that was not taken in time.
 */
export const REFUSAL_REASONS = [
  'connections',
  'pipelining',
  'tasks',
  'input',
  'rest',
  'too-large',
  'headers',
  'slow-request',
  'slow-reader',
] as const;
export type RefusalReason = (typeof REFUSAL_REASONS)[number];

export interface Usage {
  readonly now: number;
  readonly limit: number;
}

/** What is under way, and its limits. */
export interface BudgetUsage {
  readonly connections: Usage;
  readonly tasks: Usage;
  /** Bytes. */
  readonly memory: { readonly input: Usage; readonly rest: Usage };
  /** Since the start. */
  readonly refused: Readonly<Record<RefusalReason, number>>;
}

export interface BudgetLimits {
  /** Bytes of requests and answers under way. */
  readonly memoryBytes: number;
  /** Enqueues not yet answered, leases held and results awaited. */
  readonly tasks: number;
  readonly connections: number;
}

const GIB = 1024 ** 3;
const DEFAULTS: BudgetLimits = { memoryBytes: 4 * GIB, tasks: 100_000, connections: 1_024 };

/** Half of the memory that this process can have, in bytes: the machine's, or its container's where that is less. */
export function halfOfMemory(machineBytes = totalmem(), containerBytes = process.constrainedMemory()): number {
  // 0 where there is no container, or a number beyond all machines.
  return Math.floor(Math.min(machineBytes, containerBytes || machineBytes) / 2);
}

/** Limits as they were given, or their defaults; of memory, never more than half of what there is. */
export const limitsFrom = (given: Partial<BudgetLimits>, mostBytes = halfOfMemory()): BudgetLimits => ({
  tasks: given.tasks ?? DEFAULTS.tasks,
  connections: given.connections ?? DEFAULTS.connections,
  memoryBytes: Math.min(given.memoryBytes ?? DEFAULTS.memoryBytes, mostBytes),
});

const INPUT_OF_MEMORY = 3 / 4;
const ANSWERS_OF_REST = 3 / 4;
const ENQUEUES_OF_TASKS = 1 / 4;
/** Where the limit is low, or leases are cut short, enqueues may have so many all the same. */
const ENQUEUES_AT_LEAST = 16;

/** Workers may be gone that were cut short so long ago. */
const SHORT_MS = 1_000;
/** A lease call that is not alone gets one of so many parts of the room there is. */
const PARTS = 8;

/** So many bytes of all are for what is published. */
export const inputShareOf = (memoryBytes: number): number => Math.floor(memoryBytes * INPUT_OF_MEMORY);

/** A part of the memory. */
export class Share {
  readonly reason: 'input' | 'rest';
  readonly limit: number;
  #now = 0;

  constructor(reason: Share['reason'], limit: number) {
    this.reason = reason;
    this.limit = limit;
  }

  get now(): number {
    return this.#now;
  }

  /** @returns whether there was room */
  take(bytes: number, limit = this.limit): boolean {
    if (this.#now + bytes > limit) return false;
    this.#now += bytes;
    return true;
  }

  /** Takes, room or not. */
  add(bytes: number): void {
    this.#now += bytes;
  }

  giveBack(bytes: number): void {
    this.#now -= bytes;
  }
}

export class Budgets {
  readonly limits: BudgetLimits;
  /** For the bodies of what is published. */
  readonly input: Share;
  /** For other bodies, and for answers. */
  readonly rest: Share;
  readonly #leasesHeld: () => number;
  readonly #refused = Object.fromEntries(REFUSAL_REASONS.map((reason) => [reason, 0])) as Record<RefusalReason, number>;
  #connections = 0;
  #enqueued = 0;
  #awaited = 0;
  /** Room that is kept for lease calls under way. */
  #reserved = 0;
  /** Leases held that are on their way back. */
  #returning = 0;
  /** When a lease call was cut short for want of room, where none has got all there was since then. */
  #shortAt = Number.NEGATIVE_INFINITY;

  /** @param leasesHeld how many leases are open; asked with every enqueue and lease */
  constructor(limits: BudgetLimits, leasesHeld: () => number) {
    const inputBytes = inputShareOf(limits.memoryBytes);
    this.limits = limits;
    this.input = new Share('input', inputBytes);
    this.rest = new Share('rest', limits.memoryBytes - inputBytes);
    this.#leasesHeld = leasesHeld;
  }

  usage(): BudgetUsage {
    const of = ({ now, limit }: Share): Usage => ({ now, limit });
    return {
      connections: { now: this.#connections, limit: this.limits.connections },
      tasks: { now: this.#tasks, limit: this.limits.tasks },
      memory: { input: of(this.input), rest: of(this.rest) },
      refused: { ...this.#refused },
    };
  }

  countRefusal(reason: RefusalReason): void {
    this.#refused[reason]++;
  }

  // ── connections ───────────────────────────────────────────────────────────────────────────────────────────────

  /** @returns whether there was room for one more */
  connect(): boolean {
    if (this.#connections >= this.limits.connections) return false;
    this.#connections++;
    return true;
  }

  disconnect(): void {
    this.#connections--;
  }

  // ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Takes room for bytes that arrive. @throws QueueError `body-too-large` where they never fit, `busy` */
  takeBytes(share: Share, bytes: number, known = 0): void {
    if (known + bytes > share.limit) {
      throw this.tooLarge(
        `A request of ${known + bytes} bytes does not fit into the ${share.limit} that this server has for its kind (EBBMARK_MAX_MEMORY_BYTES); send it in parts`,
      );
    }
    if (share.take(bytes)) return;
    this.countRefusal(share.reason);
    const what = share === this.input ? 'for what is published' : 'for results and other traffic';
    throw new QueueError('busy', `The memory ${what} is in use by requests under way (EBBMARK_MAX_MEMORY_BYTES)`);
  }

  /**
   * Takes room for an answer. One that is alone always has it, or it could never be given.
   * @param own bytes of the rest that its request has already
   * @returns whether there was room
   */
  takeAnswer(bytes: number, own: number): boolean {
    const { rest } = this;
    if (rest.now <= own) rest.add(bytes);
    else if (!rest.take(bytes, rest.limit * ANSWERS_OF_REST)) {
      this.countRefusal('rest');
      return false;
    }
    return true;
  }

  tooLarge(detail: string): QueueError {
    this.countRefusal('too-large');
    return new QueueError('body-too-large', detail);
  }

  // ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────

  get #tasks(): number {
    return this.#enqueued + this.#awaited + this.#reserved + this.#leasesHeld() - this.#returning;
  }

  /** Takes room for tasks that are to be enqueued. @throws QueueError `busy`; `body-too-large` where they never fit */
  enqueue(tasks: number, known = 0): void {
    const { tasks: limit } = this.limits;
    if (known + tasks > limit) {
      throw this.tooLarge(
        `${known + tasks} tasks in one call are more than this server takes on in all, ${limit} (EBBMARK_MAX_TASKS); send them in parts`,
      );
    }
    // A call that is alone may have it all.
    const isShort = performance.now() - this.#shortAt < SHORT_MS;
    const most = isShort ? ENQUEUES_AT_LEAST : Math.max(ENQUEUES_AT_LEAST, limit * ENQUEUES_OF_TASKS);
    const isCrowded = (isShort || this.#enqueued > known) && this.#enqueued + tasks > most;
    if (isCrowded || this.#tasks + tasks > limit) throw this.tooManyTasks();
    this.#enqueued += tasks;
  }

  enqueueEnded(tasks: number): void {
    this.#enqueued -= tasks;
  }

  /** Takes room for a result that is waited for. @throws QueueError `busy` */
  awaitResult(): void {
    this.refuseWhenFull();
    this.#awaited++;
  }

  awaitEnded(): void {
    this.#awaited--;
  }

  /** @throws QueueError `busy` where there is no room for a single task */
  refuseWhenFull(): void {
    if (this.#tasks >= this.limits.tasks) throw this.tooManyTasks();
  }

  /** For how many of some tasks there is room. */
  roomForLeases(tasks: number): number {
    return Math.max(0, Math.min(tasks, this.limits.tasks - this.#tasks));
  }

  /** Keeps room for tasks that are leased in a moment. @returns for how many there was some */
  reserveLeases(tasks: number): number {
    // Not all of it where others lease, too: most ask for more than there is, and the next one would find no room.
    const some = this.#reserved === 0 ? tasks : Math.min(tasks, Math.ceil(this.roomForLeases(tasks * PARTS) / PARTS));
    const room = this.roomForLeases(some);
    this.#reserved += room;
    return room;
  }

  /**
   * What was leased counts as held by now.
   * @param asked tasks that were asked for
   * @param room for how many there was room
   * @param got how many there were
   */
  reservationEnded(asked: number, room: number, got: number): void {
    this.#reserved -= room;
    this.#shortAt = room < asked && got >= room ? performance.now() : Number.NEGATIVE_INFINITY;
  }

  /** How many of some tasks that were leased just now are too many. */
  excessOf(tasks: number): number {
    return Math.max(0, Math.min(tasks, this.#tasks - this.limits.tasks));
  }

  /** Leases are on their way back. Returns what is to be called once they are. */
  returning(leases: number): () => void {
    this.#returning += leases;
    return () => {
      this.#returning -= leases;
    };
  }

  tooManyTasks(): QueueError {
    this.countRefusal('tasks');
    return new QueueError(
      'busy',
      `${this.limits.tasks} tasks are under way, as many as this server takes on at once (EBBMARK_MAX_TASKS)`,
    );
  }
}
