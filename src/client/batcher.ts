import { type Context, context, ROOT_CONTEXT } from '@opentelemetry/api';
import { BATCH_BYTES, BATCH_ENTRIES } from '../core/bounds.ts';
import { callIn } from '../telemetry/spans.ts';
import { isOfAll, isRefusal } from './errors.ts';

/** How long an item waits for others while another call is under way, in milliseconds. */
const LINGER_MS = 3;

interface Waiting<I, O> {
  readonly item: I;
  readonly bytes: number;
  /** In which it was added. */
  readonly context: Context;
  readonly resolve: (answer: O) => void;
  readonly reject: (error: unknown) => void;
}

/** Calls under way at the same time: a server that is slow is not made slower by more of them. */
const CALLS = 4;

/**
 * Makes one call of what comes up within a few milliseconds. The first item goes at once, with what else the program
 * does in the same turn; while a call is under way others gather, for 3 ms, until it is answered, or until there are
 * enough for a call.
 *
 * Where a call of several is refused as a whole, nothing of it was done, and each goes again alone: what is wrong with
 * one is no matter of the others. But for what is so of all: it would be refused again, and each would cost a call of who
 * has too many already, or a token of the key's rate.
 */
export class Batcher<I, O> {
  readonly #send: (items: readonly I[]) => Promise<readonly O[]>;
  readonly #waiting: Waiting<I, O>[] = [];
  #bytes = 0;
  #underWay = 0;
  #timer: NodeJS.Timeout | null = null;
  #soon: NodeJS.Immediate | null = null;

  /** @param send makes the call, and answers for each item, in order */
  constructor(send: (items: readonly I[]) => Promise<readonly O[]>) {
    this.#send = send;
  }

  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#underWay === 0;
  }

  /** @param bytes what it adds to a call, roughly */
  add(item: I, bytes: number): Promise<O> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, bytes, context: context.active(), resolve, reject });
      this.#bytes += bytes;
      if (this.#underWay >= CALLS) return;
      if (this.#waiting.length >= BATCH_ENTRIES || this.#bytes >= BATCH_BYTES) this.#flush();
      else if (this.#underWay === 0) this.#soon ??= setImmediate(() => this.#flush());
      else this.#timer ??= setTimeout(() => this.#flush(), LINGER_MS);
    });
  }

  #flush(): void {
    if (this.#soon !== null) clearImmediate(this.#soon);
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#soon = null;
    this.#timer = null;
    if (this.#underWay >= CALLS || this.#waiting.length === 0) return;
    this.#underWay++;
    void this.#carry(this.#nextBatch()).finally(() => {
      this.#underWay--;
      this.#flush();
    });
    if (this.#waiting.length > 0) this.#timer ??= setTimeout(() => this.#flush(), LINGER_MS);
  }

  #nextBatch(): readonly Waiting<I, O>[] {
    let count = 0;
    let bytes = 0;
    for (const waiting of this.#waiting) {
      // One that is larger than a call should be goes alone.
      if (count >= BATCH_ENTRIES || (count > 0 && bytes + waiting.bytes > BATCH_BYTES)) break;
      count++;
      bytes += waiting.bytes;
    }
    this.#bytes -= bytes;
    return this.#waiting.splice(0, count);
  }

  async #carry(batch: readonly Waiting<I, O>[]): Promise<void> {
    try {
      // A call of several belongs to the trace of none of them.
      const of = batch.length === 1 ? batch[0]!.context : ROOT_CONTEXT;
      const answers = await callIn(of, () => this.#send(batch.map(({ item }) => item)));
      for (const [at, { resolve }] of batch.entries()) resolve(answers[at]!);
    } catch (error) {
      if (batch.length > 1 && isRefusal(error) && !isOfAll(error))
        await Promise.all(batch.map((one) => this.#carry([one])));
      else for (const { reject } of batch) reject(error);
    }
  }
}
