import { setMaxListeners } from 'node:events';
import type { Connection } from './connection.ts';
import { ClientClosedError, ClientDrainingError, DrainInHandlerError, handled } from './errors.ts';
import { isInHandlerOf } from './handler-context.ts';

/** What ends in two phases: publishers, subscribers, and the client with all of its own. */
export interface TwoPhase {
  /** Whether it takes on nothing new any more; once true, it stays so. */
  readonly draining: boolean;
  /** Takes on nothing new from here on, for good: that is refused with ClientDrainingError. Returns at once. */
  startDraining(): void;
  /**
   * Starts draining, waits for what is in hand, and closes. Every call gives the same promise, which rejects where the
   * connection is lost, or where `close()` comes first.
   * @throws DrainInHandlerError awaited inside a handler that it waits for; it has begun all the same
   */
  drain(): Promise<void>;
  /** Cuts everything short, at once: what is under way rejects with ClientClosedError. */
  close(): void;
}

interface Drain {
  readonly over: Promise<void>;
  /** @param error why it did not come to its end; absent where it did */
  readonly end: (error?: unknown) => void;
}

/**
 *     open ──startDraining()──▶ draining ──(drain() was called, and nothing is in hand)──▶ closed
 *       └─────────────────────────┴──close(), or a connection lost while drain() waits─────▶ closed
 */
export abstract class Drainable implements TwoPhase {
  readonly #connection: Connection;
  readonly #onClosed: () => void;
  readonly #closing = new AbortController();
  #phase: 'open' | 'draining' | 'closed' = 'open';
  #inHand = 0;
  #drain: Drain | null = null;

  constructor(connection: Connection, onClosed: () => void) {
    this.#connection = connection;
    // All that is under way listens to it.
    setMaxListeners(0, this.#closing.signal);
    this.#onClosed = onClosed;
  }

  get draining(): boolean {
    return this.#phase !== 'open';
  }

  startDraining(): void {
    if (this.#phase !== 'open') return;
    this.#phase = 'draining';
    this.stopTaking();
  }

  drain(): Promise<void> {
    const over = this.finish();
    return isInHandlerOf((subscriber) => subscriber === this)
      ? handled(Promise.reject(new DrainInHandlerError()))
      : over;
  }

  /** Drains, whoever asks. */
  finish(): Promise<void> {
    this.#drain ??= this.#beginDrain();
    return this.#drain.over;
  }

  close(): void {
    this.#end(new ClientClosedError());
  }

  /** Takes on no new work; called once. */
  protected abstract stopTaking(): void;
  /** Gives back what was not begun; called once, behind `stopTaking`. */
  protected abstract giveBack(): void;

  /** Aborted when this is closed. */
  protected get closing(): AbortSignal {
    return this.#closing.signal;
  }

  protected get isClosed(): boolean {
    return this.#phase === 'closed';
  }

  /** Whether `drain()` was called, and waits. */
  protected get isEmptying(): boolean {
    return this.#drain !== null && this.#phase === 'draining';
  }

  /** @throws ClientDrainingError, ClientClosedError */
  protected checkOpen(): void {
    if (this.#phase === 'closed') throw new ClientClosedError();
    if (this.#phase === 'draining') throw new ClientDrainingError();
  }

  /** Has something in hand, which a drain waits for, until the returned function is called. */
  protected hold(): () => void {
    this.#inHand++;
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#inHand--;
      this.#endIfEmpty();
    };
  }

  /** A drain that could not carry out what it should ends with the reason. */
  protected failDrain(error: unknown): void {
    if (this.isEmptying) this.#end(error);
  }

  #beginDrain(): Drain {
    let end: (error?: unknown) => void = () => {};
    const over = handled(
      new Promise<void>((resolve, reject) => {
        end = (error) => (error === undefined ? resolve() : reject(error));
      }),
    );
    const drain = { over, end };
    if (this.#phase === 'closed') {
      end(new ClientClosedError());
      return drain;
    }
    this.#drain = drain;
    const forget = this.#connection.onLost((error) => this.failDrain(error));
    this.#closing.signal.addEventListener('abort', forget, { once: true });
    this.startDraining();
    this.giveBack();
    this.#endIfEmpty();
    return drain;
  }

  #endIfEmpty(): void {
    if (this.#inHand === 0 && this.isEmptying) this.#end();
  }

  /** @param error why it did not come to its end; absent where all is done */
  #end(error?: unknown): void {
    if (this.#phase === 'closed') return;
    this.startDraining();
    this.#phase = 'closed';
    this.#drain?.end(error);
    this.#closing.abort(error ?? new ClientClosedError());
    this.#onClosed();
  }
}
