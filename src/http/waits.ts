import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyReply } from 'fastify';

/** One call that waits. `end` once it no longer does. */
interface Wait {
  /** Aborted when the caller has gone, or the server stops. */
  readonly signal: AbortSignal;
  end(): void;
}

/**
 * Who still waits for what. A call that waits ends when there is nobody left to answer, and at once when the server
 * stops.
 *
 * Authority on "gone" is the socket's `close`: a response of a pipelined request that was not reached yet never
 * emits one of its own. One listener a socket, however many requests share it.
 */
export class Waits {
  readonly #open = new Set<AbortController>();
  readonly #onClose = new WeakMap<Socket, Set<() => void>>();
  readonly #onLoss = new WeakMap<ServerResponse, () => void>();
  #stopping = false;

  #begin(reply: FastifyReply): Wait {
    const { socket } = reply.request.raw;
    const controller = new AbortController();
    if (this.#stopping || socket.destroyed) controller.abort();
    this.#open.add(controller);
    const forget = this.whenGone(socket, () => controller.abort());
    return {
      signal: controller.signal,
      end: () => {
        forget();
        this.#open.delete(controller);
        // So that the caller does not try its next call on a connection that is about to close.
        if (this.#stopping) reply.header('connection', 'close');
      },
    };
  }

  /** Waits for something, until there is nobody left to answer, or the server stops: then the signal is aborted. */
  async during<T>(reply: FastifyReply, wait: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { signal, end } = this.#begin(reply);
    try {
      return await wait(signal);
    } finally {
      end();
    }
  }

  /** Calls back when the response is lost: its connection closed before all of it was handed to the system. */
  whenUnsent(response: ServerResponse, callback: () => void): void {
    this.#onLoss.set(response, callback);
    this.whenOver(response, (isSent) => {
      if (!isSent) this.lose(response);
    });
  }

  /** A response is not going to be sent. */
  lose(response: ServerResponse): void {
    const callback = this.#onLoss.get(response);
    this.#onLoss.delete(response);
    callback?.();
  }

  /** Calls back once, when all of a response was handed to the system, or its connection has closed. */
  whenOver(response: ServerResponse, callback: (isSent: boolean) => void): void {
    const { socket } = response.req;
    if (socket.destroyed) {
      callback(false);
      return;
    }
    const forget = this.whenGone(socket, () => callback(false));
    response.once('finish', () => {
      // It finishes also where its connection is destroyed, with whatever was not sent by then.
      if (!socket.destroyed && forget()) callback(true);
    });
  }

  /** Calls back once when the socket closes; returns what takes that back, and says whether it still could. */
  whenGone(socket: Socket, callback: () => void): () => boolean {
    let callbacks = this.#onClose.get(socket);
    if (!callbacks) {
      callbacks = new Set();
      const all = callbacks;
      this.#onClose.set(socket, all);
      socket.once('close', () => {
        for (const call of all) call();
        all.clear();
      });
    }
    const all = callbacks;
    all.add(callback);
    return () => all.delete(callback);
  }

  /** Ends every wait, and every one that begins from now on. */
  stop(): void {
    this.#stopping = true;
    for (const controller of this.#open) controller.abort();
  }
}
